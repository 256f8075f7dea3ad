"""A small model with three tables, for tests over a fake client."""

import torch
from torch import nn

import tarn.torch

SGD = {"kind": "sgd", "learning_rate": 0.5}


class Bags(nn.Module):
    """Three bags over the columns of [batch, 3, n] and a dense layer."""

    def __init__(self, rows=1000, device="meta"):
        super().__init__()
        self.bags = nn.ModuleList([nn.EmbeddingBag(rows, 4, mode="sum", device=device) for _ in range(3)])
        self.top = nn.Linear(12, 1)

    def forward(self, ids):
        return self.top(torch.cat([bag(ids[:, i]) for i, bag in enumerate(self.bags)], dim=1))


def attached(model, client, **options):
    model = tarn.torch.remote(model, client, optimizer=SGD)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, **options)
    return model, tarn.torch.attach(model, optimizer)


def ids_of(batch=5, rows=1000, seed=0):
    return torch.randint(0, rows, (batch, 3, 2), generator=torch.Generator().manual_seed(seed))
