#!/usr/bin/env bash
# demo.sh: builds what the demo needs, with progress, then shows the four main jobs on a simulated device, the same on every
# machine, GPU or not: explain a failure, run under a limit with spill, replay on other allocators, report.
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/release

# ---- build, with a line that moves ----
# The counters are Ninja's "[12/300]" or make's "[ 4%]". On a terminal the line is rewritten; elsewhere it is a line every tenth.
started=$SECONDS
mkdir -p build
tools/build.sh release stowage_demo > build/demo.log 2>&1 &
builder=$!
trap 'kill $builder 2> /dev/null || true' EXIT
shown=
while kill -0 $builder 2> /dev/null; do
  at=$(grep -aoE '^\[ *[0-9]+(/[0-9]+|%)\]' $build/build.log 2> /dev/null | tail -n 1 | tr -d '[] ') || true
  [ -n "$at" ] || at=configuring
  if [ -t 1 ]; then
    printf '\rbuilding: %s, %d s ' "$at" $((SECONDS - started))
  elif [ "$at" != "$shown" ] && { [ -z "$shown" ] || [ $((SECONDS - said)) -ge 10 ]; }; then
    echo "building: $at, $((SECONDS - started)) s"; shown=$at said=$SECONDS
  fi
  sleep 0.2
done
trap - EXIT
wait $builder || { echo; cat build/demo.log >&2; exit 1; }
[ ! -t 1 ] || printf '\r\033[K'
echo "built in $((SECONDS - started)) s"

# ---- show ----
PATH=$PWD/$build:$PATH
unset STOWAGE_DEVICE
state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
export XDG_STATE_HOME=$state XDG_CACHE_HOME=$state
show() { printf '\n$ %s\n' "$*"; "$@"; }
say() { printf '\n%s\n' "$@"; }
trace=examples/recordings/gpt_checkpointed.stow

say "1. Why did it run out? The memory snapshot that PyTorch wrote when a GPT failed on a GPU held to 15 GiB says why:"
show stowage explain tests/samples/oom_gpt_15gib_stacks.pickle.gz
say "2. Go on past the limit. A program asks for 4 GiB of a simulated device, may hold 2 GiB of it, and spills the rest to the host:"
export STOWAGE_LIBCUDA=$PWD/$build/tests/standin/libcuda.so.1 STANDIN_VRAM=$((8 << 30))
show stowage run --vram-limit 2G --spill 4G -- $build/examples/plain
unset STOWAGE_LIBCUDA STANDIN_VRAM
say "3. Would another allocator have fitted? The same requests on each of them:"
show stowage replay $trace --policy torch_default,torch_expandable,stowage --min-limit
say "4. See it. One HTML file, no server:"
show stowage report $trace --output report.html

python=python
command -v python > /dev/null || python=python3 # Debian has no plain python
cat << WORDS

Open it in a browser: file://$PWD/report.html

Next, on your own program:
  $PWD/$build/stowage run -- $python train.py
  $PWD/$build/stowage run --vram-limit 8G --spill auto -- $python train.py
  $PWD/$build/stowage explain --last
WORDS
