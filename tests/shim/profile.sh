#!/usr/bin/env bash
# stowage run --profile: the host memory of programs whose allocations are known, and device memory from the stand-in driver.
. "$(dirname "$0")/lib.bash"
python=${STOWAGE_TEST_PYTHON:-/usr/bin/python3}
if ! has "$python"; then skip "profile: no python3"; finish; fi
if [ -n "${SHIM_SANITIZED:-}" ]; then skip "profile: the sanitizer's own malloc stands before the sampler"; finish; fi
export PYTHONDONTWRITEBYTECODE=1 OPENBLAS_NUM_THREADS=1
export PYTHONPATH=$source_dir/python STOWAGE_LIBRARY=$build/libstowage.so
STOWAGE_LIBCUDA=/nonexistent "$python" "$source_dir/tests/shim/profile.py" "$stowage" "$folder" || failed=1
code() { # NAME CODE COMMAND…
  local name=$1 expected=$2 got; shift 2
  "$@" > "$folder/out" 2> "$folder/err"; got=$?
  if [ "$got" = "$expected" ]; then ok "$name"; else cat "$folder/err"; fail "$name: code $got"; fi
}
# A command without Python: nothing is sampled, and nothing disturbs it.
code a_command_without_python_runs_as_ever 7 stowage_run --profile -- bash -c 'exit 7'
if grep -q 'nothing was sampled' "$folder/err"; then ok and_says_that_nothing_was_sampled; else cat "$folder/err"; fail and_says_that_nothing_was_sampled; fi
code json_without_a_profile_is_refused 2 stowage_run --profile-json "$folder/x.json" -- true
# Device memory is exact: 1 MiB before lines are known, then 8 MiB and 3 MiB, of which the 3 MiB are freed.
code device_memory_is_profiled 0 stowage_run --profile --profile-json "$folder/device.json" -- "$python" "$source_dir/tests/shim/python/device_lines.py"
"$python" - "$folder/device.json" << 'END' && ok device_memory_is_exact || { cat "$folder/err" "$folder/device.json" | head -60; fail device_memory_is_exact; }
import json, sys
profile = json.load(open(sys.argv[1]))
total = {key: sum(p["device"][key] for p in profile["lines"]) for key in ("peak_bytes", "kept_bytes", "allocated_bytes")}
assert total == {"peak_bytes": 12 << 20, "kept_bytes": 9 << 20, "allocated_bytes": 12 << 20}, total
assert profile["device_peak_bytes"] == 12 << 20
by_function = {p["function"]: p["device"]["allocated_bytes"] for p in profile["functions"]}
assert by_function.get("take") == 11 << 20, by_function
END
finish
