"""remote(dense="tarn") over real fleets: the losses of torch alone, several workers, and what is refused."""

import copy
import io
import pathlib
import sys
import threading
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/integration/python_client")]

try:
    import torch
except ImportError:
    print("dense_test.py: skipped: torch is not installed", file=sys.stderr)
    sys.exit(77)

import numpy as np  # noqa: E402
import tarn  # noqa: E402
import tarn.torch  # noqa: E402
from small_fleet import Fleet  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

ROWS, DIM, STEPS = 50, 4, 60
SGD = {"kind": "sgd", "learning_rate": 0.125}


class Model(nn.Module):
    """Has a matrix whose rows do not fit in those of a table, a vector, a scalar and a shared parameter."""

    def __init__(self, device=None):
        super().__init__()
        self.items = nn.EmbeddingBag(ROWS, DIM, mode="sum", device=device, sparse=True)
        self.hidden = nn.Linear(DIM, 8)
        self.wide = nn.Parameter(torch.randn(2, 4100) / 100)
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.top = nn.Linear(8, 1)
        self.same = self.top.bias

    def forward(self, ids):
        hidden = torch.tanh(self.hidden(self.items(ids)))
        return (self.top(hidden) * self.scale).squeeze(1) + (self.wide ** 2).sum() * 0.01 + self.same


def model(device="meta", seed=1):
    torch.manual_seed(seed)
    return Model(device)


def batches(size=16):
    random = torch.Generator().manual_seed(5)
    for _ in range(STEPS):
        ids = torch.randint(0, ROWS, (size, 3), generator=random)
        yield ids, (ids.sum(1) % 2).float()


def losses(module, data, optimizers):
    found = []
    for ids, labels in data:
        for each in optimizers:
            each.zero_grad()
        loss = F.binary_cross_entropy_with_logits(module(ids), labels)
        loss.backward()
        for each in optimizers:
            each.step()
        found.append(loss.item())
    return found


def local(table):
    """The same model in torch alone, with the rows of the table."""
    own = model("cpu")
    own.items.weight.data = torch.from_numpy(table.pull(np.arange(ROWS)).wait().copy())
    for name, value in model("meta").named_parameters():
        if name != "items.weight":
            own.get_parameter(name).data = value.detach().clone()
    return own


