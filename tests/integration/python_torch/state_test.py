"""The dense state of a program is in the checkpoints: a killed run that is resumed goes on to the bit, with
parameters, optimizer, learning rate and dropout of torch as of the step at which the tables were cut."""

import collections
import io
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[3]
BIN = pathlib.Path(os.environ.get("TARN_BIN_DIR", ROOT / "build/release/bin"))
sys.path.insert(0, str(ROOT / "python"))

try:
    import torch
except ImportError:
    print("state_test.py: skipped: torch is not installed", file=sys.stderr)
    sys.exit(77)

import numpy as np  # noqa: E402
import tarn.torch  # noqa: E402
from fake_fleet import FakeClient  # noqa: E402
from small_model import SGD, Bags, ids_of  # noqa: E402

JOB = """
[job]
name = "state"
seed = 3
[fleet]
servers = 2
workers = {workers}
worker_restarts = 0
heartbeat_seconds = 0.1
lease_seconds = 10
[data]
train = "of the program"
split_rows = 64
[train]
epochs = 2
batch_rows = 16
[optimizer]
kind = "adagrad"
learning_rate = 0.1
[storage]
durability = "{durability}"
"""
# Prints the loss of each clock. The first run dies some steps after a checkpoint in the middle of the first epoch.
PROGRAM = """
import os, signal, sys
import torch
import tarn.torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

rows, starts = 1024, os.environ["TARN_STARTS_AGAIN"]
dies = "dies" in sys.argv and starts == "0"
sharded, tensor = "sharded" in sys.argv, "tensor" in sys.argv
if sharded:
    from torch.distributed.fsdp import fully_shard
if tensor:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
workers, rank = int(os.environ["TARN_WORKERS"]), int(os.environ["TARN_RANK"])

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.EmbeddingBag(50, 4, mode="sum", device="meta")
        self.top = nn.Sequential(nn.Linear(4, 8), nn.ReLU() if tensor else nn.BatchNorm1d(8), nn.Dropout(0.3),
                                 nn.Linear(8, 1))

    def forward(self, ids):
        return self.top(self.items(ids)).squeeze(1)

torch.manual_seed(rank + 1)
model = tarn.torch.remote(Model())
if workers > 1:
    torch.distributed.init_process_group("gloo", init_method=f"file://{os.environ['TARN_RUN_DIR']}/torch-{starts}", rank=rank,
                                         world_size=workers)
    if tensor:
        parallelize_module(model.top, init_device_mesh("cpu", (workers,)), {"0": ColwiseParallel(), "3": RowwiseParallel()})
    else:
        model = fully_shard(model) if sharded else nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.9)
tarn.torch.attach(model, optimizer, state={"scheduler": scheduler})
ids = torch.randint(0, 50, (rows, 3), generator=torch.Generator().manual_seed(1))
data = tarn.torch.LeasedDataset(TensorDataset(ids, (ids.sum(1) % 2).float()), shuffle=True, seed=3)
ps = tarn.torch.session.of().client
print("begins at", ps.clock, flush=True)
written, after, steps = None, 0, 0
if tensor:  # all ranks read the same batches
    labels = (ids.sum(1) % 2).float()
    data = [(ids[i:i + 16], labels[i:i + 16]) for i in range(0, rows, 16)] * 2
    data = data[ps.clock:]
for epoch in range(1 if tensor else 2):
    for batch, labels in tarn.torch.prefetch(data, model):
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(model(batch), labels)
        loss.backward()
        clock = ps.clock
        optimizer.step()
        scheduler.step()
        print("loss", rank, clock, loss.item().hex(), flush=True)
        steps += 1
        if dies and rank == 0 and steps == 4:
            written = tarn.torch.checkpoint(model)
        after += written is not None and written.ready()
        if after == 3:
            os.kill(os.getpid(), signal.SIGKILL)
if workers > 1:
    torch.distributed.barrier()
"""


