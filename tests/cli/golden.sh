#!/usr/bin/env bash
# Compares the command's output with tests/golden/*.txt. Such a file is a session: bash runs the lines that begin with "$ " in an
# empty folder (`data` is tests/samples there). Their output, including errors, must equal the lines that follow, with "exit N"
# at the end if N is not 0. $STANDIN is the folder of the stand-in drivers. Text that differs from machine to machine is replaced
# first (below). The ```console blocks of README.md and docs/ are such sessions too, so they stay true. STOWAGE_UPDATE=1 rewrites
# the files: check the difference before you commit it.
. "$(dirname "$0")/../guards/lib.bash"
export PATH=$build:$PATH LC_ALL=C.UTF-8
export XDG_CACHE_HOME=$folder/cache STANDIN=$build/tests/standin
unset STOWAGE_DEVICE NO_COLOR
version=$("$stowage" --version | cut -d' ' -f2)

# In a container the numbers of processes are not NVML's, so info does not name them.
named=()
[ "$(readlink /proc/self/ns/pid)" = 'pid:[4026531836]' ] || named=(-e 's/^( PID 3\.0 GiB) \(name not known\)$/\1 bash/')

normalise() {
  sed -E "${named[@]}" -e "s/stowage ${version//./\\.}/stowage VERSION/" \
    -e "s/\"version\": \"${version//./\\.}\"/\"version\": \"VERSION\"/" \
    -e 's/^(host +)Linux .*/\1MACHINE/' \
    -e '/^ +this container may use/d' \
    -e 's/in [0-9]+ us($|;)/in N us\1/' \
    -e 's/^ host [0-9.]+ .iB .* (numa|host|pinned)$/ host MEMORY \1/' \
    -e 's/^peak memory .*/peak memory MEMORY/' \
    -e 's/[0-9.]+ (ns|us|ms|s) each/TIME each/g'
}

session() { # FILE: prints what the file should be
  local line output code
  while IFS= read -r line; do
    case $line in '$ '*) ;; *) continue ;; esac
    printf '%s\n' "$line"
    output=$(cd "$folder/empty" && timeout -k 5 240 bash -c "${line#\$ }" 2>&1 < /dev/null); code=$?
    [ -z "$output" ] || normalise <<< "$output"
    [ "$code" = 0 ] || echo "exit $code"
  done < "$1"
}
fresh() { # an empty folder to run in
  rm -rf "$folder/empty" "$folder/cache" && mkdir "$folder/empty"
  ln -s "$source_dir/tests/samples" "$folder/empty/data"
  ln -s "$source_dir/tests" "$folder/empty/tests"
  ln -s "$source_dir/examples" "$folder/empty/examples"
}

number=0
for file in "$source_dir"/tests/golden/*.txt; do
  IFS= read -r first < "$file" || true
  case $first in '$ '*) ;; *) continue ;; esac
  name=$(basename "$file" .txt)
  # Under a sanitizer a third of the sessions; others with other seeds (tests/run.sh).
  number=$((number + 1))
  if [ -n "${GOLDEN_SESSIONS_ONLY:-}" ] && [ -z "${STOWAGE_TEST_LONG:-}" ] && [ $(((number + ${STOWAGE_TEST_SEED:-0}) % 3)) != 0 ]; then continue; fi
  fresh
  session "$file" > "$folder/$name"
  if [ -n "${STOWAGE_UPDATE:-}" ]; then cp "$folder/$name" "$file"; fi
  if diff -u "$file" "$folder/$name" > "$folder/diff"; then
    ok "$name: $(grep -c '^\$ ' "$file") commands"
  else
    cat "$folder/diff"; fail "$name"
  fi
done

# A sanitizer's build runs the sessions above: those of the documentation are the same verbs, and the release build runs them.
[ -z "${GOLDEN_SESSIONS_ONLY:-}" ] || [ -n "${STOWAGE_TEST_LONG:-}" ] || finish
for file in "$source_dir"/README.md "$source_dir"/docs/*.md; do
  [ "${file##*/}" != tutorial.md ] || continue # tutorial.sh runs it, with the files that it has one write
  name=$(basename "$file" .md)
  awk '/^```console$/ { on = 1; next } /^```/ { on = 0 } on' "$file" > "$folder/shown.expected"
  [ -s "$folder/shown.expected" ] || continue
  fresh
  session "$folder/shown.expected" > "$folder/shown"
  if diff -u <(normalise < "$folder/shown.expected") "$folder/shown"; then
    ok "$name: what it shows is what happens"
  else
    fail "$name: what it shows is what happens"
  fi
done
finish
