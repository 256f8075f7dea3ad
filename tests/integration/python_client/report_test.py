"""What a program reports is seen in the terminal, in the files of its run and in its report."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tools")]
BIN = pathlib.Path(os.environ.get("TARN_BIN_DIR", ROOT / "build/release/bin"))

from tarn import metrics  # noqa: E402
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
import tarn
with tarn.connect() as ps:
    table = ps.table("users", dim=2)
    for step in range(8):
        table.push([step], [[1, 1]])
        ps.tick().wait()
        ps.report(loss=step + 100 * ps.rank, **({"best": 7} if ps.rank == 0 else {}))
    ps.report(loss=float("nan"))
"""


class ReportTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tarn-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def lines(self, path):
        return [json.loads(line) for line in path.read_text().splitlines()]

    def test_a_run_shows_what_its_programs_report(self):
        (self.folder / "job.toml").write_text(JOB)
        (self.folder / "program.py").write_text(PROGRAM)
        run = self.folder / "run"
        done = subprocess.run([sys.executable, ROOT / "tools/launch", self.folder / "job.toml", "--bin-dir", BIN, "--run-dir", run,
                               "--", sys.executable, self.folder / "program.py"], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout)
        written = [line for line in self.lines(run / "metrics.jsonl") if line["role"] == "program"]
        last = {line["rank"]: line for line in written}
        self.assertEqual(set(last), {0, 1})
        self.assertTrue(all(0 < line["clock"] <= 8 for line in written))
        reported = json.loads((run / "summary.json").read_text())["reported"]
        self.assertEqual(reported, {"loss": (last[0]["loss"] + last[1]["loss"]) / 2, "best": 7})
        self.assertRegex(done.stdout, rf"reported +loss {re.escape(format(reported['loss'], '.5g'))}, best 7\n")
        page = (run / "report.html").read_text()
        self.assertIn("loss, reported", page)
        self.assertIn("mean of the workers", page)

    def test_a_line_has_the_mean_of_a_second(self):
        reports = metrics.Reports(3, str(self.folder))
        with unittest.mock.patch("time.monotonic", side_effect=(100.0, 100.0, 100.4, 101.1, 101.1)):
            reports.add(1, {"loss": 1})
            reports.add(2, {"loss": 2, "hr": 0.5})
            reports.add(3, {"loss": 4})
        first, second = self.lines(self.folder / "metrics.jsonl")
        self.assertEqual([first[name] for name in ("role", "rank", "clock", "loss")], ["program", 3, 1, 1])
        self.assertEqual([second[name] for name in ("clock", "loss", "hr")], [3, 3, 0.5])

    def test_what_is_no_figure(self):
        reports = metrics.Reports(0, str(self.folder))
        with self.assertRaisesRegex(TypeError, "loss = 'low', expected a number"):
            reports.add(0, {"loss": "low"})
        with self.assertRaisesRegex(ValueError, "'rank' is a field of every line"):
            reports.add(0, {"rank": 1})
        reports.add(0, {"loss": float("inf")})
        reports.flush()
        self.assertFalse((self.folder / "metrics.jsonl").exists())
        metrics.Reports(0, "").add(0, {"loss": 1})  # without a run nothing is written

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
