#!/usr/bin/env python3
"""screenshots.py BUILD [OUT]: takes the pictures of docs/gallery.md from this build, into docs/images.

    tools/build.sh release && /usr/bin/python3 tools/site/screenshots.py build/release

Needs Chromium, tmux, and a Python with numpy, nbclient and ipykernel. Nothing is drawn by hand: pages are opened in the browser, the
notebook is run by a kernel, and terminals are read from tmux with their colours.
"""
import html
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "report"))
from browser import Browser, find  # noqa: E402

SAMPLES = ROOT / "tests" / "samples"
BYTES_MAX = 150_000
LOADED = "location.protocol === 'file:' && document.readyState === 'complete'"
TRAIN = '''import numpy as np

def load(count):
    return np.random.default_rng(0).random((count, 512))

def normalize(rows):
    mean, spread = rows.mean(axis=0), rows.std(axis=0)
    return (rows - mean) / spread

def train(rows, steps=20):
    weights, history = np.zeros((512, 64)), []
    for step in range(steps):
        guess = np.tanh(rows @ weights)
        weights -= 1e-4 * rows.T @ guess
        history.append(guess)        # every step is kept
    return weights, history

rows = normalize(load(40_000))
weights, history = train(rows)
'''
CELLS = ["%load_ext stowage\nimport numpy as np\nimport stowage\nstowage.enable(ram=\"1.5G\")",
         "%%stowage\nrows = np.random.default_rng(0).random((40_000, 512))\nscaled = (rows - rows.mean(axis=0)) / rows.std(axis=0)",
         "import time\nhistory = []\nfor step in range(1000):\n    history.append(np.tanh(scaled * step))\n    time.sleep(0.05)"]
