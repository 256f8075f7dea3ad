"""Runs the benches of tarn.torch with small numbers: they run, and print a median of every part."""

import os
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
BIN = os.environ.get("TARN_BIN_DIR", ROOT / "build/release/bin")

try:
    import torch  # noqa: F401
except ImportError:
    print("benches_test.py: skipped: torch is not installed", file=sys.stderr)
    sys.exit(77)


class BenchesTest(unittest.TestCase):
    def medians(self, name, *options):
        """The names of the parts in the table at the end."""
        done = subprocess.run([sys.executable, ROOT / "bench" / name, *options], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout)
        return [line.split()[0] for line in done.stdout.splitlines() if re.match(r"\w+ +[\d,.]+ ", line)]

    def test_exchange(self):
        found = self.medians("torch_exchange", "--bin-dir", BIN, "--repeats", "1", "--steps", "3", "--warm-up", "3", "--batches", "3",
                             "--batch", "64")
        self.assertEqual(found, ["cpp", "torch"])

    def test_speed(self):
        found = self.medians("torch_speed", "--repeats", "1", "--steps", "10", "--batch", "64", "--rows", "1000")
        self.assertEqual(found, ["local", "tarn", "rpc", "rpc_modules"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
