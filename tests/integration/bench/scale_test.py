"""Shows that bench/scale makes a table and a picture from generated data and the costs of one machine (costs.txt), with
fleets of a few nodes."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))
from tarn_tools import bench_fleet  # noqa: E402

BIN = pathlib.Path(os.environ.get("TARN_BIN_DIR", ROOT / "build/release/bin"))
COMPUTE_NS = 4000  # of a row


def scale(*words):
    return subprocess.run([sys.executable, ROOT / "bench/scale", *map(str, words)], capture_output=True, text=True)


class Scale(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        generate = [BIN / "tarn-generate", "--rows", "20000", "--valid", "100", "--test", "100", "--seed", "7"]
        subprocess.run([*generate, "--profile", "criteo", "--out", cls.path / "data"], check=True, capture_output=True)
        job = (ROOT / "examples/criteo-dlrm.toml").read_text().replace("../data/criteo-1m", "data")
        (cls.path / "job.toml").write_text(job)
        costs = pathlib.Path(__file__).with_name("costs.txt").read_text()
        (cls.path / "costs.txt").write_text(costs + f"compute.message_ns 0\ncompute.row_ns {COMPUTE_NS}\n")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def model(cls, *words):
        command = [BIN / "scale_model", "run", "--job", cls.path / "job.toml", "--costs", cls.path / "costs.txt", *words]
        return subprocess.run([str(word) for word in command], capture_output=True, text=True)

    def test_a_free_fleet_is_as_fast_as_its_workers(self):
        line = json.loads(self.model("--workers", 4, "--servers", 2, "--free", "--stragglers", 0).stdout)
        self.assertAlmostEqual(line["value"], 4 * 1e9 / COMPUTE_NS, delta=10)

    def test_predicts_and_draws(self):
        out = self.path / "out"
        more = ["--sizes", 8, 16, "--series", "weak", "strong", "--clocks", 2, "--modes", "bsp", "asp"]
        done = scale("--only", "predict", "--job", self.path / "job.toml", "--costs", self.path / "costs.txt", "--bin-dir", BIN, "--out", out, *more)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
        sizes = {(line["name"], line["settings"]["workers"]) for line in lines}
        self.assertIn(("scale.weak.none", 8), sizes)
        self.assertIn(("scale.strong.always", 16), sizes)
        for line in lines:
            ideal = line["settings"]["workers"] * 1e9 / COMPUTE_NS
            self.assertLess(line["value"], ideal)
            self.assertGreater(line["value"], ideal / 10)
        self.assertIn("| bsp | no stragglers | 100.0% |", (out / "table.md").read_text())
        self.assertIn("<polyline", (out / "picture.svg").read_text())
        again = scale("--draw", out / "results.jsonl", "--out", self.path / "again")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual((self.path / "again/picture.svg").read_text(), (out / "picture.svg").read_text())

    def test_without_bsp(self):
        out = self.path / "asp"
        more = ["--sizes", 8, "--series", "weak", "--clocks", 2, "--modes", "asp"]
        done = scale("--only", "predict", "--job", self.path / "job.toml", "--costs", self.path / "costs.txt", "--bin-dir", BIN, "--out", out, *more)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| asp | no stragglers | 100.0% |", (out / "table.md").read_text())

    def test_processes_stay_on_the_cores_of_their_ranks(self):
        core, folder = min(os.sched_getaffinity(0)), self.path / "on cores"
        folder.mkdir()
        for name in ("one", "any"):
            (self.path / name).write_text('#!/bin/sh\necho "$*"; taskset -cp $$\n')
            (self.path / name).chmod(0o755)
        bench_fleet.keep_on_cores(self.path, folder, {"one": [99999, core], "any": []})

        def output(*words):
            return subprocess.run([folder / words[0], *words[1:]], capture_output=True, text=True).stdout.splitlines()

        for rank in ("1", "3"):
            words, affinity = output("one", "--rank", rank, "a b")
            self.assertEqual(words, f"--rank {rank} a b")
            self.assertEqual(affinity.split()[-1], str(core))
        self.assertEqual(output("one", "--rank", "2"), [], "there is no such core")
        own = subprocess.run(["taskset", "-cp", str(os.getpid())], capture_output=True, text=True).stdout
        self.assertEqual(output("any")[1].split()[-1], own.split()[-1])

    def test_bad_usage_says_what_is_expected(self):
        for words, expected in [
            (["--only", "predict"], "--costs"),
            (["--sizes", "12"], "powers of two"),
            (["--job", "/nowhere.toml"], "not a file"),
            (["--shapes", "2"], "SERVERSxWORKERS"),
        ]:
            done = scale(*words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(expected, done.stderr)
        done = self.model("--workers", 4, "--servers", 3, "--bundle", 2)
        self.assertEqual(done.returncode, 2)
        self.assertIn("expected a divisor", done.stderr)


if __name__ == "__main__":
    unittest.main()
