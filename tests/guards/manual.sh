#!/usr/bin/env bash
# Every verb has a man page, every option stands in it, and the pages are well formed. The verbs and options come from the
# command itself.
. "$(dirname "$0")/lib.bash"
man=$source_dir/man/man1
"$stowage" completion bash | sed -nE 's/^    ([a-z-]+)\) options="(.*)" ;;$/\1 \2/p' > "$folder/verbs"
[ -s "$folder/verbs" ] || fail "the command names no verbs"
missing=0
while read -r verb options; do
  page=$man/stowage-$verb.1
  if [ ! -f "$page" ]; then echo "$verb: no man/man1/stowage-$verb.1"; missing=1; continue; fi
  for option in $options; do
    tr -d '\\' < "$page" | grep_all -E -e "$option\b" || { echo "$verb: $option is not in its page"; missing=1; }
  done
  tr -d '\\' < "$man/stowage.1" | grep_all "stowage-$verb" || { echo "$verb: not named in stowage.1"; missing=1; }
done < "$folder/verbs"
if [ "$missing" = 0 ]; then ok "every_verb_and_option_has_its_page: $(wc -l < "$folder/verbs") verbs"; else fail every_verb_and_option_has_its_page; fi
if has groff; then
  # -ww: every warning; -z: no output. A page that warns is a page that reads wrong somewhere.
  wrong=0
  for page in "$source_dir"/man/man*/*.[1-8]; do
    [ "$(groff -man -ww -z -Kutf8 "$page" 2>&1 | tee -a "$folder/groff" | wc -l)" = 0 ] || wrong=1
  done
  if [ "$wrong" = 0 ]; then ok pages_are_well_formed; else cat "$folder/groff"; fail pages_are_well_formed; fi
else
  skip "pages_are_well_formed: no groff"
fi
finish
