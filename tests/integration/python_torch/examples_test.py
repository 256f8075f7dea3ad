"""The examples of examples/torch, short, as a user starts them."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
BIN = pathlib.Path(os.environ.get("TARN_BIN_DIR", ROOT / "build/release/bin"))

try:
    import torch  # noqa: F401
except ImportError:
    print("examples_test.py: skipped: torch is not installed", file=sys.stderr)
    sys.exit(77)


class ExamplesTest(unittest.TestCase):
    def run_example(self, name, *arguments, launch=()):
        with tempfile.TemporaryDirectory(prefix="tarn-test-") as folder:
            done = subprocess.run(
                [sys.executable, ROOT / "tools/launch", ROOT / f"examples/torch/{name}.toml", "--bin-dir", BIN, "--run-dir",
                 f"{folder}/run", *launch, "--", sys.executable, ROOT / f"examples/torch/{name}.py", *arguments],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, "status +done")
        return done.stdout

    def test_dlrm(self):
        output = self.run_example("dlrm", "--rows", "60000", "--batch", "512")
        losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", output)]
        self.assertGreaterEqual(len(losses), 1, output)
        [(found, best)] = re.findall(r"test AUC ([0-9.]+), of the hidden model ([0-9.]+)", output)
        self.assertGreater(float(found), 0.6, output)
        self.assertLess(float(found), float(best), output)

    def test_two_tower(self):
        output = self.run_example("two_tower", "--steps", "200", "--batch", "128", "--users", "1000")
        [(found, popular)] = re.findall(r"first ten: ([0-9.]+), of the most popular ([0-9.]+)", output)
        self.assertGreater(float(found), 0.02, output)

    def test_factorization(self):
        output = self.run_example("factorization", "--steps", "300", "--users", "1000")
        [(found, best)] = re.findall(r"HR@10 ([0-9.]+), of the hidden model ([0-9.]+)", output)
        self.assertGreater(float(found), 0.2, output)


if __name__ == "__main__":
    unittest.main()
