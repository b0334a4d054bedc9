"""Follows docs/tutorial.md as written: makes its files, runs its commands and compares what they print.

    tutorial.py DOCUMENT FOLDER

A block after "Save this as `NAME`" is a file. A ```console block is a session: "$ " before a command, then its output; a line "…", or a
"…" at the end of a line, stands for anything. The figures are those of one version of PyTorch; with another only the words are compared.
A command with "# PyTorch X.Y or newer" is left out before that version.
"""

import re
import subprocess
import sys
from pathlib import Path

# What PyTorch 1.13 logs if a tensor was listed while it was freed: with or without a line that its logger is not set up.
LOGGED = re.compile(r"^(WARNING: Logging before InitGoogleLogging\(\) is written to STDERR|W[0-9]{8} [^\n]*Warning: Deallocating Tensor that still has live PyObject references[^\n]*)\n", re.M)
FIGURES_OF = (2, 11)  # the version of PyTorch whose figures the document shows


def blocks(text):
    """Yields (kind, name or None, lines) of every fenced block."""
    lines = text.split("\n")
    at, before = 0, ""
    while at < len(lines):
        if lines[at].startswith("```"):
            kind, end = lines[at][3:], lines.index("```", at + 1)
            named = re.search(r"Save this as `([a-z.]+)`", before)
            yield kind, named.group(1) if named else None, lines[at + 1 : end]
            at, before = end, ""
        elif lines[at]:
            before = lines[at] if not before else before + " " + lines[at]
        else:
            before = "" if at + 1 < len(lines) and not lines[at + 1].startswith("```") else before
        at += 1


def comparable(line, exact):
    """Returns a line without what differs between machines, and without figures unless they must be exact."""
    line = re.sub(r"loss [0-9.]+", "loss N", line)
    if not exact or line.startswith("stowage run: "):
        line = re.sub(r" {2,}", " ", re.sub(r"-?[0-9.]+ (B|KiB|MiB|GiB)\b", "SIZE", line))
    return line.rstrip()


def matches(expected, said, exact):
    """Returns None, or the first expected line that is not there."""
    said = [comparable(one, exact) for one in said]
    at, anywhere = 0, False
    for line in expected:
        if line == "…":
            anywhere = True
            continue
        wanted = re.compile(".*".join(re.escape(part) for part in comparable(line, exact).split("…")))
        found = next((i for i in range(at, len(said) if anywhere else min(at + 1, len(said))) if wanted.fullmatch(said[i])), None)
        if found is None:
            return line
        at, anywhere = found + 1, False
    return None if anywhere or at == len(said) else f"nothing more, but it says: {said[at]}"


def session(lines):
    """Yields (command, expected lines)."""
    command, expected = None, []
    for line in [*lines, "$ "]:
        if line.startswith("$ "):
            if command:
                yield command, expected
            command, expected = line[2:], []
        else:
            expected.append(line)


def main():
    document, folder = Path(sys.argv[1]), Path(sys.argv[2])
    import torch

    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    exact = version == FIGURES_OF
    failed = 0
    for kind, name, lines in blocks(document.read_text(encoding="utf-8")):
        if name is not None:
            (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
            continue
        if kind != "console":
            if lines != ["pip install ."]:
                print(f"FAIL tutorial: a block that nothing runs: {lines[0]}")
                failed = 1
            continue
        for command, expected in session(lines):
            label = "tutorial_" + re.sub(r"[^a-z0-9]+", "_", command.split("#")[0].split("||")[0].lower()).strip("_")
            least = re.search(r"# PyTorch ([0-9]+)\.([0-9]+) or newer", command)
            if least and version < (int(least.group(1)), int(least.group(2))):
                print(f"skip {label}: needs PyTorch {least.group(1)}.{least.group(2)} or newer, and this is {torch.__version__}")
                continue
            ran = subprocess.run(["bash", "-c", command], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
            said = LOGGED.sub("", ran.stdout).rstrip("\n").split("\n")
            wrong = matches(expected, said, exact)
            if ran.returncode != 0 or wrong is not None:
                print(ran.stdout)
                print(f"FAIL {label}: " + (f"exit code {ran.returncode}" if ran.returncode else f"expected: {wrong}"))
                failed = 1
            else:
                print(f"ok {label}", flush=True)
    return failed


sys.exit(main())
