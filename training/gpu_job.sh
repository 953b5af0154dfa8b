#!/bin/bash
# The whole training as one job on a fresh machine with one or more GPUs: data beside compilation, training, export,
# evaluation. It runs on while calls of gpu_watch.sh come and go.
# Usage: setsid nohup bash training/gpu_job.sh MINUTES [options of training.train] >/tmp/job.log 2>&1 &
cd "$(dirname "$0")/.."
. training/gpu_setup.sh
minutes=${1:?usage: gpu_job.sh MINUTES [options]}
shift
lscpu | grep -i "model name\|^flags" | cut -c1-2500
gpus=$(nvidia-smi -L | wc -l)
mkdir -p $WORK/strata-warm/held
$PYTHON -c "import numpy as np; np.save('$WORK/strata-warm/rows.npy', np.random.default_rng(0).integers(0, 16000, (64, 4097)).astype(np.uint16))"
# random rows compile the same graphs, so the training proper finds them in the cache
timeout 150 $PYTHON -m training.train --data $WORK/strata-warm --out $WORK/strata-warm-out --minutes 3 --steps 2 --rows 16 "$@" &
warm=$!
$PYTHON -m training.data shards --corpus $CORPUS --tokenizer $TOKENIZER --out $WORK/strata-data --tokens 800000000 --samples 3500000 $SHARDS
wait $warm || true
$PYTHON -m torch.distributed.run --nproc-per-node "$gpus" -m training.train --data $WORK/strata-data --out $WORK/strata-train --minutes "$minutes" "$@"
export_model
touch $WORK/exported
common="--checkpoint $WORK/strata-train --data $WORK/strata-data --tokenizer $TOKENIZER"
CUDA_VISIBLE_DEVICES=0 $PYTHON -m training.evaluate $common --gguf $WORK/strata-demo.gguf --loss-only --out $WORK/eval-gguf.json &
CUDA_VISIBLE_DEVICES=$((gpus - 1)) $PYTHON -m training.evaluate $common --limit 60 --out $WORK/eval.json | cut -c1-3000
wait
touch $WORK/evaluated
