"""Shows that a run whose training diverges is no success: status diverged, exit status 4 of every program, a reason that names
the clock, the table and the key, and a way on from its best checkpoint."""

import json
import re
import unittest

from fleet_case import FleetCase


class DivergedTest(FleetCase):
    RATES = [part for role in ("linear", "embedding") for part in ("--set", f"optimizer.{role}.learning_rate=1000")]

    def diverge(self, name, *settings, **more):
        job = self.job(model="fm", optimizer="sgd", **more)
        code, summary, output = self.launch(job, name, *self.RATES, *settings)
        self.assertEqual(code, 4, output)
        self.assertEqual(summary["status"], "diverged", output)
        self.assertRegex(summary["reason"], r"^worker [01]: training has diverged at clock \d+ \(epoch \d\): .* table '\w+'.* key \d+")
        self.assertIn(f"diverged: {summary['reason']}\n", output)
        self.assertRegex(output, "status +diverged")
        journal = (self.folder / name / "logs/launch.log").read_text()
        # Only of the processes that end first; the others may be killed before the launcher detects their end.
        ends = re.findall(r"^\S+ (?:scheduler|(?:worker|server)-\d): (exit code .*|killed .*)$", journal, re.MULTILINE)
        self.assertEqual(set(ends), {"exit code 4 (diverged)"})
        page = (self.folder / name / "report.html").read_text()
        self.assertIn('<span class="badge bad">diverged</span>', page)
        self.assertIn("training has diverged at clock", page)
        states = [json.loads(line).get("state") for line in (self.folder / name / "metrics.jsonl").read_text().splitlines()]
        self.assertNotIn("done", states)
        return summary, output

    def test_in_lockstep(self):
        for hot_rows in (0, 1000):
            self.diverge(f"bsp-{hot_rows}", "--set", f"train.hot_rows={hot_rows}", valid="valid.tsv")

    def test_without_bounds(self):
        self.diverge("asp", mode="asp", apply="immediate")

    def test_it_goes_on_from_a_checkpoint(self):
        job = self.job(model="fm", optimizer="sgd", durability="checkpoint", valid="valid.tsv")
        best = self.run_ok(job, "first")["best_checkpoint"]
        first = self.folder / "first"
        output = self.diverge("second", "--resume", first, "--set", "train.epochs=3", durability="checkpoint", valid="valid.tsv")[1]
        self.assertRegex(output, f"go on .* --resume {re.escape(best)} --set optimizer.learning_rate=SMALLER\n")


if __name__ == "__main__":
    unittest.main()
