"""A small HTTP server with ranges, on the loopback, that fails in the ways servers fail.

    with Server({"x.npy": bytes}) as server: server.url("x.npy"); server.plan = [...]

`plan` is a list of faults, one taken by each request, None for a good answer; when it is empty, answers are good. A fault is
    ("drop", n)      send n bytes of the answer, then close the connection
    ("drip", n, s)   send n bytes every s seconds until the client leaves
    ("slow", n, s)   send n bytes, then wait s seconds in all while sending the rest in drops
    ("status", n)    answer with that status
    ("short", n)     say and send n bytes less than were asked for
    ("long", n)      send n bytes more than the header says
    ("etag", text)   a good answer with another ETag
    ("length", n)    a good answer that says that the file has n bytes
    ("whole",)       ignore the range: 200 and everything
    ("encoded",)     say that it is compressed
    ("vanish",)      close the connection without an answer
    ("stall",)       send nothing and keep the connection open until the client leaves
`away` maps names to URLs that they redirect to (302). `ranges = False` never honours ranges; `password` wants that Authorization header; `mark` is the ETag. Requests are kept in `requests`.
"""

import http.server
import re
import threading
import time


class Server:
    def __init__(self, files):
        self.files, self.plan, self.requests, self.away = files, [], [], {}
        self.ranges, self.password, self.delay, self.mark = True, None, 0.0, '"one"'
        self.lock = threading.Lock()
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                owner.answer(self)

            def log_message(self, *_):
                pass

        class Quiet(http.server.ThreadingHTTPServer):
            def handle_error(self, *_):
                pass  # clients that leave are what this is for

        self.server = Quiet(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def url(self, name):
        return f"http://127.0.0.1:{self.server.server_address[1]}/{name}"

    def answer(self, handler):
        with self.lock:
            self.requests.append((handler.path, dict(handler.headers)))
            fault = self.plan.pop(0) if self.plan else None
        fault = fault or (None,)
        if self.delay:
            time.sleep(self.delay)
        if self.password is not None and handler.headers.get("Authorization") != self.password:
            return self.send(handler, 401, b"who are you?")
        if fault[0] == "status":
            return self.send(handler, fault[1], b"not now")
        path = handler.path.split("?")[0].lstrip("/")
        if path.startswith("moved/"):
            return self.send(handler, 302, b"", {"Location": "/" + path[len("moved/") :]})
        if path in self.away:
            return self.send(handler, 302, b"", {"Location": self.away[path]})
        data = self.files.get(path)
        if data is None:
            return self.send(handler, 404, b"no such file")
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", handler.headers.get("Range", ""))
        if not self.ranges or fault[0] == "whole" or asked is None:
            return self.send(handler, 200, data)
        first, last = int(asked[1]), min(int(asked[2]), len(data) - 1)
        if first >= len(data):
            return self.send(handler, 416, b"", {"Content-Range": f"bytes */{len(data)}"})
        body = data[first : last + 1]
        if fault[0] == "short":
            body = body[: -fault[1]]
        total = fault[1] if fault[0] == "length" else len(data)
        headers = {
            "Content-Range": f"bytes {first}-{first + len(body) - 1}/{total}",
            "ETag": fault[1] if fault[0] == "etag" else self.mark,
        }
        if fault[0] == "encoded":
            headers["Content-Encoding"] = "gzip"
        self.send(handler, 206, body, headers, fault)

    def send(self, handler, status, body, headers=None, fault=(None,)):
        try:
            if fault[0] == "vanish":
                handler.close_connection = True
                return
            if fault[0] == "stall":
                handler.rfile.read(1)
                return
            handler.send_response(status)
            for name, value in (headers or {}).items():
                handler.send_header(name, value)
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            if fault[0] == "drop":
                handler.wfile.write(body[: fault[1]])
                handler.close_connection = True
            elif fault[0] == "drip":
                for at in range(0, len(body), fault[1]):
                    handler.wfile.write(body[at : at + fault[1]])
                    handler.wfile.flush()
                    time.sleep(fault[2])
            elif fault[0] == "slow":
                handler.wfile.write(body[: fault[1]])
                for i in range(10):
                    part = len(body[fault[1] :]) // 10 + 1
                    handler.wfile.write(body[fault[1] + i * part : fault[1] + (i + 1) * part])
                    handler.wfile.flush()
                    time.sleep(fault[2] / 10)
            elif fault[0] == "long":
                handler.wfile.write(body + b"x" * fault[1])
                handler.close_connection = True
            else:
                handler.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            handler.close_connection = True
