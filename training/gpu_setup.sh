# Sourced by the GPU scripts: carried wheels into /tmp/site, a writable result folder, caches that outlive a command.
set -euo pipefail
# WORK: where state lives between commands; SHARDS and EVALUATE: more options for those parts (to try this at toy size)
: "${WORK:=/tmp}" "${SHARDS:=}" "${EVALUATE:=}" "${OUT:=$WORK/out}" "${PYTHON:=python3}"
SITE=$WORK/site
if [ ! -e "$SITE/.done" ]; then
    $PYTHON -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$SITE" .whl/*.whl
    touch "$SITE/.done"
fi
export PYTHONPATH="$SITE:$PWD" PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false
export TORCHINDUCTOR_CACHE_DIR=$WORK/inductor TRITON_CACHE_DIR=$WORK/triton PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
mkdir -p "$OUT"
CORPUS=.train/corpus TOKENIZER=.train/tokenizer.json

make_data() {
    $PYTHON -m training.data shards --corpus $CORPUS --tokenizer $TOKENIZER --out $WORK/strata-data $SHARDS 2>&1 | tee "$OUT/data.log"
}
export_model() { # in pieces small enough to be carried
    cp $WORK/strata-train/config.json $WORK/strata-train/progress.json "$OUT/"
    $PYTHON -m training.export --checkpoint $WORK/strata-train --tokenizer $TOKENIZER --out $WORK/strata-demo.gguf 2>&1 | tee "$OUT/export.log"
    split -b 15m $WORK/strata-demo.gguf "$OUT/strata-demo.gguf."
}
pack_logs() { # one file of everything but the model
    tar czf "$OUT/logs.tgz" -C "$OUT" $(cd "$OUT" && ls *.log *.json *.jsonl 2>/dev/null)
    rm -f "$OUT"/*.log "$OUT"/*.json "$OUT"/*.jsonl
    ls -la "$OUT"
}
