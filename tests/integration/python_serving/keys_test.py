#!/usr/bin/env python3
"""Shows that tarn.keys encodes rows like the C++ readers, to the bit, and rejects the same lines.

  keys_test.py DUMP_ROWS   DUMP_ROWS: the program that prints the rows of a file as workers read them
"""

import gzip
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "python"))

import numpy as np

from tarn import keys
from tarn.keys import Encoder, RowError, open_lines

PROGRAM = sys.argv.pop()

ODD_INTEGERS = [
    b"", b"0", b"-0", b"1", b"2", b"3", b"-1", b"-3", b"007", b"4095", b"4096", b"4097", b"35184372088831",
    b"35184372088832", b"-35184372088831", b"-35184372088832", b"9007199254740993", b"9223372036854775807",
    b"-9223372036854775808", b"9223372036854775808", b"-9223372036854775809", b"0000000000000000000000042",
    b"-", b"+1", b"1.0", b"1e3", b" 1", b"1 ", b"x", b"0x10", b"--1", b"1_0", "\u0661".encode()]
ODD_CATEGORIES = [
    b"", b"05db9164", b"00000000", b"ffffffff", b"FFFFFFFF", b"05DB9164", b"05db916", b"05db91640", b"05db916g", b"a",
    b" 05db916", b"0x05db91", b"12345678", "Zürich".encode(), "東京".encode(), b"\xff\xfe", b"eightlet", b"sixteen letters.",
    b"nine text", b"a\0b", b"\0", b"x\r", b"\xef\xbb\xbf", b"x" * 1000]
ODD_FEATURES = [
    b"0", b"7:1", b"7:1.0", b"7:0.5", b"007:2", b"140737488355327:3", b"140737488355328:3", b"99999999999999999999:1", b"7:",
    b":1", b"7:x", b"7:inf", b"7:nan", b"7:1e39", b"7:3.4028236e38", b"7:1e-40", b"7:-0", b"7:.5", b"7:5.", b"7:.", b"7:+1",
    b"7:1e", b"7:1e+2", b"7:1E-2", b"-7:1", b"+7:1", b"7:1:2", b"7:0x1", b"7:1_0", b"qid:3", b"7:1.00000005960464477539062501",
    b"7:1.000000059604644775390625", b"7:1.0000001788139343261718749", b"7: 1", b"7\r"]
ODD_LABELS = [b"0", b"1", b"-1", b"+1", b"-0", b"+-1", b"++1", b"1.0", b"1e0", b"2", b"-2", b"0.5", b"0.99999999999", b"",
              b"+", b"nan", b"inf", b"x", b"1,2", b"00"]


