#!/usr/bin/env bash
# The documents name only what exists: every path in backticks exists, the architecture names every folder of src/, and the
# README names every verb.
. "$(dirname "$0")/lib.bash"
cd "$source_dir" || exit 1
wrong=0
for paper in README.md CONTRIBUTING.md docs/*.md; do
  while read -r path; do
    [ -e "$path" ] || ls $path > /dev/null 2>&1 || { echo "$paper: $path does not exist"; wrong=1; }
  done < <(grep -oE '`(src|include|tests|tools|docs|man|cmake|bench|examples|web)/[A-Za-z0-9_./*-]*`' "$paper" | tr -d '`' | grep -v NAME)
  while read -r link; do
    [ -e "$(dirname "$paper")/$link" ] || { echo "$paper: link to $link, which does not exist"; wrong=1; }
  done < <(grep -oE '\]\([A-Za-z0-9_./-]+\)' "$paper" | sed -E 's/^\]\(|\)$//g')
done
for folder_of_src in src/*/; do
  name=$(basename "$folder_of_src")
  grep -q "\b$name/" docs/ARCHITECTURE.md || { echo "docs/ARCHITECTURE.md: src/$name is missing"; wrong=1; }
done
for verb in $("$stowage" completion bash | sed -nE 's/^    ([a-z-]+)\) options=.*/\1/p'); do
  grep -q "\`stowage $verb\`" README.md || { echo "README.md: the verb $verb is missing"; wrong=1; }
done
if [ "$wrong" = 0 ]; then ok papers_name_what_is_there; else fail papers_name_what_is_there; fi
finish
