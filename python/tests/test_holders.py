"""What is found in the host memory of a process, and which line it is put down to (stowage._holders)."""

import collections
import gc
import io
import itertools
import logging
import os
import queue
import sys
import tempfile
import time
import types
import unittest
from unittest import mock

from stowage import _census, _holders, _objects, _places, _variables, _weighing

try:
    import numpy
except ImportError:
    numpy = None
try:
    import pandas
except ImportError:
    pandas = None

SOURCE = """\
import numpy as np
table = np.zeros((0, 9))
xx, yy = np.meshgrid(axis, axis)
frame["id"] = range(9)
frame["city"] = [name(i) for i in range(9)]
for part in parts:
    table = np.vstack([table, part])
    jobs.put(part)
    buffer.write(part)
    self.records.append(part)
    counts[part][0][1] = 2
def step(self, x): self.steps.append(x)
def read():
    rows = pd.DataFrame(ids)
    rows["tags"] = [[i] for i in ids]
    return rows
orders = read()
"""


class Frame:
    """What place_of reads of a frame."""

    def __init__(self, path, line):
        self.f_code = type("Code", (), {"co_filename": path, "co_name": "f", "co_flags": 0})
        self.f_lineno, self.f_globals, self.f_back = line, {"__name__": "__main__"}, None


class Lines(unittest.TestCase):
    def setUp(self):
        with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as file:
            file.write(SOURCE)
        self.addCleanup(os.unlink, file.name)
        self.path = file.name

    def place(self, name, kind="", words=""):
        place, grows = _holders.place_of(name, f"module {self.path}", Frame(self.path, 6), kind, words)
        return int(place.rpartition(":")[2] or 0), grows

    def test_a_call_that_joins_a_name_to_itself_grows_it(self):
        self.assertEqual(self.place("table"), (7, True))

    def test_a_tensor_that_keeps_the_graphs_of_a_loop_grows_where_it_is_added_to(self):
        source = ["total = zeros(())", "for step in steps:", "    total = total + loss"]
        with mock.patch.object(_places, "source_lines", lambda path: source):
            for carries, line in ((True, 3), (False, 3)):
                place, grows = _holders.place_of("total", "module /x/a.py", Frame("/x/a.py", 3), "torch.Tensor", "", carries)
                self.assertEqual((place, grows), (f"/x/a.py:{line}", carries))

    def test_an_array_that_a_line_replaces_does_not_grow(self):
        self.assertEqual(_holders.role_of("a = np.sqrt(a + 1)", "a"), 1)
        self.assertEqual(_holders.role_of("a = scale(a + 1) + b", "a"), 1)
        self.assertEqual(_holders.role_of("rows = rows + [part]", "rows"), 2)
        self.assertEqual(_holders.role_of("self.text = self.text + part", "text"), 2)
        self.assertEqual(_holders.role_of("text = part + text", "text"), 2)

    def test_each_of_several_targets_is_made_by_the_line(self):
        self.assertEqual((self.place("xx"), self.place("yy")), ((3, False), (3, False)))

    def test_the_column_that_holds_most_is_what_made_a_table_large(self):
        self.assertEqual(self.place("frame", "pandas.DataFrame", "city, id"), (5, False))

    def test_the_column_that_a_function_sets_is_what_made_its_table_large(self):
        self.assertEqual(self.place("orders", "pandas.DataFrame", "tags"), (15, False))
        self.assertEqual(self.place("orders", "pandas.DataFrame"), (14, False))

    def test_a_function_in_one_line_fills_a_list(self):
        self.assertEqual(self.place("Tracker.steps"), (12, True))

    def test_what_is_put_and_written_grows(self):
        self.assertEqual((self.place("jobs"), self.place("buffer")), ((8, True), (9, True)))

    def test_what_is_set_behind_several_indexes_grows(self):
        self.assertEqual(self.place("counts"), (11, True))

    def test_an_attribute_behind_an_index_is_found_by_its_own_name(self):
        self.assertEqual(_holders.identifier("log.handlers[0].records"), "records")
        self.assertEqual(self.place("log.handlers[0].records"), (10, True))

    def test_the_text_of_the_line_goes_with_the_object(self):
        found = (1 << 20, _holders.Weight(1 << 20), "table", "module x", "list")
        self.assertEqual(_holders.object_line(found, f"{self.path}:7", True).split("\t")[16], "table = np.vstack([table, part])")


