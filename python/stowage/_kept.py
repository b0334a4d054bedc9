"""Finds the statement of a program that keeps tensors from turn to turn of a loop, and how to change it.

A part of _program.py, above _kept_source.py. The values say what is kept: a container with several graphs, a sum of many terms, a state
that each turn makes from the one before. The source says which statement keeps it, and whether a backward pass needs the graph:

    kept       the values are not used for gradients: `losses.append(loss.detach())`
    carried    a state goes into the next turn: cut it after the backward pass
    summed     the terms are summed and then trained on: one backward pass for each
    needed     another backward pass needs the graphs: nothing to cut
    without    no backward pass in the loop: no_grad around it
    values     tensors without graphs stay on the device: `.cpu()`

Each is a line "advice KIND GRAPHS BYTES\tCHANGE\tCOST" of the program's text; src/advise/program.c reads it.
"""
import ast
import time
from typing import Any

from ._access import *
from ._tensors import *
from ._kept_search import *
from ._kept_source import *

ADVICE_SECONDS = 0.5
ADVICE_MOST = 395  # bytes of a change
TURNS_LEAST = 2  # graphs in a container
TERMS_LEAST = 2  # of a sum
LARGE_BYTES = 1 << 16  # of a tensor: on the device it fills memory by itself
STATEMENT_MOST = 200  # characters that are quoted


