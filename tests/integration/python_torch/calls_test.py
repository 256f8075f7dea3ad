"""tarn.torch over a fake client: calls of modules that are rejected, and copies of models."""

import copy
import os
import pathlib
import pickle
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "python"))

try:
    import torch
except ImportError:
    print("calls_test.py: skipped: torch is not installed", file=sys.stderr)
    sys.exit(77)

import tarn.torch  # noqa: E402
from fake_fleet import FakeClient  # noqa: E402
from torch import nn  # noqa: E402


class CallsTest(unittest.TestCase):
    def setUp(self):
        self.client = FakeClient()
        bags = nn.ModuleDict({"bag": nn.EmbeddingBag(10, 2, mode="sum"), "mean": nn.EmbeddingBag(10, 2), "one": nn.Embedding(10, 2)})
        self.model = tarn.torch.remote(bags, self.client)

    def test_wrong_ids(self):
        ids, bag = torch.tensor([[1, 2]]), self.model["bag"]
        for call, error, said in [
            (lambda: bag(torch.tensor([[1, 10]])), IndexError, "module 'bag': an id is 10, expected 0 to 9"),
            (lambda: bag(torch.tensor([[1, -1]])), IndexError, "an id is -1, expected 0 to 9"),
            (lambda: bag(ids.float()), TypeError, "the ids are torch.float32, expected a tensor of torch.int64"),
            (lambda: bag([[1]]), TypeError, "the ids are list"),
            (lambda: bag(ids.to("meta")), ValueError, "on the meta device"),
            (lambda: bag(ids[0]), ValueError, r"the ids are \[2\] without offsets, expected \[n\] with offsets"),
            (lambda: bag(ids, torch.tensor([0])), ValueError, r"the ids are \[1, 2\] with offsets"),
            (lambda: bag(ids[0], torch.tensor([0.0])), TypeError, "the offsets are torch.float32"),
            (lambda: bag(ids, per_sample_weights=torch.ones(2)), ValueError, r"float32 \[2\] .*, expected torch.float32 \[1, 2\]"),
            (lambda: bag(ids, per_sample_weights=torch.ones(1, 2).double()), ValueError, "torch.float64"),
            (lambda: self.model["mean"](ids, per_sample_weights=torch.ones(1, 2)), ValueError, "with mode 'mean', expected"),
            (lambda: self.model["one"](torch.tensor(10)), IndexError, "module 'one': an id is 10"),
        ]:
            with self.subTest(said=said), self.assertRaisesRegex(error, said):
                call()

    def test_tensors_on_two_devices(self):
        ids = torch.tensor([1, 2])
        for arguments, said in [
            ((ids, torch.tensor([0], device="meta")), "module 'bag': offsets are on meta and the ids on cpu, expected one device"),
            ((ids, torch.tensor([0]), torch.ones(2, device="meta")), "per_sample_weights are on meta and the ids on cpu"),
        ]:
            with self.assertRaisesRegex(ValueError, said):
                self.model["bag"](*arguments)

    def test_a_call_that_differs_from_the_first(self):
        """What the model gets is not always for the same module: the wrong guess of the second call does no harm."""

        class Towers(nn.Module):
            def __init__(self):
                super().__init__()
                self.users, self.items = nn.Embedding(10, 2), nn.Embedding(1000, 2)

            def forward(self, ids, kind):
                return self.users(ids) if kind == "user" else self.items(ids)

        towers = tarn.torch.remote(Towers(), FakeClient())
        for ids, kind in ((3, "user"), (500, "item"), (4, "user")):
            towers(torch.tensor([ids]), kind)
        with self.assertRaisesRegex(IndexError, "module 'users': an id is 500, expected 0 to 9"):
            towers(torch.tensor([500]), "user")

    def test_views_of_one_buffer(self):
        """The part that the first call has shown lies outside the memory of a smaller batch."""

        class Pair(nn.Module):
            def __init__(self):
                super().__init__()
                self.items = nn.Embedding(100, 2)

            def forward(self, users, items):
                return self.items(items.view(-1, 1))

        pair, buffer = tarn.torch.remote(Pair(), FakeClient()), torch.arange(16)
        for size in (8, 3, 8):
            self.assertEqual(pair(buffer[:size], buffer[-size:]).shape, (size, 1, 2))

    def test_a_module_has_no_weight(self):
        self.assertFalse(hasattr(self.model["one"], "weight"))
        with self.assertRaisesRegex(AttributeError, "module 'one' has no weight: its rows are in a table. Expected"):
            self.model["one"].weight
        with self.assertRaisesRegex(AttributeError, "object has no attribute 'other'"):
            self.model["one"].other

    def test_a_copy_has_the_same_table(self):
        copied = copy.deepcopy(self.model)
        self.assertIsNot(copied["one"], self.model["one"])
        self.assertIs(copied["one"].table, self.model["one"].table)
        called = []
        copied["one"].register_forward_hook(lambda *_: called.append(1))
        copied.eval()
        self.assertTrue(self.model["one"].training)
        self.assertTrue(torch.equal(copied["one"](torch.tensor([1, 2])), self.model["one"](torch.tensor([1, 2]))))
        self.assertEqual(len(called), 1)

    def test_a_model_is_not_pickled(self):
        with self.assertRaisesRegex(TypeError, r"this model cannot be pickled: .* torch.save\(model.state_dict\(\)\)"):
            pickle.dumps(self.model)
        with self.assertRaisesRegex(TypeError, "this model cannot be pickled"):
            pickle.dumps(self.model["bag"])

    def test_a_fork(self):
        child = os.fork()
        if child == 0:
            said = ""
            try:
                self.model["one"](torch.tensor(1))
            except RuntimeError as error:
                said = str(error)
            os._exit(0 if "workers of a DataLoader may read" in said else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_evaluation_keeps_nothing(self):
        with torch.no_grad():
            out = self.model["one"](torch.tensor([1, 2]))
        self.assertFalse(out.requires_grad)
        for _ in range(3):  # grad mode, but no backward
            self.model["one"](torch.tensor([1, 2]))
        self.assertEqual(tarn.torch.rows(self.model), [])


if __name__ == "__main__":
    unittest.main()
