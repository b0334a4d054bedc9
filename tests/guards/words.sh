#!/usr/bin/env bash
# No tracked text speaks of the machine it was written on.
. "$(dirname "$0")/lib.bash"
name=no_paths_of_one_machine_in_tracked_files
if ! has git || ! git -C "$source_dir" rev-parse > /dev/null 2>&1; then skip "$name: not a git checkout"; finish; fi
cd "$source_dir" || exit 1
# Homes of people and scratch folders; the brackets keep this line from finding itself.
pattern='/(hom[e]|Use[r]s)/[a-z][a-z0-9_-]*/|(^|[ "=(`])/(wor[k]|roo[t]|far[m])/|/tm[p]/[a-z]+/'
if git grep -nIE "$pattern" -- . > "$folder/log"; then cat "$folder/log"; fail "$name"; else ok "$name"; fi
finish
