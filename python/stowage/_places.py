# mypy: ignore-errors
"""Places: finds the line of the program that fills a variable, or makes its value, by reading the program's source.

A part of _holders.py, above _frames.py; its rules hold here too.
"""
import itertools
import sys

from ._access import *
from ._fields import *
from ._frames import *
from ._samples import *
from ._weighing import *

FIGURES = "figures of pyplot"
GROWING = ("append", "extend", "add", "update", "insert", "setdefault", "put", "put_nowait", "push", "write",
           "writelines", "appendleft")
JOINING = ("concat(", "concatenate(", "append(", "vstack(", "hstack(", "stack(", "cat(", "union(", "merge(")


def identifier(name):
    """Returns the last plain name: _cache of "self._cache", rows of "rows['x']", render of "the cache of render"."""
    plain = name.split(" of ")[-1 if name.startswith("the cache of ") else 0].split(" in ")[0]
    plain = plain.rpartition("].")[2] if "]." in plain else plain
    return plain.split("[")[0].split(".")[-1].strip()


def follows(line, ident):
    """Yields the text after each whole-word occurrence of a name."""
    at = line.find(ident)
    while at >= 0:
        end = at + len(ident)
        before = line[at - 1] if at > 0 else " "
        after = line[end] if end < len(line) else " "
        if not (before.isalnum() or before in "_\"'") and not (after.isalnum() or after in "_\"'"):
            yield line[end:].lstrip()
        at = line.find(ident, end)


def past_indexes(text):
    """Returns what comes after "[…]", also after several of them.

    >>> past_indexes("[a][b] = 1"), past_indexes("= 1")
    ('= 1', '= 1')
    """
    while text.startswith("[") and past_index(text) is not text:
        text = past_index(text)
    return text


def past_index(text):
    """Returns what comes after "[…]" at the start of a text; the text itself if there is none."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if depth == 0:
            return text[at + 1:].lstrip() if letter == "]" else text
    return text


def is_assignment(text):
    return text.startswith("=") and not text.startswith("==")


def adds_to(value, ident):
    """Returns whether a value is a name plus something: "rows + [part]", and not "np.sqrt(rows + 1)".

    >>> adds_to("rows + [part]", "rows"), adds_to("np.sqrt(rows + 1)", "rows")
    (True, False)
    """
    value = value[len("self."):] if value.startswith("self.") else value
    return value.startswith(ident) and value[len(ident):].lstrip().startswith("+") or value.endswith((f"+ {ident}", f"+{ident}"))


EMPTY = ("None", "[]", "{}", "()", "list()", "dict()", "set()", '""', "''", "0")


def role_of(line, ident):
    """Returns 2 if the line adds to a variable of that name, 1 if it assigns one, 0.5 if what it assigns is empty, 0 otherwise."""
    stripped = line.lstrip()
    if stripped.startswith("def ") and "): " in stripped:  # a function in one line
        stripped = line = stripped.partition("): ")[2]
    if stripped.startswith(("#", "def ", "class ", "import ", "from ")) or ident not in line:
        return 0
    best = 2 if f"SubElement({ident}," in line or f"heappush({ident}," in line else 0  # adds to its first argument
    for rest in follows(line, ident):
        inner = past_indexes(rest)
        method = inner[1:].split("(")[0].strip() if inner.startswith(".") and "(" in inner else ""
        if method in GROWING or rest.startswith(("+=", "|=")) or (inner is not rest and (is_assignment(inner) or inner.startswith("+="))):
            return 2
        left = stripped.split("=")[0]
        if rest.startswith(",") and "=" in rest and open_brackets(left) == 0 and left.replace(",", " ").replace("(", " ").split().count(ident) and (
                left.replace(",", "").replace("(", "").replace(")", "").replace("self.", "").replace(" ", "").isidentifier()):
            best = max(best, 1)  # "x, y = f()"
        if is_assignment(rest) or (rest.startswith(":") and "=" in rest and stripped.startswith((ident, "self."))):
            # "x = x + [part]" adds to it too, and "x = np.vstack([x, part])".
            again = any(True for _ in follows(rest[1:], ident))
            added = adds_to(rest[1:].split("#")[0].strip(), ident)
            empty = rest.rpartition("=")[2].split("#")[0].strip() in EMPTY
            best = max(best, 2 if added or again and any(call in rest for call in JOINING) else 0.5 if empty else 1)
    return best


def is_own_kind(name):
    """Returns whether it is the name of a class of the program's main module."""
    return is_a(get(sys.modules.get("__main__"), name, None), type)


