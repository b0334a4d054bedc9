#!/usr/bin/env bash
# The code that runs inside the user's process asserts its preconditions and invariants: at least 20 assertions per 1,000 lines.
. "$(dirname "$0")/lib.bash"
cd "$source_dir" || exit 1
for part in device memory record residency run shim; do
  lines=$(find "src/$part" -name '*.[ch]' -exec cat {} + | wc -l)
  count=$(find "src/$part" -name '*.[ch]' -exec cat {} + | grep -cE '\bASSERT(_VALUES)?\(')
  name="$part: $count assertions in $lines lines"
  if [ $((count * 1000)) -ge $((lines * 20)) ]; then ok "$name"; else fail "$name, at least $(((lines * 20 + 999) / 1000)) are wanted"; fi
done
finish
