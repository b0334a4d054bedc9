"""release, holders, cache."""

import gc
import sys
import types
import unittest

import stowage
from support import needs, python


@needs("numpy")
class Release(unittest.TestCase):
    def test_what_is_unreachable_goes_and_what_is_needed_stays(self):
        import numpy

        class Node:
            pass

        gc.disable()
        try:
            node = Node()
            node.itself, node.data = node, numpy.ones(4 << 20)
            kept = numpy.ones(2 << 20)
            del node
            result = stowage.release()
        finally:
            gc.enable()
        self.assertGreater(result.host_bytes, 30 << 20)
        self.assertIn("unreachable objects", repr(result))
        self.assertEqual(kept.sum(), 2 << 20)
        held = [line for line in result.rest if line[1] == kept.nbytes]
        self.assertTrue(any("local kept of" in path for line in held for path in line[2]), result)

    def test_names_are_deleted_from_the_callers_globals(self):
        out = python(
            """
            import numpy, stowage
            x = numpy.ones(4 << 20); y = [x]
            result = stowage.release("x")
            assert "x" not in globals()
            assert result.host_bytes < 8 << 20, result
            assert "y[0]" in repr(result), result
            result = stowage.release("y")
            assert result.host_bytes > 30 << 20, result
            print("done")
            """
        )[1]
        self.assertEqual(out.strip(), "done")

    def test_wrong_names_delete_nothing(self):
        space = {"__name__": "here", "x": 1}
        from stowage._release import release_from

        with self.assertRaises(NameError):
            release_from(space, ("x", "y"))
        self.assertIn("x", space)
        with self.assertRaisesRegex(TypeError, "list is not a name"):
            stowage.release([1, 2, 3])

    def test_the_last_traceback_is_reported_and_dropped_on_request(self):
        out = python(
            """
            import numpy, stowage, sys
            def fail():
                inside = numpy.ones(4 << 20)
                raise RuntimeError("no")
            try:
                fail()
            except RuntimeError as error:
                sys.last_traceback = error.__traceback__
            result = stowage.release()
            assert "the last traceback" in repr(result), result
            result = stowage.release(tracebacks=True)
            assert result.host_bytes > 30 << 20, result
            assert not hasattr(sys, "last_traceback")
            print("done")
            """
        )[1]
        self.assertEqual(out.strip(), "done")

    def test_the_result_is_rich_too(self):
        self.assertIn("<table", stowage.release()._repr_html_())