class ResumeTest(unittest.TestCase):
    def launch(self, folder, mode, *arguments, dense="replicated"):
        program = pathlib.Path(folder) / "program.py"
        program.write_text(PROGRAM)
        done = subprocess.run([sys.executable, ROOT / "tools/launch", *arguments, "--bin-dir", BIN, "--", sys.executable, program, mode, dense],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
        losses = {(int(rank), int(clock)): loss for rank, clock, loss in re.findall(r"loss (\d+) (\d+) (\S+)", done.stdout)}
        return done, losses

    def goes_on(self, workers, durability="checkpoint", dense="replicated"):
        """Returns the output of the resumed run."""
        with tempfile.TemporaryDirectory(prefix="tarn-test-") as folder:
            job = pathlib.Path(folder) / "job.toml"
            job.write_text(JOB.format(workers=workers, durability=durability))
            done, whole = self.launch(folder, "lives", job, "--run-dir", f"{folder}/whole", dense=dense)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertGreaterEqual(len(whole), 2 * 1024 // 16)
            done, first = self.launch(folder, "dies", job, "--run-dir", f"{folder}/run", dense=dense)
            self.assertNotEqual(done.returncode, 0, done.stdout)
            self.assertLess(len(first), len(whole))
            on = f"{folder}/run" if durability == "log" else f"{folder}/resumed"
            done, second = self.launch(folder, "lives", "--resume", f"{folder}/run", "--run-dir", on, dense=dense)
            self.assertEqual(done.returncode, 0, done.stdout)
        begins = int(re.search(r"begins at (\d+)", done.stdout)[1])
        self.assertGreater(begins, 0)
        expected = {at: loss for at, loss in whole.items() if at[1] >= begins}
        self.assertEqual(second, expected)
        return done.stdout

    def test_one_worker(self):
        self.goes_on(1)

    def test_replicas(self):
        self.goes_on(2)

    def test_shards_of_fsdp(self):
        self.goes_on(2, dense="sharded")

    def test_parts_of_tensor_parallel_layers(self):
        self.goes_on(2, dense="tensor")

    def test_replicas_start_again_together(self):
        with tempfile.TemporaryDirectory(prefix="tarn-test-") as folder:
            job = pathlib.Path(folder) / "job.toml"
            job.write_text(JOB.format(workers=2, durability="checkpoint"))
            done, whole = self.launch(folder, "lives", job, "--run-dir", f"{folder}/whole")
            done, again = self.launch(folder, "dies", job, "--run-dir", f"{folder}/again", "--restarts", "3")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("the fleet starts again (1 of 3)", done.stdout)
        self.assertEqual(again, whole)

    def test_a_run_with_a_log_goes_on_from_the_checkpoint(self):
        self.assertIn("goes on from ", self.goes_on(1, "log"))


def _random_state_in(saved):
    return torch.load(io.BytesIO(saved), weights_only=True)["random"]["torch"]


class AttachTest(unittest.TestCase):
    """Over a fake client: what attach() saves and restores."""

    def attach(self, client, lr=0.01, **options):
        model = tarn.torch.remote(Bags(), client, optimizer=SGD)
        optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2)
        tarn.torch.attach(model, optimizer, state={"scheduler": scheduler}, **options)
        return model, optimizer, scheduler

    def trained(self):
        client = FakeClient()
        model, optimizer, scheduler = self.attach(client)
        for step in range(3):
            model(ids_of(seed=step)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
        return client, model, optimizer, scheduler

    def resumed(self, saved, rank=0):
        client = FakeClient()
        client.rank, client.clock, client.saved = rank, 3, saved
        return client

    def assertSame(self, one, other):
        for (name, value), (_, expected) in zip(one.state_dict().items(), other.state_dict().items(), strict=True):
            self.assertTrue(torch.equal(value, expected), name)

    def test_everything_is_restored(self):
        client, model, optimizer, scheduler = self.trained()
        saved = client.save()
        expected = torch.rand(3)
        model2, optimizer2, scheduler2 = self.attach(self.resumed({0: saved}))
        self.assertTrue(torch.equal(torch.rand(3), expected), "the random state")
        self.assertSame(model2, model)
        self.assertEqual(scheduler2.state_dict(), scheduler.state_dict())
        self.assertEqual(optimizer2.param_groups[0]["lr"], optimizer.param_groups[0]["lr"])
        for number, values in optimizer.state_dict()["state"].items():
            for name, value in values.items():
                self.assertTrue(torch.equal(optimizer2.state_dict()["state"][number][name], value), name)

    def test_a_new_rank_gets_that_of_rank_0(self):
        client, model, *_ = self.trained()
        saved = client.save()
        client2 = self.resumed({0: saved}, rank=5)
        model2, *_ = self.attach(client2)
        self.assertSame(model2, model)
        self.assertFalse(torch.equal(torch.get_rng_state(), _random_state_in(saved)), "but random numbers of its own")

    def test_replicas_save_once(self):
        os.environ.update(MASTER_ADDR="127.0.0.1")
        with tempfile.NamedTemporaryFile() as meeting:
            torch.distributed.init_process_group("gloo", init_method=f"file://{meeting.name}", rank=0, world_size=1)
            try:
                sizes = []
                for rank in (0, 1):
                    client = FakeClient()
                    client.rank = rank
                    model = torch.nn.parallel.DistributedDataParallel(tarn.torch.remote(Bags(), client, optimizer=SGD))
                    tarn.torch.attach(model, torch.optim.Adam(model.parameters()))
                    sizes.append(b"top.weight" in client.save())
                self.assertEqual(sizes, [True, False])
            finally:
                torch.distributed.destroy_process_group()

    def test_a_warning_where_there_is_none(self):
        with self.assertWarnsRegex(UserWarning, "begins at clock 3, and there is no saved state"):
            self.attach(self.resumed({}))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            client = self.resumed({})
            model = tarn.torch.remote(Bags(), client, optimizer=SGD)
            tarn.torch.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), keep_state=False)
        self.assertIsNone(client.save)

    def test_another_program(self):
        client, *_ = self.trained()
        resumed = self.resumed({0: client.save()})
        model = tarn.torch.remote(Bags(), resumed, optimizer=SGD)
        with self.assertRaisesRegex(ValueError, r"has 1 optimizers and \['scheduler'\], expected 1 and \[\]"):
            tarn.torch.attach(model, torch.optim.Adam(model.parameters()))

    def test_without_an_optimizer(self):
        """Random states, buffers and `state` are kept if asked for."""

        def made(client):
            model = tarn.torch.remote(torch.nn.Sequential(torch.nn.Embedding(5, 2), torch.nn.BatchNorm1d(2, affine=False)), client)
            scheduler = torch.optim.lr_scheduler.MultiStepLR(torch.optim.SGD([torch.zeros(1)], lr=1), milestones=[2, 4])
            tarn.torch.attach(model, state={"scheduler": scheduler})
            return model, scheduler

        client = FakeClient()
        model, scheduler = made(client)
        model(torch.tensor([1, 2]))
        scheduler.step()
        saved = client.save()
        expected = torch.rand(3)
        model2, scheduler2 = made(self.resumed({0: saved}))
        self.assertTrue(torch.equal(torch.rand(3), expected), "the random state")
        self.assertSame(model2, model)
        self.assertEqual(scheduler2.state_dict(), scheduler.state_dict())
        self.assertIsInstance(scheduler2.milestones, collections.Counter)
        with self.assertRaisesRegex(ValueError, "with keep_state=False nothing is kept, expected no `state`"):
            model = tarn.torch.remote(torch.nn.Sequential(torch.nn.Embedding(5, 2)), FakeClient())
            tarn.torch.attach(model, state={"x": scheduler}, keep_state=False)

    def test_numbers_of_numpy(self):
        client = FakeClient()
        self.attach(client, lr=np.float64(0.5))
        _, optimizer, _ = self.attach(self.resumed({0: client.save()}))
        self.assertEqual(optimizer.param_groups[0]["lr"], 0.5)

    def test_state_that_cannot_be_loaded(self):
        class Other:
            def state_dict(self):
                return {"x": pathlib.Path("x")}

        model = tarn.torch.remote(Bags(), FakeClient(), optimizer=SGD)
        with self.assertRaisesRegex(ValueError, "the state of others cannot be saved and loaded"):
            tarn.torch.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), state={"other": Other()})
        tarn.torch.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))


if __name__ == "__main__":
    unittest.main()