CONTAINERS = ("list", "dict", "set", "tuple")
TABLES = ("pandas.DataFrame",)  # a line x["name"] = … sets one column of them


def sets_column(line, ident, column):
    """Returns true for the line that sets that column of a table."""
    return any(rest.startswith((f'["{column}"]', f"['{column}']")) and is_assignment(past_index(rest)) for rest in follows(line, ident))


NARROW = ("uint8", "int8", "bool", "uint16", "int16", "float16")
WIDE = {"float64": 8, "float32": 4, "int64": 8}


def widened(numbers, main):
    """Returns "float64 from uint8" if arrays of such numbers are made from a narrower one that a function of the program has, as large in
    elements, or "int64 as uint8" if that holds all of them; otherwise the type alone. numbers: what numbers_of() returns."""
    kind, _, shape = numbers.partition(" ")
    shape, _, small = shape.partition(" as ")
    if small:
        return f"{kind} as {small}"
    if kind.rpartition(".")[2] not in WIDE:
        return kind
    for frame in itertools.islice((frame for frame in stack_of(main) if is_own_frame(frame)), 16):
        for value in locals_of(frame).values() if frame.f_code.co_name != "<module>" else ():
            given = type_of(value).rpartition(".")[2] if is_array(value) and has(type(value), "dtype") else ""
            if given in NARROW and shape_of(value) == shape:
                return f"{kind} from {given}"
    return kind


def is_made_ahead(place):
    """Returns whether a line is in the constructor of a class that also has __getitem__: a dataset, which could make each item then."""
    path, _, number = place.rpartition(":")
    if not number.isdigit() or enclosing(path, int(number)) != "__init__":
        return False
    lines, margin = source_lines(path), None
    for at in range(int(number) - 1, -1, -1):
        if lines[at].lstrip().startswith("class "):
            margin, first = len(lines[at]) - len(lines[at].lstrip()), at + 1
            break
    if margin is None:
        return False
    rest = itertools.takewhile(lambda line: not line.strip() or len(line) - len(line.lstrip()) > margin, lines[first:])
    return any(line.lstrip().startswith("def __getitem__(") for line in rest)


def written_by(lines, ident):
    """Returns the number of the first line that writes to a file in memory through what was made of it, as an archive is, or that gives it
    to a call; 0 if there is none."""
    others, given = [], 0
    for number, line in enumerate(lines, 1):
        stripped = line.lstrip()
        if any(after.startswith(".write") for name in others for after in follows(line, name)):
            return number
        if ident not in line or stripped.startswith(("def ", "return ", "#", f"{ident} =", f"{ident}.")):
            continue
        for after in follows(line, ident):
            if after[:1] not in (",", ")"):
                continue
            if stripped.startswith("with ") and " as " in after:
                others.append(after.rpartition(" as ")[2].split(":")[0].strip())
            elif "=" in stripped.split("(")[0]:
                others.append(stripped.split("=")[0].strip())
            else:
                given = given or number
    return given


RELEASING = ("free", "release", "destroy", "close", "delete", "dispose")
ALLOCATING = ("alloc", "create", "new", "open", "init", "load", "make", "dup")


