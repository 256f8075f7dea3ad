"""tarn.torch.LeasedDataset over real fleets: every row once an epoch, on any worker, even if one is killed."""

import collections
import itertools
import os
import pathlib
import signal
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/integration/python_client")]

try:
    import torch
except ImportError:
    print("leases_test.py: skipped: torch is not installed", file=sys.stderr)
    sys.exit(77)

import numpy as np  # noqa: E402
import tarn  # noqa: E402
import tarn.torch  # noqa: E402
from small_fleet import BIN, PATIENCE_SECONDS, Fleet  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

ROWS, EPOCHS, RATE = 730, 2, 0.25
JOB = f"""
[data]
train = "of the program"
split_rows = 64
[train]
epochs = {EPOCHS}
batch_rows = 16
[optimizer]
kind = "sgd"
learning_rate = {RATE}
"""
# Trains a table of one value a row: each occurrence of a row moves it by the rate, divided by the number of workers that
# have pushed in that clock. Prints "epoch row" for each row that it is given. Dies after `dies_at` batches; after 6.5 is
# before the step of the seventh.
PROGRAM = """
import os, signal, sys
import torch
import tarn.torch
from torch.utils.data import TensorDataset

dies_at, depth, rows = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
model = tarn.torch.remote(torch.nn.Sequential(torch.nn.Embedding(rows, 1, device="meta")), initializer="zero")
optimizer = tarn.torch.attach(model)
data = tarn.torch.LeasedDataset(TensorDataset(torch.arange(rows)), shuffle=True, seed=3)
batches = epochs = 0
while True:
    before = batches
    for ids, in tarn.torch.prefetch(data, model, depth):
        for row in ids.tolist():
            print(epochs, row, flush=True)
        optimizer.zero_grad()
        loss = model(ids).sum()
        data.report(loss.detach() / len(ids))
        loss.backward()
        for step in (lambda: None, optimizer.step):
            step()
            batches += 0.5
            if batches == dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
    if batches == before:
        break
    epochs += 1
"""


