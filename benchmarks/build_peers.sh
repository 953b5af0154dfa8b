#!/usr/bin/env bash
# Builds and installs the engines that the benchmarks compare with, one virtual environment each, outside the repository.
#   benchmarks/build_peers.sh [FOLDER] [llamacpp|freetoken|ktransformers ...]      (default: ~/.cache/strata-benchmarks/peers, all)
# Needs g++ and cmake; benchmarks/peers.md has versions and sizes.
set -euo pipefail
folder=${1:-$HOME/.cache/strata-benchmarks/peers}
shift || true
[ $# -gt 0 ] || set -- llamacpp freetoken ktransformers
python=${PYTHON:-python3}
mkdir -p "$folder"

llamacpp() {  # the source of the same release as the wheel, for this processor
    local venv=$folder/llamacpp-native version=2026.10.11549 source
    "$python" -m venv "$venv"
    source=$(mktemp -d)
    "$venv/bin/pip" download -q --no-deps --no-binary :all: "xllamacpp==$version" -d "$source"
    tar xzf "$source/xllamacpp-$version.tar.gz" -C "$source"
    # No Rust, TLS or web pages: none of them computes anything here.
    CMAKE_ARGS="-DGGML_NATIVE=ON -DLLAMA_LLGUIDANCE=OFF -DLLAMA_BUILD_BORINGSSL=OFF -DLLAMA_OPENSSL=OFF \
        -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF" \
        NPROC=${NPROC:-2} nice -n 19 "$venv/bin/pip" install --no-deps "$source/xllamacpp-$version"
    "$venv/bin/pip" install -q "numpy>=1.26"
    rm -rf "$source"
    "$venv/bin/python" -c "import xllamacpp; print(xllamacpp.get_system_info())"
}

freetoken() {
    "$python" -m venv "$folder/freetoken"
    "$folder/freetoken/bin/pip" install -q "freetoken==0.2.1"
}

ktransformers() {
    "$python" -m venv "$folder/kt-kernel"
    "$folder/kt-kernel/bin/pip" install -q "kt-kernel==0.7.2" "numpy>=1.26"
}

for peer in "$@"; do "$peer"; done
