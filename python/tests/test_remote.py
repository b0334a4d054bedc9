"""Files on a server: the same values as from disk, despite every fault of a server, or a message that names the fault."""

import io
import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

try:
    import numpy as np
except ImportError:
    raise unittest.SkipTest("numpy is not installed")

import stowage

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from server import Server  # noqa: E402

os.environ["STOWAGE_HTTP_TIMEOUT"] = "1"
for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "https_proxy", "HTTPS_PROXY"):
    os.environ.pop(name, None)
for name in ("CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"):
    os.environ.pop(name, None)


def has_curl():
    try:
        stowage.open("http://127.0.0.1:9/")
    except stowage.Unsupported as error:
        return "libcurl" not in str(error)
    except stowage.StowageError:
        return True
    return True


def saved(save, *given, **more):
    out = io.BytesIO()
    save(out, *given, **more)
    return out.getvalue()


@unittest.skipUnless(has_curl(), "libcurl.so.4 is not installed (apt-get install libcurl4)")
class Remote(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.y = np.arange(30000)
        cls.x = cls.y[:, None] * 1.0 + np.arange(25)  # 6 MB
        cls.server = Server(
            {
                "x.npy": saved(np.save, cls.x),
                "y.npy": saved(np.save, cls.y),
                "both.npz": saved(np.savez, x=cls.x, y=cls.y),
                "deflated.npz": saved(np.savez_compressed, x=cls.x),
                "empty": b"",
                "t.csv": b"a,b\n" + b"".join(b"%d,%d\n" % (i, i * i) for i in range(50000)),
            }
        ).__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()

    def setUp(self):
        self.server.plan, self.server.requests, self.server.away = [], [], {}
        self.server.ranges, self.server.password, self.server.delay = True, None, 0.0

    def refused(self, kind, *words, **more):
        with self.assertRaises(kind) as caught:
            list(stowage.batches(self.server.url("x.npy"), 1000, num_workers=1, memory="16M", **more))
        for word in words:
            self.assertIn(word, str(caught.exception))

    def test_urls_in_a_list_are_one_array(self):
        urls = [self.server.url("y.npy"), self.server.url("both.npz") + ":y"]
        np.testing.assert_array_equal(stowage.open(urls)[29990:30010], np.concatenate([self.y, self.y])[29990:30010])
        for shuffle in (False, True):
            got = np.concatenate(list(stowage.batches([urls], 7000, shuffle=shuffle, memory="8M")), axis=None)
            np.testing.assert_array_equal(np.sort(got), np.sort(np.concatenate([self.y, self.y])))

    def test_ranks_share_a_small_file_row_by_row(self):
        shares = [np.concatenate(list(stowage.batches(self.server.url("y.npy"), 500, shuffle=True, rank=r, world=3))) for r in range(3)]
        np.testing.assert_array_equal(np.sort(np.concatenate(shares)), self.y)
        self.assertLess(max(abs(share.mean() - 15000) for share in shares), 500)
        self.assertLess(len(self.server.requests), 60)  # copied once, not row by row

    def test_a_value_that_does_not_fit_is_named_with_its_url(self):
        url = self.server.url("y.npy")
        with self.assertRaisesRegex(ValueError, "y.npy: row .* does not fit"):
            list(stowage.batches(url, 500, shuffle=True, rank=0, world=2, dtype="int8"))

    def test_a_table_at_a_url_is_a_table(self):
        table = stowage.open(self.server.url("both.npz"))
        self.assertEqual(table.columns, ["x", "y"])
        np.testing.assert_array_equal(table["y"][5:9], self.y[5:9])
        with self.assertRaises(stowage.Unsupported):
            table.__arrow_c_stream__()

    def test_parquet_at_a_url_is_refused_with_what_to_do(self):
        with self.assertRaisesRegex(stowage.Unsupported, "download"):
            stowage.inspect(self.server.url("t.parquet"))

    def command(self):
        found = os.environ.get("STOWAGE_COMMAND") or str(stowage._library.native("bin/stowage") or "")
        if not found:
            self.skipTest("no stowage command")
        return found

    @staticmethod
    def over_tls(server, folder):
        """Makes the server use TLS. Returns the certificate to trust."""
        key, certificate = os.path.join(folder, "key"), os.path.join(folder, "certificate")
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate]
            + ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server.server.socket = context.wrap_socket(server.server.socket, server_side=True)
        return certificate

    # ---- it works ----

    @unittest.skipIf(shutil.which("openssl") is None, "openssl, which makes the certificate, is not installed")
    def test_over_tls_with_an_authority_of_ones_own(self):
        with tempfile.TemporaryDirectory() as folder:
            server = Server({"y.npy": saved(np.save, self.y)})
            certificate = self.over_tls(server, folder)
            with server:
                url = server.url("y.npy").replace("http:", "https:")
                with self.assertRaises(stowage.StowageError) as caught:
                    stowage.batches(url, 1000)
                self.assertIn("certificate", str(caught.exception))
                self.assertIn("CURL_CA_BUNDLE", str(caught.exception))
                for name in ("CURL_CA_BUNDLE", "SSL_CERT_FILE"):
                    with mock.patch.dict(os.environ, {name: certificate}):
                        got = np.concatenate(list(stowage.batches(url, 1000)))
                    np.testing.assert_array_equal(got, self.y)

    def test_batches_are_those_of_the_file(self):
        urls = [self.server.url("x.npy"), self.server.url("y.npy")]
        for shuffle in (False, True):
            for workers in (1, "auto"):
                seen = []
                for x, y in stowage.batches(urls, 700, shuffle=shuffle, num_workers=workers, memory="32M"):
                    np.testing.assert_array_equal(x, self.x[y])
                    seen.append(y)
                np.testing.assert_array_equal(np.sort(np.concatenate(seen)), self.y)

    def test_slices_and_members(self):
        x = stowage.open(self.server.url("x.npy"))
        before = len(self.server.requests)
        np.testing.assert_array_equal(x[5000:5010, 3], self.x[5000:5010, 3])
        self.assertLessEqual(len(self.server.requests) - before, 1)
        np.testing.assert_array_equal(stowage.open(self.server.url("both.npz:y"))[17:19], [17, 18])
        np.testing.assert_array_equal(stowage.open(self.server.url("deflated.npz"))[-1], self.x[-1])
        np.testing.assert_array_equal(stowage.open(self.server.url("moved/y.npy"))[:3], [0, 1, 2])
        np.testing.assert_array_equal(stowage.open(self.server.url("y.npy?signature=abc:def/x.y"))[:3], [0, 1, 2])

    def test_many_small_reads_are_few_requests(self):
        x = stowage.open(self.server.url("y.npy"))
        for i in range(0, 30000, 10):
            self.assertEqual(x[i], i)
        self.assertLess(len(self.server.requests), 6)

    def test_the_command_reads_urls(self):
        command = self.command()
        self.server.password = "Bearer open sesame"
        said = subprocess.run(
            [command, "inspect", "--json", "--header", "Authorization: Bearer open sesame", self.server.url("x.npy")],
            capture_output=True, text=True, check=True, timeout=60)
        facts = json.loads(said.stdout)
        self.assertEqual((facts["shape"], facts["dtype"], facts["max"]), ([30000, 25], "float64", float(self.x.max())))
        self.server.password = None
        said = subprocess.run([command, "inspect", "--json", self.server.url("t.csv")], capture_output=True, text=True,
                              check=True, timeout=60)
        self.assertEqual(json.loads(said.stdout)["shape"], [50000, 2])
        with tempfile.TemporaryDirectory() as folder:
            for name in ("x.npy", "t.csv"):
                out = os.path.join(folder, "small.npy")
                subprocess.run([command, "shrink", "--for", "storage", self.server.url(name), "-o", out], check=True, timeout=60,
                               stdout=subprocess.DEVNULL)
                got = np.load(out)
                if name == "x.npy":
                    np.testing.assert_array_equal(got, self.x)
                else:
                    self.assertEqual(len(got), 50000)
                os.unlink(out)
        said = subprocess.run([command, "inspect", self.server.url("nowhere.npy")], capture_output=True, text=True, timeout=60)
        self.assertNotEqual(said.returncode, 0)
        self.assertIn("404", said.stderr)

    # ---- temporary faults ----

    def test_faults_that_pass_change_nothing(self):
        faults = [("drop", 0), ("drop", 100), ("drop", 70000), ("status", 500), ("status", 503), ("status", 429),
                  ("short", 1000), ("long", 50), ("slow", 10, 0.3)]
        for fault in faults:
            for at in (0, 1, 3):
                with self.subTest(fault=fault, at=at):
                    self.server.plan = [None] * at + [fault]
                    total = sum(b.sum() for b in stowage.batches(self.server.url("x.npy"), 1000, num_workers=1, memory="16M"))
                    self.assertEqual(total, self.x.sum())
        self.server.plan = [None, ("stall",), None, ("stall",)]
        total = sum(b.sum() for b in stowage.batches(self.server.url("x.npy"), 1000, num_workers=1, memory="16M"))
        self.assertEqual(total, self.x.sum())

    def test_a_connection_that_always_breaks_continues_where_it_broke(self):
        self.server.plan = [None] + [("drop", 200000)] * 60
        got = np.concatenate(list(stowage.batches(self.server.url("x.npy"), 1000, num_workers=1, memory="16M")))
        np.testing.assert_array_equal(got, self.x)
        self.assertGreater(len(self.server.requests), 20)

    # ---- permanent faults ----

    def test_a_server_without_ranges_is_named(self):
        self.server.ranges = False
        self.refused(NotImplementedError, "whole files only", "copy the file first")

    def test_refusals_are_reported(self):
        for status, kind in ((401, OSError), (403, OSError), (404, FileNotFoundError), (416, OSError), (418, OSError)):
            self.server.plan = [None, ("status", status)]
            self.refused(kind, str(status))
        self.server.plan = [("status", 404)]
        self.refused(FileNotFoundError, "404")

    def test_credentials_go_along_and_never_into_messages(self):
        self.server.password = "Bearer open sesame"
        self.refused(OSError, "401", "--header")
        total = sum(b.sum() for b in stowage.batches(self.server.url("y.npy"), 999, headers={"Authorization": "Bearer open sesame"}))
        self.assertEqual(total, self.y.sum())
        self.server.plan = [("status", 418)]
        with self.assertRaises(OSError) as caught:
            stowage.open(self.server.url("y.npy?token=secret").replace("//", "//user:pass@"),
                         headers={"Authorization": "Bearer open sesame"})
        for secret in ("secret", "pass", "sesame"):
            self.assertNotIn(secret, str(caught.exception))

    def test_headers_stay_with_the_origin_they_were_given_for(self):
        key, value = "X-Api-Key", "sesame"
        with Server({"y.npy": saved(np.save, self.y)}) as other:
            self.server.away = {"far": other.url("y.npy"), "near": self.server.url("y.npy")}
            for name, where, sent in (("near", self.server, True), ("far", other, False), ("moved/y.npy", self.server, True)):
                self.server.requests, other.requests = [], []
                got = stowage.open(self.server.url(name), headers={key: value, "Authorization": "Bearer open"})[:]
                np.testing.assert_array_equal(got, self.y)
                landed = [headers for path, headers in where.requests if path == "/y.npy"]
                self.assertTrue(landed)
                for headers in landed:
                    self.assertEqual(headers.get(key) == value, sent, name)
                    self.assertEqual("Authorization" in headers, sent, name)
            # The same for the user's password.
            for name, where, sent in (("near", self.server, True), ("far", other, False)):
                self.server.requests, other.requests = [], []
                stowage.open(self.server.url(name).replace("//", "//user:pass@"))[:1]
                for path, headers in where.requests:
                    self.assertEqual("Authorization" in headers, sent, (name, path))
            with self.assertRaises(ValueError):
                stowage.batches([self.server.url("y.npy"), other.url("y.npy")], 10, headers={key: value})
            said = subprocess.run(
                [self.command(), "inspect", "--header", f"{key}: {value}", self.server.url("y.npy"), other.url("y.npy")],
                capture_output=True, text=True, timeout=60)
            self.assertEqual(said.returncode, 2)
            self.assertNotIn(value, said.stdout + said.stderr)

    @unittest.skipIf(shutil.which("openssl") is None, "openssl, which makes the certificate, is not installed")
    def test_headers_do_not_go_from_https_to_http(self):
        with tempfile.TemporaryDirectory() as folder, Server({}) as server:
            certificate = self.over_tls(server, folder)
            server.away = {"y.npy": self.server.url("y.npy")}
            with mock.patch.dict(os.environ, CURL_CA_BUNDLE=certificate):
                got = stowage.open(server.url("y.npy").replace("http:", "https:"), headers={"X-Api-Key": "sesame"})[:]
        np.testing.assert_array_equal(got, self.y)
        self.assertEqual(server.requests[0][1]["X-Api-Key"], "sesame")
        self.assertTrue(self.server.requests)
        for _, headers in self.server.requests:
            self.assertNotIn("X-Api-Key", headers)

    def test_secrets_are_not_in_reprs_output_or_cache_names(self):
        url = self.server.url("y.npy?sig=SECRETSIG").replace("//", "//user:SECRETPW@")
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, XDG_CACHE_HOME=folder):
            opened = stowage.open(url, cache="8M")
            texts = [repr(opened), str(opened), repr(stowage.batches(url, 100))]
            opened.close()
            with self.assertRaises(ValueError) as caught:
                opened[:]
            texts.append(str(caught.exception))
            with self.assertRaises(ValueError) as caught:
                stowage.open("s3://user:SECRETPW@bucket/x.npy?sig=SECRETSIG")
            texts.append(str(caught.exception))
            for more in ([], ["--json"]):
                said = subprocess.run([self.command(), "inspect", *more, url], capture_output=True, text=True, timeout=60)
                self.assertEqual(said.returncode, 0)
                texts += [said.stdout, said.stderr]
                said = subprocess.run([self.command(), "shrink", *more, url, "-o", os.path.join(folder, "o.npy")],
                                      capture_output=True, text=True, timeout=60)
                self.assertEqual(said.returncode, 0)
                texts += [said.stdout, said.stderr]
            texts += [name for _, _, names in os.walk(folder) for name in names]
        for text in texts:
            self.assertNotIn("SECRET", text)

    def test_faults_behind_a_redirect_are_seen_as_what_they_are(self):
        for fault in (("vanish",), ("drop", 0), ("drop", 100), ("status", 503)):
            with Server({"y.npy": saved(np.save, self.y)}) as other:
                self.server.away = {"far": other.url("y.npy")}
                other.plan = [fault]
                np.testing.assert_array_equal(stowage.open(self.server.url("far"))[:], self.y)
        with Server({}) as other:
            self.server.away = {"far": other.url("nothing"), "loop": self.server.url("loop")}
            with self.assertRaises(FileNotFoundError) as caught:
                stowage.open(self.server.url("far"))
            self.assertIn("404", str(caught.exception))
            self.assertNotIn("302", str(caught.exception))
            other.plan = [("status", 503)] * 100
            with self.assertRaises(OSError) as caught:
                stowage.open(self.server.url("far"))
            self.assertIn("503", str(caught.exception))
            with self.assertRaises(OSError) as caught:
                stowage.open(self.server.url("loop"))
            self.assertIn("10", str(caught.exception))

    def test_a_server_below_the_least_rate_is_given_up(self):
        self.server.plan = [("drip", 2, 0.1)] * 20
        with self.assertRaises(OSError) as caught:
            stowage.open(self.server.url("y.npy"))
        self.assertIn("too slow", str(caught.exception))
        self.assertLess(len(self.server.plan), 20)
        self.assertGreater(len(self.server.plan), 17)  # not six tries
        with mock.patch.dict(os.environ, STOWAGE_HTTP_MIN_RATE="a lot"):
            with self.assertRaises(ValueError) as caught:
                stowage.open(self.server.url("y.npy"))
            self.assertIn("STOWAGE_HTTP_MIN_RATE", str(caught.exception))
        for rate, code, seconds in (("100M", 1, 30.0), ("0", 0, 2.0)):
            for _ in range(3):
                self.server.plan = [("slow", 200, seconds)]
                start = time.monotonic()
                said = subprocess.run([self.command(), "inspect", "--min-rate", rate, self.server.url("y.npy")],
                                      capture_output=True, text=True, timeout=900)
                if said.returncode == code or time.monotonic() - start < 60:
                    break  # otherwise the machine stood still
            self.assertEqual(said.returncode, code, said.stderr)

    def test_errors_that_go_on_end_with_what_was_reported(self):
        self.server.plan = [None] + [("status", 503)] * 100
        self.refused(OSError, "503", "in a row")
        self.server.plan = [None] + [("drop", 0)] * 100
        self.refused(OSError, "x.npy")

    def test_a_file_that_changes_is_refused(self):
        self.server.plan = [None, None, ("etag", '"two"')]
        self.refused(OSError, "changed while being read")
        self.server.plan = [None, None, ("length", 77)]
        self.refused(OSError, "77")

    def test_wrong_answers_are_refused(self):
        self.server.plan = [None, ("encoded",)]
        self.refused(NotImplementedError, "compresses")
        self.server.plan = [None, ("whole",)]
        self.refused(NotImplementedError, "200")

    def test_nobody_there_and_an_empty_file(self):
        with self.assertRaises(OSError):
            stowage.open("http://127.0.0.1:9/x.npy")
        with self.assertRaises(stowage.StowageError) as caught:
            stowage.open(self.server.url("empty"))
        self.assertIn("npy", str(caught.exception))

    def test_after_an_error_the_batch_can_be_tried_again(self):
        made = stowage.batches(self.server.url("x.npy"), 1000, num_workers=1, memory="16M")
        self.server.plan = [None, ("status", 403)]
        rows, failures = 0, 0
        while True:
            try:
                rows += len(next(made))
            except StopIteration:
                break
            except OSError:
                failures += 1
        self.assertEqual((rows, failures), (30000, 1))


