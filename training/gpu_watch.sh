#!/bin/bash
# Follows gpu_job.sh for some seconds and brings back what there is: the log, and a model file made from the newest
# checkpoint, or the last one.
# Usage: bash training/gpu_watch.sh SECONDS
cd "$(dirname "$0")/.."
. training/gpu_setup.sh
end=$(($(date +%s) + ${1:?usage: gpu_watch.sh SECONDS}))
while [ "$(date +%s)" -lt $end ] && [ ! -e $WORK/evaluated ]; do sleep 1; done
if [ ! -e $WORK/exported ] && [ -e $WORK/strata-train/progress.json ]; then
    export_model timeout 60
fi
[ -e $WORK/strata-demo.gguf ] && split -b 15m $WORK/strata-demo.gguf "$OUT/strata-demo.gguf."
tar czf "$OUT/logs.tgz" -C $WORK --ignore-failed-read job.log strata-train/progress.json strata-train/config.json \
    strata-data/held eval.json eval-gguf.json 2>/dev/null || true
tail -n 45 $WORK/job.log | cut -c1-700
ls -la "$OUT"