class KeysTest(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self._folder.name)
        self.addCleanup(self._folder.cleanup)

    def dump(self, data, lines, *more):
        """What the C++ reader prints of the lines."""
        def toml(value):
            return str(value).lower() if isinstance(value, bool) else repr(value)

        job = self.folder / "job.toml"
        job.write_text("[data]\ntrain = 'rows'\n" + "".join(f"{name} = {toml(data[name])}\n" for name in data))
        (self.folder / "rows").write_bytes(b"".join(line + b"\n" for line in lines))
        done = subprocess.run([PROGRAM, job, "rows", *more], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.splitlines()

    def check(self, data, lines):
        """Compares the rows and the rejected lines. Returns the number of each."""
        encoder, good = Encoder(data), []
        for number, line in enumerate(lines):
            try:
                encoder.lines([line + b"\n"])
                good.append(number)
            except RowError:
                pass
        bad = sorted(set(range(len(lines))) - set(good))
        refused = list(map(int, self.dump(data, lines, "-")))
        self.assertEqual([lines[i] for i in bad], [lines[i] for i in refused])
        rows = encoder.lines([lines[i] for i in good])
        printed = self.dump(data, lines)
        self.assertEqual(len(rows), len(printed))
        for r, text in enumerate(printed):
            label, row_keys, weights, dense = ([int(x, 16) for x in part.split()] if i else part
                                               for i, part in enumerate(text.split("|")))
            mine = slice(rows.offsets[r], rows.offsets[r + 1])
            line = lines[good[r]]
            self.assertEqual(rows.labels[r], float(label), line)
            np.testing.assert_array_equal(rows.keys[mine], np.array(row_keys, np.uint64), str(line))
            np.testing.assert_array_equal(rows.weights[mine].view(np.uint32),
                                          weights or [0x3f800000] * len(row_keys), str(line))
            np.testing.assert_array_equal(rows.dense[r].view(np.uint32), np.array(dense, np.uint32), str(line))
        return len(good), len(bad)

    def test_criteo_odd_fields(self):
        for bins in ([], ["log2"], ["width:5"], ["width:0.3"], ["width:1e15"], ["width:1e-300"],
                     ["identity"], ["none"]):
            data = {"format": "criteo", "integer_columns": 1, "categorical_columns": 1, "bins": bins,
                    "dense_integers": True}
            lines = [b"1\t" + field + b"\tx" for field in ODD_INTEGERS]
            lines += [b"0\t5\t" + field for field in ODD_CATEGORIES]
            good, bad = self.check(data, lines)
            self.assertGreater(good, 35)
            self.assertGreater(bad, 10)

    def test_criteo_odd_lines(self):
        data = {"format": "criteo", "integer_columns": 1, "categorical_columns": 2}
        lines = [b"", b"1", b"1\t", b"1\t\t\t", b"0\t1\tx\ty\r", b"0\t1\tx", b"0\t1\tx\ty\tz", b"2\t1\tx\ty", b"\t1\tx\ty",
                 b"01\t1\tx\ty", b"label\tI1\tC1\tC2", b"\xef\xbb\xbf1\t1\tx\ty", b"1\t1\t\t05db9164\r", b"\r", b"1\t\t\t\r\r"]
        self.assertEqual(self.check(data, lines), (4, 11))

    def test_criteo_random(self):
        chance = random.Random(1)

        def integer():
            return b"" if chance.random() < 0.1 else b"%d" % (chance.getrandbits(chance.randrange(1, 64)) *
                                                              chance.choice((1, 1, 1, -1)))

        def category():
            kind = chance.random()
            if kind < 0.1:
                return b""
            if kind < 0.5:
                return b"%08x" % chance.getrandbits(32)
            return bytes(chance.choices([b for b in range(256) if b not in b"\t\r\n"], k=chance.randrange(1, 40)))

        data = {"format": "criteo", "integer_columns": 4, "categorical_columns": 3, "dense_integers": True,
                "bins": ["log2", "width:7.5", "identity", "none"]}
        lines = [b"\t".join([chance.choice((b"0", b"1"))] + [integer() for _ in range(4)] + [category() for _ in range(3)])
                 for _ in range(3000)]
        self.assertEqual(self.check(data, lines), (3000, 0))

    def test_every_bin(self):
        """The values on both sides of the beginning of each bin of the rule "log2"."""
        data = {"format": "criteo", "integer_columns": 1, "categorical_columns": 0}
        begins = sorted({v for begin in keys._LOG2_BEGINS for v in (begin - 1, begin, begin + 1)})
        good, bad = self.check(data, [b"0\t%d" % v for v in begins])
        self.assertGreater(good, 5000)
        self.assertEqual(bad, 0)

    def test_libsvm(self):
        for classes in (2, 5):
            data = {"format": "libsvm", "classes": classes}
            lines = [b"1 3 " + feature for feature in ODD_FEATURES] + [label + b" 3:1" for label in ODD_LABELS]
            lines += [b"", b"#", b"1", b"1 # 3:x", b"1\t3:2  4\t", b" 1 3", b"1 5:2 3:1 3:1", b"1 3:1#4:1\r", b"4 1:1"]
            good, bad = self.check(data, lines)
            self.assertGreater(good, 25)
            self.assertGreater(bad, 25)

    def test_libsvm_random(self):
        chance = random.Random(2)
        lines = []
        for _ in range(2000):
            features = (b"%d:%.*g" % (chance.getrandbits(chance.randrange(1, 48)), chance.randrange(1, 20),
                                      chance.choice((-1, 1)) * 10**chance.uniform(-37, 37)) for _ in range(3))
            lines.append(b"-1 " + b" ".join(features))
        self.assertEqual(self.check({"format": "libsvm"}, lines), (2000, 0))

    def test_rows_as_lines(self):
        encoder = Encoder({"integer_columns": 2, "categorical_columns": 2, "dense_integers": True})
        rows = encoder.rows([[17, None, "Zürich", "05db9164"], ["17", "", "Zürich".encode(), b"05db9164"],
                             [np.int64(17), b"", "Zürich", "05db9164"]])
        lines = encoder.lines(["1\t17\t\tZürich\t05db9164\n"] * 3)
        for name in ("keys", "weights", "offsets", "dense"):
            np.testing.assert_array_equal(getattr(rows, name), getattr(lines, name))
        self.assertIsNone(rows.labels)
        encoder = Encoder({"format": "libsvm"})
        for row in ({3: 1, 5: 0.5}, [(3, 1), (5, 0.5)]):
            np.testing.assert_array_equal(encoder.rows([row]).keys, encoder.lines([b"1 3 5:.5"]).keys)
            np.testing.assert_array_equal(encoder.rows([row]).weights, np.float32([1, 0.5]))
        self.assertEqual(len(encoder.rows([])), 0)
        self.assertEqual(encoder.rows([{}, {3: 1}]).offsets.tolist(), [0, 0, 1])

    def test_refused(self):
        encoder = Encoder({"integer_columns": 1, "categorical_columns": 1})
        for row, error in (([1], RowError), ([1, "x", "y"], RowError), ([2**63, "x"], RowError), (["1.5", "x"], RowError),
                           ([1.5, "x"], TypeError), ([1, 7], TypeError)):
            with self.assertRaises(error, msg=row):
                encoder.rows([row])
        for line, why in (("1\t1\tx\ty", "4 tab-separated fields: expected 3 .label, 1 integers, 1 categorical"),
                          ("1\t1.5\tx", "integer column 1 is '1.5': expected a 64-bit integer"),
                          ("x" * 99 + "\t1\tx", f"label '{'x' * 64}'...: expected 0 or 1")):
            with self.assertRaisesRegex(RowError, f"line 2: {why}"):
                encoder.lines(["1\t1\tx", line])
        for data in ({"format": "idx"}, {"bins": ["log"]}, {"bins": ["width:0"]}, {"bins": ["log2", "log2"]}):
            with self.assertRaises(ValueError):
                Encoder(data)
        with self.assertRaises(RowError):
            Encoder({"format": "libsvm"}).rows([{-1: 1}])

    def test_a_tiny_width_cuts(self):
        tiny = Encoder({"integer_columns": 1, "categorical_columns": 0, "bins": ["width:1e-300"]})
        self.assertEqual(tiny.rows([[2**63 - 1], [-2**63], [0]]).keys.tolist(),
                         [keys.key(0, keys.integer_value(v)) for v in (2**62, -2**62, 0)])

    def test_plain_and_gzip(self):
        (self.folder / "plain").write_bytes(b"a\nb\n")
        (self.folder / "packed").write_bytes(gzip.compress(b"a\nb\n"))
        for name in ("plain", "packed"):
            with open_lines(self.folder / name) as lines:
                self.assertEqual(list(lines), [b"a\n", b"b\n"])

    def test_a_pipe(self):
        """It can be read once."""
        for packed in (False, True):
            text = b"".join(b"%d\n" % i for i in range(10_000))
            with subprocess.Popen([sys.executable, "-c", "import sys, time; text = sys.stdin.buffer.read(); out = sys.stdout.buffer; "
                                   "out.write(text[:1]); out.flush(); time.sleep(0.2); out.write(text[1:])"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
                process.stdin.write(gzip.compress(text) if packed else text)
                process.stdin.close()
                with open_lines(f"/dev/fd/{process.stdout.fileno()}") as lines:
                    self.assertEqual(b"".join(lines), text)

    def test_examples_of_the_documents(self):
        """Those of docs/serving.md."""
        data = {"integer_columns": 3, "categorical_columns": 2, "dense_integers": True}
        row = [17, -2, None, "05db9164", "Zürich"]
        rows = Encoder(data).rows([row])
        categories = [0x0004000005db9164, 0x0005aa7596616d83]
        self.assertEqual(rows.keys.tolist(), [0x0001400000000008, 0x0002000000000003, 0x00037fffffffffff] + categories)
        np.testing.assert_allclose(rows.dense, [[2.8903718, 0, 0]], rtol=1e-7)
        rows = Encoder(data | {"bins": ["width:5", "identity", "none"]}).rows([row])
        self.assertEqual(rows.keys.tolist(), [0x0001000000000006, 0x0002000000000003] + categories)
        self.assertEqual(Encoder({"format": "libsvm"}).rows([{7: 1}]).keys.tolist(), [0x0001000000000007])
        self.assertEqual(keys.hash_bytes("Zürich".encode()), 0x54eb2cc2db061831)


if __name__ == "__main__":
    unittest.main()
