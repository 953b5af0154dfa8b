# Sourced by the GPU scripts: carried wheels into /tmp/site, a writable result folder, caches that outlive a command.
set -euo pipefail
# WORK: where state lives between commands; SHARDS: more options for the data (to try this at toy size)
: "${WORK:=/tmp}" "${SHARDS:=}" "${OUT:=$WORK/out}" "${PYTHON:=python3}"
SITE=$WORK/site
if [ ! -e "$SITE/.done" ]; then
    $PYTHON -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$SITE" .whl/*.whl
    touch "$SITE/.done"
fi
export PYTHONPATH="$SITE:$PWD" PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false
export TORCHINDUCTOR_CACHE_DIR=$WORK/inductor TRITON_CACHE_DIR=$WORK/triton PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
mkdir -p "$OUT"
CORPUS=.train/corpus TOKENIZER=.train/tokenizer.json

export_model() { # of the newest checkpoint; "export_model timeout 60" bounds it
    CUDA_VISIBLE_DEVICES= "$@" $PYTHON -m training.export --checkpoint $WORK/strata-train --tokenizer $TOKENIZER --out $WORK/strata-demo.gguf
}
