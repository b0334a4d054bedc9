#!/usr/bin/env bash
# Checks the words of tracked text: no paths of one machine anywhere, and no banned words in the files listed below.
. "$(dirname "$0")/lib.bash"
name=no_paths_of_one_machine_in_tracked_files
if ! has git || ! git -C "$source_dir" rev-parse > /dev/null 2>&1; then skip "$name: not a git checkout"; finish; fi
cd "$source_dir" || exit 1
# Home and scratch folders; the brackets keep this line from matching itself.
pattern='/(hom[e]|Use[r]s)/[a-z][a-z0-9_-]*/|(^|[ "=(`])/(wor[k]|roo[t]|far[m])/|/tm[p]/[a-z]+/'
if git grep -nIE "$pattern" -- . > "$folder/log"; then cat "$folder/log"; fail "$name"; else ok "$name"; fi

if ! has python3; then skip "no_banned_words: no python3"; finish; fi

# Words and phrases that our English avoids, as whole words. A line break may split a phrase, so text is joined before the
# search. "room" is banned only as a word for a folder.
banned='tol[d]|tell[s]|roa[d]s?|grave[r]|men[d]|mende[d]|oftene[r]|reckone[d]|beforehan[d]|kept fro[m]|it is non[e]|has it tha[t]|what was asked is none o[f]|(each|every|one|a) roo[m] of src|roo[m]s? of (src|the tree)'

# Folders and files whose text is clean. Add to this list; do not remove from it.
clean=(
  README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md
  docs man include
  src web python bench examples tools cmake tests
)
# Exceptions: recorded data.
except=(':!examples/recordings' ':!*.ipynb')

# banned_in: reads names of files, prints FILE: "WORD", COUNT for each banned word in them. A comment that continues on the next
# line is one text.
banned_in() {
  python3 -c '
import collections, re, sys
banned = re.compile(r"\b(?:%s)\b" % sys.argv[1], re.I)
for path in sys.stdin.read().splitlines():
    text = open(path, encoding="utf-8", errors="replace").read()
    text = re.sub(r"\s*\n\s*(?:\*|//|#)?\s*", " ", text)
    for word, count in sorted(collections.Counter(m.group().lower() for m in banned.finditer(text)).items()):
        print("%s: \"%s\", %d" % (path, word, count))
' "$banned"
}

# The check can fail: it finds each banned word, also across a line break, and leaves other words alone.
printf '/* It is tol%s and\n * kept\n * fro%s the roa%s. */\n' d m d > "$folder/bad.c"
printf 'The broad, untold road_lock was mentioned; a room in memory; none is kept.\n' > "$folder/good.txt"
found=$(banned_in <<< "$folder/bad.c" | wc -l)
if [ "$found" = 3 ] && [ -z "$(banned_in <<< "$folder/good.txt")" ]; then
  ok the_check_finds_banned_words
else
  printf '%s\n' "$folder/bad.c" "$folder/good.txt" | banned_in; fail "the_check_finds_banned_words: $found of 3"
fi

git grep -lI '' -- "${clean[@]}" "${except[@]}" > "$folder/files"
count=$(wc -l < "$folder/files")
banned_in < "$folder/files" > "$folder/log" || fail "no_banned_words: the check failed"
if [ "$count" -lt 100 ]; then fail "no_banned_words: only $count files found"
elif [ -s "$folder/log" ]; then cat "$folder/log"; fail no_banned_words
else ok "no_banned_words: $count files"; fi
finish
