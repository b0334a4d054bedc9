#!/usr/bin/env bash
# Runs the sweeps in full of which `make test` runs a part: STOWAGE_TEST_LONG (harness_long in C; the scripts read it
# themselves).
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
export STOWAGE_TEST_LONG=1
build=${STOWAGE_BUILD:-$PWD/build/release}
failed=0
sweep() { # NAME COMMAND…: one line for the whole program, and its failures
  local name=$1 out lines; shift
  if out=$("$@" 2>&1) && grep -q '^ok ' <<< "$out"; then
    echo "ok $name: $(grep -c '^ok ' <<< "$out") in full"
  elif lines=$(grep '^skip ' <<< "$out") && ! grep -q '^FAIL ' <<< "$out"; then
    echo "skip $name: ${lines#skip }"
  else
    grep -v '^ok ' <<< "$out"
    echo "FAIL $name: a test of it failed in full"
    failed=1
  fi
}
sweep heap_property "$build/tests/memory/heap_property_test"
for name in memory/heap_fault device/fault; do sweep "${name##*/}" "$build/tests/${name}_test"; done
sweep decimal "$build/tests/arrays/decimal_test"
sweep io bash tests/cli/io.sh
sweep ranks bash tests/cli/ranks.sh
sweep resume bash tests/cli/resume.sh
sweep ranks_resume bash tests/cli/ranks_resume.sh
sweep convert bash tests/cli/convert.sh
sweep tables bash tests/cli/tables.sh
sweep corpus bash tests/cli/corpus.sh
sweep hdf5 bash tests/cli/hdf5.sh
sweep shrink bash tests/cli/shrink.sh
sweep torture bash tests/cli/torture.sh
sweep documents bash tests/guards/documents.sh
sweep dist bash tests/guards/dist.sh
sweep python bash tests/python/package.sh
sweep viewer bash tests/report/viewer.sh
sweep host bash tests/shim/host.sh
sweep seeds bash tests/shim/seeds.sh
sweep python_inside bash tests/shim/python.sh
sweep clocks bash tests/shim/clocks.sh
sweep pages bash tests/shim/pages.sh
sweep activations bash tests/shim/activations.sh
exit $failed
