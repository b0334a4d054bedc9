#!/usr/bin/env bash
# A slice of what `make torture` runs for hours (tests/torture): some kills, some hostile files, the crafted ones; and it goes on where it stopped.
# The other parts have slices of their own: cli/oom, cli/io, cli/csv and the fuzz targets' own driver.
. "$(dirname "$0")/../guards/lib.bash"
torture=$source_dir/tests/torture
if ! has python3; then skip "torture: python3 is not here"; finish; fi
if nm -D "$stowage" 2> /dev/null | grep_all __asan_init; then skip "torture: not for a build with sanitizers"; finish; fi
seed=${STOWAGE_TEST_SEED:-0}
for what in shrink run programs; do python3 "$torture/kills.py" $what "$stowage" 8 "$seed" || failed=1; done
python3 "$torture/hostile.py" "$stowage" "$source_dir/tests/samples" 12 "$seed" | sed 's/^ok /ok hostile_/; s/^FAIL /FAIL hostile_/'
[ "${PIPESTATUS[0]}" = 0 ] || failed=1
python3 "$torture/crafted.py" "$stowage" || failed=1

# Two at a time, each in a folder of its own.
slices() { python3 "$torture/torture.py" "$build" --state "$folder/state" --parts csv,io --seconds 300 --slices 1 --jobs 2 "$@"; }
goes_on() { # the second call adds other slices of the same build; another seed begins again
  slices && slices > "$folder/said" && python3 - "$folder/state/state.json" "$folder/said" << 'END' && slices --seed 9
import json, sys
state = json.load(open(sys.argv[1]))
assert state["next"] == {"csv": 2, "io": 2}, state["next"]
assert state["cases"]["csv"] == {"csv": 50} and sum(state["cases"]["io"].values()) > 0 and state["findings"] == [], state
said = open(sys.argv[2]).read().strip().split("\n")[-1]
hours = sum(state["seconds"].values()) / 3600
assert said == "%d cases in %.2f hours of work, 0 findings, calls: 2, commit: %s" % (
    50 + sum(state["cases"]["io"].values()), hours, state["commit"]), said
END
}
check torture_continues_where_it_stopped goes_on
check and_begins_again_with_another_seed grep -q '"csv": 1' "$folder/state/state.json"
other_seeds_are_other_cases() { # no slice of one seed is a later slice of another
  python3 -c 'import sys; sys.path.insert(0, sys.argv[1]); from torture import number_of
assert len({number_of(seed, n) for seed in range(50) for n in range(2000)}) == 100_000' "$torture"
}
check other_seeds_are_other_cases other_seeds_are_other_cases
a_damaged_state_begins_again() {
  mkdir -p "$folder/damaged" && echo '{"next"' > "$folder/damaged/state.json"
  python3 "$torture/torture.py" "$build" --state "$folder/damaged" --parts csv --seconds 300 --slices 1 > "$folder/said" &&
    grep -q 'state.json is damaged' "$folder/said" && grep -q '^csv  *25 cases' "$folder/said"
}
check a_damaged_state_begins_again a_damaged_state_begins_again
a_finding_is_kept() { # a command that answers nothing
  mkdir -p "$folder/broken/tests/faults" && printf '#!/bin/sh\n' > "$folder/broken/stowage" && chmod +x "$folder/broken/stowage"
  cp "$build/tests/faults/libfailing_malloc.so" "$folder/broken/tests/faults/" && : > "$folder/broken/libstowage-shim.so"
  if python3 "$torture/torture.py" "$folder/broken" --state "$folder/other" --parts hostile --seconds 60 --slices 1 > "$folder/said"; then return 1; fi
  grep -q '^FINDING hostile 0: .*without a word' "$folder/said" && grep -q '"again"' "$folder/other/state.json"
}
check a_finding_is_kept_and_fails_the_run a_finding_is_kept
finish
