"""tarn.torch over a fake client: what is swapped, and the values and gradients of the modules."""

import os
import pathlib
import subprocess
import sys
import unittest
import unittest.mock
import weakref

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "python"))

try:
    import torch
except ImportError:
    print("modules_test.py: skipped: torch is not installed", file=sys.stderr)
    sys.exit(77)

import tarn  # noqa: E402
import tarn.torch  # noqa: E402
from fake_fleet import FakeClient  # noqa: E402
from small_model import SGD, Bags  # noqa: E402
from tarn.torch import session  # noqa: E402
from torch import nn  # noqa: E402



def hooked():
    module = nn.Embedding(5, 2)
    module.register_forward_hook(lambda *_: None)
    return module


def hooked_after_accumulation():
    module = nn.Embedding(5, 2)
    module.weight.register_post_accumulate_grad_hook(lambda weight: None)
    return module


def padded_differently():
    model = nn.ModuleList([nn.Embedding(5, 2, padding_idx=0), nn.Embedding(5, 2)])
    model[1].weight = model[0].weight
    return model


class RemoteTest(unittest.TestCase):
    def setUp(self):
        self.client = FakeClient()

    def remote(self, module, **options):
        return tarn.torch.remote(module, self.client, **options)

    def test_tables_larger_than_memory(self):
        model = self.remote(Bags(10**12))
        self.assertEqual(list(self.client.tables), ["bags.0", "bags.1", "bags.2"])
        self.assertEqual([name for name, _ in model.named_parameters()], ["top.weight", "top.bias"])
        self.assertEqual(list(model.state_dict()), ["top.weight", "top.bias"])
        self.assertIn("RemoteEmbeddingBag(1000000000000, 4, table='bags.0', mode='sum')", repr(model))
        self.assertEqual(model(torch.tensor([[[10**12 - 1], [0], [5]]])).shape, (1, 1))

    def test_values_are_those_of_torch(self):
        """Every kind of input, against torch on a weight with the same values; gradients too."""
        weight = torch.tensor([[key % 7.0] * 4 for key in range(50)])
        ids, flat = torch.tensor([[3, 3, 49], [7, 0, 3]]), torch.tensor([1, 2, 2, 9, 1, 8])
        offsets, weights = torch.tensor([0, 2, 2]), torch.rand(2, 3)
        cases = [
            (nn.EmbeddingBag, {"mode": "sum"}, (ids,), {}),
            (nn.EmbeddingBag, {"mode": "mean"}, (ids.int(),), {}),
            (nn.EmbeddingBag, {"mode": "max"}, (ids,), {}),
            (nn.EmbeddingBag, {"mode": "sum"}, (ids,), {"per_sample_weights": weights}),
            (nn.EmbeddingBag, {"mode": "mean", "padding_idx": 3}, (ids,), {}),
            (nn.EmbeddingBag, {"mode": "sum"}, (flat, offsets), {}),
            (nn.EmbeddingBag, {"mode": "sum"}, (flat, offsets.int()), {}),
            (nn.EmbeddingBag, {"mode": "mean", "include_last_offset": True}, (flat, torch.tensor([0, 2, 6])), {}),
            (nn.EmbeddingBag, {"mode": "sum", "scale_grad_by_freq": True}, (flat, offsets), {}),
            (nn.EmbeddingBag, {"mode": "sum"}, (flat[:0], torch.tensor([0, 0])), {}),
            (nn.Embedding, {}, (ids,), {}),
            (nn.Embedding, {"padding_idx": 3}, (ids,), {}),
            (nn.Embedding, {"padding_idx": 3}, (torch.tensor(3),), {}),
            (nn.Embedding, {"scale_grad_by_freq": True}, (ids,), {}),
            (nn.Embedding, {}, (ids[:, :0],), {}),
        ]
        for i, (kind, options, arguments, named) in enumerate(cases):
            with self.subTest(kind=kind.__name__, **options, case=i):
                local = kind(50, 4, **options)
                local.weight.data = weight.clone()
                if options.get("padding_idx") is not None:
                    local.weight.data[3] = 0
                model = self.remote(nn.ModuleDict({f"m{i}": kind(50, 4, **options)}), optimizer=SGD)
                optimizer = tarn.torch.attach(model)
                found, expected = model[f"m{i}"](*arguments, **named), local(*arguments, **named)
                self.assertTrue(torch.equal(found, expected))
                slope = torch.rand(expected.shape)
                (found * slope).sum().backward()
                (expected * slope).sum().backward()
                optimizer.step()
                pushed = self.client.pushes[-1].get(f"m{i}", {})
                for key in range(50):
                    gradient = torch.from_numpy(pushed[key]) if key in pushed else torch.zeros(4)
                    torch.testing.assert_close(gradient, local.weight.grad[key])
                self.assertNotIn(options.get("padding_idx"), pushed)
                self.client.torch_session.attached = None  # for the next case

    def test_a_module_itself(self):
        bag = self.remote(nn.Embedding(10, 2))
        self.assertIsInstance(bag, tarn.torch.RemoteEmbedding)
        self.assertEqual(list(self.client.tables), ["embedding"])
        self.assertEqual(bag(torch.tensor([4, 8])).tolist(), [[4, 4], [1, 1]])

    def test_shared_modules_and_weights_share_a_table(self):
        shared = nn.Embedding(10, 2)
        tied = nn.Embedding(10, 2)
        tied.weight = shared.weight
        model = self.remote(nn.ModuleDict({"a": shared, "b": shared, "c": tied}), optimizer=SGD)
        self.assertEqual(list(self.client.tables), ["a"])
        self.assertIs(model["a"], model["b"])
        optimizer = tarn.torch.attach(model)
        sum(model[name](torch.tensor([3, 4])).sum() for name in "abc").backward()
        optimizer.step()
        self.assertEqual(len(self.client.pushes), 1)
        self.assertEqual({key: list(value) for key, value in self.client.pushes[0]["a"].items()}, {3: [3, 3], 4: [3, 3]})

    def test_settings_of_a_shared_weight_belong_to_its_first_module(self):
        model = nn.ModuleDict({"in": nn.Embedding(10, 2), "out": nn.Embedding(10, 2)})
        model["out"].weight = model["in"].weight
        with self.assertRaisesRegex(ValueError, r"tables\['out'\]: this module shares its weight, .* as tables\['in'\]"):
            tarn.torch.remote(model, FakeClient(), tables={"out": {"optimizer": SGD}})

    def test_a_module_is_frozen(self):
        model = self.remote(nn.ModuleDict({"a": nn.Embedding(10, 2), "b": nn.Embedding(10, 2)}), optimizer=SGD)
        optimizer = tarn.torch.attach(model)
        model["a"].requires_grad_(False)
        for name in "ba":
            self.assertEqual(model[name](torch.tensor([3])).requires_grad, name == "b")
        sum(model[name](torch.tensor([3])).sum() for name in "ab").backward()
        optimizer.step()
        self.assertEqual(list(self.client.pushes[0]), ["b"])
        model["a"].requires_grad_()
        self.assertTrue(model["a"](torch.tensor([3])).requires_grad)

    def test_tables_that_would_be_shared_by_mistake(self):
        client = FakeClient()
        tarn.torch.remote(nn.Embedding(10, 2), client)
        for each in (nn.Embedding(10, 2), nn.Embedding(20, 2)):
            with self.assertRaisesRegex(ValueError, "would share the table 'embedding' with .* expected a name of its own"):
                tarn.torch.remote(each, client)
        named = tarn.torch.remote(nn.Embedding(20, 2), client, tables={"": {"name": "items"}})
        self.assertEqual(named.table.name, "items")
        tarn.torch.remote(nn.ModuleDict({"a": nn.Embedding(10, 2)}), client)
        with self.assertRaisesRegex(ValueError, "module 'a' with num_embeddings = 20 would share the table 'a' .* which has 10"):
            tarn.torch.remote(nn.ModuleDict({"a": nn.Embedding(20, 2)}), client)

    def test_a_weight_of_which_only_one_module_is_chosen(self):
        model = nn.ModuleDict({"a": nn.Embedding(10, 2), "b": nn.Embedding(10, 2)})
        model["b"].weight = model["a"].weight
        with self.assertRaisesRegex(ValueError, "its weight is also a parameter of 'b', a Embedding"):
            tarn.torch.remote(model, FakeClient(), only=["a"])

    def test_a_wrapped_model(self):
        compiled = torch.compile(nn.Sequential(nn.Embedding(10, 2)), backend="eager")
        with self.assertRaisesRegex(ValueError, "model is a OptimizedModule; call remote.. once, before"):
            tarn.torch.remote(compiled, FakeClient())

    def test_the_only_client_is_found_again(self):
        """By report() and LeasedDataset, while it is open."""
        with unittest.mock.patch.object(session, "_given", weakref.WeakSet()):
            client = FakeClient()
            tarn.torch.remote(nn.Embedding(10, 2), client)
            self.assertIs(session.of(or_given=True).client, client)
            client.closed = True
            for options in ({}, {"or_given": True}):
                with unittest.mock.patch.dict(os.environ, {"TARN_SCHEDULER": ""}), self.assertRaises(tarn.InvalidArgument):
                    session.of(**options)

    def test_two_models_share_tables_of_the_same_name(self):
        one, two = (self.remote(nn.ModuleDict({"rows": nn.Embedding(10, 2)}), optimizer=SGD) for _ in range(2))
        optimizer = tarn.torch.attach(one)
        (one["rows"](torch.tensor([3])).sum() + two["rows"](torch.tensor([3])).sum()).backward()
        optimizer.step()
        self.assertEqual(self.client.tables["rows"].row(3).tolist(), [2, 2])

    def test_settings_of_tables(self):
        self.remote(Bags(), optimizer=SGD, initializer="zero",
                    tables={"bags.1": {"name": "one", "optimizer": "adam", "initializer": {"kind": "constant", "value": 2}}})
        self.assertEqual(self.client.tables["one"].described,
                         {"dim": 4, "initializer": {"kind": "constant", "value": 2}, "optimizer": "adam"})
        self.assertEqual(self.client.tables["bags.0"].described, {"dim": 4, "initializer": "zero", "optimizer": SGD})
        self.remote(nn.Embedding(5, 3))
        self.assertEqual(self.client.tables["embedding"].described,
                         {"dim": 3, "initializer": {"kind": "normal", "stddev": 1.0}, "optimizer": None})

    def test_what_stays_in_torch(self):
        class Own(nn.Embedding):
            pass

        frozen = nn.Embedding.from_pretrained(torch.ones(3, 2))
        model = nn.ModuleDict({"frozen": frozen, "own": Own(3, 2), "swapped": nn.Embedding(3, 2), "left": nn.Embedding(3, 2)})
        self.remote(model, only=["swapped"])
        self.assertEqual(list(self.client.tables), ["swapped"])
        self.assertIs(model["frozen"], frozen)

    def test_refusals(self):
        tied = nn.ModuleDict({"in": nn.Embedding(5, 2), "out": nn.Linear(2, 5)})
        tied["out"].weight = tied["in"].weight
        for module, options, error, said in [
            (nn.Linear(2, 2), {}, ValueError, "Linear has no trainable nn.Embedding .* call remote\\(\\) once"),
            ([], {}, TypeError, "model is a list, expected a torch.nn.Module"),
            (nn.Embedding(5, 2, max_norm=1), {}, ValueError, "max_norm = 1 is not supported"),
            (hooked(), {}, ValueError, "it or its weight has a hook"),
            (hooked_after_accumulation(), {}, ValueError, "it or its weight has a hook"),
            (padded_differently(), {}, ValueError, "padding_idx = 0, and module '1', which shares its weight, has None"),
            (nn.Embedding(5, 2, dtype=torch.bfloat16), {}, ValueError, "weight is torch.bfloat16, expected torch.float32"),
            (tied, {}, ValueError, "module 'in': its weight is also a parameter of 'out', a Linear"),
            (Bags(), {"only": ["bags.7"]}, ValueError, r"no nn.Embedding .* at 'bags.7'; it has \['bags.0', 'bags.1', 'bags.2'\]"),
            (Bags(), {"tables": {"bags.0": {"rate": 1}}}, ValueError, r"tables\['bags.0'\] has \['rate'\], expected"),
        ]:
            with self.subTest(said=said), self.assertRaisesRegex(error, said):
                self.remote(module, **options)
        self.assertEqual(self.client.tables, {})
        self.remote(nn.Embedding(5, 2))
        with self.assertRaisesRegex(tarn.InvalidArgument, "tarn.torch.remote: table 'embedding' exists"):
            self.remote(nn.Embedding(5, 3), tables={"": {"name": "embedding"}})

    def test_without_a_fleet(self):
        with self.assertRaisesRegex(tarn.InvalidArgument, "there is no fleet: .*tools/launch JOB.toml -- python3 PROGRAM.py"):
            tarn.torch.remote(nn.Embedding(5, 2))