HOLD = '''import ctypes, sys, time
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context)
def activations(size):
    assert cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_ulonglong()), ctypes.c_size_t(size)) == 0
def weights(size):
    assert cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_ulonglong()), ctypes.c_size_t(size)) == 0
weights(1 << 20)
time.sleep(2)
weights(256 << 20)
weights(192 << 20)
batch = []
for step in range(14):
    activations(96 << 20)
    batch.append(b"x" * (24 << 20))
    time.sleep(0.5)
time.sleep(60)
'''
STYLE = """<!doctype html><meta charset="utf-8"><style>
body { margin: 0; padding: 14px 18px; display: inline-block; }
body.terminal { background: #16181d; color: #d6d9df; }
.terminal pre { margin: 0; font: 13px/1.35 "DejaVu Sans Mono", ui-monospace, Menlo, Consolas, monospace; white-space: pre; }
body.notebook { background: #fff; width: 900px; font: 14px system-ui, sans-serif; }
.in { background: #f5f5f6; border: 1px solid #e0e0e0; border-radius: 3px; padding: 8px 10px; margin: 12px 0 6px; font: 12.5px/1.4 "DejaVu Sans Mono", monospace; white-space: pre-wrap; }
.out { padding: 0 10px; } .out pre { font: 12px/1.35 "DejaVu Sans Mono", monospace; white-space: pre-wrap; margin: 4px 0; }
</style>"""
COLOURS = ["#3a3f4b", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#d6d9df"]


def ansi(text):
    """Text with colour sequences as HTML. Knows bold, faint, reverse and the eight colours."""
    out, style = "", {}
    for code, piece in re.findall(r"\x1b\[([\d;]*)m|([^\x1b]+|\x1b)", text):
        for number in ([int(word or 0) for word in code.split(";")] if not piece else []):
            if number == 0:
                style = {}
            elif number in (1, 2):
                style["font-weight" if number == 1 else "opacity"] = "bold" if number == 1 else "0.6"
            elif number == 7:
                style.update({"background": "#d6d9df", "color": "#16181d"})
            elif 30 <= number <= 37 or 90 <= number <= 97:
                style["color"] = COLOURS[number % 10]
            elif 40 <= number <= 47:
                style["background"] = COLOURS[number - 40]
            elif number in (39, 49):
                style.pop("color" if number == 39 else "background", None)
            elif number in (22, 27):
                style = {}
        if piece and piece != "\x1b":
            css = ";".join(f"{name}:{value}" for name, value in style.items())
            out += f'<span style="{css}">{html.escape(piece)}</span>' if css else html.escape(piece)
    return out


class Shots:
    def __init__(self, build, out, folder, browser):
        self.build, self.out, self.folder, self.browser = pathlib.Path(build).resolve(), pathlib.Path(out), folder, browser
        self.stowage = str(self.build / "stowage")
        standin = str(self.build / "tests" / "standin" / "libcuda.so.1")
        os.environ.update({"XDG_STATE_HOME": f"{folder}/state", "XDG_CACHE_HOME": f"{folder}/cache", "PATH": f"{self.build}:{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1",
                           "STOWAGE_COMMAND": self.stowage, "PYTHONPATH": str(ROOT / "python"), "STOWAGE_LIBRARY": str(self.build / "libstowage.so"),
                           "OPENBLAS_NUM_THREADS": "1", "STOWAGE_LIBNVML": "/nowhere"})
        self.device = {**os.environ, "STOWAGE_LIBCUDA": standin, "STANDIN_PATH": standin, "STANDIN_VRAM": str(6 << 30)}

    def save(self, page, name, width, height):
        page.size(width, height)
        page.drawn()
        path = self.out / f"{name}.png"
        page.screenshot(path)
        size = path.stat().st_size
        print(f"{path}: {size // 1000} KB")
        if size > BYTES_MAX:
            sys.exit(f"{path}: more than {BYTES_MAX // 1000} KB; show less")

    def report(self):
        subprocess.run([self.stowage, "report", str(SAMPLES / "leak.pickle.gz"), "-o", f"{self.folder}/leak.html"], check=True, capture_output=True)
        page = self.browser.open(f"file://{self.folder}/leak.html", width=1080, height=800)
        self.save(page, "report", 1080, 800)

    def lines(self):
        program = f"{self.folder}/train.py"
        pathlib.Path(program).write_text(TRAIN)
        subprocess.run([self.stowage, "run", "--quiet", "--profile", "--", sys.executable, "train.py"], cwd=self.folder, check=True, capture_output=True)
        subprocess.run([self.stowage, "report", "--last", "-o", f"{self.folder}/lines.html"], check=True, capture_output=True)
        page = self.browser.open(f"file://{self.folder}/lines.html#tab=lines", width=1000, height=700)
        page.size(1000, 600)
        page.drawn()
        page.value("scrollTo(0, document.querySelector('#tabs').getBoundingClientRect().top + scrollY - 24)")
        self.save(page, "lines", 1000, 600)

    def keep_text(self, name, text):
        """Puts what a picture shows into it, so that tests/guards/documents.py can compare that with what this version prints."""
        path = self.out / f"{name}.png"
        words = b"Text\0\0\0\0\0" + re.sub(r"\x1b\[[\d;]*m", "", text).encode()
        chunk = len(words).to_bytes(4, "big") + b"iTXt" + words + zlib.crc32(b"iTXt" + words).to_bytes(4, "big")
        head = 33  # the signature and the first chunk
        made = path.read_bytes()
        path.write_bytes(made[:head] + chunk + made[head:])

    def terminal(self, name, text):
        path = f"{self.folder}/{name}.html"
        pathlib.Path(path).write_text(f'{STYLE}<body class="terminal"><pre>{ansi(text)}</pre>', encoding="utf-8")
        page = self.browser.open(f"file://{path}", wait=LOADED)
        width, height = page.value("(() => { const b = document.body.getBoundingClientRect(); return [Math.ceil(b.width), Math.ceil(b.height)]; })()")
        self.save(page, name, width, height)

    def tmux(self, *words):
        return subprocess.run(["tmux", "-S", f"{self.folder}/tmux", *words], check=True, capture_output=True, text=True, env=self.device).stdout

    def screen(self, command, width, height, ready, seconds=60):
        """What a command shows in a terminal once `ready` is on its screen."""
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(width), "-y", str(height), command)
        try:
            for _ in range(seconds * 10):
                if re.search(ready, self.tmux("capture-pane", "-p")):
                    return self.tmux("capture-pane", "-e", "-p").rstrip("\n")
                time.sleep(0.1)
            sys.exit(f"{command}: {ready} did not show: {self.tmux('capture-pane', '-p')}")
        finally:
            self.tmux("kill-server")

    def explain(self):
        sample = "no_grad_missing-cnn.pickle.gz"
        shutil.copy(SAMPLES / "causes" / sample, f"{self.folder}/snapshot.pickle.gz")
        shown = self.screen(f"cd {self.folder}; echo '$ stowage explain snapshot.pickle.gz'; stowage explain snapshot.pickle.gz; echo; sleep 60", 118, 40, r"costs: none")
        self.terminal("explain", shown)
        self.keep_text("explain", shown)

    def top(self):
        program = f"{self.folder}/finetune.py"
        pathlib.Path(program).write_text(HOLD)
        running = subprocess.Popen([self.stowage, "run", "--quiet", "--vram-limit", "1G", "--spill", "2G", "--record", f"{self.folder}/hold.stow", "--", sys.executable, "finetune.py"],
                                   env=self.device, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self.terminal("top", self.screen("stowage top --interval 0.5 --filter finetune", 118, 15, r"14x activations[\s\S]*x weights"))
        finally:
            running.terminate()
            running.wait()

    def notebook(self):
        import nbformat
        from nbclient import NotebookClient
        book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
        kernels = pathlib.Path(self.folder, "jupyter", "kernels", "here")
        kernels.mkdir(parents=True)
        (kernels / "kernel.json").write_text(f'{{"argv": ["{sys.executable}", "-m", "ipykernel_launcher", "-f", "{{connection_file}}"], "display_name": "here", "language": "python"}}')
        os.environ["JUPYTER_PATH"] = f"{self.folder}/jupyter"
        NotebookClient(book, timeout=120, kernel_name="here", allow_errors=True, resources={"metadata": {"path": self.folder}}).execute()
        body = ""
        for cell in book.cells:
            body += f'<div class="in">{html.escape(cell.source)}</div>'
            for output in cell.outputs:
                data = output.get("data", {})
                if "text/html" in data:
                    body += f'<div class="out">{data["text/html"]}</div>'
                elif output.output_type == "error":
                    body += f'<div class="out"><pre>{html.escape(output.ename)}: {html.escape(output.evalue.partition(chr(10) * 2)[0])}</pre></div>'
        path = f"{self.folder}/notebook.html"
        pathlib.Path(path).write_text(f'{STYLE}<body class="notebook">{body}', encoding="utf-8")
        page = self.browser.open(f"file://{path}", wait=LOADED)
        height = page.value("Math.ceil(document.body.getBoundingClientRect().height)")
        self.save(page, "notebook", 940, min(height, 1100))


def main():
    if find() is None:
        sys.exit("screenshots: no Chromium here (Debian, Ubuntu: apt-get install chromium)")
    out = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else ROOT / "docs" / "images")
    out.mkdir(parents=True, exist_ok=True)
    only = sys.argv[3:]
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="project-") as folder, Browser() as browser:
        shots = Shots(sys.argv[1], out, folder, browser)
        for take in (shots.report, shots.lines, shots.explain, shots.top, shots.notebook):
            if not only or take.__name__ in only:
                take()


if __name__ == "__main__":
    main()
