"""Shows that a running job cuts a checkpoint on request, that tarn-inspect lists, describes, verifies, prints, converts
and exports the checkpoints of a run, and that full and incremental checkpoints, exports and their deltas agree with
each other and with the run."""

import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import time
import unittest
import zipfile

from fleet_case import BIN, ROOT, FleetCase

sys.path.insert(0, str(ROOT / "python"))

import numpy as np

from tarn.export import ExportError, Model


class InspectTest(FleetCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        case = cls("test_list_and_show")
        case.summary = case.run_ok(case.job(durability="checkpoint", checkpoint_clocks=15, epochs=4,
                                            checkpoint_final=True), "run", "--set", "storage.checkpoints_kept=100",
                                   "--set", "storage.checkpoint_chain=1")
        cls.summary, cls.run_folder = case.summary, cls.folder / "run"
        cls.listed = json.loads(cls.inspect("list", cls.run_folder, "--json"))

    @classmethod
    def inspect(cls, *arguments, fails=False):
        done = subprocess.run([BIN / "tarn-inspect", *arguments], capture_output=True, text=True, timeout=120)
        if (done.returncode != 0) != fails:
            raise AssertionError(f"{arguments}: exit {done.returncode}: {done.stdout}{done.stderr}")
        return done.stderr if fails else done.stdout

    def arrays(self, checkpoint):
        out = self.folder / f"{pathlib.Path(checkpoint).name}.npz"
        if not out.exists():
            self.inspect("npz", checkpoint, out)
        return np.load(out)

    def pair(self, same_chain):
        """Two successive checkpoints. same_chain: whether the later one is an increment of the earlier one."""
        for before, after in zip(self.listed, self.listed[1:]):
            if (before["checkpoint"] in after["generations"]) == same_chain:
                return before, after
        self.fail(f"no such pair in {self.listed}")

    def test_list_and_show(self):
        self.assertGreaterEqual(len(self.listed), 4)  # one an epoch at least
        kinds = {len(one["generations"]) for one in self.listed}
        self.assertEqual(kinds, {1, 2})
        self.assertTrue(all(one["whole"] for one in self.listed))
        self.assertEqual(sum(one["best"] for one in self.listed), 1)
        text = self.inspect("list", self.run_folder)
        for one in self.listed:
            self.assertIn(f"ckpt-{one['checkpoint']}", text)
        shown = json.loads(self.inspect("show", self.run_folder, "--json"))
        self.assertEqual(shown["checkpoint"], self.listed[-1]["checkpoint"])
        self.assertEqual(shown["state_hash"], self.summary["parameters_hash"])
        self.assertEqual(shown["samples"], self.summary["samples"])
        for table in shown["tables"]:
            self.assertIn(table["name"], self.inspect("show", self.run_folder))

    def test_verify_every_one(self):
        for one in self.listed:
            self.assertIn("complete and undamaged", self.inspect("verify", one["directory"]))
        self.assertIn(self.summary["parameters_hash"], self.inspect("verify", self.run_folder))

    def test_a_rule_with_a_state_for_each_partition(self):
        run = self.run_ok(self.job(durability="checkpoint", checkpoint_clocks=15, epochs=2, checkpoint_final=True, mode="asp",
                                   apply="immediate", optimizer="delay_adaptive_sgd"), "states", "--set",
                          "storage.checkpoints_kept=100")
        listed = json.loads(self.inspect("list", self.folder / "states", "--json"))
        self.assertGreater(max(len(one["generations"]) for one in listed), 1)
        for one in listed:
            self.assertIn("complete and undamaged", self.inspect("verify", one["directory"]))
        self.assertIn(run["parameters_hash"], self.inspect("verify", self.folder / "states"))

    def test_damage_is_named(self):
        copy = self.folder / "damaged"
        shutil.copytree(self.listed[-1]["directory"], copy)
        for path in sorted(copy.iterdir()):
            good = path.read_bytes()
            at = len(good) // 2
            path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1:])
            self.assertIn(str(path), self.inspect("verify", copy, fails=True))
            self.assertIn(str(path), self.inspect("npz", copy, self.folder / "no.npz", fails=True))
            self.assertIn(str(path), self.inspect("export", copy, self.folder / "no.tarn", fails=True))
            path.write_bytes(good)
        extra = copy / "17-shard-9.sst"
        extra.write_bytes(b"")
        self.assertIn(str(extra), self.inspect("verify", copy, fails=True))
        self.assertEqual([path.name for path in self.folder.glob("no.*")], [])

    def test_rows(self):
        arrays = self.arrays(self.run_folder)
        keys, values = arrays["embedding.keys"], arrays["embedding.values"]
        norms = np.sqrt((values.astype(np.float64)**2).sum(axis=1))
        largest = json.loads(self.inspect("rows", self.run_folder, "--table", "embedding", "--largest", "7", "--json"))["rows"]
        np.testing.assert_allclose([row["norm"] for row in largest], np.sort(norms)[::-1][:7], rtol=1e-6)
        wanted = [int(keys[5]), int(keys[0]), 12345]
        found = json.loads(self.inspect("rows", self.run_folder, "--table", "embedding", "--json",
                                        *[part for key in wanted for part in ("--key", str(key))]))["rows"]
        self.assertEqual([row["key"] for row in found], wanted)
        self.assertEqual([row["found"] for row in found], [True, True, False])
        np.testing.assert_array_equal(np.float32(found[0]["values"]), values[5])
        np.testing.assert_array_equal(np.float32(found[1]["slots"]), arrays["embedding.slots"][0])
        self.assertIn("no row", self.inspect("rows", self.run_folder, "--table", "embedding", "--key", "12345"))
        self.assertIn("--table", self.inspect("rows", self.run_folder, fails=True))
        self.assertIn("does not store when", self.inspect("rows", self.run_folder, "--table", "embedding", "--oldest", "3",
                                                         fails=True))

    def test_npz(self):
        self.arrays(self.run_folder)
        with zipfile.ZipFile(self.folder / "run.npz") as archive:
            self.assertIsNone(archive.testzip())
        shown = json.loads(self.inspect("show", self.run_folder, "--json"))
        for table in shown["tables"]:
            self.assertEqual(len(self.arrays(self.run_folder)[table["name"] + ".keys"]), table["rows"])

    def export(self, checkpoint, *more):
        out = self.folder / f"{self.id()}-{len(list(self.folder.iterdir()))}.tarn"
        self.inspect("export", checkpoint["directory"], out, *more)
        return out

    def check_model(self, model, checkpoint):
        arrays = self.arrays(checkpoint["directory"])
        for name in model.names:
            order = np.argsort(arrays[name + ".keys"])
            keys, values = model.table(name)
            np.testing.assert_array_equal(keys, arrays[name + ".keys"][order])
            np.testing.assert_array_equal(values, arrays[name + ".values"][order])

    def test_export_full_and_delta(self):
        for same_chain, since in ((True, "checkpoint"), (True, "directory"), (False, "directory")):
            before, after = self.pair(same_chain)
            model = Model(self.export(before))
            self.check_model(model, before)
            model.apply(self.export(after, "--since", str(before[since])))
            self.check_model(model, after)
        with self.assertRaises(ExportError):
            Model(self.export(self.listed[0])).apply(self.export(after, "--since", before["directory"]))
        self.assertIn("not newer", self.inspect("export", before["directory"], self.folder / "x.tarn", "--since",
                                                after["directory"], fails=True))

    def test_export_codecs(self):
        for codec, kind in (("fp16", np.float16), ("bf16", None)):
            model = Model(self.export(self.listed[-1], "--codec", codec))
            keys, values = model.table("embedding")
            arrays = self.arrays(self.listed[-1]["directory"])
            exact = arrays["embedding.values"][np.argsort(arrays["embedding.keys"])]
            if kind is not None:
                exact = exact.astype(kind).astype(np.float32)
            np.testing.assert_allclose(values, exact, rtol=0 if kind else 2**-8, atol=0)

    def test_resume_from_an_incremental_one(self):
        _, after = self.pair(True)
        job = self.job(durability="checkpoint", epochs=4, checkpoint_final=True)
        again = self.run_ok(job, "again", "--resume", after["directory"], "--set", "fleet.servers=1", "--set",
                            "fleet.shards=3")
        self.assertEqual(again["parameters_hash"], self.summary["parameters_hash"])

    def test_resume_takes_the_job_of_the_checkpoint(self):
        _, after = self.pair(True)
        copy = self.folder / "copied-checkpoint"  # nothing of its run is near
        shutil.copytree(after["directory"], copy)
        command = [*self.command("", self.folder / "own-job")[:2], "--resume", copy, "--bin-dir", BIN, "--quiet",
                   "--set", "storage.checkpoint_final=false"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        (run_dir,) = (self.folder / "runs").iterdir()
        self.assertTrue(run_dir.name.startswith("test-"), run_dir)
        self.assertEqual(json.loads((run_dir / "summary.json").read_text())["parameters_hash"],
                         self.summary["parameters_hash"])

    def test_usage_is_strict(self):
        for key in ("-1", "18446744073709551616", "1x", "0x10", ""):
            told = self.inspect("rows", self.run_folder, "--table", "embedding", f"--key={key}", fails=True)
            self.assertIn("--key", told)
        self.assertIn("no row", self.inspect("rows", "--table", "embedding", "--key", str(2**64 - 1), self.run_folder))
        out = self.folder / "linear.npz"
        self.inspect("npz", "--table", "linear", self.run_folder, out)
        self.assertEqual({name.split(".")[0] for name in np.load(out).files}, {"linear"})

    def test_what_cannot_be_written_is_said(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (8192, resource.RLIM_INFINITY))

        before = sorted(self.folder.iterdir())
        for command, out in (("npz", "short.npz"), ("export", "short.tarn")):
            done = subprocess.run([BIN / "tarn-inspect", command, self.run_folder, self.folder / out],
                                  capture_output=True, text=True, timeout=120, preexec_fn=limit)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("File too large", done.stderr)
        self.assertEqual(sorted(self.folder.iterdir()), before)
        with open("/dev/full", "w") as full:
            done = subprocess.run([BIN / "tarn-inspect", "show", self.run_folder], stdout=full, stderr=subprocess.PIPE,
                                  text=True, timeout=120)
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot write the output", done.stderr)

    def test_a_pipe_is_not_waited_for(self):
        copy = self.folder / "piped"
        shutil.copytree(self.listed[0]["directory"], copy)
        (copy / "MANIFEST").unlink()
        os.mkfifo(copy / "MANIFEST")
        self.assertIn("expected a regular file", self.inspect("verify", copy, fails=True))

    def test_on_request(self):
        job = self.job(durability="checkpoint", epochs=100_000)
        run_dir = self.folder / "live"
        process = subprocess.Popen(self.command(job, run_dir), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            deadline = time.time() + 120
            asked = None
            while time.time() < deadline:
                asked = subprocess.run([BIN / "tarn-checkpoint", run_dir], capture_output=True, text=True, timeout=120)
                if asked.returncode == 0:
                    break
                self.assertIsNone(process.poll(), asked.stderr)
                time.sleep(0.2)
            self.assertEqual(asked.returncode, 0, asked.stderr)
            first = pathlib.Path(asked.stdout.strip())
            self.assertIn("complete and undamaged", self.inspect("verify", first))
            several = [subprocess.Popen([BIN / "tarn-checkpoint", run_dir], stdout=subprocess.PIPE, text=True)
                       for _ in range(3)]
            for one in several:
                directory = pathlib.Path(one.communicate(timeout=120)[0].strip())
                self.assertEqual(one.returncode, 0)
                self.assertTrue((directory / "MANIFEST").exists())
                self.assertNotEqual(directory, first)
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=120)
        late = subprocess.run([BIN / "tarn-checkpoint", run_dir], capture_output=True, text=True, timeout=120)
        self.assertEqual(late.returncode, 1)
        self.assertIn("no scheduler is running here", late.stderr)

    def test_nothing_to_see(self):
        self.assertIn("neither a checkpoint", self.inspect("show", self.folder / "data", fails=True))
        self.assertIn("not found", self.inspect("show", self.folder / "nowhere", fails=True))
        self.assertIn("folder of a run", self.inspect("list", self.folder / "data", fails=True))


if __name__ == "__main__":
    unittest.main(verbosity=2)