class Weights(unittest.TestCase):
    def test_a_queue_is_one_thing_with_all_that_was_put(self):
        jobs = queue.Queue()
        for _ in range(5):
            jobs.put(bytearray(1 << 20))
        self.assertGreaterEqual(_holders.weigh(jobs, _holders.DEEP).size, 5 << 20)
        self.assertEqual([name for _, name in _holders.opened(jobs, "jobs")], ["jobs"])

    def test_a_file_in_memory_weighs_what_was_written(self):
        for file, part in ((io.BytesIO(), b"x" * 1000), (io.StringIO(), "x" * 1000)):
            for _ in range(3000):
                file.write(part)
            self.assertGreaterEqual(_holders.weigh(file, _holders.DEEP).size, 3_000_000)

    @unittest.skipIf(numpy is None, "no numpy")
    def test_a_mapped_file_takes_no_memory_and_is_reported(self):
        with tempfile.TemporaryDirectory() as folder:
            mapped = numpy.memmap(os.path.join(folder, "a"), dtype="f8", mode="w+", shape=(1000, 1000))
            weight = _holders.weigh(mapped, _holders.DEEP)
            self.assertEqual((weight.size, weight.mark), (0, "mapped"))
            found = list(_holders.weighed([(mapped, "mapped", "module a")], _holders.Deadline(), {}))
            self.assertEqual([one[2] for one in found], ["mapped"])
            del mapped

    @unittest.skipIf(numpy is None, "no numpy")
    def test_equal_arrays_of_other_types_have_one_summary(self):
        ids = numpy.arange(400_000, dtype="int32") * 977 % 1000
        self.assertEqual(_holders.summary(ids), _holders.summary(ids.astype("float64")))
        self.assertNotEqual(_holders.summary(ids), _holders.summary(numpy.sqrt(ids)))
        self.assertEqual(_holders.summary(numpy.zeros(1000)), "-")
        self.assertEqual(_holders.summary(numpy.array(["a"] * 99, dtype=object)), "")

    def test_the_program_goes_on_if_its_own_frames_do(self):
        own = Frame(__file__, 5)
        library = Frame(os.path.dirname(os.__file__) + "/json/decoder.py", 7)
        for frame in (own, library):
            frame.f_locals, frame.f_lasti = {}, 1
        library.f_globals, library.f_back = {"__name__": "json.decoder"}, own
        before, library.f_lasti = _holders.pulse(library), 2
        self.assertEqual(_holders.pulse(library), before)
        own.f_lasti = 2
        self.assertNotEqual(_holders.pulse(library), before)

    def test_what_only_holds_another_thing_is_left_out(self):
        class Archive:
            def __init__(self, file):
                self.name, self.fp = "a", file

        buffer = io.BytesIO(bytes(5 << 20))
        values = [(Archive(buffer), "archive", "f"), (buffer, "buffer", "f")]
        found = list(_holders.weighed(values, _holders.Deadline(), {}))
        self.assertEqual(len(found), 2)
        self.assertEqual([one[2] for one in _holders.without_wholes(found)], ["buffer"])

    @unittest.skipIf(numpy is None, "no numpy")
    def test_an_array_of_python_strings_is_text(self):
        names = numpy.array(["name %d" % i for i in range(100_000)], dtype=object)
        weight = _holders.weigh(names, _holders.DEEP)
        self.assertEqual(weight.mark, "text")
        self.assertGreater(weight.text_bytes, 5_000_000)

    def test_values_that_cells_share_count_once(self):
        words = [f"a category of things, number {i}" for i in range(2000)]
        once = sum(map(sys.getsizeof, words))
        shared, own = [words[i % 2000] for i in range(400_000)], [f"{i} of them" for i in range(100_000)]
        self.assertLess(_holders.weigh(shared, _holders.DEEP).size, sys.getsizeof(shared) + 2 * once)
        self.assertLess(_holders.weigh(shared, _holders.DEEP).objects, 10_000)
        self.assertGreater(_holders.weigh(own, _holders.DEEP).size, sys.getsizeof(own) + 0.9 * sum(map(sys.getsizeof, own)))
        small = [i % 200 for i in range(400_000)]  # Python has one object for each small number
        self.assertLess(_holders.weigh(small, _holders.DEEP).size, 1.1 * sys.getsizeof(small))

    @unittest.skipIf(pandas is None, "no pandas")
    def test_a_join_repeats_references_not_strings(self):
        products = pandas.DataFrame({"product": range(2000), "category": [f"a category of things, number {i}" for i in range(2000)]})
        sales = pandas.DataFrame({"product": [i % 2000 for i in range(400_000)]})
        joined = sales.merge(products, on="product")
        weight = _holders.weigh(joined, _holders.DEEP)
        self.assertLess(weight.size, int(joined.memory_usage(deep=False).sum()) + 1_000_000)
        self.assertLess(weight.text_bytes, 8 * len(joined) + 1_000_000)

    @unittest.skipIf(pandas is None, "no pandas")
    def test_text_in_the_buffers_of_arrow_is_no_python_object(self):
        table = pandas.DataFrame({"text": [f"a text of its own, number {i}" for i in range(50_000)]})
        weight = _holders.weigh(table, _holders.DEEP)
        held = int(table.memory_usage(deep=True).sum())
        self.assertLess(abs(weight.size - held), held // 4)
        if getattr(table["text"].dtype, "storage", "python") == "pyarrow":
            self.assertEqual(weight.text_bytes, 0)
        else:
            self.assertGreater(weight.text_bytes, held // 2)

    def test_what_has_no_name_yet_hides_nothing_else(self):
        nameless = (3 << 20, _holders.Weight(3 << 20, mark="nameless"), "what line 7 makes", "f", "list")
        rows = (2 << 20, _holders.Weight(2 << 20, owner=1), "rows", "f", "bytearray")
        self.assertEqual([one[2] for one in _holders.without_wholes([nameless, rows])], ["what line 7 makes", "rows"])

    def test_arrays_are_weighed_before_containers(self):
        class Array:
            nbytes = 0

        values = [([1, 2], "list", ""), (Array(), "array", ""), ({}, "dict", "")]
        self.assertEqual([one[1] for one in _holders.arrays_first(values, _holders.Deadline())], ["array", "list", "dict"])

    def test_a_node_keeps_its_document(self):
        import xml.dom.minidom

        page = "<page><title>a</title>" + "".join(f"<row n='{i}'>{i}</row>" for i in range(300)) + "</page>"
        titles = [xml.dom.minidom.parseString(page).documentElement.firstChild for _ in range(60)]
        plain = [str(i) for i in range(60)]
        names = [[i] for i in range(60)]
        found = list(_holders.trees([(titles, "titles", "f"), (plain, "plain", "f"), (names, "names", "f")], 1 << 40, _holders.Deadline()))
        if sys.getallocatedblocks() < 400_000:  # other tests may have left more than the documents
            self.assertEqual([one[2] for one in found], ["titles"])
            self.assertEqual(found[0][1].mark, "tree")
            self.assertGreater(found[0][1].objects, 60 * 1000)
        count, _ = _holders.reach(titles[0], set(), _holders.Deadline())
        self.assertGreater(count, 1000)

    def test_a_connection_is_listed_with_the_line_that_opens_it(self):
        import sqlite3

        db = sqlite3.connect(":memory:")
        self.addCleanup(db.close)
        found = list(_holders.weighed([(db, "db", "module a")], _holders.Deadline(), {}))
        self.assertEqual([(one[2], one[1].mark) for one in found], [("db", "database")])

    def test_a_list_behind_a_library_is_reached_among_many_objects(self):
        import logging

        class Keep(logging.Handler):
            records = None

            def emit(self, record):
                self.records.append(record)

        handler = Keep()
        handler.records = [str(i) for i in range(2000)]
        log = logging.getLogger("test_holders")
        log.addHandler(handler)
        self.addCleanup(log.removeHandler, handler)
        found = [name for value, name, _ in _holders.chained([(log, "log", "module a")], set(), _holders.Deadline()) if value is handler.records]
        self.assertEqual([name.rpartition(".")[2] for name in found], ["records"])

    @unittest.skipUnless(numpy, "no NumPy")
    def test_parts_of_one_array_hold_it_together(self):
        whole = numpy.ones((1000, 1000))
        for parts in (list(whole), {i: whole[i] for i in range(500)}, (whole[:500], whole[500:])):
            weight = _holders.weigh(parts, _holders.DEEP)
            self.assertLess(abs(weight.size - whole.nbytes), 200_000)
            self.assertEqual(weight.mark, "")
        small = [numpy.ones((100, 100))[::20, ::20] for _ in range(30)]
        weight = _holders.weigh(small, _holders.DEEP)
        self.assertLess(abs(weight.size - 30 * 80_000), 20_000)
        self.assertEqual(weight.mark, "view")

    def test_the_records_that_a_handler_keeps_are_named(self):
        import logging.handlers

        handler = logging.handlers.MemoryHandler(10_000)
        self.assertIn("handler.buffer", [name for value, name in _holders.opened(handler, "handler") if value is handler.buffer])

    def test_errors_and_texts_that_keep_much_are_trees(self):
        def fail(n):
            table = bytearray(n)
            raise ValueError(len(table))

        class Part(str):
            __slots__ = ("whole",)

        kept, parts = [], []
        for n in range(8):
            try:
                fail(n + (1 << 20))
            except ValueError as error:
                kept.append((n, error))
            parts.append(Part("x"))
            parts[-1].whole = "y" * ((1 << 20) + n)
        for value in (kept, parts):
            (size, weight, *_), = _holders.trees([(value, "value", "f")], 8 << 20, _holders.Deadline())
            self.assertEqual((weight.mark, weight.count, size >> 20), ("tree", 8, 8))

    def test_dicts_in_each_other_are_weighed_by_some_ways_to_the_leaves(self):
        def add(root, word):
            for letter in word:
                root = root.setdefault(letter, {})

        def bytes_in(node):
            return sys.getsizeof(node) + sum(map(bytes_in, node.values()))

        trie, number = {}, 1
        for _ in range(20_000):
            number = number * 69069 % (1 << 32) | 1
            add(trie, f"{number:x}"[:7])
        weight = _holders.weigh(trie, _holders.DEEP)
        self.assertEqual(weight.mark, "nested")
        self.assertLess(abs(weight.size / bytes_in(trie) - 1), 0.15)
        self.assertEqual(weight.size, _holders.weigh(trie, _holders.DEEP).size)

    def test_a_value_has_the_name_of_its_outermost_variable(self):
        def insert(root, frames):
            node = root
            frames.append(sys._getframe())
            names = [name for value, name, _ in _holders.variables(frames[0], []) if value is node]
            return names

        def build():
            trie = {"a": {}}
            return insert(trie, [])

        self.assertEqual(build()[0], "trie")

    def test_elements_are_sampled_from_all_over(self):
        routes = {n: [None] * n for n in range(2000)}
        true = sum(sys.getsizeof(each) for each in routes.values())
        self.assertLess(abs(_holders.weigh(routes, 5).size / true - 1), 0.05)

    def test_containers_in_a_dict_of_a_class_are_named(self):
        import collections

        class Events:
            handlers = collections.defaultdict(list)

        Events.handlers["change"].extend(range(5000))
        self.assertIn("Events.handlers['change']", [name for _, name in _holders.opened(Events, "Events")])

    def test_the_cache_of_a_method_is_named(self):
        import functools

        class Server:
            @functools.lru_cache(maxsize=None)
            def render(self, x):
                return bytes(1000) + bytes([x])

            @staticmethod
            @functools.lru_cache(maxsize=None)
            def tile(x):
                return bytes([x])

        server = Server()
        for x in range(200):
            server.render(x)
            server.tile(x)
        kept = {name: value for value, name in _holders.opened(Server, "Server")}
        self.assertEqual(len(kept["the cache of Server.render"]), 200)
        self.assertEqual(len(kept["the cache of Server.tile"]), 200)

    def test_what_a_bounded_cache_keeps_are_its_results(self):
        import functools

        @functools.lru_cache(maxsize=300)
        def load(name):
            return {"name": name, "data": bytes(1000) + name.encode()}

        for number in range(200):
            load(f"file {number}")
        self.assertEqual([type(one) for one in _holders.cached(load)], [dict] * 200)

    def test_what_two_containers_hold_counts_once(self):
        kept = {number: bytearray(10_000) for number in range(400)}
        pages = [[kept[number] for number in range(at, at + 10)] for at in range(0, 400, 10)]
        others = [bytearray(10_000) for _ in range(400)]
        values = [(kept, "kept", "f"), (pages, "pages", "f"), (others, "others", "f"), (list(kept.values()), "again", "f")]
        found = list(_holders.weighed(values, _holders.Deadline(), {}))
        self.assertEqual([one[2] for one in found], ["kept", "others"])

    def test_a_class_is_listed_with_the_module_that_defines_it(self):
        self.assertFalse(_holders.is_imported(Weights, __name__))
        self.assertTrue(_holders.is_imported(Weights, "another"))
        self.assertFalse(_holders.is_imported(io.BytesIO, "another"))  # a library's is not listed there
        self.assertFalse(_holders.is_imported([], "another"))

        def remember(function):
            """A decorator of this module; its result is a variable of the module that uses it."""
            kept = {}

            def wrapper(x):
                return kept.setdefault(x, function(x))

            return wrapper

        self.assertFalse(_holders.is_imported(remember(abs), "another"))

    def test_no_code_of_the_program_runs_for_the_names(self):
        class Key:
            def __repr__(self):
                raise AssertionError("repr")

            __str__ = __eq__ = __bool__ = __len__ = __repr__
            __hash__ = object.__hash__

        held = [str(i) for i in range(2000)]
        state = {Key(): {"a": held}, (1, "b"): held, "c": {Key(): Key()}}
        for values in (_holders.opened(state, "state"), ((v, n) for v, n, _ in _holders.chained([(state, "state", "module a")], set(), _holders.Deadline()))):
            names = [name for value, name in values if value is held]
            self.assertIn("state[(1, 'b')]", names)
        names = [name for _, name in _holders.opened(state, "state")]
        self.assertIn(f"state[{_holders.type_name(Key())}]"[:60], names)


CALLS = []  # what the program's own code was called for


def noted(name):
    def method(self, *arguments, **named):
        CALLS.append(name)
        if name != "array_finalize":
            raise RuntimeError(name)

    return method


HOSTILE = ("repr", "str", "len", "iter", "getattr", "getitem", "contains", "eq", "bool", "sizeof", "next", "index", "int", "dir", "call",
           "reversed", "length_hint", "instancecheck", "format", "bytes", "array", "array_finalize", "torch_function", "missing", "get",
           "buffer", "fspath", "iadd", "getstate", "reduce", "reduce_ex")


class Meta(type):
    """Answers nothing itself: type(value).__name__ would call it."""

    __instancecheck__ = __subclasscheck__ = __len__ = __iter__ = __bool__ = __call__ = noted("meta")
    __name__ = __mro__ = __flags__ = __bases__ = property(noted("meta"))

    def __getattribute__(cls, name):
        CALLS.append(f"Meta.{name}")
        return type.__getattribute__(cls, name)


def hostile(base, meta=Meta, **more):
    """Returns a class of the program that notes each call of its code. Its objects are made without it."""
    names = {f"__{name}__": noted(name) for name in HOSTILE}
    for name in ("nbytes", "dtype", "shape", "base", "size", "memory_usage", "dtypes", "columns", "cache_info", "get_coro", "data_ptr", "storage",
                 "queue", "device", "__self__", "__func__", "func", "keywords", "__closure__", "grad_fn", "estimated_size", "getbands",
                 "gi_frame", "_result", "__wrapped__", "__class__", "items", "keys", "values", "tell", "untyped_storage", "is_deleted"):
        names[name] = property(noted(name))
    names["__getattribute__"] = lambda self, name: (CALLS.append(name), object.__getattribute__(self, name))[1]
    names["__hash__"] = object.__hash__
    return meta("Hostile", (base,), {**names, "__module__": "__main__", **more})


class HostileTest(unittest.TestCase):
    """No search runs code of the program."""

    def test_no_code_of_the_program_runs(self):
        kinds = [hostile(base) for base in (object, list, dict, tuple, set, collections.deque, str, bytes, bytearray, io.BytesIO, Exception)]
        if numpy is not None:
            kinds.append(hostile(numpy.ndarray))
        kinds.append(hostile(object, __slots__=("left", "right")))
        kinds.append(hostile(object, type, __module__="pandas.core.frame"))  # says that it is a library's
        ended = []
        held = [list(range(1000)) for _ in range(2000)]
        made = []
        for kind in kinds:
            base = type.__dict__["__mro__"].__get__(kind)[1]
            given = {str: ("x" * (2 << 20),), bytes: (b"x" * (2 << 20),), bytearray: (2 << 20,)}.get(base, ())
            given = ((1 << 18,),) if numpy is not None and base is numpy.ndarray else given
            made.append(base.__new__(kind, *given))
        weak = __import__("weakref").proxy(made[0])
        list.extend(made[1], held)
        dict.update(made[2], enumerate(held))
        object.__setattr__(made[0], "held", held)
        module = types.ModuleType("hostile_program")
        module.__file__ = __file__
        module.__getattr__ = lambda name: CALLS.append(f"module.{name}")
        module.made, module.weak, module.kinds, module.one = made, weak, kinds, made[0]
        module.several = {"a": made[0], "b": made[1], "c": made[2:]}
        rows = [made[0]] * 2000
        error = kinds[10].__new__(kinds[10])
        del ended
        with mock.patch.dict(sys.modules, {"hostile_program": module}):
            CALLS.clear()
            frame = sys._getframe()
            found = list(_holders.largest(frame, [], 32 << 20, True, 0.3))
            _holders.object_lines(found, frame)
            _holders.frame_lines(frame)
            for value in [*made, weak, error, rows, *kinds]:
                _holders.weigh(value, _holders.DEEP)
                _holders.fields_of(value)
                _holders.slots_of(value)
            for stage in (_holders.instances(_holders.Deadline(0.1)), _holders.nameless(("what line 1 makes", "f at a:1"), _holders.Deadline(0.1)),
                          _holders.unheld(32 << 20, _holders.Deadline(0.1), {}, True), _holders.trees([(rows, "rows", "")], 1, _holders.Deadline(0.1)),
                          _holders.chained([(value, "x", "module a") for value in made], set(), _holders.Deadline(0.1))):
                list(stage)
            finder = _objects.Finder()
            self.assertTrue(_objects.find_large(1 << 20))
            for value in made[:3] + made[-2:]:
                finder.paths(value)
            called = CALLS[:]
        self.assertEqual(sorted(set(called)), [])
        self.assertTrue(any(weight.size >= 8 << 20 for _, weight, *_ in found))
        self.assertTrue(rows and isinstance(held, list))

    def test_a_container_with_many_elements_is_not_opened_for_its_attributes(self):
        class Table(dict):
            def __init__(self):
                super().__init__((i, i) for i in range(1_000_000))
                self.rows = [1]

        one, counter = Table(), collections.Counter({i: i for i in range(1_000_000)})
        with mock.patch.object(_weighing.gc, "get_referents", side_effect=AssertionError):
            self.assertEqual(_holders.fields_of(one), {"rows": [1]})
            self.assertEqual(_holders.fields_of(counter), {})

    def test_a_long_list_of_nodes_is_named_without_a_list_of_all_objects(self):
        head = None
        for _ in range(3000):
            head = Node_of_a_list(head)
        with mock.patch.object(_holders, "blocks_held", lambda: 40_000_000), mock.patch.object(_holders, "is_own_module", lambda name: True), \
                mock.patch.object(_holders, "listed", side_effect=AssertionError):
            (size, weight, name, *_), = _holders.linked(head, 1 << 20, _holders.Deadline(), "head")
        self.assertTrue(name.endswith("Node_of_a_list.next of head"), name)
        self.assertGreater(weight.count, 1_000_000)

    @unittest.skipUnless(numpy, "numpy is not installed")
    def test_the_list_of_a_handler_is_named_before_what_its_records_hold(self):
        class Keep(logging.Handler):
            def __init__(self):
                super().__init__()
                self.records = []

            def emit(self, record):
                self.records.append(record)

        log = logging.getLogger("stowage.test.keep")
        log.propagate = False
        log.setLevel(logging.INFO)
        handler = Keep()
        log.addHandler(handler)
        for _ in range(200):
            log.info("batch %s", numpy.ones(1 << 15))
        held = handler.records
        own = lambda name: name == __name__  # noqa: E731
        try:
            with mock.patch.object(_census, "is_own_module", own):
                names = [name for value, name, _ in _holders.instances(_holders.Deadline(5)) if value is held]
            self.assertTrue(names and names[0].endswith("Keep.records"), names)
        finally:
            log.removeHandler(handler)

    def test_texts_that_a_comprehension_makes_are_the_rest_of_what_is_held(self):
        made, held = ("what line 7 makes", "f at a.py:7"), 400 << 20
        with mock.patch.object(_holders, "blocks_held", lambda: 2_000_000):
            for keeps, least in ((False, 90), (True, 380)):
                (size, *_), = _holders.unnamed(made, [], held, True, keeps)
                self.assertGreater(size, least << 20)
                self.assertLess(size, held if keeps else 100 << 20)

    def test_a_search_ends_when_its_time_is_over(self):
        head = None
        for _ in range(200_000):
            head = Node_of_a_list(head)
        own = lambda name: name == __name__  # noqa: E731
        with mock.patch.object(_variables, "is_own_module", own), mock.patch.object(_holders, "is_own_module", own):
            began = time.thread_time()
            list(_holders.largest(sys._getframe(), [], 1 << 30, True, 0.01))
        self.assertLess(time.thread_time() - began, 0.4)


class Node_of_a_list:
    def __init__(self, after):
        self.next = after


class Emptied(list):
    """Says that it has elements, as a list does that another thread clears after its length was read."""

    def __len__(self):
        return 5


class EmptiedDict(dict):
    def __len__(self):
        return 5

    def items(self):
        return Emptied()


class Longer(collections.deque):
    def __iter__(self):
        return itertools.repeat(0, 1 << 20)


class ChangedMeanwhile(unittest.TestCase):
    def test_a_container_without_elements_weighs_itself_and_what_holds_it_is_weighed(self):
        for kind in (Emptied, EmptiedDict):
            self.assertLess(_holders.weigh(kind(), _holders.DEEP).size, 1000)
            holder = [kind(), bytearray(5 << 20)]
            self.assertGreater(_holders.weigh(holder, _holders.DEEP).size, 5 << 20)

    def test_a_container_that_yields_more_than_its_length_is_sampled(self):
        self.assertLessEqual(len(_holders.sample(Longer([1]))), _holders.SAMPLES)


def fake_class(module, name, **attributes):
    """Returns a class of a library that is not installed here. Its arrays say that they hold 64 MiB."""
    return type(name, (), {"__module__": module, "nbytes": 64 << 20, "dtype": "float32", "shape": (4096, 4096), **attributes})


def of_jax(platform, memory_kind="device", deleted=False):
    return fake_class("jaxlib._jax", "ArrayImpl", devices=lambda self: [types.SimpleNamespace(platform=platform)],
                      sharding=types.SimpleNamespace(memory_kind=memory_kind), is_deleted=lambda self: deleted)


def of_torch(place):
    def storage(self):
        if place != "cpu":
            raise AssertionError("the storage of a tensor on a device was asked for")
        return types.SimpleNamespace(nbytes=lambda: 64 << 20, data_ptr=lambda: id(self))

    return fake_class("torch", "Tensor", device=types.SimpleNamespace(type=place), data_ptr=id, storage=storage, untyped_storage=storage,
                      is_shared=lambda self: False, grad_fn=None)


class DeviceTest(unittest.TestCase):
    """Arrays on a device take no host memory; no library of a device is needed to see that."""

    def setUp(self):
        torch = types.ModuleType("torch")
        torch.cuda = types.SimpleNamespace(is_initialized=lambda: False)
        torch.nn = types.SimpleNamespace(Parameter=type("Parameter", (), {}))
        torch.Tensor = type("Tensor", (), {})
        patch = mock.patch.dict(sys.modules, {"torch": torch})
        patch.start()
        self.addCleanup(patch.stop)

    CUDA = property(lambda self: {})
    ON_DEVICE = {
        "jax": of_jax("gpu"), "jax on a TPU": of_jax("tpu"), "jax, deleted": of_jax("cpu", deleted=True),
        "torch": of_torch("cuda"), "torch on Apple": of_torch("mps"), "torch without memory": of_torch("meta"),
        "cupy": fake_class("cupy", "ndarray"), "numba": fake_class("numba.cuda.cudadrv.devicearray", "DeviceNDArray", __cuda_array_interface__=CUDA),
        "tensorflow": fake_class("tensorflow.python.framework.ops", "EagerTensor", device="/job:localhost/replica:0/task:0/device:GPU:0"),
    }
    ON_HOST = {
        "jax": of_jax("cpu", "unpinned_host"), "jax, offloaded": of_jax("gpu", "pinned_host"), "torch": of_torch("cpu"),
        "tensorflow": fake_class("tensorflow.python.framework.ops", "EagerTensor", device="/job:localhost/replica:0/task:0/device:CPU:0"),
        "another": fake_class("anything", "Array"), "as NumPy 2": fake_class("anything", "Array", device="cpu"),
    }

    def held(self, kind):
        """Returns the bytes of one, of a list of 24, and of the attributes of an object."""
        one, many = kind(), [kind() for _ in range(24)]
        return [_holders.weigh(value, _holders.DEEP).size >> 20 for value in (one, many, types.SimpleNamespace(weights=one))]

    def test_arrays_on_a_device_are_no_host_memory(self):
        for name, kind in self.ON_DEVICE.items():
            with self.subTest(name):
                self.assertEqual(self.held(kind), [0, 0, 0])

    def test_a_storage_that_warns_is_weighed_by_what_it_wraps(self):
        def warns(self, *_):
            raise AssertionError("an attribute of a TypedStorage was read")

        inner = fake_class("torch.storage", "UntypedStorage", nbytes=lambda self: 64 << 20, data_ptr=lambda self: id(self),
                           device=types.SimpleNamespace(type="cpu"), is_shared=lambda self: False)
        kind = fake_class("torch.storage", "TypedStorage", __sizeof__=warns, __len__=warns, __getattr__=warns, nbytes=warns,
                          __init__=lambda self: setattr(self, "_untyped_storage", inner()))
        self.assertEqual(self.held(kind), [64, 24 * 64, 64])
        self.assertEqual(_holders.reach([kind()], set(), _holders.Deadline())[0] > 0, True)

    def test_arrays_on_the_host_are(self):
        for name, kind in self.ON_HOST.items():
            with self.subTest(name):
                self.assertEqual(self.held(kind), [64, 24 * 64, 64])

    def test_an_array_that_does_not_say_where_it_is_counts(self):
        def fails(self):
            raise RuntimeError("no device")

        kind = fake_class("anything", "Array", device=property(fails))
        self.assertEqual(_holders.weigh(kind(), _holders.DEEP).size, 64 << 20)

    def test_no_search_names_them(self):
        for name, kind in self.ON_DEVICE.items():
            with self.subTest(name):
                held = {"p": [kind() for _ in range(24)]}
                found = list(_holders.weighed([(held["p"], "p", "module a.py"), (held["p"][0], "first", "module a.py")], _holders.Deadline(), {}))
                groups = _holders.census(_holders.Deadline(), {})
                self.assertEqual(found, [])
                self.assertFalse([one for one in groups if one[1] is kind])


class Node:
    """Refers to its parent, which refers to it."""

    def __init__(self, parent=None, children=0):
        self.parent = parent
        self.data = bytearray(1 << 20)
        self.children = [Node(self) for _ in range(children)]


class Filter:
    def __init__(self):
        self.kernel = bytearray(1 << 20)
        self.apply = lambda: self.kernel


class Session:
    __slots__ = ("buffers", "handlers")

    def __init__(self):
        self.buffers = [bytearray(1 << 18) for _ in range(4)]
        self.handlers = {"data": self.receive}

    def receive(self):
        return self.buffers


def load():
    """Keeps its error, whose traceback has the frame that keeps the error."""
    page, kept = bytearray(1 << 20), None
    try:
        raise ValueError(len(page))
    except ValueError as error:
        kept = error
    return str(kept)


class CycleTest(unittest.TestCase):
    """Garbage in reference cycles is recognized, and what is in use is not taken for it."""

    def setUp(self):
        gc.collect()
        gc.disable()

    def tearDown(self):
        gc.enable()
        gc.collect()

    def found(self, collects=True):
        return [(weight.mark, name, where, kind, weight.words, size >> 20)
                for size, weight, name, where, kind in _holders.unheld(32 << 20, _holders.Deadline(), {}, collects)]

    def test_a_list_of_all_objects_is_not_among_them(self):
        for module in (None, types.ModuleType("torch")):
            with mock.patch.dict(sys.modules, {"torch": module} if module else {}):
                if module is None:
                    sys.modules.pop("torch", None)
                for generations in ((None,), (0,), (1,), (2,)):
                    found = _holders.listed(generations)
                    self.assertFalse([one for one in found if one is found or type(one) is _holders.Listed])

    def test_a_tree_that_nothing_uses(self):
        for _ in range(10):
            Node(children=3)
        (mark, name, where, kind, words, size), = self.found()
        self.assertEqual((mark, name, kind, size), ("garbage", f"{Node.__module__.split('.')[0]}.Node.parent".replace("__main__.", ""), _holders.kind_name(Node), 40))
        self.assertIn("Node.children", words)
        self.assertEqual(where, "module " + os.path.abspath(__file__))

    def test_a_tree_in_use_is_not_garbage(self):
        kept = [Node(children=3) for _ in range(10)]
        (mark, name, *_, size), = self.found()
        self.assertEqual((mark, name.split(".", name.count(".") - 1)[-1], size), ("linked", "Node.data", 40))
        self.assertEqual(len(kept), 10)

    def test_one_that_is_used_at_its_far_end_is_not_garbage(self):
        kept = [Node(children=3).children[1] for _ in range(10)]
        self.assertEqual([one[0] for one in self.found()], ["linked"])
        self.assertEqual(len(kept), 10)

    def test_a_closure_a_bound_method_and_an_error(self):
        for make, name in ((Filter, "Filter.apply"), (Session, "Session.handlers"), (load, "kept in load()")):
            for _ in range(20):
                make()
            (mark, found, *_), = self.found(collects=False)
            self.assertEqual((mark, found[-len(name):]), ("uncollected", name))
            gc.collect()

    def test_garbage_that_was_freed_since_is_remembered(self):
        _holders.most_garbage.clear()
        for _ in range(20):
            Filter()
        self.found()
        gc.collect()
        (size, weight, name, *_), = _holders.collected(30 << 20, [])
        self.assertEqual((weight.mark, size >> 20, name[-12:]), ("collected", 20, "Filter.apply"))
        self.assertEqual(list(_holders.collected(5 << 20, [])), [])
        _holders.most_garbage.clear()

    def test_nothing_is_changed(self):
        import weakref

        freed = []
        for _ in range(20):
            one = Filter()
            weakref.finalize(one, freed.append, 1)
        del one
        self.assertEqual(len(self.found()), 1)
        self.assertEqual(freed, [])
        gc.collect()
        self.assertEqual(len(freed), 20)


if __name__ == "__main__":
    unittest.main()