@needs("numpy")
class Holders(unittest.TestCase):
    def setUp(self):
        self.module = sys.modules["shelf"] = types.ModuleType("shelf")

    def tearDown(self):
        del sys.modules["shelf"]

    def array(self):
        import numpy

        return numpy.zeros(1 << 17)

    def test_a_list_in_a_module(self):
        self.module.results = [None, {"best": self.array()}]
        self.assertIn("shelf.results[1]['best']", stowage.holders(self.module.results[1]["best"]))

    def test_bags_that_the_collector_does_not_track(self):
        self.module.results = [{"best": ({"x": (self.array(),)},)}]
        for _ in range(4):  # each stops tracking one more of the dictionaries and tuples, from the inside out
            gc.collect()
        thing = self.module.results[0]["best"][0]["x"][0]
        self.assertIn("shelf.results[0]['best'][0]['x'][0]", stowage.holders(thing))
        self.module.results[0]["best"][0]["x"] = (bytearray(30 << 20),)
        for _ in range(4):
            gc.collect()
        shown = [paths for kind, _, paths in stowage.release().rest if kind.startswith("bytearray")]
        self.assertIn("shelf.results[0]['best'][0]['x'][0]", shown[0])

    def test_a_key_of_the_program_is_not_printed(self):
        class Key:
            def __repr__(self):
                raise AssertionError("repr")

        self.module.results = {Key(): self.array()}
        found = stowage.holders(next(iter(self.module.results.values())))
        self.assertTrue(any(name.startswith("shelf.results[") for name in found), found)

    def test_a_closure(self):
        thing = self.array()

        def outer(value):
            def inner():
                return value

            return inner

        self.module.function = outer(thing)
        names = stowage.holders(thing)
        self.assertTrue(any("value in the closure of" in name for name in names), names)

    def test_a_local_and_an_attribute(self):
        class Box:
            pass

        self.module.box = Box()
        self.module.box.content = self.array()
        names = stowage.holders(self.module.box.content)
        self.assertIn("shelf.box.content", names)
        here = self.array()
        names = stowage.holders(here)
        self.assertTrue(any(name.startswith("local here of test_a_local") for name in names), names)

    def test_a_view_keeps_all_of_it(self):
        import numpy

        def fill():
            whole = numpy.zeros((100_000, 1000))
            self.module.rows = whole[:2]

        fill()
        found = stowage.holders(self.module.rows)
        self.assertIn("a view of 762.9 MiB", found.title)
        self.assertIn("shelf.rows", found)
        self.assertIn("762.9 MiB", found._repr_html_())

    def test_a_generator_and_a_slot(self):
        class Slotted:
            __slots__ = ("inside",)

        def numbers(thing):
            yield thing

        self.module.slotted = Slotted()
        self.module.slotted.inside = self.array()
        self.assertIn("shelf.slotted.inside", stowage.holders(self.module.slotted.inside))
        thing = self.array()
        self.module.running = numbers(thing)
        next(self.module.running)
        names = stowage.holders(thing)
        self.assertTrue(any("numbers" in name for name in names), names)

    def test_looking_again_finds_the_same(self):
        self.module.results = [{"best": (self.array(),)}]
        names = [stowage.holders(self.module.results[0]["best"][0]) for _ in range(3)]
        self.assertEqual(list(names[0]), ["shelf.results[0]['best'][0]"])
        self.assertEqual(names[0], names[1])
        self.assertEqual(names[1], names[2])

    def test_what_a_module_of_c_keeps_for_reuse_is_not_touched(self):
        # In Python 3.12.1 asyncio lists its dead iterators there: one reference to them, and a list grows forever.
        python(
            """
            import asyncio, resource
            resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
            from stowage import _objects
            async def wait():
                future = asyncio.get_running_loop().create_future()
                asyncio.get_running_loop().call_soon(future.set_result, 1)
                return await future
            for _ in range(4):
                asyncio.run(wait())
                _objects.find_large()
                _objects.Finder()
            """
        )

    def test_a_thing_held_in_a_thicket_is_answered_for_in_bounded_time(self):
        from stowage import _objects

        # Every node refers to every other: the paths to it are too many to count.
        nodes = [[] for _ in range(40)]
        for node in nodes:
            node.extend(nodes)
        nodes[0].append(self.array())
        thing = nodes[0][-1]
        finder = _objects.Finder()
        finder.paths(thing)
        self.assertGreater(finder.looks, -_objects.Finder.DEPTH)
        nodes.clear()

    def test_nothing_is_kept_by_looking(self):
        import weakref

        thing = self.array()
        gone = weakref.ref(thing)
        stowage.holders(thing)
        del thing
        self.assertIsNone(gone())

    @needs("torch")
    def test_tensors_share_storage(self):
        import torch

        self.module.whole = torch.zeros(1 << 20)
        self.module.part = self.module.whole[:10]
        found = stowage.holders(self.module.part)
        self.assertIn("a view of 4.0 MiB on host: torch.Tensor float32 (10,)", found.title)
        self.assertIn("shelf.whole (the whole of it)", found)

    @needs("pandas", "scipy")
    def test_tables_and_matrices_stand_for_their_arrays(self):
        import numpy
        import pandas
        import scipy.sparse

        from stowage._objects import find_large

        self.module.table = pandas.DataFrame({"a": numpy.arange(1 << 18), "b": numpy.arange(1 << 18)})
        self.module.matrix = scipy.sparse.random(1000, 1000, 0.3, format="csr")
        kinds = [piece.kind for piece in find_large() if piece.object is self.module.table or piece.object is self.module.matrix]
        self.assertEqual(len(kinds), 2, kinds)


@needs("numpy")
class Cache(unittest.TestCase):
    def test_the_least_recently_used_goes_first_and_is_found_while_it_lives(self):
        import numpy

        kept = stowage.cache("20M")
        first, second = numpy.zeros(1 << 20), numpy.zeros(1 << 20)
        kept["first"], kept["second"] = first, second
        kept["first"]
        kept["third"] = numpy.zeros(1 << 20)
        self.assertLessEqual(kept.held_bytes, 20 << 20)
        self.assertIs(kept["second"], second)
        del second
        self.assertNotIn("second", kept)
        self.assertIn("first", kept)
        self.assertEqual(sorted(kept), ["first", "third"])
        self.assertEqual(kept.load("second", lambda: 7), 7)
        with self.assertRaises(KeyError):
            kept["nothing"]
        del kept["first"]
        with self.assertRaises(KeyError):
            del kept["first"]

    def test_threads_may_use_and_empty_it_at_once(self):
        import threading

        kept, failed = stowage.cache(64 << 10), []

        def use(first):
            try:
                for number in range(3000):
                    kept[first + number % 50] = bytearray(1024)
                    kept.load(number % 50, lambda: bytearray(512))
                    len(kept)
            except Exception as error:
                failed.append(error)

        users = [threading.Thread(target=use, args=(first,)) for first in (0, 25)]
        for user in users:
            user.start()
        while any(user.is_alive() for user in users):
            kept.shrink_to(0)
        self.assertEqual(failed, [])
        kept.shrink_to(0)
        self.assertEqual(kept.held_bytes, 0)

    def test_release_empties_it(self):
        import numpy

        kept = stowage.cache("1G")
        kept["x"] = numpy.ones(4 << 20)
        result = stowage.release()
        self.assertGreater(result.host_bytes, 30 << 20)
        self.assertNotIn("x", kept)

    def test_a_thing_larger_than_the_budget_is_not_held(self):
        kept = stowage.cache("1M")
        kept["x"] = bytearray(2 << 20)
        self.assertEqual(kept.held_bytes, 0)

    def test_wrong_budgets(self):
        for wrong, kind in (("lots", ValueError), (0, ValueError), (None, TypeError), (-5, ValueError)):
            with self.assertRaises(kind):
                stowage.cache(wrong)


if __name__ == "__main__":
    unittest.main()
