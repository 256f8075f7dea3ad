"""tarn.torch without a fleet, over a fake client: what is swapped, pulled, pushed, and refused."""

import gc
import os
import pathlib
import subprocess
import sys
import unittest
import warnings
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
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

SGD = {"kind": "sgd", "learning_rate": 0.5}


class Bags(nn.Module):
    """Three bags over the columns of [batch, 3, n] and a dense layer."""

    def __init__(self, rows=1000, device="meta"):
        super().__init__()
        self.bags = nn.ModuleList([nn.EmbeddingBag(rows, 4, mode="sum", device=device) for _ in range(3)])
        self.top = nn.Linear(12, 1)

    def forward(self, ids):
        return self.top(torch.cat([bag(ids[:, i]) for i, bag in enumerate(self.bags)], dim=1))


def attached(model, client, **options):
    model = tarn.torch.remote(model, client, optimizer=SGD)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, **options)
    return model, tarn.torch.attach(model, optimizer)


def ids_of(batch=5, rows=1000, seed=0):
    return torch.randint(0, rows, (batch, 3, 2), generator=torch.Generator().manual_seed(seed))


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

    def test_two_models_share_tables_of_the_same_name(self):
        one, two = (self.remote(nn.Embedding(10, 2), optimizer=SGD) for _ in range(2))
        optimizer = tarn.torch.attach(one)
        (one(torch.tensor([3])).sum() + two(torch.tensor([3])).sum()).backward()
        optimizer.step()
        self.assertEqual(self.client.tables["embedding"].row(3).tolist(), [2, 2])

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
            self.remote(nn.Embedding(5, 3))

    def test_without_a_fleet(self):
        with self.assertRaisesRegex(tarn.InvalidArgument, "there is no fleet: .*tools/launch JOB.toml -- python3 PROGRAM.py"):
            tarn.torch.remote(nn.Embedding(5, 2))


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


