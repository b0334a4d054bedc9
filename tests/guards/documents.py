"""documents.py ROOT BUILD FOLDER: what the documents say holds.

Links and anchors of README.md, docs/ and man/ lead somewhere. Every example is run: shell and Python blocks and complete commands in
the text, the commands of man pages, the examples of --help; C blocks are compiled and run. Commands and options named in the
text exist. (tests/cli/golden.sh runs ```console blocks and compares their output; doctest runs docstrings, and what is no
doctest there is run by another test.) A block that cannot run here says why, in a comment above it: <!-- not run: why -->;
<!-- run after: code --> is code that goes before it.

Under `make test` every second command and block runs; STOWAGE_TEST_SEED chooses which. Without it, and with STOWAGE_TEST_LONG, all do.

Prints result lines.
"""
import ast
import contextlib
import glob
import importlib.metadata
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT, BUILD, FOLDER = (os.path.abspath(path) for path in sys.argv[1:4])
sys.path[:0] = [os.path.join(ROOT, "tools", "site"), os.path.dirname(os.path.abspath(__file__))]
sys.dont_write_bytecode = True
import sources  # noqa: E402
import stage  # noqa: E402

STOWAGE = os.path.join(BUILD, "stowage")
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", *sorted(f"docs/{name}" for name in os.listdir(f"{ROOT}/docs") if name.endswith(".md"))]
# Commands that cannot run here, and why; all others end with 0.
# tests/cli/tutorial.sh runs it, with the files that it has its reader write.
RUN_ELSEWHERE = {"docs/tutorial.md"}

NOT_RUN = {
    "stowage top": "a screen; tests/shim/top.sh drives it",
    "mpirun -n 8 stowage shrink train.npy -o small.npy": "needs eight processes; tests/cli/ranks.sh runs three",
    "stowage info --device 0": "needs a GPU",
    "stowage info --device GPU-5d3c": "needs a GPU",
    "stowage estimate train.py:make --gpu T4": "needs PyTorch; python/tests/test_estimate.py",
}
# Docstrings with an example that is no doctest, because it needs a framework or a GPU, and the test that makes its calls.
RUN_BY = {
    "_tune.py": "python/tests/test_tune.py",
    "keras.py": "tests/long/callbacks.py",
    "lightning.py": "tests/long/callbacks.py",
    "transformers.py": "tests/long/callbacks.py",
}
failed = 0


def taken(number):
    """Returns whether this run takes the example with that number."""
    seed = os.environ.get("STOWAGE_TEST_SEED", "")
    return bool(os.environ.get("STOWAGE_TEST_LONG")) or not seed or (number + int(seed)) % 2 == 0


def result(name, problems, note=""):
    global failed
    if problems:
        failed = 1
        for line in problems:
            print(line)
        print(f"FAIL {name}: {len(problems)}")
    else:
        print(f"ok {name}{note}", flush=True)


