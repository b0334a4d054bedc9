#!/usr/bin/env bash
# The command as a whole: JSON that parses on every machine, colours only on a terminal, output that cannot be written, help for
# every verb, and completion.
. "$(dirname "$0")/../guards/lib.bash"
unset STOWAGE_DEVICE NO_COLOR
export TERM=xterm

parses() { "$@" > "$folder/json" && python3 -m json.tool "$folder/json" > /dev/null; }
check info_json_parses_with_whatever_is_here parses "$stowage" info --json
check info_json_parses_with_the_simulated_device parses "$stowage" info --json --device sim:16G
check doctor_json_parses parses "$stowage" doctor --json --device sim:16G
STOWAGE_DEVICE=sim:2G check the_environment_names_the_device bash -c "'$stowage' info | grep -q '2.0 GiB'"

if "$stowage" info --json | grep_all '"no_gpu": null'; then
  skip "no_gpu_is_reported_plainly: this machine has one"
else
  no_gpu() { "$stowage" info | grep '^no GPU: ' && "$stowage" doctor | grep -E '^driver +none +no GPU: '; }
  check no_gpu_is_reported_plainly no_gpu
fi

# Runs the command on a terminal (python's pty) and prints its output.
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

# complete WORD…: prints what bash offers for the last word.
complete_words() {
  bash -c '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _stowage; echo "${COMPREPLY[*]}"' _ "$build/completions/stowage" "$@"
}
completes() {
  [ "$(complete_words stowage inf)" = info ] && [ "$(complete_words stowage info --js)" = --json ] &&
    [ "$(complete_words stowage info --device x)" = "" ] && [ "$(complete_words stowage help doc)" = doctor ] &&
    complete_words stowage '' | grep_all -w completion && ! complete_words stowage '' | grep_all probe-host
}
check bash_completes_verbs_and_options completes
# Values of options, with = and without; after `run --`, the user's command and files, and none of our options.
touch "$folder/train_me.py"
values() {
  [ "$(complete_words stowage convert --to perf)" = perfetto ] && [ "$(complete_words stowage replay --policy torch_e)" = torch_expandable ] &&
    [ "$(complete_words stowage convert --to = perf)" = perfetto ] && [ "$(complete_words stowage run --spill a)" = auto ] &&
    [ "$(complete_words stowage completion z)" = zsh ] && [ "$(complete_words stowage estimate --gpu T)" = T4 ]
}
check bash_completes_values values
program() {
  complete_words stowage run -- pytho | grep_all -w python3 && complete_words stowage run --vram-limit 8G pytho | grep_all -w python3 &&
    (cd "$folder" && [ "$(complete_words stowage run -- python3 train_)" = train_me.py ]) &&
    [ "$(complete_words stowage run -- python3 --vram-l)" = "" ] && [ "$(complete_words stowage run --vram-l)" = --vram-limit ]
}
check bash_completes_the_command_after_run program
if has fish; then
  fish_words() { fish --no-config -c 'source $argv[1]; complete -C $argv[2] | string replace -r "\t.*" ""; true' "$build/completions/stowage.fish" "$1" | tr '\n' ' '; }
  fish_completes() {
    [ "$(fish_words 'stowage inf')" = 'info ' ] && [ "$(fish_words 'stowage convert --to perf')" = 'perfetto ' ] &&
      fish_words 'stowage run -- pytho' | grep_all -w python3 && fish_words 'stowage run --vram-limit 8G pytho' | grep_all -w python3 &&
      (cd "$folder" && fish_words 'stowage run -- python3 train_' | grep_all train_me.py) &&
      [ "$(fish_words 'stowage completion z')" = 'zsh ' ] && [ "$(fish_words 'stowage --ver')" = '--version ' ] &&
      [ "$(fish_words 'stowage info --hel')" = '--help ' ] && [ "$(fish_words 'stowage run -- true --hel')" = '' ] &&
      [ "$(fish_words 'stowage run -- true --vram-l')" = '' ] && [ "$(fish_words 'stowage run --vram-l')" = '--vram-limit ' ]
  }
  check fish_completes_verbs_values_and_commands fish_completes
else
  skip "fish_completes_verbs_values_and_commands: no fish"
