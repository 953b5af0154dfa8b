#!/bin/bash
# Trains for some minutes, going on from $WORK/strata-train if it is there; with a third argument, exports and evaluates.
# Usage: bash training/gpu_train.sh MINUTES [UNTIL] [final] [-- more options of training.train]
cd "$(dirname "$0")/.."
. training/gpu_setup.sh
minutes=${1:?usage: gpu_train.sh MINUTES [UNTIL] [final]} until=${2:-1.0} final=${3:-}
shift $(($# < 3 ? $# : 3))
[ "${1:-}" = -- ] && shift
make_data
$PYTHON -m training.train --data $WORK/strata-data --out $WORK/strata-train --resume --minutes "$minutes" --until "$until" "$@" \
    2>&1 | tee "$OUT/train.log"
[ "$final" = final ] || exit 0
export_model
common="--checkpoint $WORK/strata-train --data $WORK/strata-data --tokenizer $TOKENIZER $EVALUATE"
$PYTHON -m training.evaluate $common --out "$OUT/eval.json" 2>&1 | cut -c1-4000 | tee "$OUT/eval.log"
$PYTHON -m training.evaluate $common --gguf $WORK/strata-demo.gguf --loss-only --out "$OUT/eval-gguf.json" 2>&1 | tee -a "$OUT/eval.log"
pack_logs
