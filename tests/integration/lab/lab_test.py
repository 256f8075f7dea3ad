"""Shows that tools/lab runs a study, repeats it to the byte, continues an interrupted one, chooses rates on the validation
set, goes on after a failed trial, and names what is wrong with a LAB.toml; and that degenerate settings of the algorithms
are equal to the bit."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
BIN = pathlib.Path(os.environ.get("TARN_BIN_DIR") or ROOT / "build/release/bin")
sys.path[:0] = [str(HERE), str(ROOT / "tools")]

import data
from tarn_tools.lab import algorithms, page, results, study


class LabTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        data.make(self.folder)
        self.out = self.folder / "out"

    def write(self, text):
        path = self.folder / "lab.toml"
        path.write_text(text, encoding="utf-8")
        return path

    def command(self, path, out=None):
        return [sys.executable, ROOT / "tools/lab", path, "--out", out or self.out, "--bin-dir", BIN]

    def lab(self, text, code=0, out=None):
        """results.json of a study."""
        done = subprocess.run(self.command(self.write(text), out), capture_output=True, text=True, timeout=250)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.shown, self.error = done.stdout, done.stderr
        path = (out or self.out) / "results.json"
        return json.loads(path.read_text()) if path.exists() else None

    STUDY = """
[lab]
job = "job.toml"
seeds = [1, 2]
algorithms = ["bsp", "asp"]
target_loss = 0.5
[set]
"delays.batch" = "lognormal(0.01, 0.3)"
[conditions.even]
[conditions.straggler]
"delays.stragglers" = 1
"delays.straggler_factor" = 4.0
[grid]
rate = [0.001, 0.5]
"""

    def test_a_study(self):
        found = self.lab(self.STUDY)
        self.assertEqual(len(found["trials"]), 16)
        rows = {(row["condition"], row["algorithm"]): row for row in found["comparison"]}
        self.assertEqual(len(rows), 4)
        for row in rows.values():
            self.assertEqual(row["point"], {"optimizer.learning_rate": 0.5}, "the rate that learns is chosen")
            self.assertGreater(row["quality"]["median"], 0.7)
        seconds = {key: row["seconds"]["median"] for key, row in rows.items()}
        self.assertGreater(seconds["straggler", "bsp"], 2 * seconds["straggler", "asp"])
        self.assertEqual(rows["even", "bsp"]["p"], None, "the baseline")
        self.assertGreater(rows["even", "asp"]["gradient_delay_mean"], 0)
        page = (self.out / "comparison.html").read_text()
        for text in ("straggler", "asp", "training loss by simulated seconds", "validation AUC by learning_rate", found["sha256"]):
            self.assertIn(text, page)
        self.assertIn(r"\begin{tabular}", (self.out / "table.tex").read_text())
        self.assertEqual(len((self.out / "trials.csv").read_text().splitlines()), 17)
        self.assertEqual(len(json.loads((self.out / "measured.json").read_text())), 16)

        # Again in another folder: equal to the byte. In the same one: nothing is run.
        other = self.folder / "other"
        self.lab(self.STUDY, out=other)
        for name in ("results.json", "comparison.html", "table.tex", "comparison.csv"):
            self.assertEqual((self.out / name).read_bytes(), (other / name).read_bytes(), name)
        before = (self.out / "measured.json").read_text()
        self.lab(self.STUDY)
        self.assertEqual((self.out / "measured.json").read_text(), before)
        self.lab(self.STUDY.replace("seeds = [1, 2]", "seeds = [1, 3]"))
        self.assertNotEqual((self.out / "measured.json").read_text(), before, "the trials of another seed were run")

    def test_a_job_file_that_is_changed_meanwhile(self):
        """Trials of two jobs are not mixed."""
        path = self.write(self.STUDY)
        process = subprocess.Popen(self.command(path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while "done" not in process.stdout.readline():
            self.assertIsNone(process.poll())
        job = self.folder / "job.toml"
        job.write_text(job.read_text() + "# another text\n")
        process.communicate(timeout=250)
        self.assertEqual(process.returncode, 1)
        trials = json.loads((self.out / "results.json").read_text())["trials"]
        self.assertEqual({trial["status"] for trial in trials}, {"done", "failed"})
        self.assertIn("was changed while the study ran", next(trial["reason"] for trial in trials if trial["status"] == "failed"))
        self.lab(self.STUDY)
        self.assertEqual({trial["status"] for trial in json.loads((self.out / "results.json").read_text())["trials"]}, {"done"})

    def test_an_interrupted_study_continues(self):
        path = self.write(self.STUDY.replace("seeds = [1, 2]", "seeds = [1, 2, 3, 4, 5, 6, 7, 8]"))
        process = subprocess.Popen(self.command(path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while "done" not in process.stdout.readline():
            self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, error)
        self.assertIn("the same command continues", error)
        finished = {each.parent: each.stat().st_mtime_ns for each in self.out.glob("trials/**/trial.json")
                    if json.loads(each.read_text())["status"] == "done"}
        self.assertTrue(0 < len(finished) < 64)
        done = subprocess.run(self.command(path), capture_output=True, text=True, timeout=250)
        self.assertEqual(done.returncode, 0, done.stderr)
        for folder, when in finished.items():
            self.assertEqual((folder / "trial.json").stat().st_mtime_ns, when, "it is not run again")

    def test_real_time(self):
        found = self.lab('[lab]\njob = "job.toml"\nseeds = [1]\nengine = "real"\nalgorithms = ["bsp", "asp"]\n[set]\n"fleet.workers" = 2\n')
        self.assertEqual({trial["status"] for trial in found["trials"]}, {"done"})
        self.assertTrue(all(trial["quality"] > 0.7 for trial in found["trials"]))
        self.assertNotIn("simulated s", (self.out / "comparison.html").read_text())
        simulated = self.lab('[lab]\njob = "job.toml"\nseeds = [1]\nalgorithms = ["bsp"]\n[set]\n"fleet.workers" = 2\n', out=self.folder / "other")
        self.assertEqual(simulated["trials"][0]["parameters_hash"], found["trials"][0]["parameters_hash"])

    def test_a_failed_trial_does_not_stop_the_others(self):
        found = self.lab("""
