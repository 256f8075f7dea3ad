"""tarn.torch over real fleets: the losses of torch alone, and what ends a wait."""

import logging
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/integration/python_client")]

try:
    import torch
except ImportError:
    print("fleet_test.py: skipped: torch is not installed", file=sys.stderr)
    sys.exit(77)

import numpy as np  # noqa: E402
import tarn  # noqa: E402
import tarn.torch  # noqa: E402
from small_fleet import PATIENCE_SECONDS, Fleet  # noqa: E402
from tarn.torch import session  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

ROWS, DIM, TABLES, BATCH, STEPS = 400, 8, 4, 16, 100
JOB_OPTIMIZER = """
[optimizer]
kind = "adagrad"
learning_rate = 0.125
epsilon = 1e-10
"""


class Model(nn.Module):
    def __init__(self, sparse=False):
        super().__init__()
        kinds = ("sum", "mean", "sum", "mean")
        self.bags = nn.ModuleList(
            nn.EmbeddingBag(ROWS, DIM, mode=mode, padding_idx=3 if i == 2 else None, sparse=sparse)
            for i, mode in enumerate(kinds))
        self.top = nn.Sequential(nn.Linear(TABLES * DIM, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, ids):
        return self.top(torch.cat([bag(ids[:, i]) for i, bag in enumerate(self.bags)], dim=1)).squeeze(1)


def on_meta():
    """The dense part with values, the tables on the meta device."""
    model = Model()
    for bag in model.bags:
        bag.to("meta")
    return model


def data(distinct):
    """STEPS batches of int64 [BATCH, TABLES, 3] and labels. distinct: no id occurs twice in a table of a batch."""
    random = torch.Generator().manual_seed(7)
    for _ in range(STEPS):
        if distinct:
            columns = [torch.randperm(ROWS, generator=random)[:BATCH * 3].reshape(BATCH, 3) for _ in range(TABLES)]
        else:
            columns = [(ROWS * torch.rand(BATCH, 3, generator=random) ** 2).long() for _ in range(TABLES)]
        ids = torch.stack(columns, dim=1)
        yield ids, (ids.sum(dim=(1, 2)) % 2).float()


def train(model, optimizers, batches, before_step=lambda: None):
    losses = []
    for ids, labels in batches:
        loss = F.binary_cross_entropy_with_logits(model(ids), labels)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        before_step()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
    return losses


def local_copy(remote_model):
    """The same model with sparse nn.EmbeddingBags that have the values of the tables."""
    model = Model(sparse=True)
    model.load_state_dict(remote_model.state_dict(), strict=False)
    for own, other in zip(model.bags, remote_model.bags):
        own.weight.data = torch.from_numpy(other.table.pull(np.arange(ROWS)).wait().copy())
        if own.padding_idx is not None:
            own.weight.data[own.padding_idx] = 0
    return model


def coalesce(model):
    """torch's SGD applies the gradients of a repeated id one after the other; their sum rounds differently."""
    for bag in model.bags:
        bag.weight.grad = bag.weight.grad.coalesce()


class SameLossTest(unittest.TestCase):
    """In one program: tables in a fleet against nn.EmbeddingBag(sparse=True), one worker, bsp."""

    def compare(self, optimizer, local_optimizer, distinct, before_step=lambda model: None, depth=0, **fleet):
        torch.manual_seed(1)
        with Fleet(**fleet) as running, tarn.connect(running.address) as ps:
            model = tarn.torch.remote(on_meta(), ps, optimizer=optimizer)
            local = local_copy(model)
            optimizers = [tarn.torch.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))]
            batches = list(data(distinct))
            found = train(model, optimizers, tarn.torch.prefetch(batches, model, depth=depth) if depth else batches)
            expected = train(local, [torch.optim.SGD(local.top.parameters(), lr=0.1), local_optimizer(local.bags.parameters())],
                             batches, lambda: before_step(local))
            for own, other in zip(local.bags, model.bags):
                trained = torch.from_numpy(other.table.pull(np.arange(ROWS)).wait().copy())
                if own.padding_idx is not None:
                    trained[own.padding_idx] = 0
                torch.testing.assert_close(trained, own.weight.data, rtol=1e-4, atol=1e-6)
        self.assertLess(np.mean(found[-20:]), np.mean(found[:20]))
        return found, expected

    def test_sgd_without_repeated_ids_to_the_bit(self):
        found, expected = self.compare({"kind": "sgd", "learning_rate": 0.125},
                                       lambda weights: torch.optim.SGD(weights, lr=0.125), distinct=True)
        self.assertEqual(found, expected)

    def test_sgd_with_repeated_ids_to_the_bit(self):
        found, expected = self.compare({"kind": "sgd", "learning_rate": 0.125},
                                       lambda weights: torch.optim.SGD(weights, lr=0.125), distinct=False, before_step=coalesce)
        self.assertEqual(found, expected)

    def test_sgd_that_pulls_ahead_to_the_bit(self):
        found, expected = self.compare({"kind": "sgd", "learning_rate": 0.125}, depth=2, distinct=False, before_step=coalesce,
                                       local_optimizer=lambda weights: torch.optim.SGD(weights, lr=0.125))
        self.assertEqual(found, expected)

    def test_any_learning_rate_as_it_is(self):
        """torch rounds w - lr g once, tarn twice, unless lr is a power of two."""
        found, expected = self.compare({"kind": "sgd", "learning_rate": 0.1},
                                       lambda weights: torch.optim.SGD(weights, lr=0.1), distinct=False)
        np.testing.assert_allclose(found, expected, rtol=1e-5)

    def test_adagrad_of_the_job(self):
        """With torch's epsilon; both begin at an accumulator of 0."""
        found, expected = self.compare(None, lambda weights: torch.optim.Adagrad(weights, lr=0.125, eps=1e-10),
                                       distinct=False, more=JOB_OPTIMIZER)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


