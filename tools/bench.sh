#!/usr/bin/env bash
# bench.sh BUILD [--gpu]: runs every benchmark (bench/*_bench.c and *_bench.sh; those named gpu_* only with --gpu), one after
# another and alone, so that they do not disturb each other. Each prints its own table.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1 gpu=${2:-}
tools/setup.sh bench || true
[ -n "${STOWAGE_PEER_TLSF:-}" ] || [ ! -e build/peers/libtlsf.so ] || export STOWAGE_PEER_TLSF=$PWD/build/peers/libtlsf.so
count=0
for program in "$build"/bench/*_bench; do
  [ -x "$program" ] || continue
  name=$(basename "$program")
  case $name in gpu_*) [ "$gpu" = --gpu ] || continue ;; *) [ -z "$gpu" ] || continue ;; esac
  echo "== $name"
  "$program"
  count=$((count + 1))
done
# Those that are scripts: peers in other languages beside the command.
for script in bench/*_bench.sh; do
  [ -e "$script" ] || continue
  case $script in bench/gpu_*) [ "$gpu" = --gpu ] || continue ;; *) [ -z "$gpu" ] || continue ;; esac
  echo "== $(basename "$script" .sh)"
  bash "$script" "$build"
  count=$((count + 1))
done
[ "$count" -gt 0 ] || echo "bench: no benchmark of that kind is here yet"