def library_place(name, where, main, *_):
    """Returns ("file:line", False) of the line that calls a C library for memory: the function with such a name, otherwise the line the
    program is at, otherwise the first call that frees nothing; ("", False) if there is none."""
    files = [where[len("module "):]] if where.startswith("module /") else []
    on_stack = [(f.f_code.co_filename, f.f_lineno) for f in itertools.islice(stack_of(main), 64) if is_own_frame(f)]
    ident, found = identifier(name), []
    for path in list(dict.fromkeys(files + [path for path, _ in on_stack]))[:4]:
        for number, line in enumerate(source_lines(path), 1):
            for rest in follows(line, ident) if ident in line and not line.lstrip().startswith("#") else ():
                function = rest[1:].partition("(")[0].strip().lower() if rest.startswith(".") and "(" in rest else ""
                if function.isidentifier() and not any(each in function for each in RELEASING):
                    found.append((any(each in function for each in ALLOCATING), (path, number) in on_stack, -len(found), path, number))
    return (f"{label(max(found)[3])}:{max(found)[4]}", False) if found else ("", False)


def parts_between(text):
    """Returns the parts of a text between the commas outside of brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def called_alone(value):
    """Returns (function, whether it is called through an object or a module) if a value is a call and nothing else: ("load", True) of
    "self.load(path)"; ("", False) otherwise."""
    name, bracket, rest = value.partition("(")
    depth = 1
    for at, letter in enumerate(rest):
        depth += (letter in "([{") - (letter in ")]}")
        if depth == 0 and rest[at + 1:].split("#")[0].strip():
            return "", False
    parts = (name[len("await "):] if name.startswith("await ") else name).split(".")
    return (parts[-1], len(parts) > 1) if bracket and all(part.isidentifier() for part in parts) else ("", False)


def body_of(name, path, dotted):
    """Returns (file, first, end) of the lines of a function of the program that returns a value, or None. dotted: it is a function of a
    module, or else a method."""
    module = next((m for n, m in list(sys.modules.items()) if is_own_module(n) and has(get(get(m, "__dict__", {}).get(name), "__code__", None), "co_filename")), None)
    path = get(module, name).__code__.co_filename if module is not None else path
    lines = source_lines(path)
    first = [at for at, line in enumerate(lines) if line.lstrip().startswith((f"def {name}(", f"async def {name}("))]
    if len(first) != 1 or not is_own(path) or (dotted and module is None and not any(
            text in lines[first[0]] for text in ("(self", "(cls"))):
        return None
    margin, at = len(lines[first[0]]) - len(lines[first[0]].lstrip()), first[0] + 1
    while at < len(lines) and (not lines[at].strip() or len(lines[at]) - len(lines[at].lstrip()) > margin or lines[at].lstrip()[0] in ")#"):
        at += 1
    return None if any(True for line in lines[first[0]:at] for _ in follows(line, "yield")) else (path, first[0] + 2, at + 1)


def is_filled(path, number, ident):
    """Returns whether a line assigns what a comprehension or a function of the program has filled, and not an empty container."""
    value = statement(source_lines(path), number).partition("=")[2].strip()
    return value[:1] in ("[", "{") or origin(path, number, ident, False)[1] != number


def origin(path, number, ident, table):
    """Returns (file, line, grows) of the line that makes what a line gets from a function of the program, as "x = load()" does: the line of
    that function. Otherwise the line itself. table: a line x["name"] = … adds nothing to it, but for the column of that name, if it is a text."""
    left, sign, value = statement(source_lines(path), number).partition("=")
    targets = [part.strip(" ()").partition(":")[0].rpartition(".")[2] for part in parts_between(left)]
    if not sign or ident not in targets or open_brackets(left):
        return path, number, False
    return made_in(value.strip(), targets.index(ident), len(targets), (path, number, False), table)


def made_in(value, at, count, here, table, depth=3):
    """Returns (file, line, grows) of the line that makes one of the `count` results of a call; `here` if that is not known."""
    name, dotted = called_alone(value)
    body = body_of(name, here[0], dotted) if name and depth > 0 else None
    path, first, end = body or ("", 0, 0)
    lines = source_lines(path) if body else []
    numbers = [each for each in range(first, end) if lines[each - 1].lstrip().startswith("return ") and enclosing(path, each) == name]
    given = parts_between(statement(lines, numbers[-1])[len("return "):]) if numbers else []
    if len(given) != count:
        return here
    result, inner = given[at], given[at].rpartition(".")[2]
    if not inner.isidentifier():
        return made_in(result, 0, 1, (path, numbers[-1], False), table, depth - 1) if "(" in result or "[" in result else here
    columns = [each for each in range(first, numbers[-1]) if is_a(table, str) and sets_column(lines[each - 1], inner, table)]
    if columns:
        return path, columns[-1], False
    roles = [(role_of(lines[each - 1], inner), each) for each in range(first, numbers[-1])]
    added = [each for role, each in roles if role == 2 and not (table and any(rest.startswith("[") for rest in follows(lines[each - 1], inner)))]
    made = [each for role, each in roles if role == 1]
    if added or not made:
        return (path, added[0], True) if added else here
    left, _, value = statement(lines, made[-1]).partition("=")
    return made_in(value.strip(), 0, 1, (path, made[-1], False), table, depth - 1) if len(parts_between(left)) == 1 else (path, made[-1], False)


MADE_OF = (("[", "list"), ("list(", "list"), ("sorted(", "list"), ("(", "tuple"), ("tuple(", "tuple"), ("dict(", "dict"), ("set(", "set"),
           ('"', "str"), ("'", "str"), ('f"', "str"), ("f'", "str"), ("str(", "str"), ("True", "bool"), ("False", "bool"), ("None", "NoneType"))


def stored_by(line, ident, path, main):
    """Returns the type of what a line adds to a container, "" if that is not known: that of the value it writes out, or of a variable of
    the functions that run."""
    for rest in follows(line, ident):
        inner = past_indexes(rest)
        value = inner[1:].strip() if is_assignment(inner) else inner.partition("(")[2].strip().rpartition(")")[0]
        if value.isidentifier():
            frames = (frame for frame in itertools.islice(stack_of(main), 64) if frame.f_code.co_filename == path)
            held = (locals_of(frame).get(value, ABSENT) for frame in frames if value in frame.f_code.co_varnames)
            return next((type_name(one) for one in held if one is not ABSENT), "")
        return next((kind for begin, kind in MADE_OF if value.startswith(begin)), "")
    return ""


def is_in_loop(path, number):
    """Returns whether a line is in a loop of its function: what it replaces in one turn was made by it in the turn before."""
    lines = source_lines(path)[:number]
    margin = len(lines[-1]) - len(lines[-1].lstrip()) if lines else 0
    for line in reversed(lines):
        depth, text = len(line) - len(line.lstrip()), line.lstrip()
        if text and depth < margin:
            margin = depth
            if text.startswith(("for ", "while ")):
                return True
            if text.startswith(("def ", "async def ", "class ")):
                return False
    return False


def place_of(name, where, main, kind="", words="", carries=False, of=""):
    """Returns ("file:line", grows) of the line that fills a variable, or makes it; ("", False) if it is not found.

    words: the columns of a table that hold most; the line that sets the first of them made the table large. of: the type of the elements
    that hold most; of several lines that fill a container, the one that adds those counts."""
    at = where[len("module "):] if where.startswith("module ") else where.rpartition(" at ")[2].rpartition(":")[0]
    on_stack = [(f.f_code.co_filename, f.f_lineno) for f in itertools.islice(stack_of(main), 64) if is_own_frame(f)]
    files = [at] if at.startswith(("/", "<")) else list(dict.fromkeys(path for path, _ in on_stack))
    if name.startswith(MADE):
        return f"{label(at)}:{where.rpartition(':')[2]}", kind in CONTAINERS
    if name == FIGURES:
        made = [(path, number) for path in files[:4] for number, line in enumerate(source_lines(path), 1)
                if any(call in line for call in ("subplots(", ".figure(", "subplot_mosaic(", "plt.plot("))]
        return (f"{label(made[0][0])}:{made[0][1]}", True) if made else ("", False)
    if kind == "multiprocessing.SharedMemory":  # a process that only opens the block does not make it
        made = [(path, number) for path in files[:4] for number, line in enumerate(source_lines(path), 1)
                if "create=True" in line and "SharedMemory(" in line and not line.lstrip().startswith("#")]
        if len(made) == 1:
            return f"{label(made[0][0])}:{made[0][1]}", False
    of_array = kind in ("numpy.ndarray", "torch.Tensor", "jaxlib.ArrayImpl", "cupy.ndarray")
    ident, best = identifier(name), (0, (0, False, False), "", 0)
    plain = "." not in name and " " not in name
    scope = ("" if where.startswith("module ") else where.partition(" at ")[0]) if plain else None  # the function whose variable it is
    if not ident.isidentifier():
        return "", False
    for path in files[:4]:
        for number, line in enumerate(source_lines(path), 1):
            if name.startswith("the cache of ") and line.lstrip().startswith(f"def {ident}("):
                return f"{label(path)}:{number}", True
            role = role_of(line, ident) if ident in line else 0
            if role == 2 and of_array and not any(call in line for call in JOINING):
                role = 1 if any(is_assignment(rest) for rest in follows(line, ident)) else 0  # "x += 1" changes its numbers
            if kind in TABLES and role:
                # A column takes more than the table without it, and the table does not grow by it.
                large = any(sets_column(line, ident, column) for column in words.split(", ")[:1])
                if large:
                    return f"{label(path)}:{number}", False
                role = 1 if any(rest.startswith("[") for rest in follows(line, ident)) else role
            if carries and role and any(True for _ in follows(line.partition("=")[2], ident)):
                role = 2  # "state = step(state)"
            # A line in the variable's function that gets it filled, before a line elsewhere that adds to a variable of that name. Of the same
            # role, a line in that function and the line the program is at; the first of those.
            inside = bool(role) and scope is not None and enclosing(path, number) == scope
            rank = 3 if inside and role == 2 else 2.5 if inside and role == 1 and is_filled(path, number, ident) else role
            if role == 2 and of and kind in CONTAINERS:
                adds = stored_by(line, ident, path, main)
                rank += 0.2 * (adds == of) - 0.3 * (adds not in ("", of))
            current = (path, number) in on_stack
            if role == 1 and current and not is_in_loop(path, number) and any(True for _ in follows(line.partition("=")[2], ident)):
                rank, current = 0.9, False  # "x = x[keep]" has not returned: an earlier line made what x is now
            here = rank, inside, current
            if role and here > best[1]:
                best = role, here, path, number
    if best[0] < 1 and is_own_kind(kind):  # nodes that a function links by setattr()
        calls = [(len(line) - len(line.lstrip()), number) for path in files[:1] for number, line in enumerate(source_lines(path), 1)
                 if any(rest.startswith("(") for rest in follows(line, kind)) and not line.lstrip().startswith(("class ", "#"))]
        best = (1, best[1], files[0], max(calls)[1]) if calls else best
    if kind.startswith("_io.") and best[0] == 1:
        number = written_by(source_lines(best[2]), ident)
        best = (2, best[1], best[2], number) if number else best
    if not best[0] and "." in name and " " not in name and name.partition(".")[0].isidentifier():
        # An attribute of a library's class, as handler.buffer: the line that makes the object.
        return place_of(name.partition(".")[0], where, main)[0], False
    if best[0] == 1:
        path, number, grows = origin(best[2], best[3], ident, kind in TABLES and (words.split(", ")[0] or True))
        return f"{label(path)}:{number}", grows
    return (f"{label(best[2])}:{best[3]}", best[0] == 2) if best[0] else ("", False)
