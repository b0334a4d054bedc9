"""screen.py STOWAGE SAMPLES: what verbs print on a terminal of a given width: no line is wider, words stay whole, colours mean
something and go with NO_COLOR. Prints result lines."""
import os
import pty
import re
import select
import struct
import subprocess
import sys
import fcntl
import termios
import time

stowage, samples = sys.argv[1:3]
failed = 0


def terminal(width, *words, **variables):
    """Returns the output of the command on a terminal, and its exit code."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    environment.update(TERM="xterm", **variables)
    process = subprocess.Popen([stowage, *words], stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.DEVNULL, env=environment)
    os.close(theirs)
    out, deadline = b"", time.monotonic() + 60
    while time.monotonic() < deadline and select.select([ours], [], [], 60)[0]:
        try:
            piece = os.read(ours, 65536)
        except OSError:
            break
        if not piece:
            break
        out += piece
    os.close(ours)
    return out.decode(), process.wait()


def check(name, condition, text=""):
    global failed
    print(("ok " if condition else "FAIL ") + name + ("" if condition else f": {text!r:.600}"))
    failed |= not condition


def plain(text):
    return re.sub(r"\x1b\[\d+m", "", text).replace("\r", "")


leak, fragmentation = (os.path.join(samples, name + ".pickle.gz") for name in ("leak", "fragmentation"))
verbs = {
    "replay": ["replay", leak, "--vram-limit", "2900M"],
    "tune": ["tune", leak],
    "report": ["report", "--text", leak, fragmentation],
    "explain": ["explain", leak],
    "doctor": ["doctor"],
    "info": ["info", "--device", "sim:16G,host=32G"],
    "help": ["replay", "--help"],
    "top": ["top", "--once"],
}
for name, words in verbs.items():
    for width in (80,) if name == "tune" else (60, 80, 200):
        text, _ = terminal(width, *words)
        lines = plain(text).split("\n")
        long = [line for line in lines if len(line) > width and not re.match(r" *(export|stowage|python3?) \S", line)]
        check(f"{name}_fits_{width}_columns", not long and len(lines) > 3, long or lines)
    # Output to a pipe is the same text without wrapping and colours.
    if name in ("explain", "help"):
        piped = subprocess.run([stowage, *words], capture_output=True, text=True).stdout
        check(f"{name}_has_all_its_words", plain(terminal(60, *words)[0]).split() == piped.split(), piped)
        check(f"{name}_in_a_pipe_has_no_colours", "\x1b" not in piped, piped)
text, _ = terminal(200, *verbs["replay"])
check("what_fails_is_red", "\x1b[31mfails at event" in text, text)
text, _ = terminal(200, "replay", leak)
check("what_fits_is_green", "\x1b[32mfinishes" in text and "\x1b[31m" not in text, text)
text, _ = terminal(200, *verbs["explain"])
check("a_fix_that_is_enough_is_green", "\x1b[32mgets past the failure" in text, text)
for words in (verbs["replay"], verbs["explain"], verbs["doctor"], verbs["top"]):
    text, _ = terminal(120, *words, NO_COLOR="1")
    check(f"no_colours_in_{words[0]}_with_NO_COLOR", "\x1b" not in text, text)
text, _ = terminal(40, "replay", leak, "--json")
check("json_is_not_wrapped", text.count("\n") == subprocess.run([stowage, "replay", leak, "--json"], capture_output=True, text=True).stdout.count("\n"), text)
sys.exit(failed)