fi
# --install writes to the user's own folder, also over its own file, but never over another file or through a link.
installs() {
  local home=$folder/home shell file
  mkdir -p "$home"
  while read -r shell file; do
    env -u XDG_DATA_HOME -u XDG_CONFIG_HOME HOME="$home" SHELL=/bin/$shell "$stowage" completion --install > "$folder/said" || return 1
    grep -q "$home/$file" "$folder/said" && "$stowage" completion "$shell" | cmp - "$home/$file" || return 1
    env -u XDG_DATA_HOME -u XDG_CONFIG_HOME HOME="$home" "$stowage" completion --install "$shell" > /dev/null || return 1
    echo '# mine' > "$home/$file"
    ! env -u XDG_DATA_HOME -u XDG_CONFIG_HOME HOME="$home" "$stowage" completion --install "$shell" 2> "$folder/said" || return 1
    grep -q "$home/$file" "$folder/said" && [ "$(cat "$home/$file")" = '# mine' ] || return 1
    "$stowage" completion "$shell" > "$folder/elsewhere" && ln -sf "$folder/elsewhere" "$home/$file"
    ! env -u XDG_DATA_HOME -u XDG_CONFIG_HOME HOME="$home" "$stowage" completion --install "$shell" 2> /dev/null || return 1
    [ -L "$home/$file" ] && [ "$(find "$home" -name '*.??????' -newer "$folder/train_me.py" -name 'stowage*.[A-Za-z0-9]*' ! -name '*.fish' | wc -l)" = 0 ] || return 1
  done << 'END'
bash .local/share/bash-completion/completions/stowage
zsh .local/share/zsh/site-functions/_stowage
fish .config/fish/completions/stowage.fish
END
  XDG_DATA_HOME=$folder/data "$stowage" completion --install bash && [ -s "$folder/data/bash-completion/completions/stowage" ] &&
    ! env -u HOME -u XDG_DATA_HOME "$stowage" completion --install bash
}
check completion_is_installed_for_the_user installs
if has zsh; then check zsh_reads_its_completion zsh -n "$build/completions/_stowage"; else skip "zsh_reads_its_completion: no zsh"; fi

# The other package called stowage: its command is earlier on the path, or its metadata is in the environment of a command on the
# path.
other=$folder/other
mkdir -p "$other/bin" "$other/lib/python3.11/site-packages/stowage-1.2.3.dist-info"
printf '#!/usr/bin/python3\nfrom stowage import main\nmain()\n' > "$other/bin/stowage"
echo 'stowage.py,sha256=x,1' > "$other/lib/python3.11/site-packages/stowage-1.2.3.dist-info/RECORD"
chmod +x "$other/bin/stowage"
other_package() {
  PATH=$other/bin:$PATH "$stowage" doctor --device sim:1G --json > "$folder/found.json" && python3 - "$folder/found.json" "$other" << 'END'
import json, sys
found = [f for f in json.load(open(sys.argv[1]))["findings"] if f["name"] == "install"]
assert len(found) == 2 and all(f["verdict"] == "note" and "stowage-memory" in f["next"] for f in found), found
assert sys.argv[2] + "/bin/stowage" in found[0]["reason"] and "stowage-1.2.3.dist-info" in found[1]["reason"], found
END
}
check doctor_finds_the_other_package_of_the_name other_package
own_package() { # ours, by its script and its RECORD
  printf '#!/usr/bin/python3\nfrom stowage._command import main\nmain()\n' > "$other/bin/stowage"
  echo 'stowage/_native/bin/stowage,sha256=x,1' > "$other/lib/python3.11/site-packages/stowage-1.2.3.dist-info/RECORD"
  PATH=$other/bin:$PATH "$stowage" doctor --device sim:1G | grep -E '^install +ok '
}
check doctor_knows_its_own_package own_package
incomplete() {
  mkdir -p "$folder/part" && cp "$stowage" "$build/libstowage-shim.so" "$folder/part" && ! "$folder/part/stowage" doctor --device sim:1G > "$folder/found" &&
    grep -qE '^install +broken +libstowage-shim-alias.so' "$folder/found"
}
check doctor_finds_an_incomplete_installation incomplete
# Without a driver, each piece of advice appears once.
once() {
  "$stowage" doctor > "$folder/found"
  grep -qE '^driver +none ' "$folder/found" || { echo "a driver is here"; return 0; }
  [ "$(grep -o 'gpus all' "$folder/found" | wc -l)" = 1 ] && [ "$(grep -o 'device sim:16G' "$folder/found" | wc -l)" = 1 ] &&
    [ "$(grep -oi 'NVIDIA.s driver' "$folder/found" | wc -l)" = 1 ]
}
check doctor_says_each_thing_once once

# Frameworks are found by name and never imported: a python3 that prints where to look, and files that would fail to import.
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
  PATH=$folder/bin:$PATH timeout 120 "$stowage" doctor --device sim:1G | grep -E '^python +none +python3 did not respond' && [ $((SECONDS - started)) -lt 15 ]
}
check a_python_that_hangs_does_not_hang_doctor slow_python

# A finding that is the same on several devices is printed once.
says_once() {
  STANDIN_DEVICES=3 STOWAGE_LIBCUDA=$build/tests/standin/libcuda.so.1 STOWAGE_LIBNVML=/nowhere XDG_CACHE_HOME=$folder/cache "$stowage" doctor --json > "$folder/devices.json" && python3 - "$folder/devices.json" << 'END'
import collections, json, re, sys
findings = json.load(open(sys.argv[1]))["findings"]
said = collections.Counter((f["name"], re.sub(r"\d+", "N", f["reason"])) for f in findings if f["name"] != "device")
assert max(said.values()) == 1, said.most_common(3)
assert sum(f["name"] == "device" for f in findings) == 3, findings
assert any(f["name"] == "pages" and f["reason"].endswith("the same on 3 devices") for f in findings), findings
END
}
if has python3; then check doctor_says_what_devices_share_once says_once; else skip "doctor_says_what_devices_share_once: no python3"; fi
finish
