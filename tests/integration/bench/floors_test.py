"""Shows that with --check, and only then, the ratio target of bench/compare_pytorch and the target of
bench/pipeline_wait decide their exit status, on either side of the target. Losses that differ always do."""

import contextlib
import importlib.machinery
import importlib.util
import io
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.dont_write_bytecode = True  # nothing beside the scripts


def load(name):
    """A script of bench/ as a module."""
    loader = importlib.machinery.SourceFileLoader(name, str(ROOT / "bench" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


class ComparePytorchTest(unittest.TestCase):
    def setUp(self):
        self.tool = load("compare_pytorch")

    def failures(self, ratios, check=True, worst=1e-7):
        return list(self.tool.failures(worst, ratios, check))

    def test_the_ratio_counts_if_it_is_asked_for(self):
        self.assertEqual(self.failures({"dlrm": 1.3, "mlp": 1.3}), [])
        self.assertEqual(self.failures({"dlrm": 1.37, "mlp": 1.29}), ["mlp: 1.29 times PyTorch's samples/s, less than 1.3"])
        self.assertEqual(len(self.failures({"dlrm": 1.2, "mlp": 1.2})), 2)
        self.assertEqual(self.failures({"dlrm": 1.2, "mlp": 1.2}, check=False), [])

    def test_nothing_is_asked_of_dcn_v2(self):
        self.assertEqual(self.failures({"dcn_v2": 0.9}), [])

    def test_losses_count_always(self):
        self.assertEqual(self.failures({"dlrm": 2}, check=False, worst=2e-4), ["losses differ by 2.0e-04, more than 1e-04"])


class PipelineWaitTest(unittest.TestCase):
    def verdict(self, *waits, check=True):
        """The exit status and output for runs in which compute waits for these shares of the time, half for rows, half
        for data."""
        stages = {"read": 0, "plan": 0, "room": 0, "flight": 0, "compute": 10, "push": 0, "wall": 100}
        records = [{"stage_seconds": {**stages, "pull": 50 * each, "wait": 50 * each}} for each in waits]
        with contextlib.redirect_stdout(io.StringIO()) as said:
            status = load("pipeline_wait").verdict(records, check)
        return status, said.getvalue()

    def test_waiting_counts_if_it_is_asked_for(self):
        self.assertEqual(self.verdict(0.09, 0.099, 0.3)[0], 0)
        status, said = self.verdict(0.09, 0.101, 0.3)
        self.assertEqual(status, 1)
        self.assertIn("compute waits 10.1% of the time with prefetch; the target is at most 10%", said)
        self.assertEqual(self.verdict(0.3, check=False)[0], 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
