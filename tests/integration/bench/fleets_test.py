"""Shows that the benchmarks that compare runs of real fleets find their figures in the output of the programs. The data
set is small, so the figures mean nothing."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
BIN = pathlib.Path(os.environ.get("TARN_BIN_DIR", ROOT / "build/release/bin"))


class Fleets(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="tarn-test-")
        cls.path = pathlib.Path(cls.folder.name)
        subprocess.run([BIN / "tarn-generate", "--rows", "8000", "--valid", "500", "--test", "500", "--seed", "7", "--profile",
                        "criteo", "--out", cls.path / "data"], check=True, capture_output=True)
        job = (ROOT / "examples/criteo-logistic_regression.toml").read_text().replace("../data/criteo-1m", "data")
        (cls.path / "job.toml").write_text(job)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_bench(self, name, *words):
        done = subprocess.run([sys.executable, ROOT / "bench" / name, self.path / "job.toml", "--bin-dir", BIN, *words],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_training_throughput(self):
        out = self.run_bench("training_throughput", "--repetitions", "1", "--variant", "consistency.mode=asp")
        speeds, seconds = out.split("\nCPU seconds of the fleet")
        rows = [line.split(" | ") for line in speeds.splitlines()[2:]]
        self.assertEqual([row[1] for row in rows], ["as shipped", "consistency.mode=asp"])
        for row in rows:
            one, fleet = (float(cell.split()[0].replace(",", "")) for cell in row[2:4])
            self.assertGreater(min(one, fleet), 0)
            self.assertAlmostEqual(float(row[4].split()[0]), fleet / one, delta=0.006)
        self.assertEqual(len(seconds.splitlines()), 6)

    def test_model_step(self):
        for model in ("dlrm", "dcn_v2", "wide_deep", "deepfm", "mlp"):
            command = [BIN / "model_step", "--model", model, "--rows", "16", "--steps", "3", "--warmup", "1", "--dim", "4",
                       "--field-keys", "10", "--hidden", "8", "--bottom", "4"]
            done = [subprocess.run([*command, *more], capture_output=True, text=True)
                    for more in (["--dump", self.path / model], ["--accumulate", "2"])]
            self.assertEqual([each.returncode for each in done], [0, 0], done[0].stderr + done[1].stderr)
            whole, in_parts = (json.loads(each.stdout)["losses"] for each in done)
            self.assertEqual(len(whole), 4)
            for one, other in zip(whole, in_parts):
                self.assertAlmostEqual(one, other, places=5)
            self.assertEqual((self.path / model / "labels.f32").stat().st_size, 4 * 16 * 4)

    def test_prefetch(self):
        out = self.run_bench("prefetch", "--workers", "1", "--seeds", "1", "2", "--modes", "asp")
        lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        self.assertEqual([(each["seed"], each["mode"], each["prefetch"]) for each in lines],
                         [(1, "bsp", 0), (1, "asp", 0), (1, "asp", 1), (1, "asp", 2),
                          (2, "asp", 2), (2, "asp", 1), (2, "asp", 0), (2, "bsp", 0)])
        table = [line for line in out.splitlines() if line.startswith("| job | 1 |")]
        self.assertEqual(len(table), 4)
        self.assertEqual([bool(cell.strip()) for cell in table[0].split("|")[6:8]], [False, False])
        self.assertEqual([bool(cell.strip()) for cell in table[3].split("|")[6:8]], [True, True])
        figures = self.path / "figures.jsonl"
        figures.write_text(out)
        drawn = self.run_bench("prefetch", "--draw", figures)
        self.assertEqual(drawn.splitlines()[-6:], out.splitlines()[-6:])
        figures.write_text(out.splitlines()[1])  # an interrupted run: one seed, and not of bsp
        self.assertIn("| job | 1 | asp | 0 |", self.run_bench("prefetch", "--draw", figures))


class FailureTest(unittest.TestCase):
    def test_training_throughput_shows_why_single_process_failed(self):
        with tempfile.TemporaryDirectory(prefix="tarn-test-") as folder:
            program = pathlib.Path(folder, "single_process")
            program.write_text("#!/bin/sh\necho half a result; echo no such file: train.csv >&2; exit 3\n")
            program.chmod(0o755)
            done = subprocess.run([sys.executable, ROOT / "bench/training_throughput", ROOT / "examples/criteo-dlrm.toml",
                                   "--bin-dir", folder], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr.rstrip()),
                         (1, "training_throughput: single_process failed with exit code 3:\nno such file: train.csv"))


if __name__ == "__main__":
    unittest.main()
