#!/usr/bin/env bash
# demo.sh BUILD: the story in one minute, the same on every machine, GPU or not: a real training loop, recorded on a card,
# replayed on a smaller one under each allocator. Writes report.html.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PWD/$1:$PATH
unset STOWAGE_DEVICE
show() { printf '\n$ %s\n' "$*"; "$@"; }
trace=tests/data/gpt_varlen_limit36.5.pickle.gz
show stowage info --device sim:16G
show stowage replay $trace --vram 32G
show stowage replay $trace --policy torch_default,torch_expandable,cuda_async --min-limit
cat << 'WORDS'

A GPT trained on batches of changing length never needs more than 28.9 GiB at once, yet fails on a 32 GiB card: PyTorch's
segments are free in pieces, none large enough. The same requests fit with expandable segments, in the driver's own pool and in
Stowage's heap, which put pages under a new address instead. `stowage tune` names the setting to use.
WORDS
if stowage report --help > /dev/null 2>&1; then
  show stowage report $trace --output report.html
  echo "open it in a browser: file://$PWD/report.html"
fi
