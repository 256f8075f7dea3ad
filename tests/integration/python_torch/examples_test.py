"""Runs the examples of examples/torch as a user does: shortened, or unchanged with TARN_EXAMPLES=full."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
FULL = os.environ.get("TARN_EXAMPLES") == "full"
BIN = pathlib.Path(os.environ.get("TARN_BIN_DIR", ROOT / "build/release/bin"))

try:
    import torch  # noqa: F401
except ImportError:
    print("examples_test.py: skipped: torch is not installed", file=sys.stderr)
    sys.exit(77)


class ExamplesTest(unittest.TestCase):
    def run_example(self, name, *short, workers=None):
        """short: arguments that shorten the run, unless it is full. workers: overrides fleet.workers of the job."""
        settings = [] if workers is None else ["--set", f"fleet.workers={workers}"]
        with tempfile.TemporaryDirectory(prefix="tarn-test-") as folder:
            done = subprocess.run(
                [sys.executable, ROOT / "tools/launch", ROOT / f"examples/torch/{name}.toml", *settings, "--bin-dir", BIN, "--run-dir",
                 f"{folder}/run", "--", sys.executable, ROOT / f"examples/torch/{name}.py", *(() if FULL else short)],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1200)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, "status +done")
        return done.stdout

    def check(self, output, pattern, least, least_of_full):
        """The first number of the pattern is the result of the model, the last that of the hidden model."""
        [numbers] = re.findall(pattern, output)
        self.assertGreater(float(numbers[0]), least_of_full if FULL else least, output)
        self.assertLess(float(numbers[0]), float(numbers[-1]), output)

    def test_dlrm(self):
        output = self.run_example("dlrm", "--rows", "60000", "--batch", "512")
        self.check(output, r"test AUC ([0-9.]+), of the hidden model ([0-9.]+)", 0.6, 0.735)

    def test_dcn_v2(self):
        output = self.run_example("dcn_v2", "--rows", "60000", "--batch", "512")
        self.check(output, r"test AUC ([0-9.]+), of the hidden model ([0-9.]+)", 0.6, 0.735)

    def test_word2vec(self):
        output = self.run_example("word2vec", "--words", "60000", "--batch", "1024")
        self.assertGreater(float(re.search(r"the same subject ([0-9.]+)", output)[1]), 0.95 if FULL else 0.3, output)
        self.assertRegex(output, "near sea-0: ")

    def test_moe(self):
        output = self.run_example("moe", "--steps", "250", "--batch", "512")
        accuracy, shares = re.findall(r"accuracy ([0-9.]+), rows of each expert (.+)", output)[-1]
        self.assertGreater(float(accuracy), 0.96 if FULL else 0.7, output)
        self.assertEqual(len(shares.split()), 8, output)

    def test_sequence(self):
        """However the workers divide the model, the losses are those of one process."""
        with unittest.mock.patch(f"{__name__}.FULL", False):
            losses = [float(re.search(r"step 20: loss ([0-9.]+)", self.run_example(
                "sequence", "--steps", "20", "--tensor", str(tensor), "--pipeline", str(pipeline),
                workers=data * tensor * pipeline))[1])
                for data, tensor, pipeline in ((1, 1, 1), (2, 1, 1), (1, 2, 2), (2, 1, 2))]
        for loss in losses:
            self.assertAlmostEqual(loss / losses[0], 1, delta=1e-4)
        if FULL:
            output = self.run_example("sequence", workers=1)
            self.check(output, r"HR@10 ([0-9.]+), of the hidden chain ([0-9.]+)", 0.4, 0.4)

    def test_two_tower(self):
        output = self.run_example("two_tower", "--steps", "200", "--batch", "128", "--users", "1000")
        self.check(output, r"first ten: ([0-9.]+), .* of the hidden model ([0-9.]+)", 0.02, 0.15)

    def test_factorization(self):
        output = self.run_example("factorization", "--steps", "300", "--users", "1000")
        self.check(output, r"HR@10 ([0-9.]+), of the hidden model ([0-9.]+)", 0.2, 0.55)


if __name__ == "__main__":
    unittest.main()
