"""Shows what a resume promises, with real fleets: of two at the same moment one goes on and the other changes nothing;
a clean stop and its resume train every row once, in every mode, by the workers' own records (record.py); an override of
a key that sections inherit reaches them; and a server that is killed while it loads its rows is declared dead after a
lease, but not while it still loads."""

import os
import signal
import subprocess
import time
import tomllib
import unittest

import record
from fleet_case import BIN, FleetCase

SLOW_OPEN = BIN / "tarn-slow-open.so"
WAIT_SECONDS_MAX = 120


class ResumeTest(FleetCase):
    rows = 40_000

    def eventually(self, condition, process):
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while not condition():
            self.assertIsNone(process.poll(), "it has ended")
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.005)

    def start(self, command, **more):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_a_clean_stop_and_its_resume_train_every_row_once(self):
        for mode, apply, staleness in (("ssp", "immediate", 4), ("asp", "immediate", 0), ("bsp", "aggregated", 0)):
            with self.subTest(mode=mode):
                job = self.job(workers=3, mode=mode, apply=apply, staleness=staleness, batch_rows=16, durability="checkpoint")
                run_dir, written = self.folder / f"stop-{mode}", self.folder / f"record-{mode}"
                programs = self.recording_programs(mode, written)
                # A stop does not wait for a worker that does not report within a lease, and the machine may be busy.
                launch = self.start([*self.command(job, run_dir, bin_dir=programs), "--set", "fleet.lease_seconds=60"])
                self.eventually(lambda: written.exists() and written.read_text().count("batch") > 100, launch)
                launch.send_signal(signal.SIGINT)
                output, _ = launch.communicate(timeout=WAIT_SECONDS_MAX)
                self.assertEqual(launch.returncode, 0, output)
                first = record.Record(written.read_text())
                self.assertLess(sum(batch.rows for batch in first.batches), self.rows, "it was over before")
                code, summary, output = self.launch(job, f"resumed-{mode}", "--resume", run_dir, "--bin-dir", programs)
                self.assertEqual(code, 0, output)
                self.assertEqual(summary["samples"], self.rows)
                self.assertEqual(summary["batches_repeated"], 0)
                if mode == "bsp":
                    continue  # workers also record batches after the clock of the cut, which are not in it
                # A batch whose tick was not sent was not pushed either: the resumed run trains it. The same holds for
                # all batches of a worker that joined late and sent no tick.
                ends = {batch.incarnation: 0 for batch in first.batches} | first.ticks
                both = record.Record(written.read_text())
                self.assertEqual(record.coverage_errors(both.batches, ends, 1, self.rows), [])
                self.damage(both.batches, ends)

    def damage(self, batches, ends):
        """The check must reject a record without one batch, and one with a batch twice."""
        counted = [batch for batch in batches if record.counts(batch, ends)]
        for wrong in (counted[1:], [*counted, counted[0]]):
            self.assertNotEqual(record.coverage_errors(wrong, {}, 1, self.rows), [])

    def test_of_two_resumes_of_one_run_one_goes_on(self):
        job, run_dir = self.job(durability="log", batch_rows=32, epochs=2), self.folder / "twice"
        first = self.start(self.command(job, run_dir))
        self.eventually(lambda: any(run_dir.glob("log/shard-0/segment-*")) and (run_dir / "metrics.jsonl").exists(), first)
        first.kill()
        first.wait()
        self.assertTrue((run_dir / "scheduler.state").exists())
        both = [self.start([*self.command(job, run_dir), "--resume", run_dir]) for _ in range(2)]
        outputs = [process.communicate(timeout=2 * WAIT_SECONDS_MAX)[0] for process in both]
        self.assertEqual(sorted(process.returncode for process in both), [0, 2], outputs)
        refused = outputs[[process.returncode for process in both].index(2)]
        self.assertIn(f"{run_dir}: another tools/launch runs in this folder", refused)

    def test_overrides_of_inherited_keys_are_honoured_or_refused(self):
        job = self.job(durability="checkpoint", checkpoint_final=True, mode="ssp", apply="immediate", staleness=2)
        text = job.read_text().replace('apply = "immediate"\n', "")
        job.write_text(text + "[optimizer.dense]\nlearning_rate = 0.02\n")
        self.run_ok(job, "origin")
        origin, more = self.folder / "origin", ("--set", "train.epochs=2")
        quick = ("--resume", origin, *more, "--set", "optimizer.learning_rate=0.5", "--set", "optimizer.initial_accumulator=0.25")
        code, _, output = self.launch(self.folder / "origin/job.toml", "quicker", *quick)
        self.assertEqual(code, 0, output)
        self.assertIn("without effect on [optimizer.dense]", output)
        kept = tomllib.loads((self.folder / "quicker/job.toml").read_text())["optimizer"]
        self.assertEqual((kept["learning_rate"], kept["initial_accumulator"], kept["dense"]["learning_rate"]), (0.5, 0.25, 0.02))
        self.assertNotIn("learning_rate", kept["linear"])
        code, _, output = self.launch(origin / "job.toml", "asp", "--resume", origin, *more, "--set", "consistency.mode=asp")
        self.assertEqual(code, 0, output)
        self.assertIn("consistency.staleness = 2: mode = \"asp\" does not support it", output)
        code, _, output = self.launch(origin / "job.toml", "kind", "--resume", origin, *more, "--set", "optimizer.kind=sgd")
        self.assertEqual(code, 2, output)
        self.assertIn("kind is \"sgd\" in the job, but \"adam\" in the checkpoint", output)

    def by_hand(self, name, slow_seconds):
        """A fleet of one server, which loads slowly, and one worker, resumed by hand: (scheduler, server, worker)."""
        job = self.job(servers=1, workers=1, durability="checkpoint", checkpoint_final=True)
        self.run_ok(job, f"{name}-first", "--set", "data.limit_rows=2000")
        run_dir, port = self.folder / name, self.folder / f"{name}.port"
        run_dir.mkdir()
        scheduler = self.start([BIN / "tarn-scheduler", "--resume", self.folder / f"{name}-first", "--run-dir", run_dir,
                                "--port-file", port, "--set", "train.epochs=2", "--set", "fleet.lease_seconds=1"])
        self.eventually(port.exists, scheduler)
        address = port.read_text().strip()
        loading = self.folder / f"{name}.loading"
        environment = os.environ | {"LD_PRELOAD": str(SLOW_OPEN), "TARN_TEST_SLOW_OPEN": "*/ckpt-*/*-shard-*.sst",
                                    "TARN_TEST_SLOW_SECONDS": str(slow_seconds), "TARN_TEST_SLOW_MARK": str(loading)}
        server = self.start([BIN / "tarn-server", "--scheduler", address, "--rank", "0", "--run-dir", run_dir], env=environment)
        worker = self.start([BIN / "tarn-worker", "--scheduler", address, "--rank", "0", "--run-dir", run_dir])
        # Waits until the server loads: the scheduler logs that the fleet is complete before it has sent Welcome, and if
        # it died in between, the nodes would wait for it for --join-seconds.
        self.eventually(loading.exists, scheduler)
        return scheduler, server, worker

    def test_a_server_that_is_killed_while_it_loads_is_missed_after_a_lease(self):
        scheduler, server, _ = self.by_hand("killed", 300)
        time.sleep(4)  # four leases, in which it loads and sends heartbeats
        self.assertIsNone(scheduler.poll(), "it was given up while it loaded")
        server.kill()
        killed = time.monotonic()
        output, _ = scheduler.communicate(timeout=WAIT_SECONDS_MAX)
        self.assertEqual(scheduler.returncode, 1, output)
        self.assertIn("shard 0 ", output)
        self.assertIn("was silent for 1 s", output)
        self.assertLess(time.monotonic() - killed, 30)

    def test_servers_end_when_the_scheduler_dies_while_they_load(self):
        scheduler, server, worker = self.by_hand("orphans", 3)
        scheduler.kill()
        for process in (server, worker):
            output, _ = process.communicate(timeout=WAIT_SECONDS_MAX)
            self.assertEqual(process.returncode, 1, output)


if __name__ == "__main__":
    unittest.main(verbosity=2)
