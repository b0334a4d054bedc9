"""info, watch."""

import io
import unittest

import stowage
from support import needs, python


class Look(unittest.TestCase):
    def test_info_reports_host_device_process_and_tags(self):
        with stowage.heap("sim:64M") as small:
            small.alloc("4M", tag="weights")
            seen = stowage.info("sim:16G")
            text = repr(seen)
        self.assertIn("host", text)
        self.assertIn("simulated device", text)
        self.assertIn("16.0 GiB", text)
        self.assertIn("tag weights", text)
        self.assertIn("4.0 MiB", text)
        self.assertGreater(seen.data["process"]["host_bytes"], 1 << 20)

    def test_info_is_rich_in_notebooks(self):
        page = stowage.info("sim:16G")._repr_html_()
        self.assertIn("background:", page)
        self.assertIn("simulated device", page)
        self.assertNotIn("<script", page)

    def test_an_unknown_device_is_refused(self):
        for device, kind in (("sim:none", ValueError), (3.5, TypeError), (["0"], TypeError)):
            with self.assertRaises(kind):
                stowage.info(device)

    def test_watch_keeps_the_peak(self):
        with stowage.watch(0.01) as seen:
            block = b"x" * (64 << 20)
        self.assertGreater(seen.peak_host_bytes, len(block))
        self.assertIn("stopped", repr(seen))

    def test_watch_writes_a_bar_to_a_terminal(self):
        class Terminal(io.StringIO):
            def isatty(self):
                return True

        stream = Terminal()
        seen = stowage.watch(0.01, stream)
        while not stream.getvalue():
            pass
        seen.stop()
        seen.stop()
        self.assertRegex(stream.getvalue(), r"\rhost \[[#+.]{12}\] [\d.]+ [KMG]iB")

    def test_watch_refuses_what_is_no_time(self):
        for wrong in (0, -1, "fast", True, float("nan")):
            with self.assertRaises(ValueError):
                stowage.watch(wrong)

    @needs("numpy")
    def test_a_card_of_nvml_is_seen(self):
        from support import BUILD

        standin = BUILD / "tests" / "standin" / "libnvidia-ml.so.1"
        if not standin.exists():
            self.skipTest("no stand-in of NVML is built")
        code = """
        from stowage import _memory
        watcher = _memory.Watcher()
        card = watcher.devices()[0]
        assert _memory.driver_here() and _memory.devices()[0] == card
        print(card.total_bytes >> 30, card.used_bytes >> 30)
        """
        self.assertEqual(python(code, STOWAGE_LIBNVML=standin)[1].split()[1], "5")


if __name__ == "__main__":
    unittest.main()