@unittest.skipUnless(has_curl(), "libcurl.so.4 is not installed (apt-get install libcurl4)")
class RemoteRecords(unittest.TestCase):
    def test_shards_and_lines_of_a_server(self):
        from test_records import shard_of

        lines = [b"line %d" % n for n in range(5000)]
        with Server({"a.tar": shard_of(range(30)), "b.tar": shard_of(range(30, 60)), "t.txt": b"\n".join(lines)}) as server:
            shards = stowage.records([server.url("a.tar"), server.url("b.tar")])
            self.assertLess(len(server.requests), 60)  # not one for each of 120 headers
            self.assertEqual(len(shards), 60)
            server.plan = [None, ("vanish",), None, ("drop", 900), ("status", 503)]  # each is tried again
            samples = [sample for batch in stowage.batches(shards, 8, shuffle=True, seed=1) for sample in batch]
            self.assertEqual(sorted(int(one["cls"]) for one in samples), list(range(60)))
            for one in samples:
                number = int(one["cls"])
                self.assertEqual(one["jpg"], bytes([number]) * (3000 * number + 5))
            got = [line for batch in stowage.batches(server.url("t.txt"), 64) for line in batch]
            self.assertEqual(got, lines)
            server.mark = '"two"'
            with self.assertRaises(stowage.StowageError):
                list(stowage.batches(shards, 8))

    def test_headers_go_to_one_host(self):
        with Server({"t.txt": b"a\nb\n"}) as server, Server({"t.txt": b"c\n"}) as other:
            server.password = "Bearer x"
            headers = {"Authorization": "Bearer x"}
            self.assertEqual([bytes(x) for batch in stowage.batches(server.url("t.txt"), 9, headers=headers) for x in batch], [b"a", b"b"])
            with self.assertRaises(stowage.Invalid):
                stowage.records([server.url("t.txt"), other.url("t.txt")], headers=headers)
            with self.assertRaises(stowage.Invalid):
                stowage.batches([server.url("t.txt"), other.url("t.txt")], 2, headers=headers)
            self.assertEqual(other.requests, [])


