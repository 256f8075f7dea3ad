"""Shows that Python scores a set by an export as the run that trained the model did: the log-loss, AUC and accuracy of
summary.json, for every model and both formats of lines; and that it refuses what does not fit together."""

import gzip
import random
import subprocess
import sys
import tomllib
import unittest

from fleet_case import BIN, ROOT, FleetCase

sys.path.insert(0, str(ROOT / "python"))

import numpy as np

from tarn.export import Model
from tarn.keys import Encoder, dense_rows, open_lines
from tarn.score import ScoreError, Scorer


def auc(scores, positive):
    """The share of pairs of a positive and a negative row that are in order, ties counted half."""
    low = np.sort(scores[~positive])
    below, upto = (np.searchsorted(low, scores[positive], side) for side in ("left", "right"))
    return (below + upto).mean() / 2 / len(low)


class ScoreTest(FleetCase):
    rows = 4000

    def train(self, kind, *settings, **more):
        """Trains, exports the best checkpoint. Returns the summary, the job and the export's model."""
        job = self.job(model=kind, epochs=2, durability="checkpoint", checkpoint_final=True, **more)
        settings = [part for setting in ("model.bottom=[8]", *settings) for part in ("--set", setting)]
        summary = self.run_ok(job, "run-" + self.id(), *settings)
        out = self.folder / f"{self.id()}.tarn"
        subprocess.run([BIN / "tarn-inspect", "export", summary["best_checkpoint"], out], check=True, capture_output=True)
        with open(self.folder / ("run-" + self.id()) / "job.toml", "rb") as file:
            return summary, tomllib.load(file), Model(out)

    def check(self, kind, *settings, **more):
        summary, job, model = self.train(kind, *settings, **more)
        with open_lines(f"{job['data']['dir']}/{job['data']['test']}") as lines:
            rows = Encoder(job["data"]).lines(lines)
        scorer, positive = Scorer(model, job, initial=True), rows.labels > 0.5
        p = scorer.probabilities(rows)
        if p.ndim == 2:
            np.testing.assert_allclose(p.sum(axis=1), 1)
            p = p[:, 1]
        self.assertAlmostEqual(-np.log(np.where(positive, p, 1 - p)).mean(), summary["eval_logloss"], delta=1e-5)
        self.assertAlmostEqual(((p > 0.5) == positive).mean(), summary["eval_accuracy"], delta=1.5 / len(rows))
        if kind != "mlp":
            self.assertAlmostEqual(auc(p, positive), summary["eval_auc"], delta=1e-4)
            self.assertGreater(summary["eval_auc"], 0.6)
        return scorer, rows

    def test_logistic_regression(self):
        self.check("logistic_regression", test="test.tsv", valid="valid.tsv")

    def test_fm(self):
        self.check("fm", test="test.tsv")

    def test_new_keys(self):
        """They have no row: zeros or, as in evaluation, initial values."""
        _, job, model = self.train("fm", test="test.tsv")
        row = [1] * 13 + ["never seen"] * 26
        rows = Encoder(job["data"]).rows([row, ["" for _ in row]])
        zeros, initial = (Scorer(model, job, initial=own).logits(rows) for own in (False, True))
        self.assertNotEqual(zeros[0], initial[0])
        values, found = model.lookup("embedding", rows.keys[13:39], initial=True)
        self.assertFalse(found.any())
        self.assertAlmostEqual(values.std(), 0.01, delta=0.003)

    def predict(self, *arguments, lines=None):
        return subprocess.run([sys.executable, ROOT / "tools/predict", *arguments], capture_output=True, input=lines)

    def test_predict(self):
        scorer, rows = self.check("fm", test="test.tsv")
        run, out, test = self.folder / ("run-" + self.id()), self.folder / f"{self.id()}.tarn", self.data / "test.tsv"
        done = self.predict(run, out, test, "--initial")
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        np.testing.assert_allclose([float(p) for p in done.stdout.split()], scorer.probabilities(rows), rtol=1e-6)
        bare = b"".join(line.split(b"\t", 1)[1] for line in test.read_bytes().splitlines(keepends=True))
        again = self.predict(run / "job.toml", out, "-", "--initial", "--unlabelled", lines=bare)
        self.assertEqual((again.returncode, again.stdout), (0, done.stdout))
        many = self.predict(run, out, "-", "--unlabelled", lines=bare * 3 + b"x\n")
        self.assertEqual(many.returncode, 1)
        self.assertIn(f"stdin: line {3 * len(rows) + 1}: ".encode(), many.stderr)
        patient = self.folder / "patient.toml"
        patient.write_text((run / "job.toml").read_text().replace("malformed_max = 0", "malformed_max = 1"))
        self.assertIn("malformed_max = 1", patient.read_text())
        self.assertEqual(self.predict(patient, out, "-", "--unlabelled", lines=b"x\n").returncode, 1)
        exported = self.predict(run, run, test, "--initial", "--bin-dir", BIN)
        self.assertEqual((exported.returncode, exported.stdout), (0, done.stdout), exported.stderr)
        self.assertIn(b"expected a run's folder with --best", self.predict(run, out, test, "--best").stderr)
        damaged = self.folder / "damaged.gz"
        damaged.write_bytes(gzip.compress(test.read_bytes())[:2000] + b"x" * 100)
        for broken in ((run, out, damaged), (self.folder, out, test), (run, test, test), (run, self.folder / "none", test), (run, out, out),
                       (run, out, test, "--delta", out)):
            done = self.predict(*broken)
            self.assertEqual(done.returncode, 1, broken)
            self.assertTrue(done.stderr.startswith(b"tools/predict: ") and done.stderr.count(b"\n") == 1, done.stderr)
            self.assertNotIn(b"[Errno", done.stderr)
        self.assertIn(b"damaged.gz: ", self.predict(run, out, damaged).stderr)

    def test_wide_deep(self):
        self.check("wide_deep", test="test.tsv")

    def test_deepfm(self):
        scorer, rows = self.check("deepfm", "model.hidden=[]", test="test.tsv")
        p = scorer.probabilities(rows)
        with open_lines(self.data / "test.tsv") as lines:
            one = Encoder({}).lines([next(lines)])
        np.testing.assert_allclose(scorer.probabilities(one), p[:1], rtol=1e-6)
        self.assertEqual(len(scorer.probabilities(Encoder({}).rows([]))), 0)
        with self.assertRaisesRegex(ScoreError, "another .data. section"):
            scorer.logits(Encoder({"bins": ["none"]}).rows([[""] * 39]))
        with self.assertRaisesRegex(ScoreError, "same number of keys"):
            scorer.logits(Encoder({"format": "libsvm"}).rows([{1: 1}]))

    def test_dlrm(self):
        self.check("dlrm", "data.dense_integers=true", "data.bins=['none']", test="test.tsv")

    def test_dcn_v2(self):
        self.check("dcn_v2", "data.dense_integers=true", "data.bins=['width:10']", test="test.tsv")

    def test_dcn_v2_of_low_rank_without_dense_values(self):
        self.check("dcn_v2", "model.cross_rank=3", "model.cross_layers=2", test="test.tsv")

    def test_mlp(self):
        scorer, rows = self.check("mlp", "data.dense_integers=true", test="test.tsv")
        np.testing.assert_array_equal(scorer.logits(rows), scorer.logits(dense_rows(rows.dense)))

    def libsvm(self):
        """2,000 rows of 5 of 50 columns with weights."""
        chance, lines = random.Random(5), []
        for _ in range(2000):
            row = {chance.randrange(50): chance.gauss(0, 1) for _ in range(5)}
            score = sum(x * (column - 25) / 10 for column, x in row.items())
            lines.append(f"{int(score > chance.gauss(0, 1))} " + " ".join(f"{c}:{x:.6g}" for c, x in row.items()) + "\n")
        (self.folder / "rows.libsvm").write_text("".join(lines))
        return f"data.dir='{self.folder}'", "data.train=rows.libsvm", "data.format=libsvm"

    def test_libsvm(self):
        self.check("logistic_regression", *self.libsvm(), test="rows.libsvm")

    def test_libsvm_fm(self):
        self.check("fm", *self.libsvm(), test="rows.libsvm")

    def test_what_is_not_there(self):
        model = self.train("logistic_regression", test="test.tsv")[2]
        for kind, table in (("fm", "embedding"), ("mlp", "layer.0"), ("dlrm", "embedding")):
            with self.assertRaisesRegex(ScoreError, f"no table '{table}'"):
                Scorer(model, {"model": {"kind": kind}})
        with self.assertRaisesRegex(ScoreError, "expected one of"):
            Scorer(model, {"model": {"kind": "linear"}})


if __name__ == "__main__":
    unittest.main()
