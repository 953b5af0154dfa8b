#!/bin/bash
# About two minutes on one GPU: kernels against the reference, speeds of a few settings, a short run, export.
# Usage: bash training/gpu_smoke.sh
cd "$(dirname "$0")/.."
. training/gpu_setup.sh
nvidia-smi --query-gpu=name,memory.total --format=csv,noheader
# the whole data set is made meanwhile, by the processor's cores
$PYTHON -m training.data shards --corpus $CORPUS --tokenizer $TOKENIZER --out $WORK/strata-data >"$OUT/data.log" 2>&1 &
data=$!
$PYTHON -m training.data shards --corpus $CORPUS --tokenizer $TOKENIZER --out $WORK/strata-small \
    --samples 20000 --tokens 12000000 --tasks 10 >"$OUT/small.log" 2>&1
timeout 60 $PYTHON -m training.probe 2>&1 | tee "$OUT/probe.log" || true
timeout 150 $PYTHON -m training.train --data $WORK/strata-small --out $WORK/strata-smoke --minutes "${1:-1.3}" 2>&1 | tee "$OUT/smoke.log" || true
timeout 75 $PYTHON -m training.train --data $WORK/strata-small --out $WORK/strata-fla --minutes 1 --steps 14 --delta fla 2>&1 | tee "$OUT/fla.log" || true
$PYTHON -m training.export --checkpoint $WORK/strata-smoke --tokenizer $TOKENIZER --out $WORK/smoke.gguf 2>&1 | tee -a "$OUT/smoke.log"
timeout 60 $PYTHON -m training.evaluate --checkpoint $WORK/strata-smoke --data $WORK/strata-small --tokenizer $TOKENIZER \
    --gguf $WORK/smoke.gguf --limit 10 --rows 2 2>&1 | cut -c1-3000 | tee -a "$OUT/smoke.log"
wait $data || true
cat "$OUT/data.log"
