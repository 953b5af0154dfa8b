#!/bin/bash
# One call on a fresh GPU machine: data and compilation side by side, then training from scratch, then the export.
# Usage: bash training/gpu_once.sh MINUTES [more options of training.train]
cd "$(dirname "$0")/.."
. training/gpu_setup.sh
minutes=${1:?usage: gpu_once.sh MINUTES [options]}
shift
mkdir -p $WORK/strata-warm/held
$PYTHON -c "import numpy as np; np.save('$WORK/strata-warm/rows.npy', np.random.default_rng(0).integers(0, 16000, (64, 4097)).astype(np.uint16))"
# random rows compile the same graphs, so the training proper finds them in the cache
timeout 110 $PYTHON -m training.train --data $WORK/strata-warm --out $WORK/strata-warm-out --minutes 3 --steps 2 "$@" >"$OUT/warm.log" 2>&1 &
warm=$!
$PYTHON -m training.data shards --corpus $CORPUS --tokenizer $TOKENIZER --out $WORK/strata-data $SHARDS 2>&1 | tee "$OUT/data.log"
wait $warm || true
$PYTHON -m training.train --data $WORK/strata-data --out $WORK/strata-train --minutes "$minutes" "$@" 2>&1 | tee "$OUT/train.log"
cp $WORK/strata-train/config.json $WORK/strata-train/progress.json "$OUT/"
$PYTHON -m training.export --checkpoint $WORK/strata-train --tokenizer $TOKENIZER --out $WORK/strata-demo.gguf 2>&1 | tee "$OUT/export.log"
split -b 15m $WORK/strata-demo.gguf "$OUT/strata-demo.gguf."
cp $WORK/strata-data/held/tasks.jsonl "$OUT/" 2>/dev/null || true
tar czf "$OUT/logs.tgz" -C "$OUT" $(cd "$OUT" && ls *.log *.json *.jsonl 2>/dev/null) && rm -f "$OUT"/*.log "$OUT"/*.json "$OUT"/*.jsonl
ls -la "$OUT"
