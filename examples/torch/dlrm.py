"""DLRM on generated click-through data in the shape of Criteo's: 13 numbers, 26 ids, a click or none.

    tools/launch examples/torch/dlrm.toml -- python3 examples/torch/dlrm.py

Shows: the 26 embedding tables, 33.8 million rows, are in a tarn fleet and are never allocated; the dense layers are in
torch under DistributedDataParallel, one process for each worker of the job (--set fleet.workers=1 needs none). The five
lines that mention tarn are all that distinguishes it from a program of torch alone. Needs torch and NumPy.

Expect: half a minute on two cores for a million rows. The clicks are drawn from a hidden model, whose own test AUC is
printed as the best possible, about 0.80. DLRM reaches 0.74: most ids are rare, and are seen once or never.

Model: Naumov et al., "Deep learning recommendation model for personalization and recommendation systems", 2019.
"""

import argparse
import os
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import tarn.torch

NUMBERS = 13
# Distinct values of the 26 columns of ids in Criteo's data set of 2014.
ROWS = [1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992, 5461306, 10, 5652,
        2173, 4, 7046547, 18, 15, 286181, 105, 142572]
DIM = 16
WORKERS, RANK = int(os.environ.get("TARN_WORKERS", 1)), int(os.environ.get("TARN_RANK", 0))


class DLRM(nn.Module):
    """numbers: float32 [batch, 13], ids: int64 [batch, 26]. Returns logits, float32 [batch]."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList([nn.EmbeddingBag(rows, DIM, mode="sum", device="meta") for rows in ROWS])
        self.bottom = nn.Sequential(nn.Linear(NUMBERS, 64), nn.ReLU(), nn.Linear(64, DIM), nn.ReLU())
        vectors = len(ROWS) + 1
        pairs = torch.tril_indices(vectors, vectors, -1)
        self.register_buffer("pairs", pairs[0] * vectors + pairs[1], persistent=False)
        self.top = nn.Sequential(nn.Linear(DIM + len(self.pairs), 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, numbers, ids):
        dense = self.bottom(numbers)
        vectors = torch.stack([dense, *(table(ids[:, i, None]) for i, table in enumerate(self.tables))], dim=1)
        products = (vectors @ vectors.transpose(1, 2)).flatten(1)[:, self.pairs]
        return self.top(torch.cat([dense, products], dim=1)).squeeze(1)


class Clicks:
    """The hidden model: each id has an effect and a direction, drawn by a hash; directions of neighbouring columns
    attract or repel each other."""

    def __init__(self, seed):
        self._random = np.random.default_rng(seed)

    def batch(self, size):
        """numbers float32 [size, 13], ids int64 [size, 26], clicks float32 [size], true logits float64 [size]."""
        numbers = self._random.normal(size=(size, NUMBERS)).astype(np.float32)
        # Few ids are frequent and most are rare: the logarithm of an id is uniform.
        ids = np.exp(self._random.random((size, len(ROWS))) * np.log(ROWS)).astype(np.int64) - 1
        effects, angles = self._hash(ids, 1) - 0.5, self._hash(ids, 2) * 2 * np.pi
        logits = (-1.4 + effects.sum(axis=1) * 0.8 + numbers[:, :4].sum(axis=1) * 0.25
                  + np.cos(angles[:, 1:] - angles[:, :-1]).sum(axis=1) * 0.15)
        clicks = self._random.random(size) < 1 / (1 + np.exp(-logits))
        return numbers, ids, clicks.astype(np.float32), logits

    @staticmethod
    def _hash(ids, salt):
        """Numbers from 0 to 1, the same for the same id, column and salt."""
        mixed = (ids.astype(np.uint64) * np.uint64(len(ROWS)) + np.arange(len(ROWS), dtype=np.uint64)) * np.uint64(4) + np.uint64(salt)
        for shift in (31, 29):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(0x9E3779B97F4A7C15)
        return (mixed >> np.uint64(40)).astype(np.float64) / 2**24


def batches(clicks, count, size):
    for _ in range(count):
        numbers, ids, labels, _ = clicks.batch(size)
        yield torch.from_numpy(numbers), torch.from_numpy(ids), torch.from_numpy(labels)


def auc(scores, labels):
    ranks = np.empty(len(scores))
    ranks[np.argsort(scores, kind="stable")] = np.arange(1, len(scores) + 1)
    positives = labels.sum()
    return (ranks[labels > 0].sum() - positives * (positives + 1) / 2) / (positives * (len(labels) - positives))


def test(model, rows):
    numbers, ids, labels, truth = Clicks(seed=0).batch(rows)
    with torch.no_grad():
        logits = model(torch.from_numpy(numbers), torch.from_numpy(ids)).numpy()
    print(f"test AUC {auc(logits, labels):.4f}, of the hidden model {auc(truth, labels):.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the training set, of all workers together")
    parser.add_argument("--batch", type=int, default=2048, help="rows of a batch, of each worker")
    options = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)

    model = tarn.torch.remote(DLRM(), initializer={"kind": "normal", "stddev": 0.1})
    if WORKERS > 1:
        meeting = f"file://{os.environ['TARN_RUN_DIR']}/torch"  # for workers on one machine
        torch.distributed.init_process_group("gloo", init_method=meeting, rank=RANK, world_size=WORKERS)
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
    tarn.torch.attach(model, optimizer)

    steps, started, losses = max(1, options.rows // options.batch // WORKERS), time.monotonic(), []
    loader = batches(Clicks(seed=1 + RANK), steps, options.batch)
    for step, (numbers, ids, labels) in enumerate(tarn.torch.prefetch(loader, model, depth=2), 1):
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(model(numbers, ids), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if RANK == 0 and (step % 50 == 0 or step == steps):
            rate = step * options.batch * WORKERS / (time.monotonic() - started)
            print(f"step {step} of {steps}: loss {np.mean(losses[-50:]):.4f}, {rate:,.0f} rows/s")
    if RANK == 0:
        test(model.module if WORKERS > 1 else model, 50_000)
    if WORKERS > 1:
        torch.distributed.barrier()  # no process ends its connections while others work
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
