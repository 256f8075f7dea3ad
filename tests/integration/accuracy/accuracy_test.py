"""Shows that tools/accuracy --beside compares runs with equal seeds, that a difference beyond the tolerance fails in
both directions, and that the result is undecided if the seeds are too few."""

import contextlib
import io
import pathlib
import sys
import tempfile
import types
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tools"))

from tarn_tools import accuracy  # noqa: E402


def pairs(*differences, base=0.77, spread=0.01):
    """Pairs of figures with these differences. The seeds differ from each other by much more."""
    return [(base + spread * i, base + spread * i + each) for i, each in enumerate(differences)]


class JudgeTest(unittest.TestCase):
    def test_what_is_allowed_is_allowed_up_and_down(self):
        for sign in (-1, 1):
            self.assertEqual(accuracy.judge(pairs(sign * 0.0009, sign * 0.0011), 0.001), ("yes", ""))
            self.assertEqual(accuracy.judge(pairs(sign * 0.0012, sign * 0.0011), 0.001), ("NO", ""))

    def test_the_seeds_are_compared_in_pairs(self):
        self.assertEqual(accuracy.judge(pairs(0.0001, -0.0001, 0.0002), 0.001), ("yes", ""))
        mean, error = accuracy.difference(pairs(0.001, 0.003, 0.002))
        self.assertAlmostEqual(mean, 0.002)
        self.assertAlmostEqual(error, 0.001 / 3**0.5)

    def test_it_cannot_tell_where_the_spread_is_larger_than_what_is_allowed(self):
        verdict, why = accuracy.judge(pairs(0.004, -0.004), 0.001)
        self.assertEqual((verdict, why), ("cannot tell", ": 32 seeds should suffice"))
        self.assertEqual(accuracy.judge(pairs(0.0), 0.001), ("cannot tell", ": one seed"))
        # That number of seeds suffices if they differ as much as these.
        many = pairs(*[0.004, -0.004] * 16)
        self.assertLessEqual(accuracy.difference(many)[1], 0.001)
        self.assertEqual(accuracy.judge(many, 0.001), ("yes", ""))

    def test_a_difference_far_beyond_is_told_with_few_seeds(self):
        self.assertEqual(accuracy.judge(pairs(0.02, 0.023), 0.001), ("NO", ""))

    def test_equal_runs_are_equal_where_nothing_is_allowed(self):
        self.assertEqual(accuracy.judge(pairs(0.0, 0.0), 0.0), ("yes", ""))
        self.assertEqual(accuracy.judge(pairs(0.0, 0.1), 0.0), ("cannot tell", ": no number of seeds should suffice"))


class DataTest(unittest.TestCase):
    def options(self, *words):
        return accuracy.parse_arguments(["a9a-logistic_regression", *words])

    def test_data_may_be_anywhere(self):
        example = "a9a-logistic_regression"
        with tempfile.TemporaryDirectory() as folder:
            options = self.options("--data", folder)
            self.assertEqual(accuracy.data_settings(example, options), [])  # no such set there: data.dir of the example
            (pathlib.Path(folder) / "libsvm").mkdir()
            self.assertEqual(accuracy.data_settings(example, options), [f"data.dir={folder}/libsvm"])
            self.assertTrue(str(accuracy.missing_data(example, options)).startswith(f"{folder}/libsvm/"))
            options.bin_dir = "bin"
            self.assertIn(f"data.dir={folder}/libsvm", accuracy.command(example, "bsp", "run", options))
            data = accuracy.launch_options.read_toml(accuracy.EXAMPLES / f"{example}.toml")["data"]
            for part in ("train", "valid", "test"):
                if data.get(part):
                    (pathlib.Path(folder) / "libsvm" / data[part]).touch()
            self.assertIsNone(accuracy.missing_data(example, options))
            self.assertIsNone(accuracy.missing_data(example, self.options("--set", f"data.dir={folder}/libsvm")))

    def test_without_data_it_says_what_to_do(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()), \
                contextlib.redirect_stderr(io.StringIO()) as told, \
                unittest.mock.patch.object(accuracy.launch_options, "find_programs"):
            code = accuracy.main(["a9a-logistic_regression", "--set", f"data.dir={folder}"])
        self.assertEqual(code, 77)
        self.assertIn(f"SKIP a9a-logistic_regression: {folder}", told.getvalue())
        self.assertIn("give the folder of the sets with --data DIR", told.getvalue())


