# mypy: ignore-errors
"""Frames: where the program is, and the statements its frames are at.

A part of _holders.py, above _weighing.py; its rules hold here too.
"""
import _thread
import itertools
import sys

from ._access import *
from ._fields import *
from ._samples import *
from ._weighing import *

MADE = "what line "  # "what line 7 makes": a value that has no name of the program's yet
FRAME = "frame"  # first word of a line (src/run/protocol.h)
TENSORS = "tensors"  # … and of another


def is_own_frame(frame):
    name, path = dict.get(frame.f_globals, "__name__", ""), frame.f_code.co_filename
    if path in ("<string>", "<stdin>"):
        return name == "__main__" and sys.argv[:1] in (["-c"], ["-"], [""])  # python -c, or a program from a pipe; not a dataclass's functions
    return is_own(path) and not (is_a(name, str) and name.startswith("stowage."))


def threads():
    """Returns the frame of the main thread, and those of the others; not of the calling thread."""
    frames = {ident: frame for ident, frame in sys._current_frames().items() if ident != _thread.get_ident()}
    known = sys.modules.get("threading")
    main = known.main_thread().ident if known is not None else None
    first = frames.pop(main, None) if main is not None else None
    if first is None and frames:
        first = frames.pop(next(iter(frames)))
    return first, list(frames.values())


def stack_of(frame):
    while frame is not None:
        yield frame
        frame = frame.f_back


def line_of(frame):
    """Returns the line a frame is at. Since Python 3.10 some instructions have none: then that of the last one before it that has."""
    if frame.f_lineno:
        return frame.f_lineno
    lines = get(frame.f_code, "co_lines", tuple)()
    return next((line for start, _, line in reversed(list(lines)) if line and start <= frame.f_lasti), 0)


def source_lines(path):
    """Returns the lines of a file of the program, [] if there is none. (report.py has its own version.)"""
    import linecache

    return linecache.getlines(path)


cell_name = None  # set by the package: returns the name of a notebook's cell by its path, other paths as they are


def label(path):
    """Returns the name of a file for people. It may not contain a tab."""
    return path if cell_name is None else cell_name(path)


def name_cells(function):
    """Makes label() name the cells of a notebook."""
    global cell_name
    cell_name = function


def enclosing(path, number):
    """Returns the name of the function that a line is in, "" if it is in none."""
    lines = source_lines(path)[:number]
    margin = len(lines[-1]) - len(lines[-1].lstrip()) if lines else 0
    for line in reversed(lines):
        if line.strip() and len(line) - len(line.lstrip()) < margin:
            margin = len(line) - len(line.lstrip())
            if line.lstrip().startswith(("def ", "async def ")):
                return line.partition("def ")[2].split("(")[0].strip()
    return ""


def word(text):
    return "".join(c if c >= " " else "?" for c in str(text))


LITERAL = 60  # lines of one statement that are read
counted_lines = {}  # what open_brackets() returned: each answer reads the same lines again


def open_brackets(line):
    """Returns how many brackets a line opens and does not close, without those in texts and comments."""
    if line not in counted_lines:
        if len(counted_lines) >= 16 * LITERAL:
            counted_lines.clear()
        counted_lines[line] = count_brackets(line)
    return counted_lines[line]


def count_brackets(line):
    for quote in "\"'" if '"' in line or "'" in line else "":
        pieces = line.split(quote)
        line = "".join(pieces[::2]) if len(pieces) % 2 else line
    line = line.partition("#")[0]
    return sum(line.count(sign) for sign in "([{") - sum(line.count(sign) for sign in ")]}")


def beginning(lines, number):
    """Returns the number of the line where the statement of a line begins: that of a dict written over many lines has its name.

    >>> beginning(["table = {", "    'a': [", "        1],", "    'b': [2],", "}"], 4)
    1
    """
    first, depth = number, 0
    for at in range(min(number - 1, len(lines)), max(0, number - LITERAL), -1):
        line = lines[at - 1]
        depth += open_brackets(line)
        if depth > 0:
            first, depth = at, 0
        if line.lstrip().startswith(("def ", "class ", "async def ")):
            break
    return first


def statement(lines, number):
    """Returns the text of the statement that a line is part of, at most 120 characters, in one line."""
    text, depth = "", 0
    for line in lines[beginning(lines, number) - 1:][:LITERAL] if 0 < number <= len(lines) else ():
        depth += open_brackets(line)
        text += " " * (text[-1:] not in ("", "(", "[", "{")) + line.strip()
        if depth <= 0 or len(text) >= 120:
            break
    return word(text)[:120]


def source(frame):
    """Returns the text of the statement a frame is at, if it is the program's own and can be read."""
    path, line = frame.f_code.co_filename, frame.f_lineno  # a frame between two lines has none
    return statement(source_lines(path), line) if line and is_own(path) else ""


def pulse(main):
    """Returns a number that changes when the program continues: instruction pointers, and the numbers among its own variables. Those of
    libraries change during one call, which makes temporary values."""
    state = []
    own = [frame for frame in itertools.islice(stack_of(main), 64) if is_own_frame(frame)]
    for frame in own[:16] or itertools.islice(stack_of(main), 16):
        state.append(frame.f_lasti)
        if own:
            values = locals_of(frame) if frame.f_code.co_name != "<module>" else frame.f_globals
            state.extend(v for v in list(values.values())[-64:] if type(v) is int or type(v) is float)
    return hash(tuple(state))


def tensors_line(main):
    """Returns a line with the number of tensors among the variables of the functions that run, and of those that are in an autograd graph.
    None without PyTorch, and none if there is no such tensor."""
    kind = get(sys.modules.get("torch"), "Tensor", None)
    if not is_a(kind, type):
        return []
    frames = (frame for frame in itertools.islice(stack_of(main), 48) if frame.f_code.co_name != "<module>")
    tensors = [value for frame in frames for value in locals_of(frame).values() if issubclass(type(value), kind)]
    return [f"{TENSORS}\t{len(tensors)}\t{sum(get(value, 'grad_fn', None) is not None for value in tensors)}"] if tensors else []


def frame_lines(main):
    return tensors_line(main) + [f"{FRAME}\t{word(label(f.f_code.co_filename))[-190:]}\t{line_of(f)}\t{word(f.f_code.co_name)[:60]}\t{source(f)}"
            for f in itertools.islice((f for f in stack_of(main) if is_own_frame(f) or not is_own(f.f_code.co_filename)), 48)]


def line_text(place):
    """Returns the text of the statement at "file:line", "" if it cannot be read."""
    path, _, number = place.rpartition(":")
    return statement(source_lines(path), int(number)) if number.isdigit() and path.startswith("/") else ""