[lab]
job = "job.toml"
seeds = [1]
algorithms = ["bsp"]
[[algorithm]]
name = "impossible"
use = "asp"
set = { "consistency.staleness" = 3 }
[[algorithm]]
name = "wild"
use = "local_sgd"
set = { "local.learning_rate" = 1e6, "local.l2" = 100.0, "local.steps" = 16 }
""", code=1)
        self.assertEqual([trial["status"] for trial in found["trials"]], ["done", "failed", "diverged"])
        self.assertIn("staleness", found["trials"][1]["reason"])
        self.assertIn("impossible", self.error)
        self.assertEqual([row["diverged"] for row in found["comparison"]], [0, 0, 1])
        self.assertIn("diverged or failed", (self.out / "comparison.html").read_text())

    def test_scores_are_those_of_the_best_epoch(self):
        found = self.lab('[lab]\njob = "job.toml"\nseeds = [1]\nalgorithms = ["bsp"]\n[set]\n"train.epochs" = 3\n')
        summary = json.loads((self.out / found["trials"][0]["folder"] / "summary.json").read_text())
        self.assertGreater(summary["best_epoch"], 1)
        self.assertEqual(found["trials"][0]["quality"], summary["eval_auc"])

    def test_a_stopped_trial_is_run_again(self):
        path = self.write('[lab]\njob = "job.toml"\nseeds = [1]\nalgorithms = ["bsp"]\n')
        self.assertEqual(subprocess.run(self.command(path), capture_output=True).returncode, 0)
        folder = self.out / json.loads((self.out / "results.json").read_text())["trials"][0]["folder"]
        whole = json.loads((folder / "summary.json").read_text())
        (folder / "summary.json").write_text(json.dumps({**whole, "status": "stopped", "samples": 1}))
        self.assertEqual(subprocess.run(self.command(path), capture_output=True).returncode, 0)
        self.assertEqual(json.loads((folder / "summary.json").read_text())["samples"], whole["samples"])

    def test_every_algorithm_runs(self):
        names = [algorithm.name for algorithm in algorithms.ALGORITHMS
                 if study.fits("linear", "push_codec", algorithm.settings.get("tables.*.push_codec"))]
        found = self.lab(f'[lab]\njob = "job.toml"\nseeds = [1]\nalgorithms = {json.dumps(names)}\n[set]\n"delays.batch" = "exponential(0.01)"\n')
        self.assertEqual({trial["status"] for trial in found["trials"]}, {"done"})
        hashes = [trial["parameters_hash"] for trial in found["trials"]]
        self.assertGreater(len(set(hashes)), len(names) - 8, "only those that do the same here are equal")
        done = subprocess.run([sys.executable, ROOT / "tools/lab", "--list"], capture_output=True, text=True)
        self.assertEqual([line.split()[0] for line in done.stdout.splitlines()], [algorithm.name for algorithm in algorithms.ALGORITHMS])

    def test_degenerate_settings_are_equal_to_the_bit(self):
        found = self.lab("""