class LeasesTest(unittest.TestCase):
    def run_programs(self, fleet, dies_at, depth):
        """Runs one program for each of `dies_at`. Returns how often each (epoch, row) was handed out."""
        programs = []
        for rank, batches in enumerate(dies_at):
            environment = os.environ | {"PYTHONPATH": str(ROOT / "python"), "TARN_SCHEDULER": fleet.address,
                                        "TARN_RANK": str(rank), "TARN_INSECURE": "1", "OMP_NUM_THREADS": "1"}
            programs.append(subprocess.Popen([sys.executable, "-c", PROGRAM, str(batches), str(depth), str(ROWS)],
                                             env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        handed = collections.Counter()
        for program, batches in zip(programs, dies_at):
            out, err = program.communicate(timeout=PATIENCE_SECONDS)
            self.assertEqual(program.returncode, -signal.SIGKILL if batches else 0, err)
            handed.update(tuple(map(int, line.split())) for line in out.splitlines())
        return handed

    def test_every_row_once_an_epoch(self):
        for depth, job in ((0, JOB), (2, JOB[JOB.index("[train]"):])):  # a job needs no [data]
            with self.subTest(depth=depth), Fleet(workers=2, more="\n" + job) as fleet:
                handed = self.run_programs(fleet, (0, 0), depth)
            self.assertEqual(set(handed), {(epoch, row) for epoch in range(EPOCHS) for row in range(ROWS)})
            self.assertEqual(set(handed.values()), {1})

    def test_the_rows_of_a_killed_worker_are_trained_by_the_others(self):
        for dies_at in (6.5, 7):  # the servers may have its last step or not
            with self.subTest(dies_at=dies_at):
                self.rows_of_a_killed_worker(dies_at)

    def rows_of_a_killed_worker(self, dies_at):
        with Fleet(workers=2, more='durability = "checkpoint"' + JOB.replace(f"epochs = {EPOCHS}", "epochs = 1")) as fleet:
            handed = self.run_programs(fleet, (0, dies_at), 1)
            values = fleet.folder / "values.npz"
            fleet.wait()
            subprocess.run([BIN / "tarn-inspect", "npz", fleet.folder / "run", values], check=True, stdout=subprocess.DEVNULL)
            table = np.load(values)
            rows = dict(zip(table["0.keys"].tolist(), table["0.values"][:, 0].tolist()))
        self.assertEqual(set(handed), {(0, row) for row in range(ROWS)})
        if dies_at == 6.5:
            self.assertGreater(max(handed.values()), 1, "the killed worker had rows that were not trained")
        # A row moves by half the rate in a clock of both workers, by the rate in a clock of the survivor. A row that
        # was trained twice would move further.
        self.assertEqual(set(rows), set(range(ROWS)))
        self.assertEqual(set(rows.values()), {-RATE / 2, -RATE})

    def train(self, loader, last=None, again=False):
        """One worker, one epoch. loader(data, model); breaks after batch `last` of each iteration. `again`: each iteration has
        a LeasedDataset of its own. Returns all rows."""
        rows, begun = [], -1
        with Fleet(more=JOB.replace(f"epochs = {EPOCHS}", "epochs = 1")) as fleet, tarn.connect(fleet.address) as ps:
            model = tarn.torch.remote(torch.nn.Embedding(ROWS, 1, device="meta"), ps, initializer="zero")
            optimizer = tarn.torch.attach(model)
            data = tarn.torch.LeasedDataset(torch.arange(ROWS), client=ps)
            while begun < len(rows):
                begun = len(rows)
                data = tarn.torch.LeasedDataset(torch.arange(ROWS), client=ps) if again else data
                for i, ids in enumerate(loader(data, model)):
                    rows += ids.tolist()
                    model(ids).sum().backward()
                    optimizer.step()
                    if i == last:
                        break
            trained = ps.table("embedding").pull(np.arange(ROWS)).wait()[:, 0]
            self.assertEqual(set(trained.tolist()), {-RATE})
        return rows

    def test_a_loader_around_it_that_is_pulled_ahead(self):
        rows = self.train(lambda data, model: tarn.torch.prefetch(DataLoader(data, batch_size=None), model, depth=3))
        self.assertEqual(sorted(rows), list(range(ROWS)))

    def test_an_iteration_that_is_broken_off(self):
        """The next one continues the epoch, also with the batches that were read ahead."""
        for depth, again in ((None, False), (None, True), (3, False), (3, True)):
            with self.subTest(depth=depth, again=again):
                rows = self.train(lambda data, model: data if depth is None else tarn.torch.prefetch(data, model, depth), 2, again)
                self.assertEqual(sorted(rows), list(range(ROWS)))

    def test_a_generator_around_it_that_is_pulled_ahead(self):
        """Such as one that copies the batches to another device, or another prefetch()."""
        for wrap, last in itertools.product((lambda data, model: (ids.clone() for ids in data), tarn.torch.prefetch), (None, 2)):
            with self.subTest(wrap=wrap, last=last):
                rows = self.train(lambda data, model: tarn.torch.prefetch(wrap(data, model), model, depth=3), last)
                self.assertEqual(sorted(rows), list(range(ROWS)))

    def test_ranks_with_batches_of_different_sizes(self):
        """The default batch size is that of the lease, so that the ranks agree on the number of clocks of an epoch."""
        shares = JOB.replace("batch_rows = 16", "batch_rows = 16\nbatch_shares = [3, 1]")
        with Fleet(workers=2, more=shares) as fleet:
            handed = self.run_programs(fleet, (0, 0), 1)
        self.assertEqual(set(handed), {(epoch, row) for epoch in range(EPOCHS) for row in range(ROWS)})
        self.assertEqual(set(handed.values()), {1})

    def test_more_steps_than_the_scheduler_counts(self):
        with Fleet(more=JOB) as fleet, tarn.connect(fleet.address) as ps:
            model = tarn.torch.remote(torch.nn.Embedding(ROWS, 1, device="meta"), ps, initializer="zero")
            optimizer = tarn.torch.attach(model)
            with self.assertRaisesRegex(ValueError, "step 5 with 64 leased rows, .* counts 4 steps of 16 rows"):
                for ids in tarn.torch.LeasedDataset(torch.arange(ROWS), 8, client=ps):
                    model(ids).sum().backward()
                    optimizer.step()

    def test_what_cannot_be_iterated(self):
        with Fleet(more=JOB) as fleet, tarn.connect(fleet.address) as ps:
            data = tarn.torch.LeasedDataset(TensorDataset(torch.arange(ROWS)), client=ps)
            with self.assertRaisesRegex(RuntimeError, "num_workers=0"):
                next(iter(DataLoader(data, batch_size=None, num_workers=1)))
            with self.assertRaisesRegex(ValueError, "no batch has been handed out"):
                data.report(0.5)
            batch, = next(iter(data))
            data.report(torch.tensor(0.5), torch.zeros(len(batch), dtype=torch.bfloat16), torch.ones(len(batch)))  # of autocast
            with self.assertRaisesRegex(ValueError, f"5 rows, but an earlier LeasedDataset of this client has {ROWS}"):
                tarn.torch.LeasedDataset(torch.arange(5), client=ps)
            with self.assertRaisesRegex(ValueError, r"is \(True, 3\), but of an earlier .* \(False, 0\)"):
                tarn.torch.LeasedDataset(torch.arange(ROWS), shuffle=True, seed=3, client=ps)
            with self.assertRaisesRegex(ValueError, "0 rows"):
                tarn.torch.LeasedDataset([], client=ps)
            ids, = next(iter(DataLoader(data, batch_size=None)))
            self.assertEqual(len(ids), 16)


if __name__ == "__main__":
    unittest.main()
