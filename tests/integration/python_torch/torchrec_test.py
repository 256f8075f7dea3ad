"""tarn.torch with TorchRec: the collections over a fake client, and the losses of local TorchRec over real fleets."""

import ast
import difflib
import functools
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/integration/python_client")]

try:
    warnings.simplefilter("ignore")
    import torch
    import torchrec
except ImportError as error:
    print(f"torchrec_test.py: skipped: {error}", file=sys.stderr)
    sys.exit(77)

import numpy as np  # noqa: E402
import tarn  # noqa: E402
import tarn.torch  # noqa: E402
from small_fleet import BIN, Fleet  # noqa: E402
from fake_fleet import FakeClient  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.optim import _apply_optimizer_in_backward as apply_optimizer_in_backward  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torchrec import (  # noqa: E402
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    EmbeddingCollection,
    EmbeddingConfig,
    JaggedTensor,
    KeyedJaggedTensor,
    PoolingType,
)
from torchrec.models.dlrm import DLRM  # noqa: E402
from torchrec.optim import GradientClipping, GradientClippingOptimizer, KeyedOptimizerWrapper, RowWiseAdagrad  # noqa: E402

SGD = {"kind": "sgd", "learning_rate": 0.5}
ROWS, DIM, BATCH, STEPS, NUMBERS = 300, 8, 16, 100, 4
FEATURES = ["a", "b", "c"]


def bag_configs(rows=ROWS, init_fn=None, shared=True):
    """Two tables; the first has two features. shared: one of them is also a feature of the second, which DLRM rejects."""
    return [EmbeddingBagConfig(name="one", embedding_dim=DIM, num_embeddings=rows, feature_names=["a", "b"], init_fn=init_fn),
            EmbeddingBagConfig(name="two", embedding_dim=DIM, num_embeddings=rows, init_fn=init_fn,
                               feature_names=["b", "c"] if shared else ["c"], pooling=PoolingType.MEAN)]


def fake_values(modules):
    """Gives local modules the rows of a FakeTable."""
    for module in modules.values():
        module.weight.data = torch.stack([torch.full((DIM,), key % 7.0) for key in range(ROWS)])


def features(seed, batch=BATCH, rows=ROWS, weighted=False):
    random = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, 4, (len(FEATURES) * batch,), generator=random)
    ids = (torch.rand(int(lengths.sum()), generator=random) ** 2 * rows).long()
    weights = torch.rand(len(ids), generator=random) if weighted else None
    return KeyedJaggedTensor(FEATURES, ids, weights=weights, lengths=lengths)


def data(steps=STEPS):
    """Batches of numbers, features and labels."""
    for step in range(steps):
        random = torch.Generator().manual_seed(1000 + step)
        jagged = features(step)
        labels = torch.stack([jagged["a"].lengths(), jagged["c"].lengths()]).sum(0) % 2
        yield torch.randn(BATCH, NUMBERS, generator=random), jagged, labels.float()