class ImportTest(unittest.TestCase):
    def run_python(self, code):
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": str(ROOT / "python")})

    def test_a_program_whose_last_pushes_may_be_lost_has_failed(self):
        # Declared dead; the fleet cannot be reached, with or without pushes that wait; it has ended first.
        for code, pending, status in ((7, 0, 1), (12, 1, 1), (12, 0, 0), (17, 1, 0)):
            done = self.run_python(f"""
import sys
sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
import fake_fleet, tarn, tarn.torch.session as session
class Ending(fake_fleet.FakeClient):
    def leave(self):
        raise tarn.Gone({code}, "no longer in the fleet")
    def close(self):
        pass
session.tarn_client.connect = Ending
session.os.environ["TARN_SCHEDULER"] = "tcp://127.0.0.1:1"
session.of()._sent.extend([(fake_fleet.FakeFuture(), 0)] * {pending})
""")
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertEqual("the last pushes of this program may be lost: no longer" in done.stderr, status == 1, done.stderr)

    def test_tarn_does_not_import_torch(self):
        done = self.run_python("import sys, tarn, tarn.client; assert 'torch' not in sys.modules")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_without_torch(self):
        done = self.run_python("import sys; sys.modules['torch'] = None; import tarn.torch")
        self.assertIn("tarn.torch needs torch 2.4 or newer, which is not installed: pip install torch", done.stderr)


if __name__ == "__main__":
    unittest.main()
