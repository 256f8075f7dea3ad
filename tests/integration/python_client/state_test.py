"""State of a program in checkpoints: after a run is stopped or killed and resumed, the state of the programs counts
each row once an epoch, as the tables do."""

import json
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

ROWS, EPOCHS = 2400, 2
JOB = """
[job]
name = "state"
[fleet]
servers = 1
shards = 2
workers = 2
worker_restarts = 0
heartbeat_seconds = 0.1
[consistency]
{consistency}
[data]
train = "of the program"
split_rows = 40
[train]
epochs = 2
batch_rows = 8
[optimizer]
kind = "sgd"
learning_rate = 1.0
[storage]
durability = "{durability}"
checkpoint_clocks = 20
"""
# Counts in its state and in a table how often each row was trained. Prints both at the end.
PROGRAM = f"""
import os, signal, sys, time
import numpy as np
import tarn

dies = len(sys.argv) > 1 and os.environ["TARN_STARTS_AGAIN"] == "0"
early = "early" in sys.argv  # before there is a checkpoint
alive = 10  # steps after a checkpoint

def die():
    with open(os.environ["TARN_RUN_DIR"] + "/../job.toml", "a") as job:
        job.write("edited meanwhile: a fleet that starts again does not read it")
    os.kill(os.getpid(), signal.SIGKILL)

with tarn.connect() as ps:
    saved = ps.saved_state(ps.rank)
    trained = np.zeros({ROWS}, np.int64) if saved is None else np.frombuffer(saved, np.int64).copy()
    print("begins", ps.rank, trained.sum(), flush=True)
    print("earlier starts:", os.environ["TARN_STARTS_AGAIN"], flush=True)
    ps.keep_state(lambda: trained.tobytes())
    table = ps.table("rows", dim=1, initializer="zero")
    done, steps, position = [], 0, None
    while True:
        answer = ps.request_leases(({ROWS}, 0, 0), done=done)
        done = []
        if answer.finished:
            break
        if answer.tick_to is not None:
            ps.tick_to(answer.tick_to).wait()
        for lease in answer.leases:
            at = lease.skip_rows
            while at < lease.rows:
                rows = np.arange(lease.first_row + at, lease.first_row + min(at + 8, lease.rows))
                ps.save_state()
                table.pull(rows).wait()
                time.sleep(0.001)
                table.push(rows, -np.ones((len(rows), 1), np.float32))
                trained[rows] += 1
                at += len(rows)
                ticked = ps.tick(lease.id, at)
                steps += 1
                if steps == 60:
                    print("half", flush=True)
                if dies and early and steps == 20 and ps.rank == 1:
                    die()
                if dies and steps == 20 and ps.rank == 1:
                    written = ps.request_checkpoint()
                if dies and steps >= 20 and ps.rank == 1:
                    time.sleep(0.02)
                    alive -= written.ready()
                    if alive == 0:
                        die()
            ticked.wait()
            done.append(tarn.LeaseReport(lease.id, lease.rows - lease.skip_rows, 0.0))
    print("counts", ps.rank, *trained, flush=True)
    if ps.rank == 0:
        print("table", *table.pull(np.arange({ROWS})).wait()[:, 0].astype(int), flush=True)
"""
MODES = {
    "bsp": 'mode = "bsp"\napply = "aggregated"',
    "ssp": 'mode = "ssp"\nstaleness = 2\napply = "immediate"',
    "asp": 'mode = "asp"\napply = "immediate"',
}


class StateTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tarn-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "program.py").write_text(PROGRAM)

    def launch(self, *arguments, dies="", stops=False):
        """Returns the exit status and the output. Interrupts the launcher when a worker is half way."""
        launch = subprocess.Popen([sys.executable, ROOT / "tools/launch", *arguments, "--bin-dir", BIN, "--", sys.executable,
                                   self.folder / "program.py", *([dies] if dies else [])], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
        guard = threading.Timer(120, launch.kill)
        guard.start()
        lines = []
        for line in launch.stdout:
            lines.append(line)
            if stops and "half" in line:
                launch.send_signal(signal.SIGINT)
                stops = False
        guard.cancel()
        launch.stdout.close()
        return launch.wait(), "".join(lines)

    def check(self, output, with_table):
        """The state of the programs must count every row once an epoch; with_table: so must the table."""
        counts = [list(map(int, text.split())) for text in re.findall(r"counts \d ([\d ]+)", output)]
        self.assertEqual(len(counts), 2, output)
        table = list(map(int, re.search(r"table ([\d ]+)", output)[1].split()))
        sums = [a + b for a, b in zip(*counts)]
        self.assertEqual(sums, [EPOCHS] * ROWS)
        if with_table:
            self.assertEqual(table, [EPOCHS] * ROWS)

    def began(self, output):
        return [int(n) for n in re.findall(r"begins \d (\d+)", output)]

    def test_a_clean_stop(self):
        for name, consistency in MODES.items():
            with self.subTest(mode=name):
                (self.folder / "job.toml").write_text(JOB.format(consistency=consistency, durability="checkpoint"))
                run = self.folder / name
                code, output = self.launch(self.folder / "job.toml", "--run-dir", run, stops=True)
                self.assertNotIn("counts", output, "it was stopped before its end")
                code, output = self.launch("--resume", run, "--run-dir", self.folder / f"{name}-resumed")
                self.assertEqual(code, 0, output)
                self.assertTrue(all(self.began(output)), output)
                self.check(output, with_table=name != "bsp")  # aggregated gradients are averaged

    def test_a_death(self):
        (self.folder / "job.toml").write_text(JOB.format(consistency=MODES["bsp"], durability="checkpoint"))
        run = self.folder / "run"
        code, output = self.launch(self.folder / "job.toml", "--run-dir", run, dies="later")
        self.assertNotEqual(code, 0, output)
        code, output = self.launch("--resume", run, "--run-dir", self.folder / "resumed")
        self.assertEqual(code, 0, output)
        self.assertTrue(all(self.began(output)), output)
        self.check(output, with_table=False)

    def test_a_run_with_a_log_goes_on_from_its_checkpoint(self):
        (self.folder / "job.toml").write_text(JOB.format(consistency=MODES["bsp"], durability="log"))
        run = self.folder / "run"
        code, output = self.launch(self.folder / "job.toml", "--run-dir", run, dies="later")
        self.assertNotEqual(code, 0, output)
        self.assertIn("earlier starts: 0", output)
        code, output = self.launch("--resume", run)
        self.assertEqual(code, 0, output)
        self.assertIn("earlier starts: 1", output)  # in the same folder
        self.assertRegex(output, "the run goes on from .*/ckpt-[0-9]+ and not from the end of its logs")
        self.assertTrue(all(self.began(output)), output)
        self.check(output, with_table=False)

    def test_a_run_with_a_log_and_no_checkpoint_starts_from_the_beginning(self):
        (self.folder / "job.toml").write_text(JOB.format(consistency=MODES["asp"], durability="log"))
        run = self.folder / "run"
        code, output = self.launch(self.folder / "job.toml", "--run-dir", run, "--set", "storage.checkpoint_clocks=0", dies="early")
        self.assertNotEqual(code, 0, output)
        code, output = self.launch("--resume", run)
        self.assertEqual(code, 0, output)
        self.assertIn("the run has no checkpoint: it starts again from the beginning", output)
        self.assertEqual(self.began(output), [0, 0])
        self.check(output, with_table=True)

    def test_the_whole_fleet_starts_again(self):
        (self.folder / "job.toml").write_text(JOB.format(consistency=MODES["bsp"], durability="checkpoint"))
        run = self.folder / "run"
        code, output = self.launch(self.folder / "job.toml", "--run-dir", run, "--restarts", "1", dies="later")
        self.assertEqual(code, 0, output)
        self.assertIn("launch: the fleet starts again (1 of 1) from the newest state in", output)
        self.assertIn("earlier starts: 1", output)
        self.assertTrue(all(self.began(output)[-2:]), output)
        self.check(output, with_table=False)
        summary = json.loads((run / "summary.json").read_text())
        self.assertEqual((summary["status"], summary["samples"]), ("done", EPOCHS * ROWS))

    def test_it_starts_again_at_most_as_often(self):
        (self.folder / "job.toml").write_text(JOB.format(consistency=MODES["bsp"], durability="checkpoint"))
        (self.folder / "program.py").write_text("import os, signal, tarn\nwith tarn.connect(): os.kill(os.getpid(), signal.SIGKILL)\n")
        code, output = self.launch(self.folder / "job.toml", "--run-dir", self.folder / "run", "--restarts", "2")
        self.assertEqual(code, 1, output)
        self.assertIn("launch: the fleet starts again (2 of 2) from its beginning: there is no checkpoint", output)
        self.assertNotIn("3 of 2", output)


if __name__ == "__main__":
    unittest.main()