def read(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return file.read()


# ---- links ----

def check_links():
    result("links_and_anchors_lead_somewhere", [f"{line}: leads nowhere" for line in sources.Site(ROOT, f"{FOLDER}/site").build()],
           f": {len(DOCUMENTS)} documents, {len(glob.glob(f'{ROOT}/man/man*/*'))} man pages")
    # The check can fail.
    tree = pathlib.Path(FOLDER, "tree")
    (tree / "docs").mkdir(parents=True)
    (tree / "man" / "man1").mkdir(parents=True)
    for name in sources.TOP:
        (tree / name).write_text("# Title\n")
    (tree / "docs" / "a.md").write_text("# A\n[one](../README.md#title) [two](../README.md#gone) [three](gone.md) ![four](images/gone.png) `[five](x)`\n```\n[six](y)\n```\n")
    (tree / "man" / "man1" / "stowage-a.1").write_text(".TH A 1\n.SH NAME\nstowage\\-a \\- one\n.SH SEE ALSO\n.BR stowage\\-gone (1)\n")
    dead = sources.Site(tree, f"{FOLDER}/tree-site").build()
    result("dead_links_are_found", [] if len(dead) == 4 else [f"found {dead}"])


def check_navigation():
    text = read("tools/site/mkdocs.yml")
    listed = set(re.findall(r"^ +- [^:]+: (\S+\.md)$", text.split("\nnav:\n")[1], re.M))
    made = {os.path.relpath(path, f"{FOLDER}/site") for path in glob.glob(f"{FOLDER}/site/*.md")}
    wanted = {name for name in made if not name.startswith("folder-")} | {"man/index.md"}
    result("every_page_is_in_the_navigation", [f"missing in tools/site/mkdocs.yml: {name}" for name in sorted(wanted - listed)] +
           [f"tools/site/mkdocs.yml: {name} does not exist" for name in sorted(listed - wanted)])


def check_pictures():
    pictures = sorted(glob.glob(f"{ROOT}/docs/images/*"))
    wrong = [f"{path}: {os.path.getsize(path)} bytes, more than 150 KB" for path in pictures if os.path.getsize(path) > 150_000]
    wrong += [f"{path}: not a PNG" for path in pictures if open(path, "rb").read(8) != b"\x89PNG\r\n\x1a\n"]
    shown = read("docs/gallery.md")
    wrong += [f"{path}: not in docs/gallery.md" for path in pictures if f"images/{os.path.basename(path)}" not in shown]
    result("pictures_are_small_and_shown", wrong, f": {len(pictures)}")
    picture = open(f"{ROOT}/docs/images/explain.png", "rb").read()
    at = picture.find(b"iTXtText\0\0\0\0\0")
    length = int.from_bytes(picture[at - 4:at], "big") - 9 if at > 0 else 0
    words = picture[at + 13:at + 13 + length].decode().split()
    sample = f"{ROOT}/tests/samples/causes/no_grad_missing-cnn.pickle.gz"
    said = subprocess.run([STOWAGE, "explain", sample], capture_output=True, text=True, check=True).stdout.split()
    result("the_picture_of_explain_is_of_this_version", [] if words[4:] == said else
           ["docs/images/explain.png shows another text: /usr/bin/python3 tools/site/screenshots.py BUILD docs/images explain"])


# ---- what the text names ----

def options_by_verb():
    shown = subprocess.run([STOWAGE, "completion", "bash"], capture_output=True, text=True, check=True).stdout
    return {verb: set(words.split()) for verb, words in re.findall(r'^    ([a-z-]+)\) options="(.*)" ;;$', shown, re.M)}


def spans(name):
    """Commands in the text, outside of blocks."""
    for line, plain in sources.outside_code(read(name)):
        if plain:
            yield from re.findall(r"`(stowage [^`]+)`", line)


def check_names():
    verbs, wrong, count = options_by_verb(), [], 0
    for name in DOCUMENTS:
        for command in spans(name):
            words = command.split()
            if words[1].startswith("-") or not words[1].islower():
                continue
            count += 1
            own = words[2:words.index("--")] if "--" in words else words[2:]
            if words[1] not in verbs:
                wrong.append(f"{name}: `{command}`: there is no verb {words[1]}")
                continue
            for option in (word.split("=")[0] for word in own if word.startswith("--")):
                if option not in verbs[words[1]] | {"--help"}:
                    wrong.append(f"{name}: `{command}`: {words[1]} has no option {option}")
    result("commands_named_in_the_text_exist", wrong, f": {count} commands")
    if python_package() is None:
        print("skip functions_named_in_the_text_exist: no libstowage.so in this build")
        return
    public = set(run_python("import stowage; print(' '.join(dir(stowage)), 'lightning transformers numba')").stdout.split())
    wrong, count = [], 0
    for name in DOCUMENTS:
        for called in re.findall(r"\bstowage\.([a-z_]+)\(", read(name)):
            count += 1
            if called not in public:
                wrong.append(f"{name}: stowage.{called}() does not exist")
    result("functions_named_in_the_text_exist", wrong, f": {count} calls")


# ---- running ----

def environment():
    state = {name: os.path.join(FOLDER, name) for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "HOME")}
    return {**os.environ, **state, "PATH": f"{FOLDER}/stage/bin:{BUILD}:{os.environ['PATH']}", "STOWAGE_LIBCUDA": "/nonexistent", "NO_COLOR": "1",
            "PYTHONPATH": f"{ROOT}/python", "STOWAGE_LIBRARY": f"{BUILD}/libstowage.so", "STOWAGE_COMMAND": STOWAGE, "PYTHONDONTWRITEBYTECODE": "1",
            "OPENBLAS_NUM_THREADS": "1", "SHELL": "/bin/bash", "LD_LIBRARY_PATH": BUILD}


