"""Reads the source of a program: which statements keep a value, and whether a backward pass needs what they keep.

A part of _kept.py, above _access.py. It parses files and never runs them. Names are followed without regard to order and through all
files of the program, so an answer may be "needed" where it is not.
"""
import ast
import linecache
import sys
import time
from typing import Any

from ._access import *

SOURCE_MOST = 400_000  # characters of a file: 0.5 s to parse
OTHERS_MOST = 200_000  # … of the other files of the program together
ADDS = ("append", "appendleft", "add", "put", "put_nowait", "push")
# Methods whose result has no graph, and attributes of a tensor that have none.
CUTS = ("item", "detach", "detach_", "tolist", "numpy", "size", "dim", "numel", "argmax", "argmin", "eq", "ne", "backward", "step")
PLAIN_CALLS = ("float", "int", "bool", "len", "print", "str", "repr", "isinstance", "id", "type", "range", "hasattr")
PLAIN_FIELDS = ("data", "shape", "dtype", "device", "grad", "ndim", "requires_grad", "is_leaf", "grad_fn")
ROUNDS = 12  # of following names through assignments
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.Module)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Source:
    """A parsed file: statements by line, and the parent of each node."""

    def __init__(self, path: str, lines: "list[str]") -> None:
        self.path, self.lines = path, [line.encode() for line in lines]
        self.tree = ast.parse("".join(lines))
        self.parent: "dict[Any, Any]" = {}
        self.nodes: "list[Any]" = []
        for node in ast.walk(self.tree):
            self.nodes.append(node)
            for child in ast.iter_child_nodes(node):
                self.parent[child] = node

    def at(self, line: int) -> Any:
        """Returns the innermost statement on a line."""
        best = None
        for node in self.nodes:
            if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0):
                if best is None or node.lineno >= best.lineno:
                    best = node
        return best

    def outside(self, node: Any) -> Any:
        """Yields the nodes around it, innermost first."""
        while node in self.parent:
            node = self.parent[node]
            yield node

    def scope(self, node: Any) -> Any:
        """Returns the function or the module around a node."""
        return next((n for n in self.outside(node) if isinstance(n, (*FUNCTIONS, ast.Lambda))), self.tree)

    def loops(self, node: Any) -> "list[Any]":
        """Returns the loops around a node in its function, innermost first."""
        found: "list[Any]" = []
        for outer in self.outside(node):
            if isinstance(outer, FUNCTIONS):
                break
            if isinstance(outer, LOOPS):
                found.append(outer)
        return found

    def origins(self, value: Any, statement: Any) -> "set[str]":
        """Returns the names that an expression uses, and those that they come from in the same turn of the innermost loop."""
        loops = self.loops(statement)
        inside = [n for n in ast.walk(loops[0]) if isinstance(n, ast.Assign)] if loops else []
        wait: "list[Any]" = [value]
        found: "set[str]" = set()
        while wait:
            new = names_in(wait.pop()) - found
            found |= new
            wait += [n.value for n in inside if n is not statement and any(name_of(root_of(t)[0]) in new for t in targets_of(n))]
        return found

    def enters(self, name: str, loop: Any) -> bool:
        """Returns whether a turn of the loop uses the value that a name has from the turn before."""
        inside: "list[Any]" = [n for part in loop.body for n in ast.walk(part)]
        uses = [n for n in inside if name_of(n) == name]
        if any(isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store) and name_of(root_of(n)[0]) == name for n in inside):
            return True
        if not any(isinstance(n.ctx, ast.Store) for n in uses):
            return False

        def order(node: Any) -> "tuple[int, bool]":  # a statement reads before it stores
            return self.statement(node).lineno, not isinstance(node.ctx, ast.Load) and not isinstance(self.parent[node], ast.AugAssign)

        return order(min(uses, key=order))[1] is False

    def statement(self, node: Any) -> Any:
        return node if isinstance(node, ast.stmt) else next(n for n in self.outside(node) if isinstance(n, ast.stmt))

    def text(self, node: Any, edits: "list[tuple[Any, str, str]]" = ()) -> str:  # type: ignore[assignment]
        """Returns the text of a node on one line, with text put around some nodes of it; "" if it cannot be on one line."""
        rows = [bytearray(row) for row in self.lines[node.lineno - 1 : node.end_lineno]]
        if not rows:
            return ""
        changes = []
        for part, before, after in edits:
            changes.append((part.end_lineno, part.end_col_offset, after))
            changes.append((part.lineno, part.col_offset, before))
        del rows[-1][node.end_col_offset :]
        # What ends at a place is closed before what begins there.
        for at, column, text in sorted(changes, key=lambda c: (c[0], c[1]), reverse=True):
            rows[at - node.lineno][column:column] = text.encode()
        del rows[0][: node.col_offset]
        if len(rows) > 1 and any(mark in bytes(row) for row in rows for mark in (b"#", b'"""', b"'''", b"\\")):
            return ""
        whole = b""
        for line in (bytes(row).strip() for row in rows):
            if line[:1] in (b"]", b"}") and whole.endswith(b","):
                whole = whole[:-1]
            whole += (b"" if not whole or whole[-1:] in b"([{" or line[:1] in (b")", b"]", b"}") else b" ") + line
        return whole.decode("utf-8", "replace")