class Advice:
    """What to change about one holder."""

    def __init__(self, search: Search, source: Source, holder: Holder, until: float) -> None:
        self.search, self.source, self.holder, self.until = search, source, holder, until
        self.key = key_of(holder)
        self.origins: "set[str]" = set()  # names that what is kept comes from

    def is_it(self, base: Any) -> bool:
        """Returns whether a name or an attribute of the source is the holder."""
        if self.holder.field:
            return isinstance(base, ast.Attribute) and base.attr == self.holder.field
        return isinstance(base, ast.Name) and base.id == self.holder.name

    def place(self, node: Any, source: Any = None) -> str:
        return f"{(source or self.source).path.replace(chr(92), '/').rpartition('/')[2]}:{node.lineno}"

    # ---- what keeps it ----

    def keeping(self) -> "list[tuple[Any, str, int, Any]]":
        """Returns the statements that keep it: statement, form, levels, expression. Forms: "put", "sum", "state"."""
        found: "list[tuple[Any, str, int, Any]]" = []
        tensor = self.search.tensors.has(self.holder.value)
        for node in self.source.nodes:
            if isinstance(node, ast.Lambda) and not tensor:  # a hook
                call = ast.Expr(value=node.body)
                found += [(self.source.statement(node), "put", levels, value) for base, levels, value in kept_by(call) if self.is_it(base)]
            if not isinstance(node, (ast.Expr, ast.Assign, ast.AugAssign)):
                continue
            target, term = added_to(node)
            base, levels = root_of(target) if target is not None else (None, 0)
            state = self.state_target(node)
            own = term is not None and self.is_it(base) and self.key in self.source.origins(term, node)
            if term is not None and not own and self.is_it(base) and (tensor or levels > 0) and not elements(term):
                if (not tensor or self.holder.graphs >= TERMS_LEAST) and not self.is_fresh(node):
                    found.append((node, "sum", levels, term))
            elif state is not None:
                if (self.source.loops(node) or self.holder.field) and not self.is_fresh(node):
                    found.append((node, "state", root_of(state)[1], node.value))
            elif not tensor:
                found += [(node, "put", levels, value) for base, levels, value in kept_by(node) if self.is_it(base)]
        return found

    def state_target(self, node: Any) -> Any:
        """Returns the target of an assignment that makes the holder, or an item of it, from what it was before; None for another one."""
        if not isinstance(node, (ast.Assign, ast.AugAssign)):
            return None
        for target in targets_of(node):
            base, levels = root_of(target)
            if not self.is_it(base):
                continue
            if levels > 0:
                inside = (n for n in ast.walk(node.value) if isinstance(n, ast.Subscript))
                return target if any(same(n, target) for n in inside) or isinstance(node, ast.AugAssign) else None
            if not isinstance(node.value, (ast.List, ast.Tuple, ast.Dict, ast.ListComp)) and not elements(getattr(node.value, "right", None)):
                return target if self.is_carried(node) else None
        return None

    def is_carried(self, statement: Any) -> bool:
        """Returns whether the holder that a statement makes comes from what it was in the turn before."""
        loops = self.source.loops(statement)
        if self.mentions(statement.value) or not loops or self.holder.field:
            return self.mentions(statement.value)
        return self.key in self.source.origins(statement.value, statement) and self.source.enters(self.key, loops[0])

    def mentions(self, node: Any) -> bool:
        return any(self.is_it(n) for n in ast.walk(node) if isinstance(n, (ast.Name, ast.Attribute)))

    def is_fresh(self, statement: Any) -> bool:
        """Returns whether each turn of the innermost loop begins with a new value: then nothing goes from turn to turn."""
        loops = self.source.loops(statement)
        if not loops or self.holder.field:
            return False
        return any(
            isinstance(other, ast.Assign) and other is not statement and not self.mentions(other.value)
            and any(self.is_it(t) for t in targets_of(other))
            for other in loops[0].body
        )

    def flow(self) -> Flow:
        flow = Flow(self.source, self.until)
        for node in self.source.nodes:
            if isinstance(node, (ast.Name, ast.Attribute)) and self.is_it(node):
                flow.take(node)
        flow.follow()
        return flow

    # ---- changes ----

    def sample(self, levels: int) -> Any:
        """Returns the last value that many items below the holder that has tensors."""
        value = self.holder.value
        for _ in range(levels):
            parts = [part for _, part in entries_of(value, ENTRIES_MOST) if self.search.inside(part)[1] > 0]
            if not parts:
                return None
            value = parts[-1]
        return value

    def edits(self, node: Any, value: Any) -> "list[tuple[Any, str, str]] | None":
        """Returns what to put around parts of an expression so that it keeps no graph. None if that is not known."""
        tensors = self.search.tensors
        if tensors.has(value):
            after = ".detach()" if tensors.graph(value) is not None else ""
            if self.holder.graphs == 0 or (tensors.size(value) >= LARGE_BYTES and tensors.device(value) != "cpu"):
                after += ".cpu()"
            if not after or (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CUTS):
                return []
            if isinstance(node, ast.IfExp):  # one of them may be a number
                return (self.edits(node.body, value) or []) + (self.edits(node.orelse, value) or [])
            if isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
                return [(node, "", after)]
            return [(node, "(", ")" + after)]
        if self.search.inside(value)[1] == 0:
            return []
        found: "list[tuple[Any, str, str]]" = []
        pairs: "list[tuple[Any, Any]]" = []
        if is_a(value, dict) and isinstance(node, ast.Dict) and len(node.values) == count_of(value) and None not in node.keys:
            pairs = [(part, held) for part, (_, held) in zip(node.values, entries_of(value, ENTRIES_MOST))]
        elif is_a(value, (list, tuple)) and elements(node) and len(elements(node)) == count_of(value):
            pairs = [(part, held) for part, (_, held) in zip(elements(node), entries_of(value, ENTRIES_MOST))]
        elif isinstance(node, ast.Call):
            names = stored_names(value)
            given = {name: part for name, part in zip(list(names), node.args)}
            given.update({k.arg: k.value for k in node.keywords if k.arg})
            pairs = [(part, names[name]) for name, part in given.items() if name in names]
            if not pairs or len(pairs) < sum(self.search.inside(held)[1] > 0 for held in names.values()):
                pairs = []
        if pairs:
            for part, held in pairs:
                some = self.edits(part, held)
                if some is None:
                    return None
                found += some
            return found
        return self.rebuilt(node, value)

    def rebuilt(self, node: Any, value: Any) -> "list[tuple[Any, str, str]] | None":
        """Returns the change of an expression whose value has several tensors, made elsewhere."""
        tensors = self.search.tensors
        parts = entries_of(value, ENTRIES_MOST)
        held = next((part for _, part in parts if tensors.has(part)), None)
        if held is None or any(self.search.inside(part)[1] > 0 and not tensors.has(part) for _, part in parts):
            return None
        after = ".detach()" + (".cpu()" if tensors.size(held) >= LARGE_BYTES and tensors.device(held) != "cpu" else "")
        every = all(tensors.has(part) for _, part in parts)
        if is_a(value, dict):
            kept = f"part{after}" if every else f'part{after} if hasattr(part, "detach") else part'
            return [(node, "{name: " + kept + " for name, part in ", ".items()}")]
        if (type(value) is list or type(value) is tuple) and every:
            return [(node, ("[" if type(value) is list else "tuple(") + f"part{after} for part in ", "]" if type(value) is list else ")")]
        return None

    def changed(self, statement: Any, edits: "list[tuple[Any, str, str]]") -> str:
        """Returns the words for a statement with its changes."""
        new = self.source.text(statement, edits)
        if new and len(new) <= STATEMENT_MOST:
            old = self.source.text(statement)
            return f"at {self.place(statement)}: {new}" + (f" instead of {old}" if len(new) + len(old) < 200 else "")
        parts = []
        for node, before, after in edits:
            old, inner = self.source.text(node), self.source.text(node, [(node, before, after)])
            if not inner:
                inner = before + old + after
            if not old or len(inner) > STATEMENT_MOST:
                return ""
            parts.append(f"at {self.place(node)}: in place of {old} write {inner}")
        return "; ".join(parts)

    # ---- kinds ----

    def lines(self) -> "list[tuple[str, str, str]]":
        """Returns (kind, change, cost) for the holder, [] if nothing in the source keeps it."""
        found = self.keeping()
        if not found:
            return []
        flow = self.flow()
        here = self.holder.frame.f_lineno
        # The statement nearest to where the program is comes first.
        found.sort(key=lambda f: (not self.source.loops(f[0]), abs(f[0].lineno - here) if self.source.path == self.holder.frame.f_code.co_filename else 0))
        statement, form, levels, expression = found[0]
        if not flow.complete:
            return []
        graphs = self.holder.graphs > 0
        if flow.elsewhere and (graphs or form == "state"):
            return [self.needed(flow)]
        loops = self.source.loops(statement)
        if not graphs and self.source.path == self.holder.frame.f_code.co_filename and loops:
            here = self.source.at(self.holder.frame.f_lineno)  # a container that an earlier loop filled grows no more
            if self.source.scope(here) is self.source.scope(statement) and not set(loops) & {here, *self.source.loops(here)}:
                return []
        if form == "state":
            return self.carried(statement, flow)
        if flow.backwards and graphs:
            return self.summed(statement, form, expression, flow)
        made: "list[tuple[str, str, str]]" = []
        edits: "list[tuple[Any, str, str]]" = []
        same_statement = [f for f in found if f[0] is statement]
        for _, form, levels, expression in same_statement:
            value = self.holder.value if form == "sum" and levels == 0 else self.sample(levels)
            some = self.edits(expression, value) if value is not None else None
            if some is None:
                edits = []
                break
            edits += some
        change = self.changed(statement, edits) if edits else ""
        self.origins = self.source.origins(expression, statement)
        if change:
            cost = "a copy to the host each turn; what uses the values later must be on the host too"
            made.append(("kept" if graphs else "values", change, cost if ".cpu()" in change else "none: no backward pass uses it"))
        elif not graphs and self.holder.tensors > TURNS_LEAST:
            made.append(("values", self.fewer(statement), "what is dropped is computed again"))
        if graphs:
            made += self.without(flow)
        return made

    def fewer(self, statement: Any) -> str:
        """Returns the words for values that are made elsewhere."""
        text = self.source.text(statement)
        quoted = f" ({text})" if text and len(text) <= 100 else ""
        return f"keep fewer of the tensors that {self.place(statement)} keeps{quoted}: drop the oldest, or keep copies on the host (.cpu())"

    def without(self, flow: Flow) -> "list[tuple[str, str, str]]":
        """Returns the loop to put under no_grad: the one the program is in that calls no backward pass."""
        here = self.source.at(self.holder.frame.f_lineno)
        if here is None or self.source.path != self.holder.frame.f_code.co_filename:
            return []
        best = None
        for loop in ([here] if isinstance(here, LOOPS) else []) + self.source.loops(here):
            if flow.trains(loop):
                break
            best = loop
        if best is None:
            return []
        head = self.source.lines[best.lineno - 1].strip().decode("utf-8", "replace")
        return [("without", f"put the loop at {self.place(best)} (`{head[:80]}`) under `with torch.no_grad():`", "none: no backward pass runs there")]

    def carried(self, statement: Any, flow: Flow) -> "list[tuple[str, str, str]]":
        """A state goes from turn to turn: cut it where the turn's backward pass is done."""
        loops = self.source.loops(statement)
        cut = "; ".join(self.cuts(statement))
        if not cut:
            return []
        if not flow.backwards:
            kind = statement.value
            simple = isinstance(statement, ast.Assign) and len(targets_of(statement)) == 1 and self.search.tensors.has(self.holder.value)
            change = self.changed(statement, [(kind, "(", ").detach()")]) if simple and isinstance(kind, ast.BinOp) else ""
            if not change and simple:
                change = self.changed(statement, [(kind, "", ".detach()")])
            if not change:
                change = f"after {self.place_after(statement)}: {cut}"
            return [("carried", change, "none: no backward pass uses it"), *self.without(flow)]
        for call in flow.backwards:
            done = self.source.statement(call)
            if self.source.scope(done) is not self.source.scope(statement):
                continue
            around = self.source.loops(done)
            if not around:
                continue
            if any(
                isinstance(n, ast.Assign) and n is not statement and not self.mentions(n.value) and any(self.is_it(t) for t in targets_of(n))
                for n in ast.walk(around[0])
            ):
                continue  # each of these turns begins with a new state
            if not loops or not any(loop is around[0] or loop in self.source.loops(around[0]) or around[0] in self.source.loops(loop) for loop in loops):
                continue
            change = f"after {self.place_after(self.last_of_turn(done))}: {cut}"
            retains = next((k for k in call.keywords if k.arg == "retain_graph"), None)
            if retains is not None and len(call.args) == 0 and len(call.keywords) == 1:
                change += f"; at {self.place(done)}: {self.source.text(call.func)}()"
            return [("carried", change, "gradients end at each turn: none flow into the turns before")]
        return [self.needed(flow)]

    def cuts(self, statement: Any) -> "list[str]":
        """Returns the statements that cut the graph of every state that this one makes, [] if one of them is not known."""
        found = []
        for target in targets_of(statement):
            base, levels = root_of(target)
            if self.is_it(base):
                value = self.sample(levels)
            elif isinstance(base, ast.Name) and levels == 0 and base.id in names_in(statement.value):
                value = next((h.value for h in self.search.holders if h.frame is self.holder.frame and h.name == base.id and not h.field), None)
            else:
                continue
            cut = self.cut_of(self.source.text(target), value)
            if not cut:
                return []
            found.append(cut)
        return found

    def cut_of(self, name: str, value: Any) -> str:
        """Returns the statement that cuts the graph of a state."""
        tensors = self.search.tensors
        if value is None or not name:
            return ""
        if tensors.has(value):
            return f"{name} = {name}.detach()"
        parts = [part for _, part in entries_of(value, ENTRIES_MOST)]
        if not parts or not all(tensors.has(part) for part in parts):
            return ""
        if is_a(value, dict):
            return f"{name} = {{key: part.detach() for key, part in {name}.items()}}"
        if type(value) is list:
            return f"{name} = [part.detach() for part in {name}]"
        return f"{name} = tuple(part.detach() for part in {name})" if type(value) is tuple else ""

    def block_of(self, statement: Any) -> "list[Any]":
        parent = self.source.parent[statement]
        return next(block for block in (getattr(parent, f, None) for f in ("body", "orelse", "finalbody")) if isinstance(block, list) and statement in block)

    def last_of_turn(self, done: Any) -> Any:
        """Returns the last statement of the block with the backward pass that belongs to the step."""
        block = self.block_of(done)
        after = block[block.index(done) :]
        return next((s for s in reversed(after) if isinstance(s, ast.Expr) and isinstance(s.value, ast.Call) and "'step'" in ast.dump(s.value.func)), done)

    def place_after(self, statement: Any) -> str:
        text = self.source.text(statement)
        place = self.place(statement).rpartition(":")[0] + f":{statement.end_lineno}"
        return f"{place} ({text})" if text and len(text) <= 60 else place

    def needed(self, flow: Flow) -> "tuple[str, str, str]":
        source, call = flow.elsewhere[0] if flow.elsewhere else (self.source, flow.backwards[0])
        text = source.text(call)
        return (
            "needed",
            f"fewer turns for each backward pass: {text} at {self.place(call, source)} needs the graphs of all of them; or "
            "torch.utils.checkpoint around the call of the model, which recomputes them",
            "gradients over fewer turns; or a second forward pass",
        )

    def summed(self, statement: Any, form: str, expression: Any, flow: Flow) -> "list[tuple[str, str, str]]":
        """The terms are added up and backward() runs on the sum: run it on each term instead."""
        calls = [c for c in flow.backwards if isinstance(c.func, ast.Attribute) and c.func.attr == "backward" and not c.args and not c.keywords]
        here = self.source.at(self.holder.frame.f_lineno) if self.source.path == self.holder.frame.f_code.co_filename else None
        subtracts = isinstance(getattr(statement, "op", None) or getattr(getattr(statement, "value", None), "op", None), ast.Sub)
        beside = any(other is not statement for other, *_ in self.keeping())
        # A state that goes from turn to turn joins the graphs of the terms.
        origins = self.source.origins(expression, statement) - {self.key}
        states = {key_of(h) for h in self.search.holders if h.frame is self.holder.frame and h.graphs + h.tensors > 0}
        joined = any(self.source.enters(name, loop) for name in origins & states for loop in self.source.loops(statement)[:1])
        if subtracts or beside or joined or here is None or not set(self.source.loops(statement)[:1]) & {here, *self.source.loops(here)}:
            return [self.needed(flow)]
        if len(flow.backwards) != 1 or not calls or self.source.scope(calls[0]) is not self.source.scope(statement):
            return [self.needed(flow)]
        done, loops = self.source.statement(calls[0]), self.source.loops(statement)
        around = self.source.loops(done)
        factor = self.factor(calls[0].func.value, form, loops[0] if loops else None)
        term = self.source.text(expression)
        if factor is None or not loops or not term or not isinstance(done, ast.Expr):
            return [self.needed(flow)]
        after_loop = loops[0] not in around
        conditional = not after_loop and isinstance(self.source.parent[done], ast.If)
        if not (after_loop or conditional) or len(list(around)) + after_loop < len(loops):
            return [self.needed(flow)]
        simple = isinstance(expression, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
        used = self.uses_beside(statement, done)
        whole = (term if simple else f"({term})") if not factor else f"({term if simple else f'({term})'}{factor})"
        if isinstance(expression, ast.Call):
            # A call must not run twice.
            names = ("term", f"term = {term}; ")
        else:
            names = ("", "")
        inner = names[0] or (term if simple else f"({term})")
        whole = f"({inner}{factor})" if factor else inner
        kept = self.source.text(statement, [(expression, "", ".detach()")] if simple and not names[0] else []) if used else ""
        if used and (names[0] or not simple):
            row = self.source.text(statement)
            kept = row.replace(term, f"{inner}.detach()") if row.count(term) == 1 else ""
            if not kept:
                return [self.needed(flow)]
        new = f"{names[1]}{whole}.backward()" + (f"; {kept}" if kept else "")
        change = f"at {self.place(statement)}: {new} instead of {self.source.text(statement)}; remove {self.source.text(done)} at {self.place(done)}"
        clears = self.clears_between(statement, done)
        if clears is not None:
            step = self.last_of_turn(done)
            change += f"; move {self.source.text(clears)} from {self.place(clears)} to after {self.place_after(step)}"
        return [("summed", change, "none: the gradients are the same")]

    def uses_beside(self, statement: Any, done: Any) -> bool:
        """Returns whether the program also reads the sum elsewhere."""
        own = {id(n) for part in (statement, done) for n in ast.walk(part)}
        return any(
            isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Load) and self.is_it(n) and id(n) not in own for n in self.source.nodes
        )

    def clears_between(self, statement: Any, done: Any) -> Any:
        """Returns the zero_grad() that runs after the terms and before the backward pass."""
        block = self.block_of(done)
        for other in block[: block.index(done)]:
            if isinstance(other, ast.Expr) and "'zero_grad'" in ast.dump(other) and other.lineno > statement.lineno:
                return other
        return None

    def factor(self, node: Any, form: str, loop: Any) -> "str | None":
        """Returns the factor of each term in what backward() runs on: "", " / 8"; None if it is not a factor times the sum."""
        if form == "sum" and self.is_it(node):
            return ""
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.Mult)) and not self.mentions(node.right):
            inner = self.factor(node.left, form, loop)
            sign = "/" if isinstance(node.op, ast.Div) else "*"
            right = self.source.text(node.right)
            plain = isinstance(node.right, (ast.Name, ast.Constant, ast.Attribute, ast.Call, ast.Subscript))
            return None if inner is None or not right else f"{inner} {sign} {right if plain else f'({right})'}"
        if form == "put" and isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and self.source.text(node.right) == f"len({self.source.text(root_of(node.left.args[0])[0]) if isinstance(node.left, ast.Call) and node.left.args else ''})":
            count = self.turns(loop)
            return f" / {count}" if count and self.factor(node.left, form, loop) == "" else None
        if form == "put" and isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name == "sum" and isinstance(node.func, ast.Name) and len(node.args) == 1 and self.is_it(node.args[0]):
                return ""
            if isinstance(node.func, ast.Attribute) and name in ("sum", "mean") and not node.keywords:
                stack = node.args[0] if node.args else node.func.value
                if isinstance(stack, ast.Call) and isinstance(stack.func, ast.Attribute) and stack.func.attr in ("stack", "cat") and len(stack.args) == 1:
                    if self.is_it(stack.args[0]):
                        count = self.turns(loop)
                        return "" if name == "sum" else f" / {count}" if count else None
        return None

    def turns(self, loop: Any) -> str:
        """Returns how many turns the loop has, in the program's own words; "" if they are not known."""
        over = getattr(loop, "iter", None)
        if isinstance(over, ast.Call) and getattr(over.func, "id", "") == "range" and len(over.args) == 1:
            text = self.source.text(over.args[0])
            return text if isinstance(over.args[0], (ast.Name, ast.Constant, ast.Attribute)) else f"({text})"
        if isinstance(over, ast.Call) and getattr(over.func, "id", "") in ("enumerate", "tqdm") and over.args:
            over = over.args[0]
        return f"len({self.source.text(over)})" if isinstance(over, (ast.Name, ast.Attribute)) else ""


