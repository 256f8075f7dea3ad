"""A run with dense="tarn" is killed and resumed: both halves of the model come from the checkpoint, to the bit."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
BIN = pathlib.Path(os.environ.get("TARN_BIN_DIR", ROOT / "build/release/bin"))
sys.path.insert(0, str(ROOT / "python"))

try:
    import torch  # noqa: F401
except ImportError:
    print("checkpoint_test.py: skipped: torch is not installed", file=sys.stderr)
    sys.exit(77)

import tarn  # noqa: E402
import tarn.torch  # noqa: E402
from fake_fleet import FakeClient, FakeFuture  # noqa: E402
from torch import nn  # noqa: E402

JOB = """
[job]
name = "checkpoint"
seed = 3
[fleet]
servers = 2
workers = 1
worker_restarts = 0
heartbeat_seconds = 0.1
lease_seconds = 10
[storage]
durability = "checkpoint"
"""
MORE_STEPS = 20

PROGRAM = f"""
import os, signal, sys
import tarn, tarn.torch, torch
from torch import nn
from torch.nn import functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.EmbeddingBag(50, 4, mode="sum", device="meta")
        self.top = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, ids):
        return self.top(self.items(ids)).squeeze(1)

torch.manual_seed(1)
ps, adam = tarn.connect(), {{"kind": "adam", "learning_rate": 0.01}}
model = tarn.torch.remote(Model(), ps, optimizer=adam, dense="tarn", dense_optimizer=adam)
optimizer = tarn.torch.attach(model)
resumed = ps.clock > 0
print("begins at", ps.clock)
written, left = None, {MORE_STEPS}
while left:
    clock = ps.clock
    ids = torch.randint(0, 50, (16, 3), generator=torch.Generator().manual_seed(clock))
    optimizer.zero_grad()
    loss = F.binary_cross_entropy_with_logits(model(ids), (ids.sum(1) % 2).float())
    loss.backward()
    optimizer.step()
    print("loss", clock, loss.item().hex())
    if written is None and not resumed:
        written = tarn.torch.checkpoint(model)
    left -= resumed or written.ready()
if not resumed:
    os.kill(os.getpid(), signal.SIGKILL)
ps.leave()
"""


class ResumeTest(unittest.TestCase):
    def launch(self, folder, *arguments):
        program = pathlib.Path(folder) / "program.py"
        program.write_text(PROGRAM)
        done = subprocess.run([sys.executable, ROOT / "tools/launch", *arguments, "--bin-dir", BIN, "--", sys.executable, program],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
        losses = {int(clock): loss for clock, loss in re.findall(r"loss (\d+) (-?0x[0-9a-f.]+p[-+]\d+)", done.stdout)}
        return done, losses

    def test_a_killed_run_goes_on_to_the_bit(self):
        with tempfile.TemporaryDirectory(prefix="tarn-test-") as folder:
            job = pathlib.Path(folder) / "job.toml"
            job.write_text(JOB)
            run, resumed_run = f"{folder}/run", f"{folder}/resumed"
            done, first = self.launch(folder, job, "--run-dir", run)
            self.assertNotEqual(done.returncode, 0, done.stdout)
            done, second = self.launch(folder, "--resume", run, "--run-dir", resumed_run)
            self.assertEqual(done.returncode, 0, done.stdout)
        begins = int(re.search(r"begins at (\d+)", done.stdout)[1])
        self.assertGreater(begins, 0)
        self.assertEqual(sorted(second), list(range(begins, begins + MORE_STEPS)))
        both = sorted(set(first) & set(second))
        self.assertGreaterEqual(len(both), MORE_STEPS, "the first run went on after the checkpoint")
        self.assertEqual([first[clock] for clock in both], [second[clock] for clock in both])


class RequestTest(unittest.TestCase):
    """checkpoint() over a fake client whose requests have given outcomes."""

    def checkpoint(self, *outcomes):
        class Ended(FakeFuture):
            def wait(self, timeout=None):
                if isinstance(self._value, Exception):
                    raise self._value

        client, left = FakeClient(), list(outcomes)
        client.request_checkpoint = lambda: Ended(left.pop(0))
        return tarn.torch.checkpoint(tarn.torch.remote(nn.Embedding(5, 2), client)), left

    def test_one_that_is_requested_too_early_is_requested_again(self):
        written, left = self.checkpoint(tarn.Gone(12, "nothing has been trained yet"), None)
        self.assertEqual([written.ready(), written.ready(), written.ready()], [False, True, True])
        self.assertEqual(left, [])

    def test_the_end_of_the_client_is_told(self):
        written, left = self.checkpoint(tarn.Gone(12, "a server has died"), None)
        written._client.check = unittest.mock.Mock(side_effect=tarn.Gone(12, "a server has died"))
        with self.assertRaisesRegex(tarn.Gone, "a server has died"):
            written.ready()
        self.assertEqual(left, [None])

    def test_a_failure(self):
        written, _ = self.checkpoint(tarn.Error(9, "the disk is full"))
        with self.assertRaisesRegex(tarn.Error, "the disk is full"):
            written.ready()

    def test_a_fleet_that_has_ended(self):
        written, _ = self.checkpoint(tarn.Gone(17, "the job has ended"))
        with self.assertRaises(tarn.Gone):
            written.ready()

    def test_a_model_without_tables(self):
        with self.assertRaisesRegex(ValueError, "tarn.torch.checkpoint: Linear has no module whose rows are in a table"):
            tarn.torch.checkpoint(nn.Linear(1, 1))


if __name__ == "__main__":
    unittest.main()
