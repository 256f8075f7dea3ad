"""Shows that the [search] of a LAB.toml finds a rate, repeats to the byte, runs nothing twice, continues if points
fail, and that its errors name the key. Skipped where Optuna is not installed."""

import importlib.util
import json
import sys
import unittest

import lab_test

if importlib.util.find_spec("optuna") is None:
    print("search_test.py: skipped: optuna is not installed", file=sys.stderr)
    sys.exit(77)

STUDY = """
[lab]
job = "job.toml"
seeds = [1, 2]
algorithms = ["bsp", "asp"]
[set]
"delays.batch" = "lognormal(0.01, 0.3)"
[search]
points = 6
at_a_time = 2
[search.space]
rate = { low = 0.001, high = 2.0, log = true }
"""


class SearchTest(unittest.TestCase):
    setUp, write, command, lab = (getattr(lab_test.LabTest, name) for name in ("setUp", "write", "command", "lab"))

    def test_a_search(self):
        found = self.lab(STUDY)
        self.assertEqual(len(found["trials"]), 24)
        self.assertIn("round 3 of 3: ", self.shown)
        for row in found["comparison"]:
            tried = {record["point"]["optimizer.learning_rate"]: [] for record in found["trials"] if record["algorithm"] == row["algorithm"]}
            for record in found["trials"]:
                if record["algorithm"] == row["algorithm"]:
                    tried[record["point"]["optimizer.learning_rate"]].append(record["valid_auc"])
            self.assertEqual(len(tried), 6)
            self.assertTrue(all(0.001 <= rate <= 2 for rate in tried))
            best = max(tried, key=lambda rate: sum(tried[rate]))
            self.assertEqual(row["point"], {"optimizer.learning_rate": best})
        other = self.folder / "other"
        self.lab(STUDY, out=other)
        for name in ("results.json", "comparison.html"):
            self.assertEqual((self.out / name).read_bytes(), (other / name).read_bytes(), name)
        before = (self.out / "measured.json").read_text()
        self.lab(STUDY)
        self.assertEqual((self.out / "measured.json").read_text(), before, "nothing was run again")
        self.lab(STUDY.replace("points = 6", "points = 8"))
        self.assertEqual(json.loads((self.out / "measured.json").read_text())[:24], json.loads(before), "more points follow the same")

    def test_points_that_fail_and_other_kinds_of_keys(self):
        found = self.lab(STUDY.replace("points = 6", "points = 4").replace('algorithms = ["bsp", "asp"]', 'algorithms = ["local_sgd"]') + """
"local.steps" = { low = 1, high = 8, log = true }
"train.batch_rows" = [8, 16]
""")
        for record in found["trials"]:
            self.assertIsInstance(record["point"]["local.steps"], int)
            self.assertIn(record["point"]["train.batch_rows"], (8, 16))
        found = self.lab(STUDY.replace("high = 2.0", "high = 1e9").replace("low = 0.001", "low = 1e3"), code=1)  # 1e6 at most
        failed = {record["point"]["optimizer.learning_rate"] for record in found["trials"] if record["status"] == "failed"}
        self.assertTrue(failed and min(failed) > 1e6)
        for row in found["comparison"]:
            self.assertLess(row["point"]["optimizer.learning_rate"], 1e6)

    def test_what_is_wrong_is_named(self):
        for change, problem in [
            (("low = 0.001", "low = 3.0"), "search.space.rate: expected numbers with low < high"),
            (("low = 0.001", "low = 0"), "low > 0 with log"),
            (("points = 6", "points = 0"), "search.points: expected a whole number of at least 1, found 0"),
            (("at_a_time", "at_once"), "search.at_once: unknown key"),
            (("[search]", "[grid]\nrate = [0.1]\n[search]"), "search: expected a [search] or a grid, found both"),
            (("rate = {", "optimizer.learning_rate = {"), "a key with dots is written in quotes"),
        ]:
            self.lab(STUDY.replace(*change), code=2)
            self.assertIn(problem, self.error)


if __name__ == "__main__":
    unittest.main()