_sources: "dict[str, Any]" = {}


def source_of(path: str) -> Any:
    """Returns the parsed file of the program, or None."""
    if path not in _sources:
        try:
            lines = linecache.getlines(path)
            _sources[path] = Source(path, lines) if lines and sum(map(len, lines)) <= SOURCE_MOST else None
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            _sources[path] = None
    return _sources[path]


def program_files() -> "list[str]":
    """Returns the files of the program's modules."""
    found = [get(module, "__file__") for name, module in list(sys.modules.items()) if is_own_module(name)]
    return list(dict.fromkeys(path for path in found if type(path) is str and path.endswith(".py")))


def others_of(source: Source) -> "list[Source] | None":
    """Returns the other files of the program if one of them has a backward pass, else []. None if they cannot all be read."""
    texts = {path: "".join(linecache.getlines(path)) for path in program_files() if path != source.path}
    if not any("backward" in text or "autograd" in text for text in texts.values()):
        return []
    if sum(map(len, texts.values())) > OTHERS_MOST:
        return None
    found = [source_of(path) for path, text in texts.items() if text]
    return None if None in found else found


def same(a: Any, b: Any) -> bool:
    """Returns whether two expressions are the same name, attribute or item."""
    return ast.dump(a).replace("Store()", "Load()") == ast.dump(b).replace("Store()", "Load()")


def root_of(node: Any) -> "tuple[Any, int]":
    """Returns the name or attribute below items and calls of setdefault() and get(), and how many of them there are."""
    levels = 0
    while True:
        if isinstance(node, ast.Subscript):
            node, levels = node.value, levels + 1
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("setdefault", "get"):
            node, levels = node.func.value, levels + 1
        else:
            return node, levels


def elements(node: Any) -> "list[Any]":
    """Returns the elements of a list or tuple that is written out."""
    return list(node.elts) if isinstance(node, (ast.List, ast.Tuple)) else []


def kept_by(statement: Any) -> "list[tuple[Any, int, Any]]":
    """Returns what a statement puts into containers: the container's name or attribute, how many items are between, and the value."""
    found: "list[tuple[Any, int, Any]]" = []
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and isinstance(statement.value.func, ast.Attribute):
        call: Any = statement.value
        name = call.func.attr
        base, levels = root_of(call.func.value)
        if name in ADDS and len(call.args) == 1:
            found.append((base, levels + 1, call.args[0]))
        elif name == "insert" and len(call.args) == 2:
            found.append((base, levels + 1, call.args[1]))
        elif name in ("extend", "extendleft") and len(call.args) == 1:
            inside: "list[Any]" = elements(call.args[0]) or [getattr(call.args[0], "elt", None)]
            found += [(base, levels + 1, part) for part in inside if part is not None]
        elif name == "update":
            given = [part for arg in call.args if isinstance(arg, ast.Dict) for part in arg.values] + [k.value for k in call.keywords]
            found += [(base, levels + 1, part) for part in given]
        elif name == "setdefault" and len(call.args) == 2:
            found.append((base, levels + 1, call.args[1]))
    elif isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add):
        base, levels = root_of(statement.target)
        found += [(base, levels + 1, value) for value in elements(statement.value)]
    elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target: Any = statement.targets[0]
        value: Any = statement.value
        base, levels = root_of(target)
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and same(value.left, target):
            found += [(base, levels + 1, part) for part in elements(value.right)]
        elif elements(value) and isinstance(value.elts[0], ast.Starred) and same(value.elts[0].value, target):
            found += [(base, levels + 1, part) for part in value.elts[1:]]
        elif isinstance(value, (ast.ListComp, ast.DictComp)):
            found.append((base, levels + 1, value.value if isinstance(value, ast.DictComp) else value.elt))
        elif levels > 0:
            found.append((base, levels, value))
    return found