@unittest.skipUnless(has_curl(), "libcurl.so.4 is not installed (apt-get install libcurl4)")
class Kept(unittest.TestCase):
    """Downloaded data is on disk, within a limit."""

    def setUp(self):
        self.x = np.random.default_rng(0).random((30000, 25))  # 6 MB, 23 blocks
        self.server = Server({name: saved(np.save, self.x) for name in ("x.npy", "z.npy")}).__enter__()
        self.addCleanup(self.server.__exit__)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        before = os.environ.get("XDG_CACHE_HOME")
        self.addCleanup(lambda: os.environ.update(XDG_CACHE_HOME=before) if before else os.environ.pop("XDG_CACHE_HOME"))
        os.environ["XDG_CACHE_HOME"] = folder.name
        self.folder = os.path.join(folder.name, "stowage", "remote")

    def asked_for(self, name="x.npy", **more):
        """Reads everything and compares it with the array. Returns the number of requested bytes."""
        del self.server.requests[:]
        got = np.concatenate(list(stowage.batches(self.server.url(name), 1000, num_workers=1, memory="16M", **more)))
        np.testing.assert_array_equal(got, self.x)
        ranges = [headers["Range"][len("bytes=") :].split("-") for _, headers in self.server.requests]
        return sum(int(last) - int(first) + 1 for first, last in ranges)

    def files(self):
        return [os.path.join(self.folder, name) for name in os.listdir(self.folder)]

    def held(self):
        return sum(os.stat(path).st_blocks * 512 for path in self.files())

    def test_a_second_run_asks_for_the_first_block_alone(self):
        self.assertGreaterEqual(self.asked_for(cache="64M"), self.x.nbytes)
        self.assertEqual(self.asked_for(cache="64M"), 256 << 10)
        self.assertEqual(stowage.open(self.server.url("x.npy"), cache="64M")[29999, 24], self.x[29999, 24])
        os.environ["STOWAGE_CACHE"] = "64M"
        try:
            self.assertEqual(self.asked_for(), 256 << 10)
        finally:
            del os.environ["STOWAGE_CACHE"]
        self.assertGreaterEqual(self.asked_for(), self.x.nbytes)  # nobody asked for it to be kept
        self.assertEqual(os.stat(self.files()[0]).st_mode & 0o077, 0)

    def test_a_second_epoch_is_shuffled_from_disk(self):
        made = stowage.batches(self.server.url("x.npy"), 1000, shuffle=True, num_workers=2, memory="8M", cache="64M")
        for _ in range(2):
            del self.server.requests[:]
            got = np.concatenate(list(made))
            np.testing.assert_array_equal(np.sort(got, axis=0), np.sort(self.x, axis=0))
        self.assertLessEqual(len(self.server.requests), 2)  # a reader that had not opened its file before

    def test_what_a_killed_run_had_is_not_asked_for_again(self):
        code = """if 1:
            import os, signal, sys, stowage
            for i, batch in enumerate(stowage.batches(sys.argv[1], 1000, num_workers=1, memory="4M", cache="64M")):
                if i == 15:
                    os.kill(os.getpid(), signal.SIGKILL)
            """
        env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
        ended = subprocess.run([sys.executable, "-c", code, self.server.url("x.npy")], env=env, timeout=60)
        self.assertEqual(ended.returncode, -9)
        self.assertLess(self.asked_for(cache="64M"), self.x.nbytes * 0.6)

    def test_the_bound_holds_and_what_was_longest_unused_goes(self):
        self.asked_for(cache="2M")
        self.assertLessEqual(self.held(), 2 << 20)
        self.assertGreater(self.held(), 1 << 20)
        self.asked_for(cache="8M")
        first = set(self.files())
        self.asked_for("z.npy", cache="8M")
        self.assertLessEqual(self.held(), 8 << 20)
        self.assertTrue(set(self.files()) - first)
        self.assertFalse(first & set(self.files()))

    def test_damage_and_changes_are_noticed(self):
        self.asked_for(cache="64M")
        with open(self.files()[0], "r+b") as file:
            for at in range(1 << 20, 6 << 20, 1 << 20):
                file.seek(at)
                file.write(b"damage")
        asked = self.asked_for(cache="64M")
        self.assertGreater(asked, 1 << 20)
        self.assertLess(asked, 3 << 20)
        self.x = self.x + 1
        self.server.files["x.npy"], self.server.mark = saved(np.save, self.x), '"two"'
        self.asked_for(cache="64M")

    def test_a_folder_that_cannot_be_written_changes_nothing(self):
        os.environ["XDG_CACHE_HOME"] = "/proc/nowhere"
        self.assertGreaterEqual(self.asked_for(cache="64M"), self.x.nbytes)

    def test_a_bound_that_is_no_size_is_refused(self):
        with self.assertRaises(ValueError) as caught:
            stowage.open(self.server.url("x.npy"), cache="a lot")
        self.assertIn("cache", str(caught.exception))
        os.environ["STOWAGE_CACHE"] = "a lot"
        try:
            with self.assertRaises(ValueError) as caught:
                stowage.open(self.server.url("x.npy"))
            self.assertIn("STOWAGE_CACHE", str(caught.exception))
        finally:
            del os.environ["STOWAGE_CACHE"]


if __name__ == "__main__":
    unittest.main()
