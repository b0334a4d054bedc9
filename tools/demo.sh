#!/usr/bin/env bash
# demo.sh BUILD: the command at work on a simulated 16 GiB card and on a recorded run, so that it shows
# the same on every machine, GPU or not.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PWD/$1:$PATH
unset STOWAGE_DEVICE
show() { printf '\n$ %s\n' "$*"; "$@"; }
show stowage info --device sim:16G
show stowage doctor --device sim:16G
show stowage replay tests/data/gpt_varlen_limit36.5.pickle.gz --vram 32G