def added_to(statement: Any) -> "tuple[Any, Any]":
    """Returns the target of "total += x" or "total = total + x", and x; (None, None) for another statement."""
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, (ast.Add, ast.Sub)):
        return statement.target, statement.value
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.value, ast.BinOp):
        target, value = statement.targets[0], statement.value
        if isinstance(value.op, (ast.Add, ast.Sub)) and same(value.left, target):
            return target, value.right
        if isinstance(value.op, ast.Add) and same(value.right, target):
            return target, value.left
    return None, None


def name_of(node: Any) -> str:
    """Returns "name" or ".attribute"; "" for another expression."""
    return node.id if isinstance(node, ast.Name) else "." + node.attr if isinstance(node, ast.Attribute) else ""


def names_in(node: Any) -> "set[str]":
    return {name_of(n) for n in ast.walk(node)} - {""}


def targets_of(statement: Any) -> "list[Any]":
    """Returns the names and attributes that an assignment binds."""
    if isinstance(statement, ast.Assign):
        wide = list(statement.targets)
    elif isinstance(statement, (ast.AugAssign, ast.AnnAssign, ast.For, ast.AsyncFor)):
        wide = [statement.target]
    else:
        return []
    found = []
    while wide:
        target = wide.pop()
        if isinstance(target, (ast.Tuple, ast.List)):
            wide += target.elts
        elif isinstance(target, ast.Starred):
            wide.append(target.value)
        else:
            found.append(target)
    return found


def calls_backward(node: Any) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and (
        node.func.attr in ("backward", "manual_backward") or (node.func.attr == "grad" and "autograd" in ast.dump(node.func)))


def without_graph(source: Source, node: Any) -> bool:
    """Returns whether it is in a block or a function that builds no graph."""
    for outer in source.outside(node):
        heads = [item.context_expr for item in outer.items] if isinstance(outer, (ast.With, ast.AsyncWith)) else getattr(outer, "decorator_list", [])
        if any(word in ast.dump(head) for head in heads for word in ("'no_grad'", "'inference_mode'")):
            return True
    return False


