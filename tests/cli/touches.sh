#!/usr/bin/env bash
# Reads a complete trace with launches and touches that a program wrote from docs/trace-format.md alone.
. "$(dirname "$0")/../guards/lib.bash"
if ! has python3; then skip "touches: no python3"; finish; fi
cat > "$folder/write.py" << 'END'
import sys
sys.path.insert(0, sys.argv[1])
sys.dont_write_bytecode = True
from stow_writer import ALLOC, LAUNCH, TOUCH, Writer
w = Writer(open(sys.argv[2], "wb"))
w.fact("source", "stow")
for i in range(400):
    w.event(ALLOC, 1, 0x7F0000000000 + (i << 24), 1 << 24)
for i in range(9000):  # more than one chunk
    f = w.name(f"kernel{i % 30}")
    w.event(LAUNCH, 1000 * i + 2, 0x7F0000000000 + ((i % 400) << 24), 700, tag=f)
    w.event(TOUCH, 1000 * i + 2, 0x7F0000000000 + ((i % 300) << 24), 0, tag=f)
w.close()
END
check the_document_is_enough_to_write_a_trace python3 "$folder/write.py" "$source_dir/tests/touches" "$folder/a.stow"
whole() {
  "$stowage" convert "$folder/a.stow" "$folder/b.stow" --json > "$folder/json" &&
    grep_all '"launch": 9000' < "$folder/json" && grep_all '"touch": 9000' < "$folder/json" &&
    grep_all '"skipped_events": 0' < "$folder/json"
}
check every_launch_and_touch_is_read whole
# The csv has one line per launch and per touch; Perfetto's format has neither, and a message says so.
rows() { "$stowage" convert "$1" "$folder/c.csv" > /dev/null && [ "$(grep -c ',launch,' "$folder/c.csv")" = 9000 ]; }
check converted_traces_keep_them rows "$folder/b.stow"
left() { "$stowage" convert "$folder/b.stow" "$folder/d.json" | grep_all '18000 events '; }
check what_a_format_lacks_is_counted left
check the_step_is_found_and_simulated bash -c "'$stowage' replay '$folder/b.stow' --vram 5G --spill auto | grep 'a step would take'"
finish
