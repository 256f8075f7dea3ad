#!/usr/bin/env python3
"""Shows that tarn.export reads the same rows that the C++ writer has written, and rejects damaged files.

  export_test.py EXPORT_CORPUS   EXPORT_CORPUS: the program that writes a full export, a delta and an empty one
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "python"))

import numpy as np

from tarn.export import Export, ExportError, Model

PROGRAM = sys.argv.pop()


def rows(count, dim, scale):
    """Like SomeRows of tests/unit/serving/small_export.h."""
    keys = np.array([i << 40 | i for i in range(count)], np.uint64)
    return keys, np.array([[scale * i + d for d in range(dim)] for i in range(count)], np.float32)


class ExportTest(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self._folder.name)
        self.addCleanup(self._folder.cleanup)
        subprocess.run([PROGRAM, self.folder], check=True)

    def test_full(self):
        export = Export(self.folder / "full")
        self.assertFalse(export.is_delta)
        self.assertEqual((export.job, export.checkpoint, export.clock), ("job", 3, 30))
        self.assertEqual(export.tables["users"].initializer, "normal(0, 0.5)")
        model = Model(self.folder / "full")
        self.assertEqual(model.names, ["layer", "users"])
        keys, values = rows(9, 3, 1.5)
        got, found = model.lookup("users", np.append(keys, [np.uint64(5), np.uint64(2**64 - 1)]))
        np.testing.assert_array_equal(got[:9], values)
        np.testing.assert_array_equal(got[9:], 0)
        np.testing.assert_array_equal(found, [True] * 9 + [False] * 2)
        every, all_values = model.table("users")
        np.testing.assert_array_equal(every, keys)
        np.testing.assert_array_equal(all_values, values)
        got, found = model.lookup("layer", [0, 3, 10, 11])  # 10 and 11 are beyond the table
        np.testing.assert_array_equal(got[0], [0, 1])
        np.testing.assert_array_equal(found, [True, False, False, False])

    def test_keys_are_whole_numbers(self):
        model = Model(self.folder / "full")
        for keys in ([1.5], [1, 2.0], np.array([1.0]), np.array([[1]]), ["1"]):
            with self.assertRaises(TypeError):
                model.lookup("users", keys)
        for keys in ([-1], [2**64], np.array([3, -1])):
            with self.assertRaises(ValueError):
                model.lookup("users", keys)
        for keys in ([], np.array([])):
            self.assertEqual(model.lookup("users", keys)[0].shape[0], 0)
        known, values = rows(9, 3, 1.5)
        for keys in ([int(known[3]), 2**64 - 1], (np.uint64(known[3]), np.int64(1)), np.array([known[3], 1], np.uint64)):
            got, found = model.lookup("users", keys)
            np.testing.assert_array_equal(found, [True, False])
            np.testing.assert_array_equal(got[0], values[3])
        self.assertEqual(model.lookup("users", [])[0].shape, (0, 3))

    def test_delta(self):
        model = Model(self.folder / "full")
        model.apply(self.folder / "delta")
        self.assertEqual(model.checkpoint, 4)
        keys, values = rows(9, 3, 1.5)
        values[:2] = rows(2, 3, 4)[1]
        got, found = model.lookup("users", keys)
        np.testing.assert_array_equal(got, values)
        self.assertTrue(found.all())
        self.assertFalse(model.lookup("users", [7, 8])[1].any())
        with self.assertRaisesRegex(ExportError, "applies to checkpoint 3"):
            model.apply(self.folder / "delta")
        with self.assertRaisesRegex(ExportError, "full export"):
            Model(self.folder / "delta")
        with self.assertRaisesRegex(ExportError, "expected a delta"):
            model.apply(self.folder / "full")

    def test_empty_and_unknown(self):
        self.assertEqual(Model(self.folder / "empty").names, [])
        with self.assertRaisesRegex(KeyError, "no table 'items'; the tables are layer, users"):
            Model(self.folder / "full").lookup("items", [1])

    def test_every_damaged_byte(self):
        whole = (self.folder / "full").read_bytes()
        export = Export(self.folder / "full")
        inside = np.zeros(len(whole), bool)
        for table in export.tables.values():
            for s in table.sections:
                inside[int(s["offset"]):int(s["offset"] + s["bytes"])] = True
        path = self.folder / "bad"
        for at in range(len(whole)):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x21]) + whole[at + 1:])
            try:
                Export(path)
                self.assertTrue(whole[at] == 0 and not inside[at], at)  # between the sections there is nothing
            except ExportError as error:
                self.assertTrue(str(error).startswith(f"{path}: "), error)

    def test_every_cut(self):
        whole = (self.folder / "full").read_bytes()
        path = self.folder / "bad"
        for size in range(len(whole)):
            path.write_bytes(whole[:size])
            with self.assertRaises(ExportError):
                Export(path)


    def test_a_pipe_is_not_waited_for(self):
        path = self.folder / "pipe"
        os.mkfifo(path)
        reader = f"import sys; sys.path[:0] = {sys.path[:1]}; from tarn.export import Export; Export('{path}')"
        done = subprocess.run([sys.executable, "-c", reader], capture_output=True, text=True, timeout=60)
        self.assertIn(f"ExportError: {path}: not a regular file", done.stderr)


if __name__ == "__main__":
    unittest.main()
