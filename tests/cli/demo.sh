#!/usr/bin/env bash
# make demo reports that it builds, shows each job, and ends with commands that exist.
. "$(dirname "$0")/../guards/lib.bash"
# A separate tree: the script with a build that takes a second and a command that prints its arguments.
mkdir -p "$folder/tree/tools"
cp "$source_dir/tools/demo.sh" "$folder/tree/tools/"
cat > "$folder/tree/tools/build.sh" << 'END'
#!/usr/bin/env bash
mkdir -p build/release/examples
printf '[1/300] one\n' > build/release/build.log
sleep 0.5
printf '[7/300] seven\n' >> build/release/build.log
printf '#!/bin/sh\necho asked: "$@"\n' > build/release/stowage
chmod +x build/release/stowage
END
chmod +x "$folder/tree/tools/build.sh"
shows() {
  (cd "$folder/tree" && tools/demo.sh) > "$folder/shown" || return 1
  grep -qE '^building: (1/300|7/300|configuring), [0-9]+ s$' "$folder/shown" && grep -qE '^built in [0-9]+ s$' "$folder/shown" || return 1
  local job
  for job in explain 'run --vram-limit 2G --spill 4G' replay report; do grep -q "^asked: $job" "$folder/shown" || { echo "no $job"; return 1; }; done
}
check it_shows_progress_and_every_job shows
ends() {
  tail -n 3 "$folder/shown" | sed -E 's/^ +([^ ]+) .*/\1/' | sort -u > "$folder/commands"
  [ "$(tail -n 3 "$folder/shown" | grep -c 'stowage [a-z]')" = 3 ] && [ "$(cat "$folder/commands")" = "$folder/tree/build/release/stowage" ] &&
    [ -x "$(cat "$folder/commands")" ]
}
check it_ends_with_three_commands_that_exist ends
fails() { # a build that fails is shown, and is a failure
  printf '#!/bin/sh\necho "no compiler" >&2; exit 1\n' > "$folder/tree/tools/build.sh"
  ! (cd "$folder/tree" && tools/demo.sh) > /dev/null 2> "$folder/errors" && grep -q 'no compiler' "$folder/errors"
}
check a_build_that_fails_is_shown fails
finish
