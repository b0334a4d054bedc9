#!/usr/bin/env bash
# demo.sh BUILD: the story in one minute, the same on every machine, GPU or not: a real training loop, recorded on a card,
# replayed on a smaller one under each allocator. Writes report.html.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PWD/$1:$PATH
unset STOWAGE_DEVICE
show() { printf '\n$ %s\n' "$*"; "$@"; }
trace=examples/recordings/gpt_checkpointed.stow
show stowage info --device sim:16G
show stowage replay $trace --vram 16G
show stowage replay $trace --policy torch_default,torch_expandable,stowage --min-limit
cat << 'WORDS'

A GPT trained on batches of changing length never needs more than 11.8 GiB at once, yet fails on a 16 GiB card: PyTorch's
segments are free in pieces, none large enough. The same requests fit with expandable segments, in the driver's own pool and in
Stowage's heap, which put pages under a new address instead. `stowage tune` names the setting to use.
WORDS
show stowage report $trace --output report.html
echo "open it in a browser: file://$PWD/report.html"
