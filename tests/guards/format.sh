#!/usr/bin/env bash
# clang-format decides the layout. Versions differ, so one is pinned: the one that .clang-format was written for.
. "$(dirname "$0")/lib.bash"
pinned=14
name=sources_are_formatted
found=
for tool in "clang-format-$pinned" clang-format; do
  if has "$tool" && "$tool" --version | grep_all "version $pinned\."; then found=$tool; break; fi
done
if [ -z "$found" ]; then skip "$name: needs clang-format $pinned, here is $(clang-format --version 2> /dev/null || echo none)"; finish; fi
if ! has git || ! git -C "$source_dir" rev-parse > /dev/null 2>&1; then skip "$name: not a git checkout"; finish; fi
cd "$source_dir" || exit 1
if git ls-files -co --exclude-standard -z '*.c' '*.h' | xargs -0 "$found" --dry-run -Werror > "$folder/log" 2>&1; then
  ok "$name"
else
  grep 'error:' "$folder/log" | cut -d: -f1 | sort | uniq -c
  fail "$name: run make format"
fi
finish
