"""Heaps: allocation, tags, limits, misuse."""

import unittest

import stowage


class Heap(unittest.TestCase):
    def test_what_is_taken_is_counted_and_returned(self):
        heap = stowage.heap("sim:64M")
        address = heap.alloc("16M", tag="batch")
        self.assertEqual(address % 512, 0)
        self.assertEqual(heap.stats()["live_bytes"], 16 << 20)
        self.assertEqual(heap.tags()[0], {"tag": "batch", "bytes": 16 << 20, "count": 1})
        heap.free(address)
        self.assertGreater(heap.trim(), 0)
        self.assertEqual(heap.stats()["held_bytes"], 0)
        heap.close()
        self.assertIn("closed", repr(heap))

    def test_a_request_that_does_not_fit_is_a_memory_error_with_numbers(self):
        with stowage.heap("sim:64M") as heap:
            heap.alloc("48M")
            with self.assertRaises(MemoryError) as caught:
                heap.alloc("32M")
            self.assertIn("32.0 MiB", str(caught.exception))
            self.assertEqual(heap.failure()["asked_bytes"], 32 << 20)

    def test_spilling_continues_in_host_memory(self):
        with stowage.heap("sim:64M", spill="64M") as heap:
            heap.alloc("48M")
            heap.alloc("32M")
            self.assertGreater(heap.stats()["spilled_bytes"], 0)

    def test_wrong_use_is_reported(self):
        heap = stowage.heap("sim:64M")
        address = heap.alloc(4096)
        with self.assertRaises(stowage.StowageError):
            heap.free(address + 512)
        with self.assertRaises(stowage.StowageError):
            heap.limit(vram=1)
        heap.free(address)
        with self.assertRaises(stowage.StowageError):
            heap.free(address)
        with self.assertRaises(ValueError):
            heap.alloc(0)
        with self.assertRaises(ValueError):
            heap.alloc("lots")
        heap.close()
        heap.close()
        with self.assertRaises(stowage.StowageError):
            heap.alloc(1)
        with self.assertRaises(FileNotFoundError):
            stowage.heap("GPU-0000")

    def test_what_is_no_number_and_no_name_reaches_no_device(self):
        with stowage.heap("sim:64M") as heap:
            for call in (
                lambda: heap.alloc("1M", stream="s"),
                lambda: heap.alloc("1M", tag=7),
                lambda: heap.free("0x1000"),
                lambda: heap.free(None),
                lambda: heap.free(-4096),
                lambda: stowage.heap([]),
                lambda: stowage.info(True),
            ):
                self.assertRaises(TypeError, call)
            with self.assertRaises(ValueError):
                stowage.heap("sim:16G\0")
            self.assertEqual(heap.stats()["live_bytes"], 0)


if __name__ == "__main__":
    unittest.main()