class WorkersTest(unittest.TestCase):
    def test_two_workers_wait_for_each_other(self):
        """bsp: rows of clock 1 arrive when both have ticked, and are the average of both pushes. The wait is logged."""
        with Fleet(workers=2) as fleet:
            clients = [None, None]
            threads = [threading.Thread(target=lambda i=i: clients.__setitem__(i, tarn.connect(fleet.address, rank=i))) for i in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            sgd = {"kind": "sgd", "learning_rate": 1.0}
            models = [tarn.torch.remote(nn.Embedding(10, 2), client, optimizer=sgd, initializer="zero") for client in clients]
            optimizers = [tarn.torch.attach(model) for model in models]
            ids = torch.tensor([4])
            before, session.NOTE_SECONDS = session.NOTE_SECONDS, 0.3
            self.addCleanup(setattr, session, "NOTE_SECONDS", before)
            (2 * models[0](ids).sum()).backward()
            optimizers[0].step()
            (4 * models[1](ids).sum()).backward()
            late = threading.Timer(1, optimizers[1].step)
            late.start()
            with self.assertLogs("tarn", logging.WARNING) as logs, torch.no_grad():
                self.assertEqual(models[0](ids).tolist(), [[-3, -3]])
            self.assertRegex(logs.output[0], "waiting for 0 s for rows of table 'embedding' at clock 1: other workers have")
            late.join()
            for client in clients:
                client.torch_session.leave()

    def test_loader_processes_and_staleness(self):
        """ssp: a DataLoader with forked workers, pulled ahead."""
        with Fleet(mode="ssp", apply="immediate", staleness=2) as fleet, tarn.connect(fleet.address) as ps:
            model = tarn.torch.remote(on_meta(), ps, optimizer={"kind": "adagrad", "learning_rate": 0.1})
            optimizer = tarn.torch.attach(model, torch.optim.Adam(model.parameters(), lr=0.01))
            loader = torch.utils.data.DataLoader(list(data(False)), batch_size=None, num_workers=2, multiprocessing_context="fork")
            losses = train(model, [optimizer], tarn.torch.prefetch(loader, model, depth=2))
            self.assertEqual(ps.clock, STEPS)
        self.assertEqual(len(losses), STEPS)

    def test_a_fleet_that_dies(self):
        with Fleet() as fleet:
            ps = tarn.connect(fleet.address)
            model = tarn.torch.remote(nn.Embedding(10, 2), ps)
            fleet.stop()
            with self.assertRaises(tarn.Gone):
                model(torch.tensor([1]))
            ps.close()

    def test_a_gradient_that_is_not_finite(self):
        with Fleet() as fleet, tarn.connect(fleet.address) as ps:
            model = tarn.torch.remote(nn.Embedding(10, 2), ps)
            optimizer = tarn.torch.attach(model)
            (model(torch.tensor([7])).sum() * float("nan")).backward()
            with self.assertRaisesRegex(tarn.InvalidArgument, "table 'embedding': the gradient of key 7 is -?nan"):
                optimizer.step()

    def test_ctrl_c_ends_a_wait(self):
        program = textwrap.dedent("""
            import signal, sys, threading
            import tarn, tarn.torch, torch
            signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where a shell runs the test in the background
            clients = [None, None]
            def connect(i): clients[i] = tarn.connect(sys.argv[1], rank=i)
            other = threading.Thread(target=connect, args=(1,)); other.start(); connect(0); other.join()
            model = tarn.torch.remote(torch.nn.Embedding(10, 2), clients[0])
            optimizer = tarn.torch.attach(model)
            model(torch.tensor([1])).sum().backward()
            optimizer.step()
            print("waits", flush=True)
            try:
                model(torch.tensor([1]))
            except KeyboardInterrupt:
                print("interrupted", flush=True)
        """)
        with Fleet(workers=2) as fleet:
            environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
            with subprocess.Popen([sys.executable, "-c", program, fleet.address], stdout=subprocess.PIPE, text=True,
                                  env=environment) as process:
                self.assertEqual(process.stdout.readline(), "waits\n")
                time.sleep(0.5)
                process.send_signal(signal.SIGINT)
                self.assertEqual(process.stdout.readline(), "interrupted\n")
                process.kill()


class EnvironmentTest(unittest.TestCase):
    PROGRAM = textwrap.dedent("""
        import sys, tarn.torch, torch
        model = tarn.torch.remote(torch.nn.Embedding(10, 2), optimizer={"kind": "sgd", "learning_rate": 1.0}, initializer="zero")
        other = tarn.torch.remote(torch.nn.Embedding(10, 2), tables={"": {"name": "x"}})
        assert other.session is model.session
        optimizer = tarn.torch.attach(model)
        for step, ids in enumerate(tarn.torch.prefetch([torch.tensor([1])] * 9, model)):
            optimizer.zero_grad()
            model(ids).sum().backward()
            optimizer.step()
            if step == 2:
                break
        if len(sys.argv) > 1:
            raise ValueError(sys.argv[1])
        print(model(torch.tensor([1])).tolist())
    """)

    def run_program(self, *arguments):
        """Runs PROGRAM, which ends while pulls for later clocks are in progress."""
        with Fleet() as fleet:
            environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "TARN_SCHEDULER": fleet.address}
            return subprocess.run([sys.executable, "-c", self.PROGRAM, *arguments], capture_output=True, text=True,
                                  timeout=PATIENCE_SECONDS * 4, env=environment)

    def test_a_program_joins_by_itself_and_leaves_at_its_end(self):
        done = self.run_program()
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "[[-3.0, -3.0]]\n", ""))

    def test_a_program_that_fails_ends(self):
        done = self.run_program("a failure of its own")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertTrue(done.stderr.endswith("ValueError: a failure of its own\n"), done.stderr)


if __name__ == "__main__":
    unittest.main()
