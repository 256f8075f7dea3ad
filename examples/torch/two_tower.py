"""Two-tower retrieval: a user and an item become vectors whose dot product is the score of the pair.

    tools/launch examples/torch/two_tower.toml -- python3 examples/torch/two_tower.py

Shows: three embedding tables in a tarn fleet, of which one, the items, is used by both towers in the same step (its
gradients are summed and pushed once); in-batch negatives with the correction for popular items; towers in torch under
DistributedDataParallel, one process for each worker. Needs torch and NumPy.

Expect: about a minute on two cores. Choices are drawn from a hidden model, whose ten highest-ranked items of 5,000
contain the next choice of a user in about 21% of all cases, the best possible. The ten most popular items do in 4%, and
the trained towers in about 17%.

Model: Yi et al., "Sampling-bias-corrected neural modeling for large corpus item recommendations", RecSys 2019.
"""

import argparse

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import tarn.torch
import workers
from workers import RANK, WORKERS

USERS, ITEMS, CATEGORIES, RANK_OF_TRUTH = 20_000, 5_000, 50, 8
SEEN, TRAINED = 10, 20  # choices of a user: shown to the user tower, and learned from; one more is the test
DIM = 32


class Choices:
    """choices: int64 [users, SEEN + TRAINED + 1], categories: int64 [ITEMS], best: the share of users whose last
    choice is among the ten items that the hidden model ranks highest."""

    def __init__(self, users):
        random = np.random.default_rng(0)
        centres = random.normal(size=(CATEGORIES, RANK_OF_TRUTH))
        self.categories = random.integers(CATEGORIES, size=ITEMS)
        items = centres[self.categories] + 0.5 * random.normal(size=(ITEMS, RANK_OF_TRUTH))
        taste = random.normal(size=(users, RANK_OF_TRUTH))
        popularity = random.normal(size=ITEMS)
        self.choices, hits = np.empty((users, SEEN + TRAINED + 1), np.int64), 0
        for first in range(0, users, 1000):
            scores = taste[first:first + 1000] @ items.T / RANK_OF_TRUTH**0.5 * 2 + popularity
            shares = np.cumsum(np.exp(scores), axis=1)
            for user, (share, score) in enumerate(zip(shares, scores), first):
                chosen = np.searchsorted(share, random.random(SEEN + TRAINED + 1) * share[-1])
                self.choices[user] = np.minimum(chosen, ITEMS - 1)
                hits += (score > score[self.choices[user, -1]]).sum() < 10
        self.best = hits / users


class TwoTower(nn.Module):
    """users: int64 [batch], seen: int64 [batch, SEEN], items, categories: int64 [n]. Returns float32 [batch, DIM] and
    [n, DIM]."""

    def __init__(self):
        super().__init__()
        self.users = nn.Embedding(USERS, DIM, device="meta")
        self.items = nn.Embedding(ITEMS, DIM, device="meta")
        self.categories = nn.Embedding(CATEGORIES, DIM, device="meta")
        self.user_tower = nn.Sequential(nn.Linear(2 * DIM, 64), nn.ReLU(), nn.Linear(64, DIM))
        self.item_tower = nn.Sequential(nn.Linear(2 * DIM, 64), nn.ReLU(), nn.Linear(64, DIM))

    def forward(self, users, seen, items, categories):
        user = self.user_tower(torch.cat([self.users(users), self.items(seen).mean(dim=1)], dim=1))
        item = self.item_tower(torch.cat([self.items(items), self.categories(categories)], dim=1))
        return user, item


def batches(data, users, size, steps):
    """Pairs of a user and one of its choices."""
    random, categories = np.random.default_rng(1 + RANK), torch.from_numpy(data.categories)
    for _ in range(steps):
        user = random.integers(users, size=size)
        item = data.choices[user, random.integers(SEEN, SEEN + TRAINED, size=size)]
        items = torch.from_numpy(item)
        yield torch.from_numpy(user), torch.from_numpy(data.choices[user, :SEEN]), items, categories[items]


def hits(model, data, users):
    """The share of users whose last choice is among the ten items with the highest scores."""
    found, everything, categories = 0, torch.arange(ITEMS), torch.from_numpy(data.categories)
    with torch.no_grad():
        for user in torch.arange(users).split(2000):
            choices = torch.from_numpy(data.choices[user.numpy()])
            of_users, of_items = model(user, choices[:, :SEEN], everything, categories)
            scores = of_users @ of_items.T
            found += int((scores > scores.gather(1, choices[:, -1:])).sum(dim=1).lt(10).sum())
    return found / users


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=3000, help="of each worker")
    parser.add_argument("--batch", type=int, default=512, help="pairs of a batch, of each worker")
    parser.add_argument("--users", type=int, default=USERS)
    options = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    data = Choices(options.users)
    counts = np.bincount(data.choices[:, SEEN:-1].reshape(-1), minlength=ITEMS)
    frequency = torch.from_numpy(np.log(np.maximum(counts, 1) / counts.sum())).float()

    model = tarn.torch.remote(TwoTower(), initializer={"kind": "normal", "stddev": 0.1})
    if WORKERS > 1:
        workers.meet()
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    tarn.torch.attach(model, optimizer)

    losses = []
    loader = batches(data, options.users, options.batch, options.steps)
    for step, batch in enumerate(tarn.torch.prefetch(loader, model, depth=2), 1):
        optimizer.zero_grad()
        user, item = model(*batch)
        # The other items of the batch are the negatives. Popular items are negatives more often than rare ones;
        # subtracting the logarithm of the frequency corrects this.
        logits = user @ item.T - frequency[batch[2]]
        same = batch[2][:, None] == batch[2][None, :]
        logits = logits.masked_fill(same & ~torch.eye(len(same), dtype=torch.bool), float("-inf"))
        loss = F.cross_entropy(logits, torch.arange(len(logits)))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if RANK == 0 and (step % 500 == 0 or step == options.steps):
            print(f"step {step} of {options.steps}: loss {np.mean(losses[-500:]):.4f}")
    if RANK == 0:
        popular = np.argsort(-counts)[:10]
        print(f"hits in the first ten: {hits(model.module if WORKERS > 1 else model, data, options.users):.4f}, of the most "
              f"popular {np.isin(data.choices[:, -1], popular).mean():.4f}, of the hidden model {data.best:.4f}")
    if WORKERS > 1:
        workers.part()


if __name__ == "__main__":
    main()
