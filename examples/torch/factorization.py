"""Matrix factorization of implicit feedback by BPR: a user likes what it chose better than what it did not.

    tools/launch examples/torch/factorization.toml -- python3 examples/torch/factorization.py
    ... --set consistency.mode=bsp ...     in lockstep
    PYTHONPATH=python python3 examples/torch/factorization.py --local     torch alone, the batches of both workers in turns

Shows: a model whose parameters are all in tables, so that attach(model) makes the optimizer; asynchronous SGD: no
worker waits for another, and a pull includes every gradient that the servers have applied. Needs torch and NumPy.

Expect: half a minute on two cores. Of 99 random items and the one that a user chose last, the model has the latter
among its first ten for about 63% of the users (HR@10), the hidden model that made the choices for about 77%, and chance
for 10%.

Methods: Rendle et al., "BPR: Bayesian personalized ranking from implicit feedback", UAI 2009; the measure of He et al.,
"Neural collaborative filtering", WWW 2017.
"""

import argparse
import os

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import tarn.torch

ITEMS, CHOICES, RANK_OF_TRUTH, DIM = 2_000, 20, 6, 16  # one more choice of each user is the test
WORKERS, RANK = int(os.environ.get("TARN_WORKERS", 1)), int(os.environ.get("TARN_RANK", 0))


class Factors(nn.Module):
    """users: int64 [n], items: int64 [n, m]. Returns scores, float32 [n, m]."""

    def __init__(self, users, **kind):
        super().__init__()
        self.users = nn.Embedding(users, DIM, **kind)
        self.items = nn.Embedding(ITEMS, DIM, **kind)

    def forward(self, users, items):
        return (self.users(users)[:, None] * self.items(items)).sum(dim=2)


def choices_of(users):
    """choices: int64 [users, CHOICES + 1], drawn with the scores of the hidden model: float64 [users, ITEMS]."""
    random = np.random.default_rng(0)
    taste, items = (random.normal(size=(n, RANK_OF_TRUTH)) for n in (users, ITEMS))
    scores = taste @ items.T
    # The largest of score + Gumbel noise are draws without replacement from the softmax of the scores.
    noisy = scores + random.gumbel(size=scores.shape)
    first = np.argpartition(-noisy, CHOICES + 1, axis=1)[:, :CHOICES + 1]
    return random.permuted(first, axis=1), scores


def hit_rate(score_of, choices):
    """The share of users whose last choice is among the ten with the highest scores of it and 99 random items."""
    others = np.random.default_rng(2).integers(ITEMS, size=(len(choices), 99))
    items = np.concatenate([choices[:, -1:], others], axis=1)
    scores = score_of(items)
    rivals = (scores > scores[:, :1]) & (items != items[:, :1])
    return (rivals.sum(axis=1) < 10).mean()


def batches(choices, size, steps, rank=RANK):
    random = np.random.default_rng(3 + rank)
    for _ in range(steps):
        user = random.integers(len(choices), size=size)
        chosen, other = choices[user, random.integers(CHOICES, size=size)], random.integers(ITEMS, size=size)
        yield torch.from_numpy(user), torch.from_numpy(np.stack([chosen, other], axis=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=5_000)
    parser.add_argument("--steps", type=int, default=4_000, help="of each worker")
    parser.add_argument("--batch", type=int, default=256, help="pairs of a batch, of each worker")
    parser.add_argument("--local", action="store_true", help="without a fleet, in this process")
    options = parser.parse_args()
    torch.set_num_threads(1)
    choices, truth = choices_of(options.users)

    if options.local:
        model = Factors(options.users, sparse=True)
        for each in model.parameters():
            nn.init.normal_(each, std=0.1)
        optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
        both = [batches(choices, options.batch, options.steps, rank) for rank in range(2)]
        loader, options.steps = (batch for pair in zip(*both) for batch in pair), 2 * options.steps
    else:
        model = tarn.torch.remote(Factors(options.users, device="meta"), initializer={"kind": "normal", "stddev": 0.1})
        optimizer = tarn.torch.attach(model)
        loader = tarn.torch.prefetch(batches(choices, options.batch, options.steps), model, depth=1)
    losses = []
    for step, (users, items) in enumerate(loader, 1):
        optimizer.zero_grad()
        scores = model(users, items)
        loss = F.softplus(scores[:, 1] - scores[:, 0]).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if RANK == 0 and (step % 1000 == 0 or step == options.steps):
            print(f"step {step} of {options.steps}: loss {np.mean(losses[-1000:]):.4f}")
    if RANK == 0:
        with torch.no_grad():
            found = hit_rate(lambda items: model(torch.arange(options.users), torch.from_numpy(items)).numpy(), choices)
        print(f"HR@10 {found:.4f}, of the hidden model {hit_rate(lambda items: np.take_along_axis(truth, items, 1), choices):.4f}")


if __name__ == "__main__":
    main()
