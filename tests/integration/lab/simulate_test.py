"""Shows that a job in simulated time ends with the parameters of the real fleet, repeats to the bit, takes as long as
its delays, and reports a bad start and divergence like a real fleet."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
BIN = pathlib.Path(os.environ.get("TARN_BIN_DIR") or ROOT / "build/release/bin")
sys.path.insert(0, str(HERE))

import data


class SimulateTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.holder.name)
        cls.job = data.make(cls.folder)
        cls.count = 0

    @classmethod
    def tearDownClass(cls):
        cls.holder.cleanup()

    def simulate(self, *overrides, code=0, job=None):
        """The summary and the folder of a run in simulated time."""
        type(self).count += 1
        run_dir = self.folder / f"run-{self.count}"
        command = [BIN / "tarn-simulate", "--job", job or self.job, "--run-dir", run_dir]
        for override in overrides:
            command += ["--set", override]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, code, done.stderr)
        self.error = done.stderr
        path = run_dir / "summary.json"
        return json.loads(path.read_text()) if path.exists() else None, run_dir

    def test_parameters_are_those_of_the_real_fleet(self):
        run_dir = self.folder / "real"
        # Over sockets, like the simulation: through shared memory every message has its keys (W3), and the bytes
        # differ.
        subprocess.run([sys.executable, ROOT / "tools/launch", self.job, "--no-shm", "--bin-dir", BIN, "--run-dir", run_dir],
                       check=True, capture_output=True, timeout=120)
        real = json.loads((run_dir / "summary.json").read_text())
        simulated, _ = self.simulate("delays.batch=0.01")
        self.assertEqual(simulated["parameters_hash"], real["parameters_hash"])
        for key in ("samples", "eval_auc", "eval_logloss", "train_logloss", "staleness_histogram", "pull_bytes", "push_bytes"):
            self.assertEqual(simulated[key], real[key], key)

    def test_parameters_below_the_normal_numbers(self):
        """Servers treat subnormal numbers as zero; so does the simulation."""
        sets = ["optimizer.clip_value=1e-37", "optimizer.l2=0.9", "train.patience=0"]
        run_dir = self.folder / "subnormal"
        subprocess.run([sys.executable, ROOT / "tools/launch", self.job, "--bin-dir", BIN, "--run-dir", run_dir,
                        *(word for each in sets for word in ("--set", each))], check=True, capture_output=True, timeout=120)
        real = json.loads((run_dir / "summary.json").read_text())
        simulated, _ = self.simulate(*sets)
        self.assertEqual(simulated["parameters_hash"], real["parameters_hash"])

    def test_a_real_run_waits_for_its_batches(self):
        run_dir = self.folder / "waits"
        subprocess.run([sys.executable, ROOT / "tools/launch", self.job, "--bin-dir", BIN, "--run-dir", run_dir, "--set",
                        "delays.batch=0.02"], check=True, capture_output=True, timeout=120)
        real = json.loads((run_dir / "summary.json").read_text())
        self.assertGreater(real["train_seconds"], 46 * 0.02, "of 47 batches of each worker; the last may be over at once")
        simulated, _ = self.simulate("delays.batch=0.02")
        self.assertEqual(simulated["parameters_hash"], real["parameters_hash"])

    def test_a_real_run_waits_for_its_network(self):
        seconds, hashes = {}, set()
        for name, settings in (("plain", ()), ("far", ("delays.latency=0.02",)), ("thin", ("delays.gbit_per_second=0.0005",))):
            run_dir = self.folder / name
            told = [word for setting in settings for word in ("--set", setting)]
            subprocess.run([sys.executable, ROOT / "tools/launch", self.job, "--bin-dir", BIN, "--run-dir", run_dir, *told],
                           check=True, capture_output=True, timeout=120)
            real = json.loads((run_dir / "summary.json").read_text())
            seconds[name] = real["train_seconds"]
            hashes.add(real["parameters_hash"])
        self.assertEqual(len(hashes), 1)
        self.assertGreater(seconds["far"], 46 * 2 * 0.02, "a pull and its answer in each of 47 clocks")
        pushed = real["push_bytes"] / 4  # by each worker
        self.assertGreater(seconds["thin"], 0.9 * pushed * 8 / 0.5e6)

    def test_an_asynchronous_run_repeats_to_the_bit(self):
        settings = ("consistency.mode=asp", "delays.batch=exponential(0.01)", "delays.latency=uniform(0.0001, 0.002)")
        (first, one), (second, other) = self.simulate(*settings), self.simulate(*settings)
        self.assertEqual((one / "curve.csv").read_text(), (other / "curve.csv").read_text())
        for key in ("parameters_hash", "simulated", "gradient_delay_histogram", "eval_logloss"):
            self.assertEqual(first[key], second[key], key)
        self.assertGreater(first["gradient_delay_mean"], 0)
        another, _ = self.simulate(*settings, "job.seed=2")
        self.assertNotEqual(first["parameters_hash"], another["parameters_hash"])

    def test_times_are_those_of_the_delays(self):
        # 3,000 rows in batches of 16 by 4 workers: about 47 batches each, of which the last few may be uneven.
        even, _ = self.simulate("consistency.mode=asp", "delays.batch=0.1", "delays.latency=0")
        self.assertAlmostEqual(even["train_seconds"], 4.7, delta=0.4)
        slow, _ = self.simulate("consistency.mode=bsp", "delays.batch=0.1", "delays.stragglers=1", "delays.straggler_factor=3")
        self.assertGreater(slow["train_seconds"], 2.5 * even["train_seconds"])
        ahead, _ = self.simulate("consistency.mode=asp", "delays.batch=0.1", "delays.stragglers=1", "delays.straggler_factor=3")
        self.assertLess(ahead["train_seconds"], slow["train_seconds"] / 1.5, "nobody waits for the straggler")

    def test_smaller_batches_of_a_slow_worker(self):
        slow = "consistency.mode=bsp", "delays.batch=0.1", "delays.stragglers=1", "delays.straggler_factor=3"
        equal, _ = self.simulate(*slow)
        by_speed, _ = self.simulate(*slow, "train.batch_shares=[3,3,3,1]")
        self.assertEqual(by_speed["samples"], equal["samples"])
        self.assertLess(by_speed["train_seconds"], equal["train_seconds"] / 1.8)

    def test_bandwidth_and_latency_take_time(self):
        fast, _ = self.simulate("delays.batch=0.001")
        far, _ = self.simulate("delays.batch=0.001", "delays.latency=0.01")
        thin, _ = self.simulate("delays.batch=0.001", "delays.gbit_per_second=0.001")
        self.assertGreater(far["train_seconds"], 2 * fast["train_seconds"])
        self.assertGreater(thin["train_seconds"], 2 * fast["train_seconds"])
        self.assertEqual(fast["parameters_hash"], far["parameters_hash"])
        self.assertEqual(fast["parameters_hash"], thin["parameters_hash"])

    def test_many_workers(self):
        summary, _ = self.simulate("fleet.workers=128", "consistency.mode=asp", "delays.batch=lognormal(0.01, 0.5)")
        self.assertEqual(summary["samples"], 3000)

    def test_a_diverged_run(self):
        summary, _ = self.simulate("optimizer.learning_rate=1e6", "local.method=delta", "local.steps=16",
                                   "local.learning_rate=1e6", "local.l2=100", code=4)
        self.assertEqual(summary["status"], "diverged")
        self.assertIn("diverged", self.error)

    def test_a_folder_is_used_once(self):
        _, run_dir = self.simulate()
        done = subprocess.run([BIN / "tarn-simulate", "--job", self.job, "--run-dir", run_dir], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("expected a new or empty folder", done.stderr)

    def test_what_it_cannot_do_is_named(self):
        for overrides, text in (
            (("train.device=gpu",), "expected \"cpu\""),
            (("data.train=",), "data.train"),
            (("data.train=missing.txt",), "missing.txt"),
        ):
            self.simulate(*overrides, code=1)
            self.assertIn(text, self.error)
        self.simulate("delays.batch=gauss(1)", code=2)
        self.assertIn("delays.batch: 'gauss(1)': expected a number", self.error)
        self.simulate("delays.stragglers=5", code=2)
        self.assertIn("expected at most fleet.workers = 4", self.error)
        self.simulate("local.steps=4", code=2)
        self.assertIn("local.steps", self.error)


if __name__ == "__main__":
    unittest.main()
