"""Shows that figures that a program reports appear in the terminal, in the files of its run and in its report."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tools")]
BIN = pathlib.Path(os.environ.get("TARN_BIN_DIR", ROOT / "build/release/bin"))

from tarn_tools import progress  # noqa: E402

JOB = """
[job]
name = "reporting"
[fleet]
servers = 1
shards = 1
workers = 2
[storage]
durability = "none"
"""
PROGRAM = """
import numpy
import tarn
with tarn.connect() as ps:
    table = ps.table("users", dim=2)
    for step in range(8):
        table.push([step], [[1, 1]])
        ps.tick().wait()
        ps.report(loss=step + 100 * ps.rank, best=7)
    ps.report(norm=float("nan"), best=numpy.float32(7))
    for name, value in (("loss", "low"), ("rank", 1)):
        try:
            ps.report(**{name: value})
        except (TypeError, ValueError) as error:
            print(f"{type(error).__name__}: {error}")
"""

LEASES = """
[data]
train = "train"
valid = "valid"
split_rows = 10
[train]
epochs = 2
batch_rows = 10
"""
LOSSES = """
import tarn
with tarn.connect() as ps:
    reports, finished = [], False
    while not finished:
        leases, finished, tick_to = ps.request_leases((40, 20, 0), done=reports)
        for lease in leases:
            if lease.purpose == "train":
                ps.tick(lease.id, lease.rows).wait()
        reports = [tarn.LeaseReport(lease.id, lease.rows, 0.25 * lease.rows) for lease in leases]
        if tick_to is not None:
            ps.tick_to(tick_to).wait()
"""


class ReportTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tarn-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def lines(self, path):
        return [json.loads(line) for line in path.read_text().splitlines()]

    def launch(self, job, program):
        """Trains with the program as the workers. Returns the folder of the run and what the terminal shows."""
        (self.folder / "job.toml").write_text(job)
        (self.folder / "program.py").write_text(program)
        run = self.folder / "run"
        done = subprocess.run([sys.executable, ROOT / "tools/launch", self.folder / "job.toml", "--bin-dir", BIN, "--run-dir", run,
                               "--", sys.executable, self.folder / "program.py"], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout)
        return run, done.stdout

    def test_programs_that_report_only_losses_have_no_auc(self):
        run, output = self.launch(JOB.replace("workers = 2", "workers = 1") + LEASES, LOSSES)
        summary = json.loads((run / "summary.json").read_text())
        self.assertEqual([summary["eval_auc"], summary["eval_accuracy"], summary["eval_logloss"]], [None, None, 0.25])
        self.assertEqual(summary["epochs"][0]["valid"], {"rows": 20, "logloss": 0.25})
        self.assertTrue(any("loss" in line for line in self.lines(run / "metrics.jsonl")))
        for line in self.lines(run / "metrics.jsonl"):
            self.assertFalse({"auc", "valid_auc"} & set(line), line)
        page = (run / "report.html").read_text()
        for text in (output, page):
            self.assertIn("0.2500", text)
            self.assertNotIn("AUC", text)
            self.assertNotRegex(text, "Accuracy|on accuracy|>accuracy<")

    def test_a_run_shows_what_its_programs_report(self):
        run, output = self.launch(JOB, PROGRAM)
        written = [line for line in self.lines(run / "metrics.jsonl") if line["role"] == "program"]
        last = {line["rank"]: line for line in written}
        self.assertEqual(set(last), {0, 1})
        self.assertTrue(all(0 < line["clock"] <= 8 for line in written))
        reported = json.loads((run / "summary.json").read_text())["reported"]
        self.assertEqual(reported, {"loss": (last[0]["loss"] + last[1]["loss"]) / 2, "best": 7, "norm": None})
        self.assertRegex(output, rf"reported +loss {re.escape(format(reported['loss'], '.5g'))}, best 7, norm not finite\n")
        self.assertIn("TypeError: tarn.report: loss = 'low', expected a number", output)
        self.assertIn("InvalidArgument: invalid-argument: report: 'rank' is a field of every line, expected another name", output)
        page = (run / "report.html").read_text()
        self.assertIn("loss, reported", page)
        self.assertIn("mean of the workers", page)
        self.assertIn("not finite", page)

    def test_the_terminal(self):
        path = self.folder / "metrics.jsonl"
        tail = progress.MetricsTail(path)
        lines = [{"role": "program", "rank": 0, "loss": 1.0}, {"role": "scheduler", "samples": 0, "state": "train"},
                 {"role": "program", "rank": 1, "loss": 2.0, "hr": 0.25}]
        path.write_text("".join(json.dumps({"time": 1, "clock": 1} | line) + "\n" for line in lines))
        self.assertTrue(tail.poll())
        self.assertEqual(progress.plain_line(tail.latest), "loss 1.5, hr 0.25")
        self.assertEqual(progress.live_line(tail.latest, 80), "loss 1.5, hr 0.25")
        counted = tail.latest | {"samples": 10, "progress": 0.5, "loss": 0.7}
        self.assertIn("loss 1.5, hr 0.25", progress.live_line(counted, 120))
        self.assertIn("50%", progress.live_line(counted, 120))


if __name__ == "__main__":
    unittest.main()