[lab]
job = "job.toml"
seeds = [1]
[set]
"delays.batch" = "exponential(0.01)"
"train.prefetch" = 0
[[algorithm]]
name = "bsp"
use = ["bsp", "sgd"]
[[algorithm]]
name = "ssp 0"
use = ["ssp", "sgd"]
set = { "consistency.staleness" = 0, "consistency.apply" = "aggregated" }
[[algorithm]]
name = "one accumulated step"
use = ["bsp", "sgd"]
set = { "local.method" = "accumulate" }
[[algorithm]]
name = "local SGD of one step"
use = ["bsp", "local_sgd"]
set = { "local.steps" = 1, "local.learning_rate" = 0.1 }
[[algorithm]]
name = "bsp at that rate"
use = ["bsp", "sgd"]
set = { "optimizer.learning_rate" = 0.1 }
[[algorithm]]
name = "steps of one in splits of 64 rows"
use = ["bsp", "sgd"]
set = { "local.method" = "accumulate", "data.split_rows" = 64 }
[[algorithm]]
name = "steps of four from an epoch that never comes"
use = ["bsp", "sgd"]
set = { "local.method" = "accumulate", "data.split_rows" = 64, "local.steps" = 4, "local.from_epoch" = 2 }
[[algorithm]]
name = "top-k of all"
use = ["bsp", "sgd", "top_k"]
set = { "tables.linear.push_topk" = 1.0 }
[[algorithm]]
name = "asp"
use = ["asp", "sgd"]
[[algorithm]]
name = "dc_asgd 0"
use = "dc_asgd"
set = { "optimizer.dc_lambda" = 0.0, "tables.linear.pull_codec" = "fp32" }
[[algorithm]]
name = "ringmaster without a bound"
use = "ringmaster"
set = { "optimizer.delay_max" = 1e6 }
[[algorithm]]
name = "exponential 0"
use = "exponential_staleness"
set = { "optimizer.delay_decay" = 0.0 }
[[algorithm]]
name = "buffer of one"
use = "k_batch_async"
set = { "optimizer.buffer" = 1.0 }
[[algorithm]]
name = "one worker of k"
use = "k_async"
set = { "optimizer.workers_min" = 1.0 }
[[algorithm]]
name = "easgd 0"
use = "easgd"
set = { "local.moving_rate" = 0.0 }
""")
        hashes = {trial["algorithm"]: trial["parameters_hash"] for trial in found["trials"]}
        for same in ("ssp 0", "one accumulated step", "top-k of all"):
            self.assertEqual(hashes[same], hashes["bsp"], same)
        self.assertEqual(hashes["steps of four from an epoch that never comes"], hashes["steps of one in splits of 64 rows"])
        for same in ("dc_asgd 0", "ringmaster without a bound", "exponential 0"):
            self.assertEqual(hashes[same], hashes["asp"], same)
        values = {trial["algorithm"]: trial["test_logloss"] for trial in found["trials"]}
        self.assertAlmostEqual(values["local SGD of one step"], values["bsp at that rate"], 5, "w - (w - r g) is r g up to rounding")
        for same in ("buffer of one", "one worker of k"):  # their rows also keep a buffer
            self.assertEqual(values[same], values["asp"], same)
        self.assertNotEqual(values["asp"], values["bsp"])
        self.assertAlmostEqual(values["easgd 0"], 0.693147, 5, "the servers' rows never move")

    def test_errors_name_the_file_the_key_and_what_was_expected(self):
        for text, expected in (
            ("x", "expected TOML"),
            ("", "lab.job: expected the path of a job file"),
            ('[lab]\njob = "none.toml"', "none.toml: No such file"),
            ('[lab]\njob = "job.toml"', "at least one algorithm"),
            ('[lab]\njob = "job.toml"\nalgorithms = ["bps"]', "unknown algorithm 'bps'; the nearest is 'bsp'"),
            ('[lab]\njob = "job.toml"\nalgorithm = ["bsp"]', "unknown key; the nearest is 'algorithms'"),
            ('[lab]\njob = "job.toml"\nalgorithms = ["bsp"]\nseeds = "1"', "lab.seeds: expected a list of whole numbers"),
            ('[lab]\njob = "job.toml"\nalgorithms = ["bsp"]\nmetric = "f1"', "expected one of auc, logloss, accuracy"),
            ('[lab]\njob = "job.toml"\nalgorithms = ["bsp"]\n[grid]\nrate = 0.1', "expected a list of values"),
            ('[lab]\njob = "job.toml"\n[[algorithm]]\nname = "two"\nuse = ["bsp", "asp"]', "both are consistency algorithms"),
            ('[lab]\njob = "job.toml"\nalgorithms = ["int8"]', "rows of one value have no scale"),
            ('[lab]\njob = "job.toml"\n[[algorithm]]\nname = "two"\nuse = ["dgc", "fp16"]', "both are codec algorithms"),
            ('[lab]\njob = "job.toml"\nalgorithms = ["ssp"]\n[set]\n"consistency.staleness" = 9', "set.consistency.staleness: 9, but algorithm 'ssp' has consistency.staleness = 4"),
            ('[lab]\njob = "job.toml"\nalgorithms = ["ssp"]\n[conditions.x]\n"consistency.staleness" = 9',
             "conditions.x.consistency.staleness: 9, but algorithm 'ssp' has consistency.staleness = 4"),
            ('[lab]\njob = "job.toml"\n[[algorithm]]\nname = "ssp"\nset = {"consistency.staleness" = 9}\n[conditions.x]\n"consistency.staleness" = 2',
             "conditions.x.consistency.staleness: 2, but algorithm 'ssp' has consistency.staleness = 9"),
            ('[lab]\njob = "job.toml"\nalgorithms = ["bsp"]\n[conditions."a b"]\n[conditions.a_b]', "conditions: expected each name once"),
            ('[lab]\njob = "job.toml"\nalgorithms = ["bsp"]\nseeds = [true]', "lab.seeds: expected a list of whole numbers"),
            ('[lab]\njob = "job.toml"\nalgorithms = "bsp"', "lab.algorithms: expected a list of names"),
            ('lab = 3', "lab: expected a table"),
            ('[lab]\njob = "job.toml"\n[algorithm]\nname = "bsp"', "algorithm: expected a list of tables, [[algorithm]]"),
            ('[lab]\njob = "job.toml"\nalgorithms = ["bsp"]\n[grid]\nrate = [0.1, 0.1]', "grid.rate: expected each value once"),
            ('[lab]\njob = "job.toml"\nalgorithms = ["bsp"]\n[set]\n"optimizer.delay_max" = inf', "set.optimizer.delay_max: expected finite"),
            ('[lab]\njob = "job.toml"\nalgorithms = ["bsp"]\n[grid]\nx = [2026-01-01]', "grid.x: expected finite numbers, strings"),
            ('[lab]\njob = "job.toml"\nalgorithms = ["bsp"]\ngenerate = true', "lab.generate: expected a table"),
            ('[lab]\njob = "job.toml"\nalgorithms = ["bsp"]\n[grid]\nrate = [0.1]\n[conditions.a]\n"optimizer.learning_rate" = 1.0',
             "conditions.a.optimizer.learning_rate: the grid or search also sets it"),
            ('[lab]\njob = "job.toml"\nalgorithms = ["adam"]\n[set]\n"optimizer.embedding.kind" = "sgd"',
             "set.optimizer.embedding.kind: 'sgd', but algorithm 'adam' has optimizer.kind = 'adam'"),
            ('[lab]\njob = "job.toml"\nalgorithms = ["bsp"]\n[set]\n"data.valid" = ""\n[grid]\nrate = [0.1, 0.2]', "no validation set"),
        ):
            self.lab(text, code=2)
            self.assertIn(expected, self.error)
            self.assertEqual(len(self.error.strip().splitlines()), 1, self.error)

    def test_data_that_was_made_otherwise_is_refused(self):
        made = [BIN / "tarn-generate", "--rows", "600", "--valid", "100", "--test", "100", "--profile", "interaction"]
        subprocess.run([*made, "--out", self.folder / "clicks"], check=True, capture_output=True)
        (self.folder / "job.toml").write_text('[data]\ndir = "clicks"\ntrain = "train.tsv"\n')
        self.lab('[lab]\njob = "job.toml"\nalgorithms = ["bsp"]\ngenerate = { rows = 600, valid = 100, test = 100 }\n', code=2)
        self.assertIn('profile = "interaction", expected "criteo"', self.error)

    def test_help_starts_nothing(self):
        done = subprocess.run([sys.executable, ROOT / "tools/lab", "--help"], capture_output=True, text=True, cwd=self.folder)
        self.assertEqual(done.returncode, 0)
        self.assertIn("comparison.html", done.stdout)
        self.assertFalse((self.folder / "runs").exists())


class StudiesTest(unittest.TestCase):
    def test_the_studies_of_all_algorithms_have_all_of_them(self):
        for name in ("all_a9a", "all_flights"):
            path = ROOT / f"examples/lab/{name}.toml"
            found = study.read(path)
            fitting = []
            for algorithm in algorithms.ALGORITHMS:
                try:
                    study.expand({"fleet.workers": 8, **algorithm.settings}, found.job_table)
                    fitting.append(algorithm.name)
                except study.StudyError:
                    pass
            self.assertEqual([entry.name for entry in found.entries], fitting, name)

    def test_every_study_can_be_read(self):
        for path in (ROOT / "examples/lab").glob("*.toml"):
            if "[lab]" in path.read_text():
                self.assertTrue(study.read(path).trials(), path)

    def test_a_setting_of_one_role_is_kept_beside_the_grid(self):
        job = {"optimizer": {"dense": {"learning_rate": 0.1}, "embedding": {"learning_rate": 0.1}}}
        found = study.expand({"optimizer.dense.learning_rate": 0.001, "optimizer.learning_rate": 0.03}, job)
        rates = [found[f"optimizer.{role}learning_rate"] for role in ("", "embedding.", "dense.")]
        self.assertEqual(rates, [0.03, 0.03, 0.001])

    def test_a_copied_study_has_trials_of_its_own(self):
        """The same text beside other data."""
        keys = []
        for _ in range(2):
            with tempfile.TemporaryDirectory() as folder:
                pathlib.Path(folder, "job.toml").write_text('[data]\ntrain = "train.tsv"\n')
                path = pathlib.Path(folder, "study.toml")
                path.write_text('[lab]\njob = "job.toml"\nalgorithms = ["bsp"]\n')
                keys.append([trial.key for trial in study.read(path).trials()])
        self.assertNotEqual(*keys)

    def test_an_mlp_is_compared_by_its_accuracy(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "job.toml").write_text('[model]\nkind = "mlp"\n')
            path = pathlib.Path(folder, "study.toml")
            path.write_text('[lab]\njob = "job.toml"\nalgorithms = ["bsp"]\n')
            self.assertEqual(study.read(path).metric, "accuracy")
            path.write_text(path.read_text() + 'metric = "auc"\n')
            with self.assertRaisesRegex(study.StudyError, "accuracy"):
                study.read(path)


class ResultsTest(unittest.TestCase):
    def test_the_sign_flip_test_is_exact(self):
        self.assertEqual(results.sign_flip_p([1, 2, 3]), 0.25)
        self.assertEqual(results.sign_flip_p([1, -1]), 1)
        self.assertEqual(results.sign_flip_p([0.0, 0.0]), 1)
        self.assertIsNone(results.sign_flip_p([]))
        self.assertLess(results.sign_flip_p([1 + i / 100 for i in range(20)]), 0.001)
        self.assertGreater(results.sign_flip_p([1 + i / 100 for i in range(40)]), 0, "the given signs are one of the flips")
        mixed = [(-1) ** i * (1 + i / 100) for i in range(20)]
        self.assertGreater(results.sign_flip_p(mixed), 0.5)
        self.assertEqual(results.sign_flip_p(mixed), results.sign_flip_p(mixed))

    def test_the_target_is_reached_by_the_mean_of_five_points(self):
        curve = [(float(i), 10.0 * i, 100.0 * i, loss) for i, loss in enumerate([0.9, 0.1, 0.9, 0.9, 0.8, 0.4, 0.3, 0.2, 0.2, 0.1])]
        self.assertEqual(results.to_target(curve, 0.4), {"seconds": 8.0, "samples": 80.0, "bytes": 800.0})
        self.assertIsNone(results.to_target(curve, 0.01))
        self.assertIsNone(results.to_target(curve, None))

    def test_all_rows_with_the_best_shown_digits_are_marked(self):
        rows = [{"seeds": 3, "quality": {"median": median, "n": 3}} for median in (0.70311, 0.70308, 0.6999)] + [{"quality": None}]
        self.assertEqual([page.is_best(row, rows, True) for row in rows], [True, True, False, False])
        self.assertEqual([page.is_best(row, rows, False) for row in rows], [False, False, True, False])
        survivor = {"seeds": 3, "quality": {"median": 0.8, "n": 1}}
        self.assertEqual([page.is_best(row, [*rows, survivor], True) for row in (rows[0], survivor)], [True, False])

    def test_mean_curves_are_at_equal_shares_of_the_samples(self):
        """Also of runs with different numbers of points."""
        curves = [[[float(i), 100.0 * i * step, 0.0, 1 - i * step / 100] for i in range(1, 100 // step + 1)] for step in (1, 2)]
        means = page.mean_curve([{"curve": curve} for curve in [*curves, []]], 1)
        self.assertEqual(len(means), 50)
        for samples, loss in means:
            self.assertAlmostEqual(loss, 1 - samples / 10_000)
        self.assertEqual(means[-1][0], 10_000)

    def test_a_point_that_diverged_has_no_place_in_the_chart_of_the_grid(self):
        def trial(rate, choice):
            return {"condition": "", "algorithm": "a", "point": {"rate": rate}, "choice": choice}

        found = {"metric": "auc", "algorithms": [{"name": "a"}],
                 "trials": [trial(0.1, 0.77), trial(0.1, 0.77), trial(1.0, 0.79), trial(1.0, None), trial(0.01, 0.7), trial(0.01, 0.72)]}
        text = page.grid_chart(found, "").figure()
        self.assertIn("0.77", text)
        self.assertNotIn("0.79", text)

    def test_a_run_that_ends_above_the_limit_has_diverged(self):
        found = {"train_logloss": 0.6, "epochs": [{"train": {"logloss": 0.6}}, {"train": {"logloss": 33.0}}]}
        self.assertEqual(results._last_loss(found, []), 33.0)
        self.assertEqual(results._last_loss({"train_logloss": 8.0}, [(1.0, 1.0, 1.0, 15.0)]), 15.0)
        self.assertIsNone(results._last_loss({}, []))

    def test_the_latex_table_names_the_time_of_the_engine(self):
        for engine, time in (("simulated", "simulated s"), ("real", "s")):
            text = page.latex({"metric": "auc", "sha256": "0", "engine": engine, "conditions": {}, "comparison": []}, "tools/lab x")
            self.assertIn(f"& $p$ & {time} & delay &", text)

    def test_settings_for_all_tables_and_roles(self):
        job = {"model": {"kind": "dlrm", "hidden": [8], "bottom": [4]}, "optimizer": {"dense": {"kind": "adam"}}, "fleet": {"workers": 8}}
        found = study.expand({"tables.*.push_codec": "fp16", "optimizer.kind": "sgd", "x": algorithms.SHARE_OF_A_WORKER}, job)
        self.assertEqual([key for key in found if "tables" in key],
                         [f'tables."{table}".push_codec' for table in ("embedding", "bottom.0", "bottom.1", "top.0", "top.1")])
        self.assertEqual(found["optimizer.dense.kind"], "sgd")
        self.assertEqual(found["x"], 0.125)
        found = study.expand({"tables.*.push_codec": "fp16", "model.kind": "mlp", "model.hidden": [8, 8]}, job)
        self.assertEqual([key for key in found if "tables" in key], [f'tables."layer.{i}".push_codec' for i in range(3)])

    def test_the_tables_of_cross_layers(self):
        model = {"kind": "dcn_v2", "hidden": [], "bottom": [], "cross_layers": 2}
        found = study.tables_of({"model": model})
        self.assertEqual(found, ["embedding", "cross.0", "cross.1", "top.0"], "without dense values")
        data = {"dense_integers": True}
        found = study.tables_of({"model": model, "data": data})
        self.assertEqual(found, ["embedding", "bottom.0", "cross.0", "cross.1", "top.0"])
        found = study.tables_of({"model": model | {"cross_rank": 4}, "data": data})
        self.assertEqual(found[2:6], ["cross.0.v", "cross.0.u", "cross.1.v", "cross.1.u"])


if __name__ == "__main__":
    unittest.main()