class CollectionsTest(unittest.TestCase):
    def setUp(self):
        self.client = FakeClient()

    def test_bags_equal_those_of_torchrec(self):
        """Features of two tables, tables of two features, empty bags; values, names and gradients."""
        local = EmbeddingBagCollection(bag_configs())
        fake_values(local.embedding_bags)
        model = tarn.torch.remote(EmbeddingBagCollection(bag_configs(), device=torch.device("meta")), self.client, optimizer=SGD)
        optimizer = tarn.torch.attach(model)
        found, expected = model(features(3)), local(features(3))
        self.assertEqual(found.keys(), ["a", "b@one", "b@two", "c"])
        self.assertEqual(found.keys(), expected.keys())
        self.assertTrue(torch.equal(found.values(), expected.values()))
        slope = torch.rand(expected.values().shape)
        (found.values() * slope).sum().backward()
        (expected.values() * slope).sum().backward()
        optimizer.step()
        [pushed] = self.client.pushes
        self.assertEqual(sorted(pushed), ["embedding_bags.one", "embedding_bags.two"])
        for name, rows in pushed.items():
            gradient = local.get_parameter(f"{name}.weight").grad
            self.assertEqual(sorted(rows), gradient.abs().sum(1).nonzero().flatten().tolist())
            for key, row in rows.items():
                torch.testing.assert_close(torch.from_numpy(row), gradient[key])

    def test_weighted_bags(self):
        configs = [EmbeddingBagConfig(name="one", embedding_dim=DIM, num_embeddings=ROWS, feature_names=FEATURES)]
        local = EmbeddingBagCollection(configs, is_weighted=True)
        fake_values(local.embedding_bags)
        model = tarn.torch.remote(EmbeddingBagCollection(configs, is_weighted=True), self.client)
        jagged = features(3, weighted=True)
        self.assertTrue(torch.equal(model(jagged).values(), local(jagged).values()))

    def test_collections_without_pooling(self):
        configs = [EmbeddingConfig(name="one", embedding_dim=DIM, num_embeddings=ROWS, feature_names=["a", "b"]),
                   EmbeddingConfig(name="two", embedding_dim=DIM, num_embeddings=ROWS, feature_names=["b"])]
        local = EmbeddingCollection(configs, need_indices=True)
        fake_values(local.embeddings)
        model = tarn.torch.remote(EmbeddingCollection(configs, device=torch.device("meta"), need_indices=True), self.client)
        found, expected = model(features(3)), local(features(3))
        self.assertEqual(list(found), ["a", "b@one", "b@two"])
        for name, each in expected.items():
            for part in ("values", "lengths", "weights"):
                self.assertTrue(torch.equal(getattr(found[name], part)(), getattr(each, part)()))

    def test_tables_larger_than_memory(self):
        with torch.device("meta"):
            model = DLRM(EmbeddingBagCollection(bag_configs(10**10, shared=False), device=torch.device("meta")), NUMBERS, [DIM], [4, 1])
        tarn.torch.remote(model, self.client)
        self.assertEqual(list(self.client.tables), [f"sparse_arch.embedding_bag_collection.embedding_bags.{name}" for name in ("one", "two")])
        low = self.client.tables["sparse_arch.embedding_bag_collection.embedding_bags.one"].described["initializer"]
        self.assertEqual(low, {"kind": "uniform", "low": -1e-5, "high": 1e-5})

    def test_pulls_ahead_one_request_a_batch(self):
        """Jagged values have another length in each batch and feature; they are found by their key."""
        ebc = EmbeddingBagCollection(bag_configs(shared=False), device=torch.device("meta"))
        model = tarn.torch.remote(DLRM(ebc, NUMBERS, [DIM], [4, 1]), self.client, optimizer=SGD)
        optimizer = tarn.torch.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
        for numbers, jagged, _ in tarn.torch.prefetch(list(data(6)), model, depth=2):
            optimizer.zero_grad()
            (model(numbers, jagged).mean() * 1e-6).backward()
            optimizer.step()
        # Three calls of modules: two features of the first table, one of the second.
        self.assertEqual([(clock, len(names)) for clock, names in self.client.pulls[3:]], [(clock, 3) for clock in range(1, 6)])

    def test_a_jagged_tensor(self):
        class Lookup(nn.Module):
            def __init__(self):
                super().__init__()
                self.items = nn.Embedding(ROWS, DIM, device="meta")

            def forward(self, jagged):
                return self.items(jagged.values()).sum()

        model = tarn.torch.remote(Lookup(), self.client, optimizer=SGD)
        optimizer = tarn.torch.attach(model)
        batches = [JaggedTensor(torch.arange(size), lengths=torch.tensor([size - 1, 1])) for size in (3, 4, 2)]
        for jagged in tarn.torch.prefetch(batches, model):
            model(jagged).backward()
            optimizer.step()
        self.assertEqual([clock for clock, _ in self.client.pulls], [0, 1, 2])

    def test_optimizers_of_apply_optimizer_in_backward(self):
        for kind, arguments, expected in [
            (torch.optim.SGD, {"lr": 0.02}, {"kind": "sgd", "learning_rate": 0.02, "l2": 0.0}),
            (torch.optim.SGD, {"lr": 0.02, "momentum": 0.9}, {"kind": "momentum", "momentum": 0.9, "learning_rate": 0.02, "l2": 0.0}),
            (torch.optim.SGD, {"lr": 0.02, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
             {"kind": "nesterov", "momentum": 0.9, "learning_rate": 0.02, "l2": 0.1}),
            (torch.optim.Adagrad, {"lr": 0.1},
             {"kind": "adagrad", "learning_rate": 0.1, "l2": 0.0, "initial_accumulator": 0.0, "epsilon": 1e-10}),
            (RowWiseAdagrad, {"lr": 0.1, "eps": 1e-6},
             {"kind": "row_wise_adagrad", "learning_rate": 0.1, "l2": 0.0, "initial_accumulator": 0.0, "epsilon": 1e-6}),
            (torch.optim.Adam, {"lr": torch.tensor(0.25), "betas": (0.8, 0.99)},
             {"kind": "adam", "learning_rate": 0.25, "l2": 0.0, "epsilon": 1e-8, "beta1": 0.8, "beta2": 0.99}),
            (torch.optim.AdamW, {}, {"kind": "adamw", "learning_rate": 1e-3, "weight_decay": 1e-2, "epsilon": 1e-8, "beta1": 0.9, "beta2": 0.999}),
            (torch.optim.RMSprop, {"alpha": 0.8}, {"kind": "rmsprop", "learning_rate": 1e-2, "l2": 0.0, "epsilon": 1e-8, "rho": 0.8}),
            (torchrec.optim.Adam, {"learning_rate": 0.5, "eps": 1e-6}, {"kind": "adam", "learning_rate": 0.5, "epsilon": 1e-6}),
        ]:
            with self.subTest(kind=kind, **arguments):
                ebc = EmbeddingBagCollection(bag_configs(), device=torch.device("meta"))
                apply_optimizer_in_backward(kind, [ebc.embedding_bags["one"].weight], arguments)
                client = FakeClient()
                tarn.torch.remote(ebc, client, optimizer="adam")
                self.assertEqual(client.tables["embedding_bags.one"].described["optimizer"], expected)
                self.assertEqual(client.tables["embedding_bags.two"].described["optimizer"], "adam")
        bag = nn.EmbeddingBag(9, 2, device="meta")
        apply_optimizer_in_backward(torch.optim.SGD, bag.parameters(), {"lr": 1.0})
        tarn.torch.remote(bag, self.client, tables={"": {"optimizer": "ftrl"}})
        self.assertEqual(self.client.tables["embedding"].described["optimizer"], "ftrl")

    def test_initializers(self):
        init = nn.init
        for function, expected in [
            (None, {"kind": "uniform", "low": -0.5, "high": 0.5}),
            (functools.partial(init.uniform_, a=-0.25, b=1), {"kind": "uniform", "low": -0.25, "high": 1.0}),
            (init.uniform_, {"kind": "uniform", "low": 0.0, "high": 1.0}),
            (functools.partial(init.normal_, std=0.5), {"kind": "normal", "mean": 0.0, "stddev": 0.5}),
            (init.normal_, {"kind": "normal", "mean": 0.0, "stddev": 1.0}),
            (functools.partial(init.constant_, val=3), {"kind": "constant", "value": 3.0}),
            (init.zeros_, "zero"),
            (init.ones_, {"kind": "constant", "value": 1.0}),
        ]:
            with self.subTest(function=function):
                ebc, client = EmbeddingBagCollection(bag_configs(4, function), device=torch.device("meta")), FakeClient()
                tarn.torch.remote(ebc, client)
                self.assertEqual(client.tables["embedding_bags.one"].described["initializer"], expected)

    def test_refusals(self):
        def collection(*optimizers, **options):
            ebc = EmbeddingBagCollection(bag_configs(**options), device=torch.device("meta"))
            for kind, arguments in optimizers:
                apply_optimizer_in_backward(kind, ebc.parameters(), arguments)
            return ebc

        sgd = (torch.optim.SGD, {"lr": 1.0})
        for ebc, said in [
            (collection(sgd, sgd), r"module 'embedding_bags.one': .* gave its weight the optimizers \['SGD', 'SGD'\], expected one"),
            (collection((torch.optim.Adam, {"amsgrad": True})), "amsgrad = True of the optimizer Adam is not supported, expected False"),
            (collection((torch.optim.Adadelta, {})), "no update rule of a table equals the optimizer torch.optim.adadelta.Adadelta"),
            (collection((torchrec.optim.Adam, {})), "the optimizer Adam has no learning rate, expected lr="),
            (collection(init_fn=lambda weight: weight), "table 'one' of '': init_fn = .* cannot run on the servers"),
        ]:
            with self.subTest(said=said), self.assertRaisesRegex(ValueError, said):
                tarn.torch.remote(ebc, self.client)
        self.assertEqual(self.client.tables, {})
        tarn.torch.remote(collection(init_fn=lambda weight: weight), self.client, initializer="zero")

    def test_wrapped_optimizers(self):
        """The hooks of a TorchRec wrapper do not run: those of the optimizer inside are used."""
        ebc = EmbeddingBagCollection(bag_configs(shared=False), device=torch.device("meta"))
        model = tarn.torch.remote(DLRM(ebc, NUMBERS, [DIM], [4, 1]), self.client, optimizer=SGD)
        keyed = KeyedOptimizerWrapper(dict(model.named_parameters()), lambda params: torch.optim.SGD(params, lr=0.1))
        clipping = GradientClippingOptimizer(keyed, clipping=GradientClipping.VALUE, max_gradient=1.0)
        self.assertIs(tarn.torch.attach(model, torchrec.optim.CombinedOptimizer([clipping])).optimizers[0][1], clipping)
        for numbers, jagged, _ in data(2):
            clipping.zero_grad()
            (model(numbers, jagged).mean() * 1e-6).backward()
            clipping.step()
        self.assertEqual((self.client.clock, len(self.client.pushes)), (2, 2))


class SameLossTest(unittest.TestCase):
    """100 steps of a DLRM, tables in a fleet against local TorchRec: one worker, bsp."""

    def compare(self, kind, arguments, depth):
        torch.manual_seed(1)
        ebc = EmbeddingBagCollection(bag_configs(shared=False), device=torch.device("meta"))
        own = EmbeddingBagCollection(bag_configs(shared=False))
        for each in (ebc, own):
            apply_optimizer_in_backward(kind, each.parameters(), arguments)
        with Fleet() as fleet, tarn.connect(fleet.address) as ps:
            model = tarn.torch.remote(DLRM(ebc, NUMBERS, [16, DIM], [16, 1]), ps)
            local = DLRM(own, NUMBERS, [16, DIM], [16, 1])
            local.load_state_dict(model.state_dict(), strict=False)
            for name, bag in ebc.embedding_bags.items():
                own.embedding_bags[name].weight.data.copy_(torch.from_numpy(bag.table.pull(np.arange(ROWS)).wait().copy()))
            losses = []
            for each in (model, local):
                dense = [parameter for name, parameter in each.named_parameters() if "embedding_bags" not in name]
                optimizer = torch.optim.SGD(dense, lr=0.1)
                losses.append([])
                batches = list(data())
                if each is model:
                    tarn.torch.attach(model, optimizer)
                    batches = tarn.torch.prefetch(batches, model, depth=depth)
                for numbers, jagged, labels in batches:
                    optimizer.zero_grad()
                    loss = F.binary_cross_entropy_with_logits(each(numbers, jagged).squeeze(1), labels)
                    loss.backward()
                    optimizer.step()
                    losses[-1].append(loss.item())
        difference = max(abs(a - b) / abs(b) for a, b in zip(*losses))
        print(f"{kind.__name__}, depth {depth}: largest relative difference of {len(losses[0])} losses: {difference:.1e}")
        self.assertEqual(len(losses[0]), STEPS)
        self.assertLess(np.mean(losses[0][-20:]), np.mean(losses[0][:20]))
        return losses

    def test_sgd_to_the_bit(self):
        for depth in (0, 2):
            found, expected = self.compare(torch.optim.SGD, {"lr": 0.5}, depth)
            self.assertEqual(found, expected)

    def test_adagrad(self):
        found, expected = self.compare(torch.optim.Adagrad, {"lr": 0.1}, 2)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


class SizeTest(unittest.TestCase):
    def test_eight_tables_of_ten_billion_rows_train(self):
        """Nominally 20 TB. A row takes memory once it is pushed."""
        names = [f"f{i}" for i in range(8)]
        ebc = EmbeddingBagCollection([EmbeddingBagConfig(name=f"t_{name}", embedding_dim=64, num_embeddings=10**10,
                                                         feature_names=[name]) for name in names], device=torch.device("meta"))
        random = torch.Generator().manual_seed(1)
        ids = torch.randint(0, 10**10, (8 * BATCH * 2,), generator=random)
        jagged = KeyedJaggedTensor(names, ids, lengths=torch.full((8 * BATCH,), 2))
        numbers, labels = torch.randn(BATCH, NUMBERS, generator=random), (torch.arange(BATCH) % 2).float()
        with Fleet() as fleet, tarn.connect(fleet.address) as ps:
            torch.manual_seed(1)
            model = tarn.torch.remote(DLRM(ebc, NUMBERS, [64], [16, 1]), ps, optimizer={"kind": "adagrad", "learning_rate": 0.1})
            optimizer = tarn.torch.attach(model, torch.optim.Adam(model.parameters(), lr=0.01))
            losses = []
            for _ in range(30):
                optimizer.zero_grad()
                loss = F.binary_cross_entropy_with_logits(model(numbers, jagged).squeeze(1), labels)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        self.assertLess(losses[-1], losses[0] / 2)


class ExampleTest(unittest.TestCase):
    def code(self, name):
        """The lines of the example after its docstring."""
        text = (ROOT / "examples/torch" / name).read_text()
        return text.splitlines()[ast.parse(text).body[0].end_lineno:]

    def test_the_example_changes_five_lines(self):
        changes = [line for line in difflib.ndiff(self.code("torchrec_local.py"), self.code("torchrec_dlrm.py"))
                   if line.startswith("+ ") and line.strip() != "+"]
        self.assertEqual(len(changes), 5, "\n".join(changes))

    def test_the_example_runs(self):
        with tempfile.TemporaryDirectory(prefix="tarn-test-") as folder:
            done = subprocess.run(
                [sys.executable, ROOT / "tools/launch", ROOT / "examples/torch/torchrec_dlrm.toml", "--bin-dir", BIN, "--run-dir",
                 f"{folder}/run", "--", sys.executable, ROOT / "examples/torch/torchrec_dlrm.py", "--steps", "100"],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, env={**os.environ, "PYTHONWARNINGS": "ignore"})
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, "loss 0.[67][0-9]+ at the beginning, 0.[56][0-9]+ at the end")


if __name__ == "__main__":
    unittest.main()
