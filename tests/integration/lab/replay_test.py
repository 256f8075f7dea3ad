"""Shows that tools/replay repeats asynchronous runs to the bit, that the record decides the result, and that runs that
cannot be repeated are rejected."""

import itertools
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
BIN = pathlib.Path(os.environ.get("TARN_BIN_DIR") or ROOT / "build/release/bin")
sys.path[:0] = [str(HERE), str(ROOT / "tools")]

import data
from tarn_tools.lab import algorithms, study

ASYNCHRONOUS = ("consistency.mode=asp", "train.epochs=2")
JOBS = {
    "several_shards": ("consistency.mode=asp", "fleet.shards=2", "optimizer.kind=adagrad"),
    "not_ahead": ("consistency.mode=asp", "train.prefetch=0"),
    "a_close_bound": ("consistency.mode=ssp", "consistency.staleness=1", "train.epochs=2"),
    "delays": ("consistency.mode=asp", "delays.batch=exponential(0.003)"),
    "aggregated": ("consistency.mode=ssp", "consistency.staleness=2", "consistency.apply=aggregated"),
    "expiry": ("consistency.mode=asp", "tables.linear.life=true", "tables.linear.expire_clocks=20", "tables.linear.sweep_clocks=5"),
}
RUNS_OF_MANY = 20


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.holder.name)
        cls.job = data.make(cls.folder)

    @classmethod
    def tearDownClass(cls):
        cls.holder.cleanup()

    def launch(self, name, *overrides, arguments=("--record",), code=0):
        """The folder of a run on real processes."""
        run_dir = self.folder / name
        command = [sys.executable, ROOT / "tools/launch", self.job, "--bin-dir", BIN, "--run-dir", run_dir, *arguments]
        for override in overrides:
            command += ["--set", override]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, code, done.stderr)
        self.error = done.stderr
        return run_dir

    def replay(self, run_dir, code=0, out=None, more=()):
        command = [sys.executable, ROOT / "tools/replay", run_dir, "--bin-dir", BIN, *(["--out", out] if out else []), *more]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.error = done.stderr
        return done.stdout

    def summary(self, folder):
        return json.loads((folder / "summary.json").read_text())