class AttachTest(unittest.TestCase):
    def setUp(self):
        self.client = FakeClient()

    def test_a_step_pushes_distinct_rows_and_ticks(self):
        model, optimizer = attached(Bags(), self.client)
        ids = torch.tensor([[[1, 1], [2, 3], [4, 5]], [[1, 6], [2, 7], [4, 8]]])
        model(ids).sum().backward()
        [pushed] = [self.client.pushes] if not self.client.pushes else self.fail("pushed before the step")
        self.assertEqual(pushed, [])
        optimizer.step()
        self.assertEqual(self.client.clock, 1)
        [pushed] = self.client.pushes
        self.assertEqual({name: sorted(rows) for name, rows in pushed.items()},
                         {"bags.0": [1, 6], "bags.1": [2, 3, 7], "bags.2": [4, 5, 8]})
        torch.testing.assert_close(torch.from_numpy(pushed["bags.0"][1]),
                                   3 * (model.top.weight.detach() + 0.01 * model.top.weight.grad)[0, :4])
        self.assertEqual(len(optimizer.param_groups[-1]["params"]), 2)

    def test_one_pull_for_all_tables_from_the_second_step(self):
        model, optimizer = attached(Bags(), self.client)
        for step, batch in enumerate([5, 5, 3]):
            model(ids_of(batch, seed=step)).sum().backward()
            optimizer.step()
        self.assertEqual([(clock, len(names)) for clock, names in self.client.pulls], [(0, 1), (0, 1), (0, 1), (1, 3), (2, 3)])

    def test_gradient_accumulation(self):
        model, optimizer = attached(Bags(), self.client)
        whole = ids_of(6)
        for part in whole.split(2):
            model(part).sum().backward()
        optimizer.step()
        model2, optimizer2 = attached(Bags(), other := FakeClient())
        model2.load_state_dict({"top.weight": model.top.weight.detach() + 0.01 * model.top.weight.grad,
                                "top.bias": model.top.bias.detach()})
        model2(whole).sum().backward()
        optimizer2.step()
        [pushed], [expected] = self.client.pushes, other.pushes
        for name in expected:
            self.assertEqual(sorted(pushed[name]), sorted(expected[name]))
            for key in expected[name]:
                torch.testing.assert_close(torch.from_numpy(pushed[name][key]), torch.from_numpy(expected[name][key]))

    def test_zero_grad_drops(self):
        model, optimizer = attached(Bags(), self.client)
        model(ids_of(seed=1)).sum().backward()
        optimizer.zero_grad()
        ids = torch.full((1, 3, 1), 9)
        model(ids).sum().backward()
        optimizer.step()
        self.assertEqual([list(rows) for rows in self.client.pushes[0].values()], [[9]] * 3)

    def test_clipping_counts_the_rows_it_is_given(self):
        model, optimizer = attached(Bags(), self.client)
        model(ids_of()).sum().backward()
        tensors = [*model.parameters(), *tarn.torch.rows(model)]
        self.assertEqual(len(tensors), 5)
        norm = torch.nn.utils.clip_grad_norm_(tensors, 0.5)
        self.assertGreater(norm, 1)
        clipped = torch.cat([each.grad.flatten() for each in tensors]).norm()
        optimizer.step()
        pushed = torch.cat([torch.from_numpy(row) for rows in self.client.pushes[0].values() for row in rows.values()])
        dense = torch.cat([each.grad.flatten() for each in model.parameters()])
        self.assertAlmostEqual(float(torch.cat([pushed, dense]).norm()), float(clipped), places=5)
        self.assertAlmostEqual(float(clipped), 0.5, places=4)

    def scaled_steps(self, fused, clear):
        """Three steps with a GradScaler; the gradients of the second overflow."""
        model, optimizer = attached(Bags(), self.client, fused=fused)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for step in range(3):
            clear(model, optimizer)
            loss = model(torch.full((1, 3, 1), step)).sum() * (float("inf") if step == 1 else 1)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        self.assertEqual([[list(rows) for rows in push.values()] for push in self.client.pushes], [[[0]] * 3, [[2]] * 3])
        self.assertEqual(self.client.clock, 2)
        for push in self.client.pushes:
            for rows in push.values():
                self.assertLess(abs(next(iter(rows.values()))).max(), 1, "unscaled")

    def test_grad_scaler(self):
        self.scaled_steps(False, lambda model, optimizer: optimizer.zero_grad())

    def test_grad_scaler_with_model_zero_grad(self):
        self.scaled_steps(False, lambda model, optimizer: model.zero_grad())

    def test_grad_scaler_with_a_fused_optimizer(self):
        self.scaled_steps(True, lambda model, optimizer: optimizer.zero_grad())

    def test_grad_scaler_sees_an_overflow_of_rows_alone(self):
        model, optimizer = attached(Bags(), self.client)
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(model(ids_of()).sum()).backward()
        tarn.torch.rows(model)[0].grad[0, 0] = float("inf")
        before = model.top.weight.detach().clone()
        scaler.step(optimizer)
        self.assertTrue(torch.equal(model.top.weight, before))
        self.assertEqual(self.client.pushes, [])

    def test_the_state_of_the_optimizer_has_no_rows(self):
        model, optimizer = attached(Bags(), self.client, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        model(ids_of()).sum().backward()
        state = optimizer.state_dict()
        self.assertEqual(state["param_groups"][0]["params"], [0, 1])
        optimizer.load_state_dict(state)
        optimizer.step()
        scheduler.step()
        self.assertEqual(len(self.client.pushes), 1)
        self.assertEqual(len(optimizer.state), 2)

    def test_a_closure(self):
        model, optimizer = attached(Bags(), self.client)

        def closure():
            optimizer.zero_grad()
            loss = model(ids_of()).sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        self.assertEqual(len(self.client.pushes), 1)

    def test_a_model_of_tables_alone(self):
        model = tarn.torch.remote(nn.Embedding(10, 2), self.client, optimizer=SGD)
        optimizer = tarn.torch.attach(model)
        self.assertIsInstance(optimizer, torch.optim.Optimizer)
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.tensor([3])).sum().backward()
            optimizer.step()
        self.assertEqual(self.client.clock, 2)
        self.assertEqual(self.client.tables["embedding"].row(3).tolist(), [2, 2])

    def test_a_compiled_dense_part(self):
        model, optimizer = attached(Bags(), self.client)
        compiled = torch.compile(model, backend="eager")
        for step in range(3):
            ids = ids_of(seed=step)
            with torch.no_grad():
                plain = model(ids)
            self.assertTrue(torch.equal(compiled(ids), plain))
            compiled(ids).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        self.assertEqual(len(self.client.pushes), 3)

    def test_a_forgotten_attach_is_warned_about_at_the_second_step(self):
        model = tarn.torch.remote(Bags(), self.client, optimizer=SGD)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for step in range(3):
                model(ids_of(seed=step)).sum().backward()
                self.assertEqual(len(caught), min(step, 1))
        self.assertIn("Expected tarn.torch.attach(model, optimizer)", str(caught[0].message))
        self.assertEqual(len(tarn.torch.rows(model)), 3, "of the last step alone")

    def test_refusals(self):
        model = tarn.torch.remote(bags := Bags(10, "cpu"), self.client)
        plain = Bags(10, "cpu")
        weights = list(plain.parameters())
        other = tarn.torch.remote(plain, self.client, tables={f"bags.{i}": {"name": f"other.{i}"} for i in range(3)})
        for arguments, error, said in [
            ((nn.Linear(1, 1), torch.optim.SGD(bags.top.parameters())), ValueError, "expected tarn.torch.remote\\(model\\) before"),
            ((other, torch.optim.SGD(weights)), ValueError, r"the old weight \[10, 4\] of module 'bags.0'"),
            ((model, torch.optim.LBFGS(model.parameters())), TypeError, "LBFGS calls its closure repeatedly"),
        ]:
            with self.subTest(said=said), self.assertRaisesRegex(error, said):
                tarn.torch.attach(*arguments)
        tarn.torch.attach(model, torch.optim.SGD(model.parameters()))
        with self.assertRaisesRegex(ValueError, "attached to a SGD already; expected one optimizer"):
            tarn.torch.attach(model, torch.optim.Adam(model.parameters()))

    def test_rows_are_freed(self):
        """Neither hooks nor futures keep rows beyond the step, nor those of a forward pass without backward."""
        model, optimizer = attached(Bags(), self.client)
        gc.disable()
        self.addCleanup(gc.enable)
        alive = lambda: sum(type(each) is torch.Tensor and each.requires_grad for each in gc.get_objects())  # noqa: E731
        before, kept = alive(), []
        for step in range(3):
            out = model(ids_of(seed=step)).sum()
            if step != 1:
                out.backward()
                kept += [weakref.ref(each) for each in tarn.torch.rows(model)]
                optimizer.step()
        del out
        self.assertEqual([each() for each in kept], [None] * 6)
        self.assertEqual(alive(), before)


