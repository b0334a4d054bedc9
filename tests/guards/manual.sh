#!/usr/bin/env bash
# Every verb has a man page that lists every option, and the pages are well formed. The verbs and options come from the
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
# Every public function is named by a page (its NAME section), and each name finds its page once installed.
names() { awk '/^\.SH /{on = $2 == "NAME"; next} on' "$1" | sed 's/\\-.*//' | grep -oE 'stow_[a-z0-9_]+'; }
for page in "$source_dir"/man/man3/*.3; do names "$page"; done | sort > "$folder/named"
# A function, not a callback's type: a name with a bracket after it, outside comments.
cat "$source_dir"/include/stowage/*.h "$source_dir"/include/stowage/sys/*.h | grep -vE '^ ?(/\*| \*|\*)' |
  grep -oE 'stow_[a-z0-9_]+\(' | tr -d '(' | sort -u > "$folder/functions"
missing=$(comm -23 "$folder/functions" <(sort -u "$folder/named") | tr '\n' ' ')
twice=$(uniq -d "$folder/named" | tr '\n' ' ')
if [ -n "$missing$twice" ]; then
  fail "every_function_has_its_page: no page names: ${missing:-none}; named by two: ${twice:-none}"
else
  ok "every_function_has_its_page: $(wc -l < "$folder/functions") functions"
fi
if [ -f "$build/cmake_install.cmake" ]; then
  DESTDIR=$folder/root cmake --install "$build" --prefix /usr > "$folder/install" 2>&1 || cat "$folder/install"
  lost=0
  while read -r name; do
    page=$folder/root/usr/share/man/man3/$name.3
    target=$(sed -n '1s/^\.so //p' "$page" 2> /dev/null)
    if [ ! -f "${page}" ] || { [ -n "$target" ] && [ ! -f "$folder/root/usr/share/man/$target" ]; }; then
      echo "$name: man would not find it"; lost=1
    fi
  done < "$folder/functions"
  if [ "$lost" = 0 ]; then ok installed_pages_are_found_by_every_name; else fail installed_pages_are_found_by_every_name; fi
else
  skip "installed_pages_are_found_by_every_name: no build folder named"
fi
if has groff; then
  # -ww: every warning; -z: no output. A warning means that the page renders wrong somewhere.
  wrong=0
  for page in "$source_dir"/man/man*/*.[1-8]; do
    [ "$(groff -man -ww -z -Kutf8 "$page" 2>&1 | tee -a "$folder/groff" | wc -l)" = 0 ] || wrong=1
  done
  if [ "$wrong" = 0 ]; then ok pages_are_well_formed; else cat "$folder/groff"; fail pages_are_well_formed; fi
else
  skip "pages_are_well_formed: no groff"
fi
finish