class TableTest(unittest.TestCase):
    def compare(self, example, *values, key="eval_auc"):
        """Runs compare() with fleets that return these values, alternately without and with the setting."""
        records = iter([({key: value}, "") for value in values])
        self.asked = []

        def train(example, mode, folder, options, more):
            self.asked.append(more)
            return next(records)

        options = types.SimpleNamespace(beside="train.precision=bf16", seeds=len(values) // 2)
        with unittest.mock.patch.object(accuracy, "train", train), contextlib.redirect_stderr(io.StringIO()):
            return accuracy.compare(example, "bsp", "", options)

    def test_each_seed_is_trained_with_and_without(self):
        verdict, line = self.compare("criteo-dlrm", 0.770, 0.7705, 0.780, 0.7799)
        self.assertEqual(verdict, "yes")
        self.assertEqual(line, "| criteo | dlrm | bsp | AUC | 2 | 0.7750 (0.7700 to 0.7800) | 0.7752 (0.7705 to 0.7799) | "
                               "+0.0002 ± 0.0003 | 0.001 | yes |")
        both = [[f"job.seed={seed}"] for seed in (1, 2)]
        self.assertEqual(self.asked, [both[0], ["train.precision=bf16", *both[0]], both[1], ["train.precision=bf16", *both[1]]])

    def test_what_cannot_be_told_is_said_in_the_table(self):
        verdict, line = self.compare("criteo-dlrm", 0.770, 0.774, 0.780, 0.776)
        self.assertEqual(verdict, "cannot tell")
        self.assertIn("| +0.0000 ± 0.0040 | 0.001 | cannot tell: 32 seeds should suffice |", line)

    def test_accuracy_where_there_is_no_auc(self):
        verdict, line = self.compare("fashion-mlp", 0.892, 0.897, 0.892, 0.897, key="eval_accuracy")
        self.assertEqual(verdict, "yes")
        self.assertIn("| accuracy | 2 |", line)
        self.assertIn("| 0.006 | yes |", line)

    def test_a_run_that_fails_is_told(self):
        with unittest.mock.patch.object(accuracy, "train", lambda *_: ({}, "no")), contextlib.redirect_stderr(io.StringIO()):
            options = types.SimpleNamespace(beside="a.b=c", seeds=2)
            verdict, line = accuracy.compare("criteo-dlrm", "bsp", "", options)
        self.assertEqual(verdict, "failed")
        self.assertEqual(line, "| criteo | dlrm | bsp | AUC | - | - | - | - | 0.001 | failed |")


class ModeTest(unittest.TestCase):
    def trained(self, example, beside=None):
        """The modes in which run_all() trains the example."""
        modes = []

        def train(example, mode, *_):
            modes.append(mode)
            return {"eval_auc": 0.5}, ""

        options = types.SimpleNamespace(examples=[example], mode=list(accuracy.MODES), beside=beside, seeds=1, data=None)
        with unittest.mock.patch.object(accuracy, "train", train), \
                unittest.mock.patch.object(accuracy, "missing_data", lambda *_: None), contextlib.redirect_stderr(io.StringIO()):
            list(accuracy.run_all(options))
        return modes

    def test_a_reference_of_bsp_is_not_for_late_gradients(self):
        self.assertEqual(self.trained("flights-fm"), ["bsp", *["ssp"] * 3, *["asp"] * 3])
        self.assertEqual(self.trained("criteo-dlrm"), ["bsp"])
        self.assertEqual(self.trained("criteo-dlrm", beside="a.b=c"), ["bsp", "bsp", "ssp", "ssp", "asp", "asp"])

    def test_the_median_of_three_runs_counts_where_runs_differ(self):
        def middle(mode, *results):
            left = list(results)
            train = lambda *_: ({"eval_auc": left.pop(0)} if left[0] else {}, "")
            with unittest.mock.patch.object(accuracy, "train", train), contextlib.redirect_stderr(io.StringIO()):
                return accuracy.middle_run("flights-fm", mode, "", None).get("eval_auc")

        self.assertEqual(middle("asp", 0.5, 0.9, 0.7), 0.7)
        self.assertEqual(middle("bsp", 0.5, 0.9, 0.7), 0.5)
        self.assertIsNone(middle("ssp", 0.5, None, 0.7))


class ExitTest(unittest.TestCase):
    def status(self, verdict):
        with unittest.mock.patch.object(accuracy, "run_all", lambda options: [(verdict, "|")]), \
                unittest.mock.patch.object(accuracy.launch_options, "find_programs"), \
                contextlib.redirect_stdout(io.StringIO()):
            return accuracy.main(["--beside", "a.b=c"])

    def test_what_cannot_be_told_is_not_well(self):
        self.assertEqual([self.status(verdict) for verdict in ("yes", "NO", "cannot tell", "failed", "skipped")], [0, 1, 1, 1, 77])


if __name__ == "__main__":
    unittest.main(verbosity=2)