class PrefetchTest(unittest.TestCase):
    def setUp(self):
        self.client = FakeClient()
        self.model, self.optimizer = attached(Bags(), self.client)

    def train(self, loader, ids=lambda batch: batch, accumulate=1):
        for i, batch in enumerate(loader):
            self.model(ids(batch)).sum().backward()
            if (i + 1) % accumulate == 0:
                self.optimizer.step()
                self.optimizer.zero_grad()

    def clocks(self):
        """(clock of the request, clock for which it asks, tables) of every pull after the first step."""
        return [(clock, len(names)) for clock, names in self.client.pulls[3:]]

    def test_views_of_a_batch(self):
        batches = [ids_of(size, seed=size) for size in (5, 5, 5, 5, 2)]
        self.train(tarn.torch.prefetch(batches, self.model, depth=2))
        self.assertEqual(self.clocks(), [(clock, 3) for clock in (1, 2, 3, 4)])

    def test_it_pulls_ahead(self):
        seen = []
        loader = tarn.torch.prefetch([ids_of(seed=i) for i in range(6)], self.model, depth=2)
        self.assertEqual(len(loader), 6)
        for batch in loader:
            seen.append((self.client.clock, max(clock for clock, _ in self.client.pulls) if self.client.pulls else None))
            self.train([batch])
        self.assertEqual(seen, [(0, None), (1, 3), (2, 4), (3, 5), (4, 5), (5, 5)])

    def test_a_dict_and_a_copy(self):
        batches = [{"label": torch.zeros(5), "ids": ids_of(seed=i).int()} for i in range(4)]
        bag = tarn.torch.remote(nn.EmbeddingBag(1000, 2, mode="sum"), client := FakeClient())
        optimizer = tarn.torch.attach(bag)
        for batch in tarn.torch.prefetch([{"ids": each["ids"][:, 0]} for each in batches], bag, depth=2):
            bag(batch["ids"].long()).sum().backward()
            self.assertEqual(max(clock for clock, _ in client.pulls), min(3, client.clock + 2) if client.clock else 0)
            optimizer.step()
        self.assertEqual(len(client.pulls), 4)

    def test_accumulation(self):
        loader = tarn.torch.prefetch([ids_of(seed=i) for i in range(8)], self.model, depth=2, accumulate=2)
        self.train(loader, accumulate=2)
        self.assertEqual(self.clocks(), [(0, 3), (1, 3), (1, 3), (2, 3), (2, 3), (3, 3), (3, 3)])

    def test_a_wrong_guess_of_the_clock_waits_for_nothing(self):
        """Rows of a later clock are held back until this worker ticks: they must not be waited for."""
        loader = tarn.torch.prefetch([ids_of(seed=i) for i in range(8)], self.model, depth=2)
        self.train(loader, accumulate=2)
        self.assertEqual(self.client.clock, 4)

    def test_ids_that_are_not_in_the_batch(self):
        batches = [ids_of(seed=i) for i in range(4)]
        shifted = lambda batch: (batch + 1) % 1000  # noqa: E731
        with self.assertWarnsRegex(UserWarning, r"the ids of \['bags.0', 'bags.1', 'bags.2'\] are not part of the batch"):
            self.train(tarn.torch.prefetch(batches, self.model), shifted)
        self.assertEqual(self.client.clock, 4)
        self.client.pulls.clear()
        keys = lambda batch: {f"bags.{i}": shifted(batch)[:, i] for i in range(3)}  # noqa: E731
        self.train(tarn.torch.prefetch(batches, self.model, depth=2, keys=keys), shifted)
        self.assertEqual([(clock, len(names)) for clock, names in self.client.pulls], [(clock, 3) for clock in range(4, 8)])
        with self.assertRaisesRegex(ValueError, "keys\\(\\) returned 'bag', expected paths of"):
            self.train(tarn.torch.prefetch(batches, self.model, keys=lambda batch: {"bag": batch}))

    def test_ids_that_the_program_changes(self):
        """Rows that were pulled for the ids before the change are not used."""
        batches = [torch.full((1, 3, 1), i) for i in range(4)]
        for batch in tarn.torch.prefetch(batches, self.model):
            self.train([batch.add_(100)])
        self.assertEqual([list(push["bags.0"]) for push in self.client.pushes], [[100], [101], [102], [103]])

    def test_an_empty_loader_and_a_break(self):
        self.train(tarn.torch.prefetch([], self.model))
        for batch in tarn.torch.prefetch([ids_of(seed=i) for i in range(4)], self.model):
            self.train([batch])
            break
        self.assertEqual(self.client.torch_session.calls, [])

    def test_refusals(self):
        with self.assertRaisesRegex(ValueError, "depth = -1"):
            tarn.torch.prefetch([], self.model, depth=-1)
        with self.assertRaisesRegex(ValueError, "tarn.torch.prefetch: Linear has no module whose rows"):
            tarn.torch.prefetch([], nn.Linear(1, 1))


class ImportTest(unittest.TestCase):
    def run_python(self, code):
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": str(ROOT / "python")})

    def test_tarn_does_not_import_torch(self):
        done = self.run_python("import sys, tarn, tarn.client; assert 'torch' not in sys.modules")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_without_torch(self):
        done = self.run_python("import sys; sys.modules['torch'] = None; import tarn.torch")
        self.assertIn("tarn.torch needs torch 2.4 or newer, which is not installed: pip install 'tarn[torch]'", done.stderr)


if __name__ == "__main__":
    unittest.main()
