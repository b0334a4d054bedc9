"""A headless Chromium driven over a pipe with the standard library only.

    with Browser() as browser:
        page = browser.open("file:///…/report.html")
        page.value("document.title")

Uses the DevTools protocol on file descriptors 3 and 4 (--remote-debugging-pipe: JSON messages, each ended by a zero byte), so there is no
port and no other program. Every wait has a deadline. The profile is a temporary folder, and the whole process group is ended at the end.
"""
import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--disable-default-apps", "--disable-extensions", "--mute-audio",
         "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe"]
DEADLINE = 60


def find():
    """Returns the installed browser, or None."""
    for name in (os.environ.get("STOWAGE_CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"):
        if name and shutil.which(name):
            return shutil.which(name)
    return None


class BrowserError(Exception):
    pass


class Browser:
    def __enter__(self):
        self.profile = tempfile.mkdtemp(prefix="stowage-browser-")
        to_child, self.write_end = os.pipe()
        self.read_end, from_child = os.pipe()

        def wire():  # in the child: the pipes become 3 and 4
            a, b = os.dup(to_child), os.dup(from_child)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self.log = open(os.path.join(self.profile, "log"), "wb")
        self.process = subprocess.Popen(
            [find(), *FLAGS, "--user-data-dir=" + os.path.join(self.profile, "profile"), "about:blank"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, close_fds=False, preexec_fn=wire, start_new_session=True,
            env={**os.environ, "HOME": self.profile, "XDG_CONFIG_HOME": self.profile, "XDG_CACHE_HOME": self.profile})
        os.close(to_child)
        os.close(from_child)
        self.buffer = b""
        self.number = 0
        self.events = []
        return self

    def __exit__(self, *_):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        for end in (self.write_end, self.read_end):
            os.close(end)
        self.log.close()
        shutil.rmtree(self.profile, ignore_errors=True)

    def message(self, deadline):
        while b"\0" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.read_end], [], [], left)[0]:
                raise BrowserError("the browser did not answer in time")
            piece = os.read(self.read_end, 1 << 20)
            if not piece:
                with open(os.path.join(self.profile, "log"), "rb") as log:
                    raise BrowserError("the browser ended: " + log.read()[-800:].decode(errors="replace"))
            self.buffer += piece
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, params=None, session=None, seconds=DEADLINE):
        self.number += 1
        request = {"id": self.number, "method": method, "params": params or {}}
        if session:
            request["sessionId"] = session
        os.write(self.write_end, json.dumps(request).encode() + b"\0")
        deadline = time.monotonic() + seconds
        while True:
            answer = self.message(deadline)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error'].get('message')}")
                return answer["result"]
            self.events.append(answer)

    def open(self, url, width=1280, height=800, dark=False, wait="document.documentElement.dataset.ready"):
        return Page(self, url, width, height, dark, wait)


class Page:
    def __init__(self, browser, url, width, height, dark, wait):
        self.browser = browser
        target = browser.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        self.session = browser.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(domain + ".enable")
        self.size(width, height)
        self.prefer_dark(dark)
        browser.events.clear()
        began = time.monotonic()
        self.call("Page.navigate", {"url": url})
        if wait:
            self.until(wait)
        self.open_seconds = time.monotonic() - began

    def call(self, method, params=None):
        return self.browser.call(method, params, self.session)

    def value(self, expression):
        answer = self.call("Runtime.evaluate", {"expression": expression, "returnByValue": True, "awaitPromise": True})
        if "exceptionDetails" in answer:
            raise BrowserError(f"{expression}: {answer['exceptionDetails'].get('exception', {}).get('description', '?')}")
        return answer["result"].get("value")

    def until(self, expression, seconds=DEADLINE):
        """Waits until the expression is true; evaluates it again after each frame that the page draws."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = self.value(f"new Promise((done) => {{ const v = (() => {{ try {{ return {expression}; }} catch {{ return null; }} }})(); "
                               "if (v) done(v); else { requestAnimationFrame(() => setTimeout(() => done(null))); setTimeout(() => done(null), 200); } })")
            if found:
                return found
        raise BrowserError(f"not within {seconds} s: {expression}; complaints: {self.complaints()}")

    def drawn(self):
        """Returns once two frames have been drawn."""
        self.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})

    def prefer_dark(self, dark):
        self.call("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, **more})

    def click(self, x, y, clicks=1):
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, button="left", clickCount=clicks)
        self.mouse("mouseReleased", x, y, button="left", clickCount=clicks)

    def wheel(self, x, y, delta):
        self.mouse("mouseWheel", x, y, deltaX=0, deltaY=delta)

    def key(self, key, code=None, text=None):
        text = text if text is not None else (key if len(key) == 1 else "")
        virtual = {"Escape": 27, "Enter": 13}.get(key, ord(key.upper()) if len(key) == 1 else 0)
        more = {"key": key, "code": code or key, "windowsVirtualKeyCode": virtual}
        self.call("Input.dispatchKeyEvent", {"type": "keyDown", "text": text, **more})
        self.call("Input.dispatchKeyEvent", {"type": "keyUp", **more})

    def type(self, text):
        self.call("Input.insertText", {"text": text})

    def box(self, selector):
        return self.value(f"(() => {{ const b = document.querySelector({json.dumps(selector)}).getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; }})()")

    def press(self, selector):
        self.value(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'nearest'}})")
        x, y, w, h = self.box(selector)
        self.click(x + w / 2, y + h / 2)

    def screenshot(self, path, whole=False):
        data = self.call("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": whole})["data"]
        with open(path, "wb") as out:
            out.write(base64.b64decode(data))

    def complaints(self):
        """Returns what went wrong in the page: exceptions, errors in the console, requests that left the page."""
        self.value("1")
        found = []
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            method, params = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append("exception: " + params["exceptionDetails"].get("exception", {}).get("description", params["exceptionDetails"].get("text", "?")))
            elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
                found.append("log: " + params["entry"]["text"])
            elif method == "Runtime.consoleAPICalled" and params["type"] == "error":
                found.append("console: " + str(params["args"]))
            elif method == "Network.requestWillBeSent" and not params["request"]["url"].startswith(("file:", "about:", "data:", "blob:")):
                found.append("request: " + params["request"]["url"])
            elif method == "Page.javascriptDialogOpening":
                found.append("dialog: " + params.get("message", ""))
        return found
