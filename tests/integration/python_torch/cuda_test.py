"""tarn.torch with models and batches on a GPU, over real fleets. Skipped where torch has no GPU."""

import contextlib
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/integration/python_client")]

try:
    import torch
except ImportError:
    print("cuda_test.py: skipped: torch is not installed", file=sys.stderr)
    sys.exit(77)
if not torch.cuda.is_available():
    print("cuda_test.py: skipped: torch has no GPU", file=sys.stderr)
    sys.exit(77)

import numpy as np  # noqa: E402
import tarn  # noqa: E402
import tarn.torch  # noqa: E402
from small_fleet import Fleet  # noqa: E402
from fleet_test import BATCH, ROWS, STEPS, TABLES, coalesce, data, local_copy, on_meta, train  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

GPU = torch.device("cuda:0")
SGD = {"kind": "sgd", "learning_rate": 0.125}


def on_gpu(model):
    """Moves the dense part; a meta table has nothing to move."""
    return model.to(GPU)


def batches(distinct):
    return [(ids.to(GPU), labels.to(GPU)) for ids, labels in data(distinct)]


class SameLossTest(unittest.TestCase):
    """Tables in a fleet against nn.EmbeddingBag(sparse=True), both models on the GPU, one worker, bsp."""

    def compare(self, distinct, depth=0):
        torch.manual_seed(1)
        with Fleet() as fleet, tarn.connect(fleet.address) as ps:
            model = on_gpu(tarn.torch.remote(on_meta(), ps, optimizer=SGD))
            local = on_gpu(local_copy(model))
            optimizer = tarn.torch.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
            steps = batches(distinct)
            found = train(model, [optimizer], tarn.torch.prefetch(steps, model, depth=depth) if depth else steps)
            expected = train(local, [torch.optim.SGD(local.top.parameters(), lr=0.1),
                                     torch.optim.SGD(local.bags.parameters(), lr=0.125)], steps, lambda: coalesce(local))
            for own, other in zip(local.bags, model.bags):
                trained = torch.from_numpy(other.table.pull(np.arange(ROWS)).wait().copy())
                if own.padding_idx is not None:
                    trained[own.padding_idx] = 0
                torch.testing.assert_close(trained, own.weight.data.cpu(), rtol=1e-4, atol=1e-6)
        self.assertLess(np.mean(found[-20:]), np.mean(found[:20]))
        return found, expected

    def test_without_repeated_ids_to_the_bit(self):
        found, expected = self.compare(distinct=True)
        self.assertEqual(found, expected)

    def test_with_repeated_ids(self):
        found, expected = self.compare(distinct=False)
        np.testing.assert_allclose(found, expected, rtol=1e-5)

    def test_that_pulls_ahead(self):
        found, expected = self.compare(distinct=False, depth=2)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


class RecipeTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        self.fleet = self.enterContext(Fleet())
        self.ps = self.enterContext(tarn.connect(self.fleet.address))

    def test_rows_and_gradients_are_in_pinned_memory(self):
        model = tarn.torch.remote(nn.Embedding(10, 4, device="meta"), self.ps, optimizer=SGD)
        ids = torch.tensor([1, 2, 2], device=GPU)
        pulled, = model.session.pull([(model, ids)], 0)
        rows = pulled.rows(torch.device("cpu"))
        self.assertTrue(rows.is_pinned())
        pulled.wait()
        self.assertEqual(pulled.rows(GPU).tolist(), rows.tolist())
        values = torch.arange(8.0, device=GPU)
        copy = tarn.torch.session.on_host(values)
        tarn.torch.session.wait_for_copies({GPU})
        self.assertTrue(copy.is_pinned())
        self.assertEqual(copy.tolist(), values.tolist())

    def test_scaled_gradients(self):
        """float16 with a GradScaler that begins too high, against the same with local tables. A step that overflows pushes
        nothing."""
        model = on_gpu(tarn.torch.remote(on_meta(), self.ps, optimizer=SGD))
        local = on_gpu(local_copy(model))
        before = model.bags[0].table.pull(np.arange(ROWS)).wait().copy()

        def losses_of(model, optimizers, before_step, after_step):
            scaler, losses = torch.amp.GradScaler("cuda", init_scale=2.0**24), []
            for ids, labels in batches(True):
                for each in optimizers:
                    each.zero_grad()
                with torch.autocast("cuda", torch.float16):
                    loss = F.binary_cross_entropy_with_logits(model(ids), labels)
                scaler.scale(loss).backward()
                before_step()
                for each in optimizers:
                    scaler.step(each)
                scale = scaler.get_scale()
                scaler.update()
                after_step(scaler.get_scale() < scale, len(losses))
                losses.append((loss.item(), scaler.get_scale()))
            return losses

        skipped = []

        def after_step(skips, step):
            skipped.append(skips)
            if all(skipped):
                np.testing.assert_array_equal(model.bags[0].table.pull(np.arange(ROWS)).wait(), before)

        optimizer = tarn.torch.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
        found = losses_of(model, [optimizer], lambda: None, after_step)
        self.assertTrue(skipped[0])
        self.assertFalse(all(skipped))

        def densify():  # a GradScaler wants one optimizer for an overflow anywhere
            for each in local.bags:
                each.weight.grad = each.weight.grad.to_dense()

        groups = [{"params": list(local.top.parameters()), "lr": 0.1}, {"params": list(local.bags.parameters()), "lr": 0.125}]
        expected = losses_of(local, [torch.optim.SGD(groups)], densify, lambda *_: None)
        np.testing.assert_allclose(found, expected, rtol=1e-4)

    def test_a_compiled_dense_part_with_graphs(self):
        """mode="reduce-overhead" records graphs of the dense part, whose inputs are the looked-up rows."""
        model = on_gpu(tarn.torch.remote(on_meta(), self.ps, optimizer=SGD))
        model.top.compile(mode="reduce-overhead")
        local = on_gpu(local_copy(model))
        optimizer = tarn.torch.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
        steps = batches(True)[:30]
        found = train(model, [optimizer], steps)
        expected = train(local, [torch.optim.SGD(local.top.parameters(), lr=0.1),
                                 torch.optim.SGD(local.bags.parameters(), lr=0.125)], steps, lambda: coalesce(local))
        np.testing.assert_allclose(found, expected, rtol=1e-4)

    def test_dense_tables(self):
        """dense="tarn" against torch's SGD."""
        model = OneTable()
        model.top.to(GPU)
        local = nn.Sequential(nn.EmbeddingBag(ROWS, 8, mode="sum", device=GPU), nn.Linear(8, 1, device=GPU))
        local[1].load_state_dict(model.top.state_dict())
        model = tarn.torch.remote(model, self.ps, optimizer=SGD, dense="tarn", dense_optimizer=SGD)
        local[0].weight.data.copy_(torch.from_numpy(model.rows.table.pull(np.arange(ROWS)).wait().copy()))
        optimizer, own = tarn.torch.attach(model), torch.optim.SGD(local.parameters(), lr=0.125)
        for ids, labels in batches(True)[:40]:
            ids = ids.reshape(BATCH, TABLES * 3)
            losses = [F.binary_cross_entropy_with_logits(each(ids).squeeze(1), labels) for each in (model, local)]
            for loss, each in zip(losses, (optimizer, own)):
                each.zero_grad()
                loss.backward()
                each.step()
            self.assertAlmostEqual(losses[0].item(), losses[1].item(), delta=1e-4)
        self.assertTrue(all(each.device == GPU for each in model.parameters()))

    def test_a_side_stream(self):
        """The program's step runs on a stream of its own."""
        model = on_gpu(tarn.torch.remote(on_meta(), self.ps, optimizer=SGD))
        local = on_gpu(local_copy(model))
        optimizer = tarn.torch.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
        steps = batches(True)
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream(GPU)):
            found = train(model, [optimizer], steps)
        expected = train(local, [torch.optim.SGD(local.top.parameters(), lr=0.1),
                                 torch.optim.SGD(local.bags.parameters(), lr=0.125)], steps, lambda: coalesce(local))
        self.assertEqual(found, expected)

    def test_rows_that_have_arrived_are_copied_before_they_are_used(self):
        model = tarn.torch.remote(nn.Embedding(10, 4, device="meta"), self.ps, optimizer=SGD)
        now, next_ids = torch.tensor([1, 2, 2], device=GPU), torch.tensor([3, 1], device=GPU)
        with torch.no_grad():
            expected = model(next_ids).tolist()
            model.session.pull_ahead([(model, next_ids)], self.ps.clock)
            ahead = model.session._ahead[-1].slab
            ahead.future.wait()
            self.ps.tick().wait()
            model.session._ahead[-1].clock = self.ps.clock
            model.session.copy_ahead_due = True
            model(now)
            self.assertIn(GPU, ahead._copies)
            with torch.cuda.stream(torch.cuda.Stream(GPU)):
                self.assertEqual(model(next_ids).tolist(), expected)
        self.assertEqual(len(ahead._streams), 1)

    def test_a_loader_with_pinned_batches(self):
        """Ids are moved to the GPU after the prefetch has seen them on the CPU: no row is pulled twice."""
        model = on_gpu(tarn.torch.remote(on_meta(), self.ps, optimizer=SGD))
        optimizer = tarn.torch.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
        loader = torch.utils.data.DataLoader(list(data(False)), batch_size=None, pin_memory=True)
        with counted(self.ps) as pulls:
            moved = ((ids.to(GPU, non_blocking=True), labels.to(GPU, non_blocking=True)) for ids, labels in loader)
            losses = train(model, [optimizer], tarn.torch.prefetch(moved, model, depth=2))
        self.assertEqual(len(losses), STEPS)
        self.assertLess(len(pulls), STEPS + TABLES)  # the first step asks for one table after the other


@contextlib.contextmanager
def counted(client):
    """The requests for rows of this client, meanwhile."""
    requests, pull = [], client.pull_to

    def counting(plans, addresses, kept, clock):
        requests.append(clock)
        return pull(plans, addresses, kept, clock)

    client.pull_to = counting
    try:
        yield requests
    finally:
        del client.pull_to


class OneTable(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = nn.EmbeddingBag(ROWS, 8, mode="sum", device="meta")
        self.top = nn.Linear(8, 1)

    def forward(self, ids):
        return self.top(self.rows(ids))


if __name__ == "__main__":
    unittest.main()
