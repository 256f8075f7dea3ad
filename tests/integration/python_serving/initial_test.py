#!/usr/bin/env python3
"""Shows that the initial values of tarn.export are those of the servers, to the bit.

  initial_test.py DUMP_INITIAL   DUMP_INITIAL: the program that prints the values of the C++ kernels
"""

import pathlib
import random
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "python"))

import numpy as np

from tarn.export import ExportError, initial_rows

PROGRAM = sys.argv.pop()


class InitialTest(unittest.TestCase):
    def check(self, text, kind, a=0, b=0):
        chance = random.Random(3)
        for salt in (0, chance.getrandbits(64)):
            keys = [0, 1, 2**64 - 1] + [chance.getrandbits(64) for _ in range(1000)]
            done = subprocess.run([PROGRAM, kind, *map(str, (a, b, salt, *keys))], capture_output=True, text=True, check=True)
            wanted = np.array([line.split() for line in done.stdout.splitlines()], np.uint32)
            got = initial_rows(text, salt, np.array(keys, np.uint64), 5)
            np.testing.assert_array_equal(got.view(np.uint32), wanted)

    def test_every_kind(self):
        self.check("zero", "zero")
        self.check("constant 0.1", "constant", 0.1)
        self.check("uniform(-0.5, 0.25)", "uniform", -0.5, 0.25)
        self.check("normal(0, 0.01)", "normal", 0, 0.01)
        self.check("normal(-1, 1e-05)", "normal", -1, 1e-5)

    def test_unknown(self):
        for text in ("", "gamma(1, 2)"):
            with self.assertRaises(ExportError):
                initial_rows(text, 0, np.array([1], np.uint64), 2)


if __name__ == "__main__":
    unittest.main()
