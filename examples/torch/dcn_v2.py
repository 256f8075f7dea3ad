"""DCN v2 on generated click-through data in the shape of Criteo's: 13 numbers, 26 ids, a click or none.

    tools/launch examples/torch/dcn_v2.toml -- python3 examples/torch/dcn_v2.py

Shows: bounded staleness. The job is "ssp": rows may lack the updates of the last two clocks, so that the rows of the
next two batches arrive while the model computes. The 26 embedding tables, 33.8 million rows, are in a tarn fleet; torch
allocates none of them. The dense layers are in torch under DistributedDataParallel, one process for each worker. Needs
torch and NumPy.

Expect: 20 seconds on two cores for a million rows. The clicks are drawn from a hidden model, whose own test AUC is
printed as the best possible, about 0.80. DCN v2 reaches 0.745: most ids are rare, and are seen once or never.

Model: Wang et al., "DCN V2: Improved deep & cross network and practical lessons for web-scale learning to rank
systems", 2021, with the low-rank cross layers of its section 3.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import tarn.torch
import workers
from clicks import NUMBERS, ROWS, Clicks, auc, batches
from workers import RANK, WORKERS

DIM, CROSSES, RANK_OF_CROSS = 8, 2, 32


class Cross(nn.Module):
    """x0 * (U V x + b) + x, with U and V of a low rank."""

    def __init__(self, width, rank):
        super().__init__()
        self.down, self.up = nn.Linear(width, rank, bias=False), nn.Linear(rank, width)

    def forward(self, x0, x):
        return x0 * self.up(self.down(x)) + x


class DCNv2(nn.Module):
    """numbers: float32 [batch, 13], ids: int64 [batch, 26]. Returns logits, float32 [batch]."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList([nn.EmbeddingBag(rows, DIM, mode="sum", device="meta") for rows in ROWS])
        width = NUMBERS + len(ROWS) * DIM
        self.crosses = nn.ModuleList([Cross(width, RANK_OF_CROSS) for _ in range(CROSSES)])
        self.top = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, numbers, ids):
        x0 = x = torch.cat([numbers, *(table(ids[:, i, None]) for i, table in enumerate(self.tables))], dim=1)
        for cross in self.crosses:
            x = cross(x0, x)
        return self.top(x).squeeze(1)


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

    model = tarn.torch.remote(DCNv2(), initializer={"kind": "normal", "stddev": 0.1})
    if WORKERS > 1:
        workers.meet()
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
        workers.part()


if __name__ == "__main__":
    main()