def imported(text):
    """The modules that a program imports."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {one.name.split(".")[0] for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module.split(".")[0])
    return found


def torch_version():
    """Without an import, which takes a second; (0,) if there is none."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return tuple(int(part) for part in re.findall(r"\d+", importlib.metadata.version("torch"))[:2])
    return (0,)


def python_package():
    return f"{BUILD}/libstowage.so" if os.path.exists(f"{BUILD}/libstowage.so") else None


def run_python(text, where="."):
    return subprocess.run([sys.executable, "-c", text], cwd=where, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=120)


def blocks(name):
    """(line, language, note, text) of each fenced block; note: the comment above it."""
    lines, start = read(name).split("\n"), None
    for at, line in enumerate(lines):
        mark = re.match(r"```(\w*)$", line)
        if mark and start is None:
            start, language = at, mark.group(1)
        elif line == "```" and start is not None:
            above = [line for line in lines[max(0, start - 2):start] if line.startswith("<!--")]
            yield start + 1, language, above[-1][4:-3].strip() if above else "", "\n".join(lines[start + 1:at])
            start = None


def shell_lines(text):
    """Commands of a block: a comment may follow each, after # or several spaces."""
    for line in text.split("\n"):
        line = re.split(r"\s+#\s|\s{3,}", line.strip())[0]
        if line:
            yield line


def man_commands():
    for path in sorted(glob.glob(f"{ROOT}/man/man[17]/*")):
        for line in read(path).split("\n"):
            if line.startswith("$ "):
                yield os.path.relpath(path, ROOT), line[2:].replace("\\-", "-").replace("\\e", "\\")


def help_commands():
    for verb in options_by_verb():
        shown = subprocess.run([STOWAGE, verb, "--help"], capture_output=True, text=True, check=True).stdout
        for line in re.search(r"^examples?:\n(.*?)\n\n", shown, re.M | re.S).group(1).split("\n"):
            yield f"stowage {verb} --help", line.strip()


def is_complete(command):
    """Does a command in the text name files, or a command to run? The others only name an option."""
    words = command.split()
    return "…" not in command and not re.search(r"\b[A-Z_]{3,}\b", command.replace("T4", "")) and (
        "--" in words[2:-1] or "--last" in words or any(os.path.exists(word) for word in words[2:] if not word.startswith("-")))


def all_commands():
    """Each command once, with the place of its first use."""
    seen = {}
    for name in DOCUMENTS:
        for line, language, note, text in blocks(name):
            if language in ("", "sh") and not note.startswith("not run:") and name not in RUN_ELSEWHERE:
                for command in shell_lines(text):
                    seen.setdefault(command, f"{name}:{line}")
        for command in spans(name) if name != "docs/MEASUREMENTS.md" else ():  # what was run on other machines
            if is_complete(command):
                seen.setdefault(command, name)
    for place, command in [*man_commands(), *help_commands()]:
        seen.setdefault(command, place)
    return seen


def restore(kept):
    """Puts the files back as they were: what another example wrote would be in the way."""
    for name in set(os.listdir(".")) - set(kept):
        shutil.rmtree(name) if os.path.isdir(name) and not os.path.islink(name) else os.remove(name)
    for name, written in kept.items():
        if os.path.isfile(name) and os.stat(name).st_mtime_ns != written:
            shutil.copy2(f"{FOLDER}/pristine/{name}", name)


