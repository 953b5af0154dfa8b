#!/bin/bash
# Trains for some minutes, going on from $WORK/strata-train if it is there; with a third argument, exports and evaluates.
# Usage: bash training/gpu_train.sh MINUTES [UNTIL] [final] [-- more options of training.train]
cd "$(dirname "$0")/.."
. training/gpu_setup.sh
minutes=${1:?usage: gpu_train.sh MINUTES [UNTIL] [final]} until=${2:-1.0} final=${3:-}
shift $(($# < 3 ? $# : 3))
[ "${1:-}" = -- ] && shift
$PYTHON -m training.data shards --corpus $CORPUS --tokenizer $TOKENIZER --out $WORK/strata-data $SHARDS 2>&1 | tee "$OUT/data.log"
$PYTHON -m training.train --data $WORK/strata-data --out $WORK/strata-train --resume --minutes "$minutes" --until "$until" "$@" \
    2>&1 | tee "$OUT/train.log"
[ "$final" = final ] || exit 0
cp $WORK/strata-train/config.json $WORK/strata-train/progress.json "$OUT/"
$PYTHON -m training.export --checkpoint $WORK/strata-train --tokenizer $TOKENIZER --out $WORK/strata-demo.gguf 2>&1 | tee "$OUT/export.log"
split -b 15m $WORK/strata-demo.gguf "$OUT/strata-demo.gguf."
common="--checkpoint $WORK/strata-train --data $WORK/strata-data --tokenizer $TOKENIZER $EVALUATE"
$PYTHON -m training.evaluate $common --out "$OUT/eval.json" 2>&1 | cut -c1-4000 | tee "$OUT/eval.log"
$PYTHON -m training.evaluate $common --gguf $WORK/strata-demo.gguf --loss-only --out "$OUT/eval-gguf.json" 2>&1 | tee -a "$OUT/eval.log"
tar czf "$OUT/logs.tgz" -C "$OUT" $(cd "$OUT" && ls *.log *.json) && rm "$OUT"/*.log "$OUT"/*.json
ls -la "$OUT"