class ReplayTest(Case):
    def test_an_asynchronous_run_is_repeated(self):
        run_dir = self.launch("asynchronous", *ASYNCHRONOUS)
        self.assertIn(f"equal: parameters_hash {self.summary(run_dir)['parameters_hash']}", self.replay(run_dir))
        self.assertRegex(self.replay(run_dir), r"[0-9]+ effects repeated \([0-9]+, [0-9]+ of the shards\). Results: .*/replay-2/summary.json")
        repeated = self.summary(run_dir / "replay")
        self.assertEqual([epoch["valid"] for epoch in repeated["epochs"]], [epoch["valid"] for epoch in self.summary(run_dir)["epochs"]])

    def test_many_jobs_are_repeated(self):
        for name, overrides in JOBS.items():
            with self.subTest(name):
                self.assertIn("equal", self.replay(self.launch(name, *overrides)))

    def test_dense_layers_are_repeated(self):
        clicks = self.folder / "clicks"
        subprocess.run([BIN / "tarn-generate", "--out", clicks, "--rows", "6000", "--valid", "500", "--test", "500"],
                       check=True, capture_output=True)
        files = [f"data.{name}={name}.tsv" for name in ("train", "valid", "test")]
        run_dir = self.launch("layers", "consistency.mode=asp", "data.format=criteo", f"data.dir={clicks}", *files, "model.kind=deepfm",
                              "train.batch_rows=64", "optimizer.kind=adagrad", "optimizer.learning_rate=0.02")
        self.assertIn("equal", self.replay(run_dir))
        run_dir = self.launch("codecs", "consistency.mode=asp", "data.format=criteo", f"data.dir={clicks}", *files, "model.kind=deepfm",
                              "train.batch_rows=64", "optimizer.learning_rate=0.02", 'tables."layer.0".push_codec=low_rank',
                              'tables."layer.1".push_codec=topk', 'tables."layer.1".push_topk=0.1', 'tables."layer.1".push_momentum=0.5')
        self.assertIn("equal", self.replay(run_dir))

    def test_every_algorithm_is_repeated(self):
        for algorithm in algorithms.ALGORITHMS:
            if not study.fits("linear", "push_codec", algorithm.settings.get("tables.*.push_codec")):
                continue
            if "consistency.worker_cache" in algorithm.settings:  # refused, see test_what_cannot_be_recorded
                continue
            settings = study.expand({"consistency.mode": "asp", **algorithm.settings}, {"fleet": {"workers": 4}})
            with self.subTest(algorithm.name):
                self.assertIn("equal", self.replay(self.launch(algorithm.name, *(f"{key}={study.toml(value)}" for key, value in settings.items()))))

    def exchanged(self, run_dir):
        """Yields copies of the run. In the record of each, two other successive pushes, of different workers, are
        exchanged. The later push's worker has no record between them, so it could nearly always have come first."""
        lines = (run_dir / "record/shard-0").read_text().splitlines()
        workers = [line.split()[1] for line in lines]
        pushes = [i for i, line in enumerate(lines) if line.startswith("push ")]
        pairs, middle = list(itertools.pairwise(pushes)), len(pushes) // 2
        for first, second in pairs[middle:] + pairs[:middle]:
            if workers[second] not in workers[first:second]:
                copy = self.folder / f"exchanged-{first}"
                shutil.copytree(run_dir, copy, ignore=shutil.ignore_patterns("replay*"))
                order = [*lines[:first], lines[second], *lines[first:second], *lines[second + 1:]]
                (copy / "record/shard-0").write_text("\n".join(order) + "\n")
                yield copy

    def test_the_order_decides(self):
        # One partition: all pushes of a table are to it. Momentum: the order of two pushes changes the bits.
        run_dir = self.launch("ordered", *ASYNCHRONOUS, "fleet.servers=1", "fleet.partition_bits=0", "optimizer.kind=adagrad")
        self.replay(run_dir)
        for copy in self.exchanged(run_dir):
            self.replay(copy, code=1)
            if "cannot be repeated further" not in self.error:
                break  # else the later push needed a lease that was granted after the earlier one
        self.assertRegex(self.error, "parameters_hash differs: [0-9a-f]{16} in the run, [0-9a-f]{16} when repeated")

    def test_a_record_of_what_cannot_happen_is_told(self):
        run_dir = self.launch("impossible", *ASYNCHRONOUS)
        path = run_dir / "record/shard-1"
        lines = path.read_text().splitlines()
        missing = next(i for i in range(40, len(lines)) if lines[i].startswith("push "))
        path.write_text("\n".join(lines[:missing] + lines[missing + 1:]) + "\n")
        self.replay(run_dir, code=1)
        self.assertIn("the recorded run cannot be repeated further", self.error)
        self.assertRegex(self.error, "shard 1: [0-9]+ of [0-9]+ effects were repeated; next is '")
        path.write_text("\n".join([*lines, "tick 3 0 100000 0"]) + "\n")
        self.replay(run_dir, code=1)
        self.assertRegex(self.error, "the job is done, but of its record for shard 1 only [0-9]+ of [0-9]+ effects were repeated")

    def test_a_diverged_run_is_repeated(self):
        run_dir = self.launch("diverged", "consistency.mode=asp", "optimizer.learning_rate=1e6", "local.method=delta",
                              "local.steps=16", "local.learning_rate=1e6", "local.l2=100", code=4)
        self.assertIn("equal: ", self.replay(run_dir))

    def test_a_run_is_left_and_continues_with_another_algorithm(self):
        run_dir = self.launch("left", *ASYNCHRONOUS, "tables.linear.push_codec=topk", "tables.linear.push_topk=0.5")

        def continued(name, *overrides):
            out = self.folder / name
            more = ["--until", "2000", *(word for override in overrides for word in ("--set", override))]
            self.assertIn("continued after 2,000 samples: eval_auc ", self.replay(run_dir, out=out, more=more))
            start, end = self.summary(out / "start"), self.summary(out)
            self.assertEqual(start["status"], "stopped")
            self.assertTrue(2000 <= start["samples"] < 3000, start["samples"])
            self.assertEqual((end["status"], end["samples"], end["batches_repeated"]), ("done", 6000, 0), "each row once an epoch")
            return start["parameters_hash"], end["parameters_hash"]

        same, again = continued("same"), continued("again")
        other = continued("other", "optimizer.kind=staleness_aware_sgd", "tables.linear.push_topk=0.2")
        self.assertEqual(same, again)
        self.assertEqual(same[0], other[0])
        self.assertNotEqual(same[1], other[1])
        self.replay(run_dir, code=2, more=["--set", "train.epochs=3"])
        self.assertIn("--set needs --until", self.error)
        self.replay(run_dir, code=1, more=["--until", "7000"])
        self.assertIn("--until 7000", self.error)
        for setting in ("job.seed=9", "train.batch_rows=32", "data.shuffle=true"):
            self.replay(run_dir, code=1, out=self.folder / "refused", more=["--until", "2000", "--set", setting])
            self.assertRegex(self.error, rf"{setting.split('.')[1].split('=')[0]} is \S+ in the job, but \S+ in the recorded run")
        steps = self.launch("in_steps", "consistency.mode=bsp")
        self.replay(steps, code=1, more=["--until", "2000"])
        self.assertIn("can be left on the way only where pushes are applied as they come", self.error)

    def test_the_example_of_the_documentation(self):
        """Runs the commands of docs/lab.md that leave a run, on the small data and with the optimizer of their job."""
        commands = [shlex.split(line) for line in (ROOT / "docs/lab.md").read_text().splitlines()
                    if line.startswith(("tools/launch ", "tools/replay "))]
        replayed = next(words for words in commands if "--until" in words)
        recorded = next(words for words in commands if words[0] == "tools/launch" and words[-1] == replayed[1])
        job = self.folder / "example.toml"
        kind = tomllib.loads((ROOT / recorded[1]).read_text())["optimizer"]["kind"]
        job.write_text(self.job.read_text().replace('kind = "sgd"', f'kind = "{kind}"'))
        recorded[1], replayed[replayed.index("--until") + 1] = job, "2000"
        for program, *words in (recorded, replayed):
            done = subprocess.run([sys.executable, ROOT / program, *words, "--bin-dir", BIN], cwd=self.folder,
                                  capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        run_dir = self.folder / replayed[1]
        self.replay(run_dir, code=1, more=["--until", "2000", "--set", "optimizer.kind=adagrad"])
        self.assertIn("table 'linear': optimizer is adagrad in the job and sgd in the checkpoint", self.error)

    def test_other_runs_are_refused(self):
        plain = self.launch("plain", arguments=())
        self.replay(plain, code=1)
        self.assertIn("this run was not recorded", self.error)
        cached = self.launch("cached", "consistency.mode=ssp", "consistency.staleness=2", "consistency.worker_cache=1MiB")
        self.replay(cached, code=1)
        self.assertIn("what the cache holds and sends depends on time", self.error)
        self.replay(self.folder / "none", code=1)
        self.assertIn("no summary.json", self.error)
        summary = self.summary(cached) | {"workers_died": 1}
        (cached / "summary.json").write_text(json.dumps(summary))
        self.replay(cached, code=1)
        self.assertIn("1 of its workers died", self.error)
        self.launch("resumed", arguments=("--record", "--resume", plain), code=2)
        self.assertIn("--record with --resume: expected a new run", self.error)


class Replay(Case):
    """Not run unless named."""

    def many(self):
        hashes = set()
        for number in range(RUNS_OF_MANY):
            run_dir = self.launch(f"run-{number}", *ASYNCHRONOUS)
            self.replay(run_dir)
            hashes.add(self.summary(run_dir)["parameters_hash"])
        print(f"{RUNS_OF_MANY} runs, {len(hashes)} different results, each repeated to the bit")
        self.assertGreater(len(hashes), 1, "asynchronous runs should differ")


if __name__ == "__main__":
    unittest.main()
