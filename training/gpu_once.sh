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
make_data
wait $warm || true
$PYTHON -m training.train --data $WORK/strata-data --out $WORK/strata-train --minutes "$minutes" "$@" 2>&1 | tee "$OUT/train.log"
export_model
cp $WORK/strata-data/held/tasks.jsonl "$OUT/" 2>/dev/null || true
pack_logs
