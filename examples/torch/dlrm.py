"""DLRM on generated click-through data in the shape of Criteo's: 13 numbers, 26 ids, a click or none.

    tools/launch examples/torch/dlrm.toml -- python3 examples/torch/dlrm.py

Shows: the 26 embedding tables have 33.8 million rows; they are in a tarn fleet, and torch allocates none of them. The
dense layers are in torch under DistributedDataParallel, one process for each worker of the job (with --set
fleet.workers=1 it is not used). Apart from the four lines that mention tarn and device="meta", it is a program of torch
alone. Needs torch and NumPy.

Expect: half a minute on two cores for a million rows. The clicks are drawn from a hidden model, whose own test AUC is
printed as the best possible, about 0.80. DLRM reaches 0.74: most ids are rare, and are seen once or never.

Model: Naumov et al., "Deep learning recommendation model for personalization and recommendation systems", 2019.
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

DIM = 16


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
