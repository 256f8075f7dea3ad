"""Shows, with the real programs and a script for ssh (../launch/fake_ssh.py), that a fleet on two hosts ends in the bits
of a fleet on this machine: where the hosts share the run's folder, stopped at a checkpoint and resumed too, and where
each has a folder of its own, of which nothing is left there; that a killed worker is replaced; and that tools/checkpoint
finds the keys of such a run by itself."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import unittest
import unittest.mock

import processes
from fleet_case import BIN, ROOT, FleetCase

SSH = f"{sys.executable} -S {ROOT / 'tests/integration/launch/fake_ssh.py'}"


class RemoteTest(FleetCase):
    def setUp(self):
        self.place = self.folder / self.id().rpartition(".")[2]
        self.place.mkdir()
        hosts = self.place / "hosts"
        hosts.write_text("node1 servers=1 workers=1\nnode2 servers=1 workers=1\n")
        self.away = ["--hosts", hosts, "--ssh", SSH, "--address", "127.0.0.1"]
        environment = unittest.mock.patch.dict(os.environ, {"FAKE_SSH": str(self.place)})
        environment.start()
        self.addCleanup(environment.stop)

    def job(self, **more):
        return super().job(**{"servers": 1, "workers": 1, "shards": 2} | more)  # the counts of the hosts replace these

    def hash_here(self, **more):
        job = self.job(servers=2, workers=2, **more)
        return self.run_ok(job, f"{self.place.name}/here")["parameters_hash"]

    def start(self, job, run_dir, *more):
        process = subprocess.Popen(self.command(job, run_dir, *self.away, *more), stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        return process

    def eventually(self, condition, process):
        deadline = time.monotonic() + 120
        while not (found := condition()):
            self.assertIsNone(process.poll(), "the run has ended")
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        return found

    def test_hosts_with_one_folder(self):
        job = self.job(durability="checkpoint", checkpoint_final=True, valid="valid.tsv")
        there = self.run_ok(job, f"{self.place.name}/run", *self.away)
        self.assertEqual((there["servers"], there["workers"]), (2, 2))
        self.assertEqual(there["parameters_hash"], self.hash_here(valid="valid.tsv"))
        run_dir = self.place / "run"
        self.assertTrue(list(run_dir.glob("checkpoints/ckpt-*/MANIFEST")))
        self.assertEqual([name for name in (".launch-token", "fleet.keys") if (run_dir / name).exists()], [])

    def test_hosts_with_folders_of_their_own(self):
        run_dir = self.place / "run"
        for host in ("node1", "node2"):
            (self.place / f"rooted-{host}").write_text(f"{run_dir} {self.place}/{host}/run")
        (self.place / "banner").touch()  # is not part of what is fetched
        there = self.run_ok(self.job(durability="none"), f"{self.place.name}/run", *self.away)
        self.assertEqual(there["parameters_hash"], self.hash_here())
        self.assertEqual([list((self.place / host).iterdir()) for host in ("node1", "node2")], [[], []])
        for name in ("server-0", "server-1", "worker-0", "worker-1"):
            self.assertIn("done" if "server" in name else "starts at clock", (run_dir / f"logs/{name}.log").read_text())
        traced = json.loads((run_dir / "trace.json").read_text())["otherData"]
        self.assertEqual(sorted(name.rpartition("-")[0] for name in traced), ["worker-0", "worker-1"])
        lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual({line["rank"] for line in lines if line["role"] == "shard"}, {0, 1, 2, 3})

    def test_a_log_from_a_folder_of_its_own_tells_of_a_death(self):
        run_dir = self.place / "run"
        (self.place / "rooted-node2").write_text(f"{run_dir} {self.place}/node2/run")
        process = self.start(self.job(durability="none", epochs=50), run_dir)
        ours = self.place / "node2/run"
        self.eventually(lambda: "starts at clock" in self.text(ours / "logs/worker-1.log"), process)
        [worker] = processes.workers(ours)
        os.kill(worker, signal.SIGKILL)
        self.eventually(lambda: [pid for pid in processes.workers(ours) if pid != worker], process)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, output)
        self.assertIn(f"worker-1 died: killed by SIGKILL; log: {run_dir}/logs/worker-1.log", output)
        self.assertIn("    ", output.partition("worker-1 died")[2])  # the end of its log
        self.assertIn("worker-1 restarted (1 of 3)", output)
        self.assertEqual(processes.naming(ours), {})

    @unittest.skipUnless((BIN.parent / "lib/libtarn.so").exists(), "this build has no libtarn.so")
    def test_programs_of_the_users_own(self):
        example = ROOT / "examples/python/factorization"
        run_dir = self.place / "run"
        summary = self.run_ok(f"{example}.toml", run_dir, *self.away, "--", sys.executable, f"{example}.py")
        self.assertEqual((summary["status"], summary["servers"], summary["workers"]), ("done", 2, 2))
        errors = [float(each) for each in re.findall(r"test error ([\d.]+)", (run_dir / "logs/worker-0.log").read_text())]
        self.assertLess(errors[-1], errors[0] / 2)  # in asp it depends on how far apart the two workers are

    @staticmethod
    def text(path):
        try:
            return path.read_text()
        except OSError:
            return ""

    def test_stopped_and_resumed_with_a_checkpoint_that_was_asked_for(self):
        job = self.job(durability="checkpoint", epochs=4, batch_rows=16)
        run_dir = self.place / "run"
        process = self.start(job, run_dir)
        self.eventually(lambda: re.search('"samples":[1-9]', self.text(run_dir / "metrics.jsonl")), process)
        asked = subprocess.run([BIN / "tarn-checkpoint", run_dir], capture_output=True, text=True, timeout=120)
        self.assertEqual(asked.returncode, 0, asked.stderr)
        self.assertTrue((pathlib.Path(asked.stdout.strip()) / "MANIFEST").exists())
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=120)
        self.assertEqual(json.loads((run_dir / "summary.json").read_text())["status"], "stopped", output)
        resumed = self.run_ok(job, f"{self.place.name}/resumed", "--resume", run_dir, *self.away)
        self.assertEqual(resumed["parameters_hash"], self.hash_here(epochs=4, batch_rows=16))


if __name__ == "__main__":
    unittest.main(verbosity=2)
