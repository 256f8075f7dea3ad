"""What the crash tests share. They kill every process of runs with durability "log" and let the runs go on in their own
folders. From the workers' records (record.py) and the end clocks in the scheduler's log, `judge` checks that every row
of every epoch was trained exactly once, and that the bits are those of an undisturbed run.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import time

import processes
import record
from fleet_case import FleetCase

EPOCHS = 2
RUN_SECONDS_MAX = 240


class CrashCase(FleetCase):
    hashes = {}  # of undisturbed runs, by their names, for all tests of a process

    def setUp(self):
        self.random = random.Random(0)
        self.totals = dict.fromkeys(("incarnations", "voided", "repeated"), 0)

    def job_of(self, mode, apply, checkpoint_clocks, **more):
        settings = {"workers": 2, "servers": 2, "staleness": 2 if mode == "ssp" else 0, "epochs": EPOCHS,
                    "batch_rows": 64, "durability": "log", "checkpoint_final": bool(checkpoint_clocks)}
        return self.job(mode=mode, apply=apply, checkpoint_clocks=checkpoint_clocks, **(settings | more))

    @staticmethod
    def going_on(command, run_dir):
        """The command that launches the run again: resumes it if it has begun."""
        if not (run_dir / "scheduler.state").exists():
            return command
        return [*command[:2], "--resume", run_dir, *command[3:]]

    def finish(self, command, run_dir):
        """Lets a run that was killed go on to its end."""
        self.empty_unless_begun(run_dir)
        done = subprocess.run(self.going_on(command, run_dir), capture_output=True, text=True, timeout=RUN_SECONDS_MAX)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def kill_everything(self, launch, run_dir):
        launch.kill()
        launch.wait()
        while pids := list(processes.naming(run_dir)):
            self.random.shuffle(pids)
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.01)

    @staticmethod
    def is_over(run_dir):
        """Whether the run is done. One that failed before it began also has a summary and no state."""
        summary = run_dir / "summary.json"
        return (not (run_dir / "scheduler.state").exists() and summary.exists()
                and json.loads(summary.read_text())["status"] == "done")

    @staticmethod
    def empty_unless_begun(run_dir):
        """Removes the folder of a run that was killed before it had written a state to resume from."""
        if not (run_dir / "scheduler.state").exists():
            shutil.rmtree(run_dir, ignore_errors=True)

    def judge(self, run_dir, written, apply, bits=None, killed=False):
        """`bits`: the hash of the parameters and slots with which the run must have ended. `killed`: the
        scheduler was killed after the run was over."""
        summary = json.loads((run_dir / "summary.json").read_text())
        self.assertEqual(summary["status"], "done")
        self.assertEqual(summary["samples"], EPOCHS * self.rows)
        self.assertFalse((run_dir / "scheduler.state").exists(), "a run that is over has nothing to go on with")
        if not killed:
            self.assertFalse((run_dir / "log").exists(), "nor logs that nobody can go on from")
        log = (run_dir / "logs/scheduler-0.log").read_text()
        told, ends = record.Record(written.read_text()), record.verdicts(log)
        self.assertEqual(record.coverage_errors(told.batches, ends, EPOCHS, self.rows), [])
        self.assertEqual(record.verdict_errors(told, ends), [])
        least, most = record.repeats(told, ends)
        self.totals["incarnations"] += len(ends)
        if apply == "aggregated":
            self.assertEqual(summary["batches_repeated"], 0)
            self.totals["voided"] += most
        else:
            self.assertLessEqual(summary["batches_repeated"], most)
            self.totals["repeated"] += summary["batches_repeated"]
        if bits is not None:
            self.assertEqual(summary["parameters_hash"], bits)

    def undisturbed(self, name, job):
        """The hash of a run of `job` that nothing disturbs, made once for each name."""
        if name not in self.hashes:
            self.hashes[name] = self.run_ok(job, f"undisturbed-{name}")["parameters_hash"]
        return self.hashes[name]