class SameLossTest(unittest.TestCase):
    def compare(self, dense_optimizer, torch_optimizer):
        with Fleet() as fleet, tarn.connect(fleet.address) as ps:
            remote = tarn.torch.remote(model(), ps, optimizer=SGD, dense="tarn", dense_optimizer=dense_optimizer)
            own = local(remote.items.table)
            found = losses(remote, tarn.torch.prefetch(list(batches()), remote), [tarn.torch.attach(remote)])
            dense = [each for name, each in own.named_parameters() if name != "items.weight"]
            expected = losses(own, batches(), [torch_optimizer(dense), torch.optim.SGD([own.items.weight], lr=0.125)])
            self.assertEqual(sorted(remote.state_dict()), sorted(set(own.state_dict()) - {"items.weight"}))
            for name, value in remote.state_dict().items():
                torch.testing.assert_close(value, own.state_dict()[name], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        self.assertLess(found[-1], found[0])

    def test_sgd(self):
        self.compare({"kind": "sgd", "learning_rate": 0.1}, lambda each: torch.optim.SGD(each, lr=0.1))

    def test_adam(self):
        self.compare({"kind": "adam", "learning_rate": 0.01}, lambda each: torch.optim.Adam(each, lr=0.01))


def both(function):
    """Runs function(0) and function(1) at the same time; raises what either raises."""
    failed, results = [], [None, None]

    def run(i):
        try:
            results[i] = function(i)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return results


class WorkersTest(unittest.TestCase):
    def test_two_workers_are_one_with_twice_the_batch(self):
        """bsp: the servers average, as DistributedDataParallel does; both workers end with the same parameters."""
        with Fleet(workers=2) as fleet:
            clients = both(lambda i: tarn.connect(fleet.address, rank=i))
            models = [tarn.torch.remote(model(), ps, optimizer=SGD, dense="tarn", dense_optimizer=SGD) for ps in clients]
            own = local(models[0].items.table)
            optimizers = [tarn.torch.attach(each) for each in models]
            halves = [[(ids[i::2], labels[i::2]) for ids, labels in batches()] for i in range(2)]
            found = np.mean(both(lambda i: losses(models[i], halves[i], [optimizers[i]])), axis=0)
            expected = losses(own, batches(), [torch.optim.SGD(own.parameters(), lr=0.125)])
            np.testing.assert_allclose(found, expected, rtol=1e-4)
            states = both(lambda i: models[i].state_dict())
            for name, value in states[0].items():
                self.assertTrue(torch.equal(value, states[1][name]), name)
            both(lambda i: clients[i].torch_session.leave())

    def test_workers_that_begin_differently(self):
        with Fleet(workers=2) as fleet:
            clients = both(lambda i: tarn.connect(fleet.address, rank=i))
            tarn.torch.remote(model(), clients[0], optimizer=SGD, dense="tarn", dense_optimizer=SGD)
            with self.assertRaisesRegex(tarn.InvalidArgument, "do not begin with the values .* the same torch.manual_seed"):
                tarn.torch.remote(model(seed=2), clients[1], optimizer=SGD, dense="tarn", dense_optimizer=SGD)
            both(lambda i: clients[i].leave())


class RefusalsTest(unittest.TestCase):
    def test_refusals(self):
        half = model()
        half.hidden.bfloat16()
        with Fleet() as fleet, tarn.connect(fleet.address) as ps:
            for module, options, said in [
                (model(), {"dense": "ddp"}, 'dense = \'ddp\', .* expected dense="tarn", or "torch"'),
                (model(), {"dense_optimizer": SGD}, "without dense_optimizer"),
                (half, {"dense": "tarn"}, "parameter 'hidden.weight' is torch.bfloat16 on cpu, expected torch.float32"),
                (model().to("meta"), {"dense": "tarn"}, "on meta, expected torch.float32 with values"),
                (model(), {"dense": "tarn", "dense_optimizer": {**SGD, "l2": 0.1}}, "l2 = 0.1 of the dense tables is not supported"),
                (model(), {"dense": "tarn", "dense_optimizer": "ftrl"}, "ftrl sets parameters to values of its own"),
            ]:
                with self.subTest(said=said), self.assertRaisesRegex(ValueError, said):
                    tarn.torch.remote(module, ps, optimizer=SGD, **options)
                self.assertIsInstance(module.items, nn.EmbeddingBag, "nothing is swapped")
        with Fleet() as fleet, tarn.connect(fleet.address) as ps:
            remote = tarn.torch.remote(model(), ps, optimizer=SGD, dense="tarn", dense_optimizer=SGD)
            with self.assertRaisesRegex(ValueError, "the SGD has parameters that remote.* expected attach.model. without"):
                tarn.torch.attach(remote, torch.optim.SGD(remote.parameters()))
            with self.assertRaisesRegex(RuntimeError, "load_state_dict has values of .*Expected load_state_dict before remote"):
                remote.load_state_dict(remote.state_dict())

    def test_a_model_that_is_never_called(self):
        """The methods of a model do not pull its dense parameters."""
        with Fleet() as fleet, tarn.connect(fleet.address) as ps:
            remote = tarn.torch.remote(model(), ps, optimizer=SGD, dense="tarn", dense_optimizer=SGD)
            optimizer = tarn.torch.attach(remote)
            remote.forward(torch.tensor([[1, 2, 3]])).sum().backward()
            with self.assertRaisesRegex(RuntimeError, "has a gradient, but its value was not pulled at clock 0. Expected a call"):
                optimizer.step()

    def test_a_parameter_that_the_program_changes(self):
        """The next value of the table would replace the change."""
        with Fleet() as fleet, tarn.connect(fleet.address) as ps:
            remote = tarn.torch.remote(model(), ps, optimizer=SGD, dense="tarn", dense_optimizer=SGD)
            optimizer = tarn.torch.attach(remote)
            for _ in range(2):
                remote(torch.tensor([[1, 2, 3]])).sum().backward()
                optimizer.step()
            with torch.no_grad():
                remote.scale.clamp_(-1, 1)
            with self.assertRaisesRegex(RuntimeError, "parameter 'scale' was changed by the program"):
                remote(torch.tensor([[1, 2, 3]]))
        with Fleet() as fleet, tarn.connect(fleet.address) as ps:
            remote = tarn.torch.remote(model(), ps, optimizer=SGD, dense="tarn", dense_optimizer=SGD)
            nn.init.ones_(remote.scale)
            with self.assertRaisesRegex(RuntimeError, "Expected changes before remote"):
                remote(torch.tensor([[1, 2, 3]]))

    def test_an_embedding_that_renormalizes_itself(self):
        """It changes its weight before each use."""
        class Two(nn.Module):
            max_norm = 1.0  # of the model's own

            def __init__(self):
                super().__init__()
                self.kept, self.items = nn.Embedding(4, 2, max_norm=0.1), nn.Embedding(10, 2, device="meta")

            def forward(self, ids):
                return self.kept(ids) + self.items(ids)

        torch.manual_seed(1)
        with Fleet() as fleet, tarn.connect(fleet.address) as ps:
            remote = tarn.torch.remote(Two(), ps, only=["items"], optimizer=SGD, dense="tarn", dense_optimizer=SGD)
            optimizer = tarn.torch.attach(remote)
            for _ in range(3):
                remote(torch.tensor([1, 2])).sum().backward()
                optimizer.step()

    def test_sparse_gradients(self):
        class Two(nn.Module):
            def __init__(self):
                super().__init__()
                self.kept, self.items = nn.Embedding(4, 2, sparse=True), nn.Embedding(10, 2, device="meta")

            def forward(self, ids):
                return self.kept(ids) + self.items(ids)

        with Fleet() as fleet, tarn.connect(fleet.address) as ps:
            remote = tarn.torch.remote(Two(), ps, only=["items"], optimizer=SGD, dense="tarn", dense_optimizer=SGD)
            optimizer, before = tarn.torch.attach(remote), remote.kept.weight.detach().clone()
            for step in range(1, 3):
                optimizer.zero_grad()
                remote(torch.tensor([1, 1, 2])).sum().backward()
                optimizer.step()
                remote(torch.tensor([0]))  # pulls
                changed = step * 0.125 * torch.tensor([[0.0], [2.0], [1.0], [0.0]])
                torch.testing.assert_close(remote.kept.weight.detach(), before - changed.expand(4, 2))

    def test_a_parameter_that_is_thawed(self):
        """It has no table, and would not be trained."""
        with Fleet() as fleet, tarn.connect(fleet.address) as ps:
            frozen = model()
            frozen.scale.requires_grad = False
            tarn.torch.remote(frozen, ps, optimizer=SGD, dense="tarn", dense_optimizer=SGD)
            optimizer = tarn.torch.attach(frozen)
            for thawed in (False, True):
                frozen.scale.requires_grad = thawed
                frozen(torch.tensor([[1, 2, 3]])).sum().backward()
                if thawed:
                    with self.assertRaisesRegex(RuntimeError, "parameter 'scale' has a gradient, but no table"):
                        optimizer.step()
                else:
                    optimizer.step()

    def test_a_late_worker(self):
        """A pull may advance the clock of the client (backup workers): the step then belongs to the later one."""
        with Fleet(mode="asp", apply="immediate") as fleet, tarn.connect(fleet.address) as ps:
            remote = tarn.torch.remote(model(), ps, optimizer=SGD, dense="tarn", dense_optimizer=SGD)
            optimizer = tarn.torch.attach(remote)
            for _ in range(2):
                remote(torch.tensor([[1, 2, 3]])).sum().backward()
                ps.tick().wait()
                optimizer.step()
                optimizer.zero_grad(set_to_none=False)
            remote.items(torch.tensor([[1, 2, 3]])).sum().backward()
            optimizer.step()  # the dense gradients are 0

    def test_two_models_and_a_copy(self):
        with Fleet() as fleet, tarn.connect(fleet.address) as ps:
            tarn.torch.remote(model(), ps, optimizer=SGD, dense="tarn", dense_optimizer=SGD)
            with self.assertRaisesRegex(ValueError, "an earlier model .* has a parameter 'hidden.bias', too, and would share"):
                tarn.torch.remote(model(), ps, optimizer=SGD, dense="tarn", dense_optimizer=SGD)
            towers = nn.ModuleDict({"users": model(seed=3)})
            tarn.torch.remote(towers, ps, optimizer=SGD, dense="tarn", dense_optimizer=SGD)
            copied = copy.deepcopy(towers)
            values = {name: value + 1 for name, value in towers.state_dict().items()}
            copied.load_state_dict(values)
            self.assertTrue(torch.equal(copied["users"].scale, values["users.scale"]))

    def test_what_stays_in_torch_is_kept(self):
        """With keep_state the checkpoint has the buffers, and not the parameters in tables."""
        with Fleet() as fleet, tarn.connect(fleet.address) as ps:
            remote = tarn.torch.remote(nn.ModuleDict({"model": model(), "norm": nn.BatchNorm1d(2, affine=False)}), ps,
                                       optimizer=SGD, dense="tarn", dense_optimizer=SGD)
            with mock.patch.object(type(ps), "keep_state") as kept:
                optimizer = tarn.torch.attach(remote, keep_state=True)
            remote["model"].forward(torch.tensor([[1, 2, 3]])).sum().backward()
            remote.state_dict()  # pulls
            optimizer.step()
            with mock.patch.object(type(ps), "pull_plans", side_effect=AssertionError("save() must not call the client")):
                saved = torch.load(io.BytesIO(kept.call_args.args[0]()), weights_only=True)
            self.assertEqual(sorted(saved["model"]), ["norm.num_batches_tracked", "norm.running_mean", "norm.running_var"])
            saved["model"]["norm.running_mean"] += 5
            out = io.BytesIO()
            torch.save(saved, out)
            ps.torch_session.attached = None
            with mock.patch.object(type(ps), "saved_state", return_value=out.getvalue()):
                tarn.torch.attach(remote, keep_state=True)
            self.assertEqual(remote["norm"].running_mean.tolist(), [5, 5])


if __name__ == "__main__":
    unittest.main()