def check_commands():
    wrong, skipped, count = [], {}, 0
    has_torch = torch_version() >= (2,)
    def run_program():
        """The last run is one that held something, and was recorded however loaded the machine is."""
        subprocess.run([STOWAGE, "run", "--quiet", "--profile", "--", "python", "train.py"], env=environment(), check=True,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    run_program()
    shutil.copytree(".", f"{FOLDER}/pristine", symlinks=True)
    kept = {name: os.stat(f"{FOLDER}/pristine/{name}").st_mtime_ns for name in os.listdir(".")}
    for number, (command, place) in enumerate(all_commands().items()):
        if not taken(number):
            continue
        if command in NOT_RUN and not (has_torch and "PyTorch" in NOT_RUN[command]):
            skipped[command] = NOT_RUN[command]
            continue
        restore(kept)
        if "--last" in command:
            run_program()
        explained = "| stowage explain" in command  # the first command of the pipe fails
        done = subprocess.run(["bash", "-c", command if explained else "set -o pipefail; " + command],
                              env={**environment(), **({"TRAIN_FAILS": "1"} if explained else {})}, stdin=open("error.txt"), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=120, errors="replace")
        count += 1
        if done.returncode != 0 and not (done.returncode == 141 and "| head" in command):
            wrong.append(f"{place}: {command}: exit code {done.returncode}: {done.stdout[-600:]}")
    result("every_command_runs", wrong, f": {count} commands; not here: {'; '.join(f'{c} ({w})' for c, w in skipped.items())}")


def check_python():
    if python_package() is None or run_python("import numpy").returncode != 0:
        print("skip every_python_block_runs: no python3 with numpy")
        return
    wrong, skipped, count = [], [], 0
    for name in DOCUMENTS:
        for line, language, note, text in blocks(name):
            if language != "python" or name in RUN_ELSEWHERE:
                continue
            if note.startswith("not run:"):
                if not text.startswith(">>>"):
                    compile(text, f"{name}:{line}", "exec")
                skipped.append(f"{name}:{line}")
                continue
            if not taken(line):
                continue
            before = note.partition("run after:")[2].strip().replace("; ", "\n")
            needed = imported(f"{before}\n{text}")
            lost = sorted(module for module in needed - {"stowage"} if importlib.util.find_spec(module) is None)
            if not lost and "stowage.estimate" in text and torch_version() < (2,):
                lost = ["PyTorch 2 or newer"]
            if lost:
                print(f"skip python_block: {name}:{line}: no {lost[0]} in {sys.executable}")
                continue
            done = run_python(f"{before}\n{text}")
            count += 1
            if done.returncode != 0:
                wrong.append(f"{name}:{line}: {done.stdout[-800:]}")
    result("every_python_block_runs", wrong, f": {count} blocks; {len(skipped)} say why not: {', '.join(skipped)}")


def check_reasons():
    """Blocks of other languages are pictures; a shell block that is not run says why."""
    wrong = []
    for name in DOCUMENTS:
        for line, language, note, _ in blocks(name):
            if language not in ("", "sh", "python", "c", "console", "text"):
                wrong.append(f"{name}:{line}: a block of {language}, which nothing runs; use text, sh, python, c or console")
            if note.startswith("not run:") and len(note) < 20:
                wrong.append(f"{name}:{line}: not run, without a reason")
    result("blocks_that_are_not_run_say_why", wrong)


def docstring_examples(text):
    """Yields the indented paragraphs of the docstrings of a program that are Python with a call, and no doctest."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for part in re.split(r"\n[ ]*\n", ast.get_docstring(node) or ""):
            lines = part.split("\n")
            if ">>>" in part or not all(line.startswith("    ") for line in lines):
                continue
            with contextlib.suppress(SyntaxError):
                made = ast.parse("\n".join(line[4:] for line in lines))
                if any(isinstance(one, ast.Call) for one in ast.walk(made)):
                    yield made


def called(tree):
    """The names of what a program calls."""
    return {getattr(one.func, "attr", getattr(one.func, "id", "")) for one in ast.walk(tree) if isinstance(one, ast.Call)}


def check_docstrings():
    """doctest runs the other examples (python/tests/test_package.py)."""
    wrong, count = [], 0
    public = set(re.findall(r"\w+", read("python/stowage/__init__.py")))
    for path in sorted(glob.glob(f"{ROOT}/python/stowage/*.py")):
        name = os.path.basename(path)
        for made in docstring_examples(read(f"python/stowage/{name}")):
            count += 1
            names = {one for one in called(made) if one in public or one == "StowageCallback"}
            if name not in RUN_BY:
                wrong.append(f"python/stowage/{name}: an example that nothing runs, of {', '.join(sorted(called(made)))}; write it with >>>")
            elif not names or not names <= called(ast.parse(read(RUN_BY[name]))):
                wrong.append(f"python/stowage/{name}: {RUN_BY[name]} does not call {', '.join(sorted(names)) or 'anything of it'}")
    found = list(docstring_examples('"""A module.\n\n    plan = stowage.tune(step)\n\nText.\n\n>>> stowage.tune(1)\n"""\n'))
    result("examples_of_docstrings_are_run", wrong + ([] if len(found) == 1 else [f"the check finds {len(found)} of 1"]), f": {count} by other tests than doctest")


# ---- C ----

C_HEAD = """#include <stdio.h>
#include <stdlib.h>
#include <stowage/stowage.h>
%s
static int errors;
#define stow_status_message() (errors++, stow_status_message())
static stow_heap *heap;
static stow_stream stream;
static uint64_t ptr, addr = 4096, bytes = 1 << 20;
static float rows[32 * 64];
static void *cache;
static const char *url = "a.npy";
static uint64_t cache_drop(void *user, uint64_t wanted) { return user != NULL ? wanted : 0; }
"""


def c_examples():
    for path in sorted(glob.glob(f"{ROOT}/man/man3/*.3")):
        example = re.search(r"^\.SH EXAMPLE\n\.nf\n(.*?)^\.fi", read(path), re.M | re.S)
        if example:
            yield os.path.relpath(path, ROOT), example.group(1).replace("\\-", "-").replace("\\e", "\\")
    for name in DOCUMENTS:
        for line, language, note, text in blocks(name):
            if language == "c" and not note.startswith("not run:"):
                yield f"{name}:{line}", text


def check_c():
    compiler = os.environ.get("CC", "cc")
    if shutil.which(compiler) is None:
        print(f"skip every_c_example_runs: no {compiler}")
        return
    headers = "".join(f"#include <stowage/{os.path.relpath(path, f'{ROOT}/include/stowage')}>\n" for path in sorted(glob.glob(f"{ROOT}/include/stowage/**/*.h", recursive=True)))
    text, calls, count = C_HEAD % headers, "", 0
    for place, example in c_examples():
        # Functions come before; the statements are a function of their own.
        functions = "".join(re.findall(r"^static .*?(?:\}$\n?|\}\n)", example, re.M | re.S))
        body = example.replace(functions, "") if functions else example
        text += f'\n#line 1 "{place}"\n{functions}static void example_{count}(void) {{\n#line 1 "{place}"\n{body}\n}}\n'
        calls += f'  example_{count}();\n  if (errors > 0) return printf("{place}: %s\\n", (stow_status_message)()), 1;\n'
        count += 1
    text += f"""
int main(void) {{
  stow_heap_options options = STOW_HEAP_OPTIONS_INIT;
  options.device_name = "sim:4G";
  if (stow_heap_open(&heap, &options) != STOW_OK) return 1;
{calls}  return 0;
}}
"""
    with open("examples.c", "w") as file:
        file.write(text)
    built = subprocess.run([compiler, "-std=gnu17", f"-I{ROOT}/include", "-Wno-unused", "-o", "examples", "examples.c", f"-L{BUILD}", "-lstowage-analysis",
                            "-lstowage-data", "-lstowage"], capture_output=True, text=True)
    if built.returncode != 0:
        result("every_c_example_runs", [built.stderr[-1500:]])
        return
    done = subprocess.run(["./examples"], env=environment(), capture_output=True, text=True, timeout=60)
    result("every_c_example_runs", [] if done.returncode == 0 else [f"exit code {done.returncode}: {done.stdout[-500:]} {done.stderr[-500:]}"], f": {count} examples")


def main():
    check_links()
    check_navigation()
    check_pictures()
    check_names()
    check_reasons()
    check_docstrings()
    stage.stage(f"{FOLDER}/stage", ROOT, STOWAGE)
    check_commands()
    check_python()
    check_c()
    return failed


sys.exit(main())
