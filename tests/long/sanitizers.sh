#!/usr/bin/env bash
# Runs in full, under ASan+UBSan and under TSan, the test programs of which `make test` runs a slice in these builds (tests/run.sh,
# harness_rounds). Under TSan only those with threads, as in tests/run.sh.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
export STOWAGE_TEST_LONG=1
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:allocator_may_return_null=1 TSAN_OPTIONS=allocator_may_return_null=1
failed=0
for kind in asan tsan; do
  if ! tools/build.sh "$kind" > /dev/null; then echo "FAIL $kind: it does not build"; failed=1; continue; fi
  for program in $(find "build/$kind/tests" -type f -perm -u+x -name '*_test' ! -path '*/gpu/*' | sort); do
    name=${program#build/$kind/tests/}
    [ "$kind" = asan ] || grep -q pthread_create "tests/$name.c" || continue
    if out=$("build/$kind/tests/$name" 2>&1); then
      echo "ok $kind/$name: $(grep -c '^ok ' <<< "$out") in full"
    else
      grep -v '^ok ' <<< "$out"
      echo "FAIL $kind/$name: a test of it failed in full"
      failed=1
    fi
  done
done
# The shim inside programs, the sessions of the documentation and the inputs of the fuzz targets, in full.
tests/run.sh build/release --asan build/asan --tsan build/tsan --only san/shim/ > "${TMPDIR:-/tmp}/sanitizers.$$" 2>&1 || failed=1
for name in asan/cli/golden asan/fuzz; do
  tests/run.sh build/release --asan build/asan --only "$name" >> "${TMPDIR:-/tmp}/sanitizers.$$" 2>&1 || failed=1
done
sed -nE 's/^(FAIL|skip) /\1 /p' "${TMPDIR:-/tmp}/sanitizers.$$"
if [ "$failed" = 0 ]; then echo "ok shim_and_sessions: $(grep -c ' ok$' "${TMPDIR:-/tmp}/sanitizers.$$") scripts in full"; fi
rm -f "${TMPDIR:-/tmp}/sanitizers.$$"
exit $failed
