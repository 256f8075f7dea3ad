"""The end of a run of programs without leases: its last checkpoint has everything that was acknowledged."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
BIN = pathlib.Path(os.environ.get("TARN_BIN_DIR", ROOT / "build/release/bin"))

JOB = """
[job]
name = "stops"
[fleet]
servers = 1
shards = 2
workers = {workers}
heartbeat_seconds = 0.1
[consistency]
{consistency}
[optimizer]
kind = "sgd"
learning_rate = 1.0
[storage]
durability = "{durability}"
"""
# Each push adds 1. With a number: so many steps, and a checkpoint is requested in one of the last. Otherwise pushes
# until the run ends, and writes how many pushes were acknowledged to the file COUNTS. With 0: only prints the value.
PROGRAM = """
import os, sys, time
import numpy as np
import tarn

steps = int(sys.argv[1]) if len(sys.argv) > 1 else None
with tarn.connect() as ps:
    table = ps.table("counts", dim=1, initializer="zero")
    if steps == 0:
        print("value", table.pull([1]).wait()[0, 0], flush=True)
    elif steps:
        for step in range(steps):
            table.pull([1]).wait()
            table.push([1], [[-1.0]])
            ps.tick()
            time.sleep(0.03)
            if step == steps - 4 and ps.rank == 0:
                ps.request_checkpoint()
    else:
        filler = ps.table("filler", dim=16, initializer="zero")
        filler.push(np.arange(400_000), np.ones((400_000, 16), np.float32)).wait()
        counts, acknowledged = open(os.environ["COUNTS"], "wb", buffering=0), 0
        while True:
            table.push([1], [[-1.0]]).wait()
            acknowledged += 1
            counts.seek(0)
            counts.write(b"%d" % acknowledged)
            if acknowledged == 100:
                print("stop now", flush=True)
"""
DATA = """
[data]
train = "of the program"
split_rows = 10
[train]
epochs = 1
batch_rows = 10
"""
FAILS_LATE = """
import sys
import tarn

with tarn.connect() as ps:
    table, done = ps.table("counts", dim=1, initializer="zero"), []
    while not (answer := ps.request_leases((20, 0, 0), done=done)).finished:
        done = []
        if answer.tick_to is not None:
            ps.tick_to(answer.tick_to).wait()
        for lease in answer.leases:
            table.push([1], [[-1.0]])
            ps.tick(lease.id, lease.rows).wait()
            done.append(tarn.LeaseReport(lease.id, lease.rows, 0.0))
sys.exit(3)  # could not save its model
"""
# Each step adds 1 to the table and to the state. With an argument: prints both.
KEEPS_STATE = """
import sys
import tarn

with tarn.connect() as ps:
    table = ps.table("counts", dim=1, initializer="zero")
    steps = int(ps.saved_state(0) or 0)
    if len(sys.argv) > 1:
        print("steps", steps, "value", table.pull([1]).wait()[0, 0], flush=True)
        sys.exit()
    ps.keep_state(lambda: b"%d" % steps)
    while True:
        table.pull([1]).wait()
        table.push([1], [[-1.0]]).wait()
        ps.tick()
        steps += 1
        if steps == 100:
            print("stop now", flush=True)
"""
AT_ONCE = 'mode = "asp"\napply = "immediate"'


class StopsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tarn-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "program.py").write_text(PROGRAM)

    def launch(self, *arguments, program=(), code=0):
        """Returns the output. Interrupts the launcher when a program asks for it."""
        launch = subprocess.Popen([sys.executable, ROOT / "tools/launch", *arguments, "--bin-dir", BIN, "--", sys.executable,
                                   self.folder / "program.py", *program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "COUNTS": str(self.folder / "counts")})
        guard = threading.Timer(120, launch.kill)
        guard.start()
        lines = []
        for line in launch.stdout:
            lines.append(line)
            if "stop now" in line:
                launch.send_signal(signal.SIGINT)
        guard.cancel()
        launch.stdout.close()
        output = "".join(lines)
        self.assertEqual(launch.wait(), code, output)
        return output

    def new_run(self, consistency, durability="checkpoint", workers=1, program=()):
        run = self.folder / durability
        (self.folder / "job.toml").write_text(JOB.format(consistency=consistency, durability=durability, workers=workers))
        return run, self.launch(self.folder / "job.toml", "--run-dir", run, program=program)

    def value_of(self, run):
        output = self.launch("--resume", run, "--run-dir", f"{run}-resumed", program=["0"])
        return float(re.search(r"value ([\d.]+)", output)[1])

    def test_pushes_during_the_checkpoint_of_a_stop(self):
        for durability in ("checkpoint", "log"):
            with self.subTest(durability):
                run, _ = self.new_run(AT_ONCE, durability)
                acknowledged = int((self.folder / "counts").read_text())
                self.assertGreaterEqual(acknowledged, 100)
                self.assertGreaterEqual(self.value_of(run), acknowledged)

    def test_a_program_that_keeps_state_and_waits_for_its_pushes(self):
        """The shards accept no push after the cut of the stop, and the program saves its state only after a tick."""
        (self.folder / "program.py").write_text(KEEPS_STATE)
        run, _ = self.new_run(AT_ONCE)
        resumed = self.launch("--resume", run, "--run-dir", self.folder / "resumed", program=["show"])
        steps, value = map(float, re.search(r"steps (\d+) value ([\d.]+)", resumed).groups())
        self.assertGreaterEqual(steps, 100)
        self.assertLessEqual(value, steps)  # in asp the state may be newer than the rows
        self.assertGreater(value, 90)

    def test_a_program_that_fails_after_its_last_lease(self):
        (self.folder / "program.py").write_text(FAILS_LATE)
        job = JOB.format(consistency='mode = "bsp"', durability="checkpoint", workers=1) + DATA
        (self.folder / "job.toml").write_text(job)
        for restarts in (0, 1):  # its restart may be due when the fleet ends
            with self.subTest(restarts=restarts):
                run = ["--run-dir", self.folder / f"run{restarts}", "--set", f"fleet.worker_restarts={restarts}"]
                output = self.launch(self.folder / "job.toml", *run, code=1)
                self.assertIn("failed: worker-0 died: exit code 3", output)
                self.assertIn("status          done", output)

    def test_programs_that_end_before_the_clock_of_a_requested_checkpoint(self):
        run, output = self.new_run('mode = "bsp"', workers=2, program=["30"])
        self.assertIn("all workers ended before its clock", output)
        self.assertEqual(self.value_of(run), 30.0)


if __name__ == "__main__":
    unittest.main()
