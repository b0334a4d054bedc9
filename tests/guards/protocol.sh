#!/usr/bin/env bash
# The names of the run protocol (environment variables, files of a run's folder) appear only in src/base/variables.h and
# src/run/protocol.h; Python's copies are generated from those.
. "$(dirname "$0")/lib.bash"
cd "$source_dir" || exit 1

check python_names_are_those_of_the_headers tools/run_names --check

cat > "$folder/spelled.py" << 'END'
"""spelled ROOT: prints each place outside the two headers that spells a name of the protocol."""
import pathlib, re, sys
root = pathlib.Path(sys.argv[1])
HOMES = {"src/base/variables.h", "src/run/protocol.h", "python/stowage/_run_names.py"}
C_TEXT = re.compile(r'"(?:[^"\\\n]|\\.)*"')
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
VARIABLE = re.compile(r"STOWAGE_[A-Z]")
# A whole file name, or an extension right after a conversion or at the start: not the ".stow" of an example or a message.
FILE = re.compile(r'^"(ledger|end|watch)"$|/(ledger|end|watch|host|last)"$|^"\.(ring|pickle|objects|error)(\.part)?"$|'
                  r'%[sd]\.(ring|stow|pickle|objects|error|part)\b')
PYTHON_FILE = re.compile(r'\}\.(ring|stow|pickle|objects|error|part)["\']|/(ledger|end|watch|host|last)["\']')
for path in sorted(p for folder in ("src", "python/stowage") for p in (root / folder).rglob("*") if p.suffix in (".c", ".h", ".py")):
    name = str(path.relative_to(root))
    if name in HOMES:
        continue
    text = path.read_text()
    if path.suffix == ".py":
        for number, line in enumerate(text.splitlines(), 1):
            if re.search(r"""["']STOWAGE_[A-Z_]+["']""", line) or PYTHON_FILE.search(line):
                print(f"{name}:{number}: {line.strip()}")
        continue
    text = COMMENT.sub(lambda m: "\n" * m.group().count("\n"), text)
    run = name.split("/")[1] in ("cli", "shim", "run", "watch", "advise")
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#include"):
            continue
        for found in C_TEXT.findall(line):
            if VARIABLE.search(found) or (run and FILE.search(found)):
                print(f"{name}:{number}: {found}")
END
spelled() { python3 "$folder/spelled.py" "$1"; }
name=names_of_the_protocol_are_spelled_once
out=$(spelled "$source_dir")
if [ -z "$out" ]; then ok "$name"; else echo "$out"; fail "$name"; fi

# Each kind of violation is detected.
mkdir -p "$folder/tree/src/cli" "$folder/tree/python/stowage"
caught() { # NAME FILE LINE
  echo "$3" > "$folder/tree/$2"
  if [ -n "$(spelled "$folder/tree")" ]; then ok "$1"; else fail "$1: passed"; fi
  rm "$folder/tree/$2"
}
caught a_variable_in_c_is_caught src/cli/a.c 'getenv("STOWAGE_RUN");'
caught a_variable_in_a_message_is_caught src/cli/a.c 'stow_fail(1, "set STOWAGE_RUN");'
caught a_file_in_c_is_caught src/cli/a.c 'snprintf(path, 9, "%s/ledger", folder);'
caught an_ending_in_c_is_caught src/cli/a.c 'snprintf(path, 9, "%s/%d.objects", folder, pid);'
caught a_variable_in_python_is_caught python/stowage/a.py 'os.environ["STOWAGE_RUN"]'
caught an_ending_in_python_is_caught python/stowage/a.py 'open(f"{folder}/{pid}.error")'
finish