class Flow:
    """Follows a value through the names, attributes, results and arguments of a program, to the backward passes that use it."""

    def __init__(self, source: Source, until: float) -> None:
        others = others_of(source)
        self.home_source, self.source, self.until = source, source, until  # source: the file of what is looked at
        self.sources = [source, *(others or ())]
        self.names: "set[tuple[int, str]]" = set()  # of a scope
        self.fields: "set[str]" = set()
        self.returns: "set[str]" = set()  # functions whose result has it
        self.backwards: "list[Any]" = []  # calls in the file
        self.elsewhere: "list[tuple[Source, Any]]" = []  # … and in other files
        self.complete = others is not None
        self.bound: "dict[int, set[str]]" = {}
        self.shared: "set[str]" = set()  # names of modules that have it
        self.functions: "dict[str, list[Any]]" = {}  # of all files; a class has its __init__
        self.classes: "set[str]" = set()
        self.imported: "dict[str, str]" = {}  # the name that each imported name has in its own module
        for one in self.sources:
            for node in one.nodes:
                self._note(one, node)

    def _note(self, source: Source, node: Any) -> None:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            self.bound.setdefault(id(source.scope(node)), set()).add(node.id)
        elif isinstance(node, ast.arg):
            self.bound.setdefault(id(source.scope(node)), set()).add(node.arg)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            self.bound.setdefault(-id(source.scope(node)), set()).update(node.names)
        elif isinstance(node, FUNCTIONS):
            owner = source.parent[node]
            name = owner.name if node.name == "__init__" and isinstance(owner, ast.ClassDef) else node.name
            self.functions.setdefault(name, []).append(node)
        elif isinstance(node, ast.ClassDef):
            self.classes.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            self.imported.update({alias.asname or alias.name.partition(".")[0]: alias.name for alias in node.names})

    def home(self, node: Any, name: str) -> "tuple[int, str]":
        """Returns a name with the scope that binds it."""
        scope = self.source.scope(node)
        while scope is not self.source.tree:
            if name in self.bound.get(id(scope), ()) and name not in self.bound.get(-id(scope), ()):
                return id(scope), name
            scope = self.source.scope(scope)
        return id(scope), name

    def take(self, target: Any) -> bool:
        """Marks a name or an attribute. Returns whether it is new."""
        target, _ = root_of(target)
        before = len(self.names) + len(self.fields)
        if isinstance(target, ast.Name):
            home = self.home(target, target.id)
            self.names.add(home)
            if home[0] == id(self.source.tree):
                self.shared.add(target.id)
        elif isinstance(target, ast.Attribute):
            self.fields.add(target.attr)
            if isinstance(target.value, ast.Name) and target.value.id in self.imported:
                self.shared.add(target.attr)
                self.names.update((id(source.tree), target.attr) for source in self.sources)
        return len(self.names) + len(self.fields) > before

    def has(self, node: Any) -> bool:
        """Returns whether the value of an expression has the graph."""
        if isinstance(node, ast.Name):
            return self.home(node, node.id) in self.names or self.imported.get(node.id) in self.shared
        if isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id in self.imported and node.attr in self.shared:
                return True
            return node.attr not in PLAIN_FIELDS and (node.attr in self.fields or self.has(node.value))
        if isinstance(node, (ast.JoinedStr, ast.Compare, ast.Constant, ast.Lambda)):
            return False
        if isinstance(node, ast.Call):
            name = self._called(node)
            if name in (CUTS if isinstance(node.func, ast.Attribute) else PLAIN_CALLS):
                return False
            if name in self.returns:
                return True
            if name in self.functions and isinstance(node.func, ast.Name) and name not in self.classes:
                return False
            inside = [*node.args, *(k.value for k in node.keywords)]
            return any(map(self.has, inside)) or (isinstance(node.func, ast.Attribute) and self.has(node.func.value))
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            if any(self.has(g.iter) for g in node.generators):
                for g in node.generators:
                    for part in (g.target, *ast.walk(g.target)):
                        if isinstance(part, ast.Name):
                            self.take(part)
            return any(map(self.has, [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]))
        return any(self.has(child) for child in ast.iter_child_nodes(node))

    def _called(self, call: Any) -> str:
        name = getattr(call.func, "id", "")
        return call.func.attr if isinstance(call.func, ast.Attribute) else self.imported.get(name, name)

    def _pass(self, call: Any) -> bool:
        """Marks the parameters of a function of the program that get it."""
        name = self._called(call)
        new = False
        for function in self.functions.get(name, ()):
            wanted = function.args
            names = [a.arg for a in (*getattr(wanted, "posonlyargs", ()), *wanted.args)]
            if names[:1] in (["self"], ["cls"]):
                names = names[1:]
            if wanted.vararg is not None:
                names += [wanted.vararg.arg] * max(0, len(call.args) - len(names))
            rest = wanted.kwarg.arg if wanted.kwarg is not None else None
            known = {a.arg for a in (*wanted.args, *wanted.kwonlyargs)}
            given = list(zip(names, call.args)) + [(k.arg if k.arg in known else rest, k.value) for k in call.keywords]
            for parameter, value in given:
                key = (id(function), parameter)
                if parameter is not None and key not in self.names and self.has(value):
                    self.names.add(key)
                    new = True
        return new

    def follow(self) -> None:
        """Marks everything that gets the graph, and finds the backward passes."""
        new, rounds = True, 0
        while new and self.complete:
            new, rounds = False, rounds + 1
            for self.source in self.sources:
                for node in self.source.nodes:
                    if time.monotonic() > self.until or rounds > ROUNDS:
                        self.complete = False
                        break
                    new = self._step(node) or new
        for self.source in self.sources:
            for node in self.source.nodes:
                if calls_backward(node) and (self.has(node.func.value) or any(map(self.has, [*node.args, *(k.value for k in node.keywords)]))):
                    if self.source is self.home_source:
                        self.backwards.append(node)
                    else:
                        self.elsewhere.append((self.source, node))
        self.source = self.home_source

    def _step(self, node: Any) -> bool:
        """Marks what one node passes on. Returns whether anything is new."""
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            if node.value is not None and self.has(node.value) and not without_graph(self.source, node):
                return any([self.take(target) for target in targets_of(node)])
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            return self.has(node.iter) and any([self.take(target) for target in targets_of(node)])
        elif isinstance(node, ast.NamedExpr):
            return self.has(node.value) and self.take(node.target)
        elif isinstance(node, (ast.Return, ast.Yield)):
            scope = self.source.scope(node)
            if isinstance(scope, FUNCTIONS) and scope.name not in self.returns and node.value is not None and self.has(node.value):
                self.returns.add(scope.name)
                return True
        elif isinstance(node, ast.Call):
            return self._pass(node)
        elif isinstance(node, ast.Expr):
            return any([self.take(root) for root, _, value in kept_by(node) if self.has(value) and not without_graph(self.source, node)])
        return False

    def trains(self, node: Any, seen: "frozenset[str]" = frozenset()) -> bool:
        """Returns whether it calls backward() or an optimizer's step, also through functions of the program."""
        for call in ast.walk(node):
            if isinstance(call, ast.Call):
                name = self._called(call)
                if calls_backward(call) or "train" in name or (name == "step" and "optim" in ast.dump(call.func)):
                    return True
                if name not in seen and any(self.trains(function, seen | {name}) for function in self.functions.get(name, ())):
                    return True
        return False
