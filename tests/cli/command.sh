#!/usr/bin/env bash
# The command as a whole: JSON that parses whatever the machine, colours on a terminal only, output that cannot be written,
# help for every verb, completion that completes.
. "$(dirname "$0")/../guards/lib.bash"
unset STOWAGE_DEVICE NO_COLOR
export TERM=xterm

parses() { "$@" > "$folder/json" && python3 -m json.tool "$folder/json" > /dev/null; }
check info_json_parses_with_whatever_is_here parses "$stowage" info --json
check info_json_parses_with_the_simulated_card parses "$stowage" info --json --device sim:16G
check doctor_json_parses parses "$stowage" doctor --json --device sim:16G
STOWAGE_DEVICE=sim:2G check the_environment_names_the_device bash -c "'$stowage' info | grep -q '2.0 GiB'"

if "$stowage" info --json | grep_all '"no_gpu": null'; then
  skip "no_gpu_is_said_plainly: this machine has one"
else
  no_gpu() { "$stowage" info | grep '^no GPU: ' && "$stowage" doctor | grep -E '^driver +none +no GPU: '; }
  check no_gpu_is_said_plainly no_gpu
fi

# A terminal as far as the program can tell: python's pty. Prints what it printed.
on_terminal() {
  python3 - "$@" << 'END'
import os, pty, subprocess, sys
ours, theirs = pty.openpty()
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)
os.close(theirs)
try:
    while data := os.read(ours, 65536):
        sys.stdout.buffer.write(data)
except OSError:  # the other end is closed: Linux says so with EIO
    pass
child.wait(20)
END
}
escape=$(printf '\033')
colours() { # COMMAND… : does its output have any?
  "$@" | grep_all "$escape"
}
if ! python3 -c 'import pty; pty.openpty()' 2> /dev/null; then
  skip "colours_on_a_terminal: no terminal can be made here (is /dev/pts mounted?)"
elif colours on_terminal "$stowage" info --device sim:1G; then ok colours_on_a_terminal; else fail colours_on_a_terminal; fi
if colours "$stowage" info --device sim:1G; then fail no_colours_in_a_pipe; else ok no_colours_in_a_pipe; fi
if NO_COLOR=1 colours on_terminal "$stowage" info --device sim:1G; then fail no_colours_with_no_color; else ok no_colours_with_no_color; fi
if TERM=dumb colours on_terminal "$stowage" info --device sim:1G; then fail no_colours_on_a_dumb_terminal; else ok no_colours_on_a_dumb_terminal; fi

full() {
  "$stowage" info --device sim:1G > /dev/full 2> "$folder/errors"; [ $? -eq 1 ] && grep -q 'cannot write the output' "$folder/errors"
}
check output_that_cannot_be_written_is_a_failure full

verbs=$("$stowage" completion bash | sed -nE 's/^    ([a-z-]+)\) options=.*/\1/p')
helps() {
  local verb
  for verb in $verbs; do
    "$stowage" "$verb" --help > "$folder/help" && "$stowage" "$verb" -h | cmp - "$folder/help" &&
      "$stowage" help "$verb" | cmp - "$folder/help" && sed -n 3p "$folder/help" | grep_all '^example:$' &&
      sed -n 4p "$folder/help" | grep_all "^  .*stowage $verb" && grep -q '^exit codes:$' "$folder/help" &&
      "$stowage" --help | grep_all "^  $verb " || { echo "$verb"; return 1; }
  done
}
check "help_of_every_verb_begins_with_an_example" helps

# complete WORD…: what bash offers for the last one.
complete_words() {
  bash -c '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _stowage; echo "${COMPREPLY[*]}"' _ "$build/completions/stowage" "$@"
}
completes() {
  [ "$(complete_words stowage inf)" = info ] && [ "$(complete_words stowage info --js)" = --json ] &&
    [ "$(complete_words stowage info --device x)" = "" ] && [ "$(complete_words stowage help doc)" = doctor ] &&
    ! complete_words stowage '' | grep_all -E 'completion|probe-host'
}
check bash_completes_verbs_and_options completes
if has zsh; then check zsh_reads_its_completion zsh -n "$build/completions/_stowage"; else skip "zsh_reads_its_completion: no zsh"; fi

# Frameworks are found by name and never imported: a python3 that says where to look, and files that would fail to import.
mkdir -p "$folder/bin" "$folder/first/torch" "$folder/first/torch-9.9.1+cu999.dist-info" "$folder/second/torch-1.0.dist-info" \
  "$folder/second/cupy_cuda12x-13.2.0.dist-info" "$folder/second/numpy-1.24.2-py3.11.egg-info" "$folder/second/torchvision-5.dist-info"
echo 'raise SystemExit("imported")' > "$folder/first/torch/__init__.py"
printf '#!/bin/sh\nprintf "3.99.1\\n/opt/python3\\n%s/first\\n%s/absent\\n%s/second\\n"\n' "$folder" "$folder" "$folder" > "$folder/bin/python3"
chmod +x "$folder/bin/python3"
frameworks() {
  PATH=$folder/bin:$PATH "$stowage" doctor --device sim:1G > "$folder/found"
  grep -qE '^python +ok +3\.99\.1' "$folder/found" && grep -qE '^torch +ok +9\.9\.1\+cu999$' "$folder/found" &&
    grep -qE '^cupy_cuda12x +ok +13\.2\.0$' "$folder/found" && grep -qE '^numpy +ok +1\.24\.2$' "$folder/found" &&
    ! grep -qE '^(torchvision|jax)' "$folder/found" || { cat "$folder/found"; return 1; }
}
check doctor_finds_frameworks_without_importing_them frameworks
no_python() {
  mkdir -p "$folder/empty"
  PATH=$folder/empty "$stowage" doctor --device sim:1G | grep -E '^python +none +no python3 on PATH'
}
check doctor_says_that_there_is_no_python no_python
printf '#!/bin/sh\nexec sleep 100\n' > "$folder/bin/python3"
slow_python() {
  local started=$SECONDS
  PATH=$folder/bin:$PATH timeout 20 "$stowage" doctor --device sim:1G | grep -E '^python +none +python3 did not answer' && [ $((SECONDS - started)) -lt 15 ]
}
check a_python_that_hangs_does_not_hang_doctor slow_python
finish
