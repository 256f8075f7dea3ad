"""Shows that a fleet whose processes are all stopped for longer than two leases (Ctrl-Z, a machine that sleeps, a frozen
container) goes on where it was: no process mistakes its own pause for the death of others (rules N4 and N7)."""

import json
import os
import signal
import subprocess
import time
import unittest

import processes
from fleet_case import FleetCase

EPOCHS = 12  # for seconds of training
PROCESSES = 5  # the scheduler, two servers, two workers
LEASE_SECONDS = 4
SECONDS_MAX = 240


class PauseTest(FleetCase):
    def await_training(self, run_dir, process):
        """Waits until a worker has trained something. Returns the ids of the fleet's processes."""
        metrics, deadline = run_dir / "metrics.jsonl", time.monotonic() + SECONDS_MAX
        while process.poll() is None and time.monotonic() < deadline:
            lines = metrics.read_text().splitlines() if metrics.exists() else []
            if any('"role":"worker"' in line and '"clock":0' not in line for line in lines):
                return list(processes.of_run(run_dir))
            time.sleep(0.05)
        self.fail("the run never trained")

    def test_a_fleet_that_was_stopped_goes_on(self):
        run_dir = self.folder / "paused"
        process = subprocess.Popen(
            self.command(self.job(epochs=EPOCHS, batch_rows=16), run_dir, "--set", f"fleet.lease_seconds={LEASE_SECONDS}"),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        pids = self.await_training(run_dir, process)
        self.assertEqual(len(pids), PROCESSES)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(2.5 * LEASE_SECONDS)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        output, _ = process.communicate(timeout=SECONDS_MAX)
        self.assertEqual(process.returncode, 0, output)
        summary = json.loads((run_dir / "summary.json").read_text())
        self.assertEqual(summary["status"], "done")
        self.assertEqual(summary["samples"], EPOCHS * self.rows)
        self.assertEqual(summary["workers_died"], 0)


if __name__ == "__main__":
    unittest.main()