def advice_lines(torch: Any, tensors: Tensors, frames: "list[Any]", variables: Any) -> "list[str]":
    """Returns the lines about what the program keeps. `variables` gives a copy of a frame's variables."""
    until = time.monotonic() + ADVICE_SECONDS
    search = Search(torch, tensors, until)
    found: "dict[str, tuple[str, str, str]]" = {}
    graphs: "dict[str, int]" = {"without": 0}
    sizes: "dict[str, int]" = {}
    origins: "set[str]" = set()
    states: "set[str]" = set()
    outer = frames
    for at, frame in enumerate(frames):
        if frame.f_code.co_filename.replace("\\", "/").endswith("torch/nn/modules/module.py"):
            outer = frames[at + 1 :]  # outside of the model
    own = [frame for frame in outer if is_own(frame.f_code.co_filename)]
    for frame in own[:12]:
        path = frame.f_code.co_filename
        for name, value in list(variables(frame).items())[:400]:
            if type(name) is str:
                search.take(name, "", value, path, frame)
        for name in frame.f_code.co_names:
            value = frame.f_globals.get(name)
            if value is not None:
                search.take(name, "", value, path, frame)
    ranked = [h for h in search.holders if h.graphs >= TURNS_LEAST or search.tensors.has(h.value) or h.tensors > TURNS_LEAST or is_a(h.value, (tuple, dict, list))]
    ranked.sort(key=lambda h: (-h.graphs, -h.size, -h.tensors))
    for holder in ranked[:24]:
        if time.monotonic() > until:
            break
        source = source_of(holder.path)
        if source is None:
            continue
        advice = Advice(search, source, holder, until)
        for kind, change, cost in advice.lines():
            if kind not in found and change:
                found[kind] = (kind, change, cost)
                graphs[kind] = holder.graphs
                sizes[kind] = holder.size
                origins |= advice.origins if kind == "kept" else set()
                states |= {advice.key} if kind == "carried" else set()
    if "carried" in found:
        found.pop("needed", None)
        if origins & states:  # what is kept has the graph of the state
            found.pop("kept", None)
    if not any(kind in found for kind in ("kept", "carried", "summed", "needed")):
        found.update(comprehension(own, search, until))
    lines = []
    for kind, change, cost in found.values():
        change = change.replace("\t", " ").replace("\n", " ")
        if len(change.encode()) <= ADVICE_MOST:
            lines.append(f"advice {kind} {graphs[kind]} {sizes.get(kind, 0)}\t{change}\t{cost}")
    return lines



def comprehension(own: "list[Any]", search: Search, until: float) -> "dict[str, tuple[str, str, str]]":
    """A list that is being made has no name yet: the statement that makes it from passes without a backward pass needs no graph."""
    for frame in own[:2]:
        source = source_of(frame.f_code.co_filename)
        statement = source.at(frame.f_lineno) if source is not None else None
        if not isinstance(statement, (ast.Assign, ast.Expr, ast.Return)):
            continue
        if not any(isinstance(n, (ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.SetComp)) for n in ast.walk(statement)):
            continue
        flow = Flow(source, until)
        for target in targets_of(statement):
            flow.take(target)
        if isinstance(statement, ast.Return):
            flow.returns.add(getattr(source.scope(statement), "name", ""))
        flow.follow()
        if flow.complete and not flow.backwards and not flow.elsewhere and not flow.trains(statement):
            head = source.text(statement)[:80]
            place = f"{source.path.replace(chr(92), '/').rpartition('/')[2]}:{statement.lineno}"
            return {"without": ("without", f"put the line at {place} (`{head}`) under `with torch.no_grad():`", "none: no backward pass runs there")}
    return {}
