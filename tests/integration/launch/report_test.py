"""Shows what the report draws and says of runs: validation beside training, interrupted lines between epochs, no level of
held-out data in a chart of training, the colour of each status, and when there are more processes than cores."""

import json
import pathlib
import re
import sys
import tempfile
import unittest
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "tools"))

from tarn_tools import charts, cores, report, series, stages

ROWS = 1000  # of the training set
EPOCHS = [
    {"epoch": 1, "best": True, "train": {"logloss": 0.50, "auc": 0.72}, "valid": {"logloss": 0.48, "auc": 0.76},
     "test": {"logloss": 0.47, "auc": 0.77}},
    {"epoch": 2, "best": False, "train": {"logloss": 0.30, "auc": 0.91}, "valid": {"logloss": 0.52, "auc": 0.74}},
]
RECORD = {"job": "two", "status": "done", "samples": 2 * ROWS, "train_rows": ROWS, "test_rows": 9, "epochs": EPOCHS,
          "best_possible_auc": 0.8258, "best_possible_logloss": 0.4286}


def line(time, samples, epoch, **more):
    return {"role": "scheduler", "time": time, "samples": samples, "epoch": epoch, **more}


# Two epochs of four seconds; training begins after the first second.
LINES = [
    line(100, 0, 1, state="waiting"),
    line(102, 250, 1, loss=0.6, auc=0.6),
    line(104, 750, 1, loss=0.5, auc=0.7),
    line(106, 1250, 2, loss=0.31, auc=0.9, valid_logloss=0.48, valid_auc=0.76),
    line(108, 2000, 2, loss=0.30, auc=0.91, valid_logloss=0.48, valid_auc=0.76),
    line(109, 2000, 2, loss=0.30, auc=0.91, valid_logloss=0.52, valid_auc=0.74),
]


class ReportTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.run_dir = pathlib.Path(folder.name)

    def page(self, record=RECORD, lines=LINES):
        (self.run_dir / "summary.json").write_text(json.dumps(record))
        (self.run_dir / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
        return report.write(self.run_dir).read_text()

    def figures(self, page):
        return {re.search("<figcaption>([^<]*)", figure).group(1): figure for figure in re.findall("<figure>.*?</figure>", page)}

    def test_validation_is_drawn_beside_training(self):
        figures = self.figures(self.page())
        for name in ("Log-loss, by samples", "AUC, by samples", "Log-loss, by time", "AUC, by time"):
            self.assertIn("validation", figures[name])
            self.assertEqual(len(re.findall('polyline class="line c2"', figures[name])), 1, name)
        self.assertIn("<title>validation: 0.52</title>", figures["Log-loss, by time"])

    def test_without_validation_there_is_one_line(self):
        epochs = [{key: value for key, value in epoch.items() if key != "valid"} for epoch in EPOCHS]
        lines = [{key: value for key, value in one.items() if not key.startswith("valid")} for one in LINES]
        figures = self.figures(self.page(RECORD | {"epochs": epochs}, lines))
        self.assertNotIn("validation", figures["AUC, by time"])
        self.assertIn("training, last 0.9100", figures["AUC, by time"])

    def test_training_is_interrupted_where_an_epoch_begins(self):
        figures = self.figures(self.page())
        for name in ("Log-loss, by samples", "AUC, by time"):
            self.assertEqual(len(re.findall('polyline class="line c1"', figures[name])), 2, name)
            self.assertIn(">epoch 2</text>", figures[name])
            self.assertNotIn(">epoch 3</text>", figures[name])

    def test_points_of_validation_are_where_epochs_end(self):
        metrics = series.Metrics(LINES)
        self.assertEqual(report.validation(metrics, RECORD, "logloss", "samples"), [(1000, 0.48), (2000, 0.52)])
        self.assertEqual(report.validation(metrics, RECORD, "logloss", "time"), [(5, 0.48), (8, 0.52)])
        died = {key: value for key, value in RECORD.items() if key != "epochs"}
        self.assertEqual(report.validation(metrics, died, "auc", "time"), [(6, 0.76), (9, 0.74)])
        resumed = series.Metrics([line(100, 1000, 2, state="waiting"), *LINES[3:]])
        self.assertEqual(report.validation(resumed, RECORD, "auc", "time"), [(8, 0.74)])
        self.assertEqual(report.validation(series.Metrics([]), RECORD, "auc", "time"), [])

    def test_no_chart_has_the_level_of_another_set(self):
        page = self.page()
        for figure in self.figures(page).values():
            self.assertNotIn("best possible", figure)
        last_row = re.search("<tr class=possible>.*?</tr>", page).group(0)
        self.assertEqual(re.findall("<td>([^<]*)</td>", last_row), ["best possible", "", "", "", "", "0.4286", "0.8258"])
        of_validation = self.page(RECORD | {"test_rows": 0, "valid_rows": 5})
        last_row = re.search("<tr class=possible>.*?</tr>", of_validation).group(0)
        self.assertEqual(re.findall("<td>([^<]*)</td>", last_row), ["best possible", "", "", "0.4286", "0.8258", "", ""])
        self.assertNotIn("class=possible", self.page({key: RECORD[key] for key in ("samples", "train_rows", "epochs")}))

    def test_the_table_of_epochs_has_its_sets_above_its_scores(self):
        table = re.search("<table class=epochs>.*?</table>", self.page()).group(0)
        self.assertIn("<th rowspan=2>epoch</th><th colspan=2>training</th><th colspan=2>validation</th>", table)
        self.assertIn("<tr class=best><td>1 (best)</td><td>0.5000</td><td>0.7200</td><td>0.4800</td>", table)

    def test_only_a_run_that_is_done_is_green(self):
        for status, tone in (("done", "good"), ("stopped", "halted"), ("failed", "bad"), ("diverged", "bad")):
            page = self.page(RECORD | {"status": status, "reason": "because"})
            self.assertIn(f'<span class="badge {tone}">{status}</span>', page)
            self.assertEqual(f'<p class="reason {tone}">because</p>' in page, tone != "good")
        self.assertIn('<span class="badge halted">unfinished</span>', self.page({"samples": 9}))
        self.assertNotIn("class=\"reason", self.page(RECORD | {"status": "stopped", "reason": "stopped"}))

    def test_a_run_that_diverged_at_once_has_trained(self):
        page = self.page({"status": "diverged", "samples": 0, "reason": "at clock 6"}, [])
        self.assertNotIn("Nothing was trained", page)
        self.assertIn("at clock 6", page)

    def test_gradients_that_changed_nothing_are_told(self):
        self.assertIn("<span>Gradients skipped</span><b>1,500</b>", self.page(RECORD | {"rows_not_finite": 1500}))
        self.assertNotIn("Gradients skipped", self.page(RECORD | {"rows_not_finite": 0}))

    def test_long_lines_are_thinned_piece_by_piece(self):
        points = [(x, 1.0) for x in range(1000)] + [None] + [(x, 2.0) for x in range(1000, 1010)]
        first, second = charts.thinned(points)
        self.assertLess(len(first) + len(second), charts.POINTS_MAX + 2)
        self.assertEqual({y for _, y in second}, {2.0})
        self.assertEqual(charts.thinned([None, None]), [])

    def test_a_sheet_is_a_file_of_its_own(self):
        drawings = [
            charts.line_chart("a & b", [("one", [(0, 1), (1, 2)]), ("two", [(0, 2), (1, 1)], "c2 dashed")], "x", x_ticks=[0, 1]),
            charts.bar_chart("bars", [("first", 2.0, "2 s"), ("second", 1.0, "1 s", "c6")]),
            charts.line_chart("nothing", [("none", [None])], "x"),
        ]
        text = charts.sheet("all", drawings, names=[("late", "c6")])
        svg = xml.etree.ElementTree.fromstring(text)
        self.assertEqual(len(svg.findall(".//{*}polyline")), 2)
        self.assertEqual([bar.get("class") for bar in svg.findall(".//{*}rect")], ["card", "c1", "c6"])
        words = [element.text for element in svg.iter() if element.tag.endswith("text")]
        for word in ("all", "late", "a & b", "one", "two", "2 s", "nothing"):
            self.assertIn(word, words)
        self.assertNotIn("var(", text)
        self.assertIn("svg .line.c2 { stroke: #d9762b; }", text)


class CoresTest(unittest.TestCase):
    RUN = {
        "servers": 2, "shards": 2, "workers": 2, "cores": 2, "cores_busy": 0.97,
        "stage_seconds": {"read": 2, "plan": 1, "room": 6, "flight": 5, "pull": 6, "compute": 2, "push": 1, "wait": 1, "wall": 10},
        "cpu_seconds": {"compute": 2, "push": 1},
    }

    def bound(self, **changed):
        return stages.bound(self.RUN | changed)[0]

    def test_more_processes_than_cores_bound_a_job(self):
        name, why = stages.bound(self.RUN)
        self.assertEqual((name, why), ("more processes than cores", "4 shards and 2 workers share 2 cores, busy 97% of the time"))
        self.assertIn("What bounds this job: more processes than cores; 4 shards", stages.sentence(self.RUN))
        self.assertEqual(self.bound(cores=6), "pulls")  # the cores are enough
        self.assertEqual(self.bound(cores_busy=0.6), "pulls")  # and here they are free
        self.assertEqual(self.bound(cores=None), "pulls")  # of an older run, or of several machines

    def test_training_loops_that_compute_are_bound_by_it_as_long_as_they_have_their_cores(self):
        computes = self.RUN["stage_seconds"] | {"compute": 7, "pull": 1}
        self.assertEqual(self.bound(stage_seconds=computes, cpu_seconds={"compute": 6.8, "push": 1}), "compute")
        self.assertEqual(self.bound(stage_seconds=computes, cpu_seconds={"compute": 3, "push": 0.5}), "more processes than cores")

    def test_only_usable_cores_count(self):
        text = "cpu  9 9 9 9\ncpu0 10 0 10 60 20 0 0 0 5 5\ncpu1 50 0 50 0 0 0 0 0 0 0\ncpu2 1 1 1 1 1 1 1 1 1 1\nintr 5\n"
        self.assertEqual(cores.times(text, {0, 1}), (120, 200))
        self.assertEqual(cores.times(text, {1}), (100, 100))

    def test_what_was_not_watched_is_not_told(self):
        watch = cores.Cores()
        watch.stop()
        self.assertEqual(watch.record(), {})


if __name__ == "__main__":
    unittest.main()
