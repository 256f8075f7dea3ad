"""A mixture of experts: each row goes to two of eight experts, which are spread over the workers.

    tools/launch examples/torch/moe.toml -- python3 examples/torch/moe.py

Shows: expert parallelism beside tables. The users' embeddings are in a tarn fleet. The experts are in torch, four on
each of two workers: a worker sends every row to the workers that have its experts, and gets the results back, by
torch's all-to-all over gloo. The router chooses the two best experts of a row; a loss that is least when all experts
get equally many rows keeps it from always choosing the same ones (Fedus et al., "Switch transformers", 2021, equation
4). Gradients of the shared parameters are averaged over the workers; those of the experts are not exchanged. Needs
torch and NumPy.

Expect: 13 seconds on two cores for 600 steps. Users are of eight kinds; each kind has a rule of its own for what it
likes. Accuracy 0.98; with one expert, which sees as many rows, 0.95 (--set fleet.workers=1, --experts 1 --batch 2048).
The share of each expert in the rows is printed: from 10% to 16% at the end, with --balance 0 from 6% to 20%.

Model: Shazeer et al., "Outrageously large neural networks: the sparsely-gated mixture-of-experts layer", 2017.
"""

import argparse

import numpy as np
import torch
from torch import distributed, nn
from torch.nn import functional as F

import tarn.torch
import workers
from workers import RANK, WORKERS

USERS, KINDS, DIM, HIDDEN, CHOSEN = 2_000, 8, 16, 16, 2
WIDTH = 2 * DIM  # of a row: the user and the context


class AllToAll(torch.autograd.Function):
    """Sends rows [sum(sent), n] to the workers in order, sent[i] of them to worker i; returns what they sent here."""

    @staticmethod
    def forward(ctx, rows, sent, received):
        ctx.sent, ctx.received = sent, received
        if WORKERS == 1:
            return rows.clone()
        out = rows.new_empty(sum(received), *rows.shape[1:])
        distributed.all_to_all_single(out, rows.contiguous(), received, sent)
        return out

    @staticmethod
    def backward(ctx, gradients):
        return AllToAll.apply(gradients, ctx.received, ctx.sent), None, None


class Experts(nn.Module):
    """float32 [rows, WIDTH] -> the same, each row through the CHOSEN experts that the router scores highest. After a
    call, `shares` has each expert's share of the rows, and `imbalance` a loss, which is 1 if the shares are equal."""

    def __init__(self, experts):
        super().__init__()
        self.experts, self.chosen = experts, min(CHOSEN, experts)
        self.router = nn.Linear(WIDTH, experts, bias=False)
        self.own = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH))
                                 for _ in range(experts // WORKERS))

    def forward(self, rows):
        scores = self.router(rows).softmax(dim=1)
        weights, chosen = scores.topk(self.chosen, dim=1)
        expert_of, order = chosen.flatten().sort(stable=True)  # rows by expert, and so by worker
        counts = expert_of.bincount(minlength=self.experts)
        self.shares = counts / len(expert_of)
        self.imbalance = self.experts * (self.shares * scores.mean(dim=0)).sum()
        results = self._exchange(rows[order // self.chosen], counts)
        back = torch.empty_like(results).index_copy(0, order, results)
        return (back.view(len(rows), self.chosen, WIDTH) * weights[:, :, None]).sum(dim=1)

    def _exchange(self, rows, counts):
        """Computes `rows`, sorted by expert, counts[i] of them by expert i. Returns the result of each row, in the same
        order."""
        arriving = counts.view(WORKERS, -1)  # number of rows, by worker that sends them and by expert here
        if WORKERS > 1:
            distributed.all_to_all_single(arriving := torch.empty_like(arriving), counts.view(WORKERS, -1))
        sent, received = counts.view(WORKERS, -1).sum(dim=1).tolist(), arriving.sum(dim=1).tolist()
        mine = AllToAll.apply(rows, sent, received)
        parts = mine.split(arriving.flatten().tolist())  # by worker, then by expert
        done = [self.own[i % len(self.own)](part) for i, part in enumerate(parts)]
        return AllToAll.apply(torch.cat(done), received, sent)


class Model(nn.Module):
    """users int64 [batch], contexts float32 [batch, DIM]. Returns logits, float32 [batch]."""

    def __init__(self, experts):
        super().__init__()
        self.users = nn.Embedding(USERS, DIM, device="meta")
        self.experts, self.top = Experts(experts), nn.Linear(WIDTH, 1)

    def forward(self, users, contexts):
        return self.top(self.experts(torch.cat([self.users(users), contexts], dim=1))).squeeze(1)

    def shared(self):
        """The parameters of which every worker has a copy."""
        return [*self.experts.router.parameters(), *self.top.parameters()]


def batches(size, seed):
    """users int64 [size], contexts float32 [size, DIM], labels float32 [size], by the rule of the user's kind."""
    hidden, random = np.random.default_rng(0), np.random.default_rng(seed)
    rules = hidden.normal(size=(KINDS, DIM)).astype(np.float32)
    while True:
        users = random.integers(USERS, size=size)
        contexts = random.normal(size=(size, DIM)).astype(np.float32)
        liked = np.einsum("bd,bd->b", contexts, rules[users % KINDS]) > 0
        yield torch.from_numpy(users), torch.from_numpy(contexts), torch.from_numpy(liked.astype(np.float32))


def average(parameters):
    """Averages the gradients over all workers, as DistributedDataParallel does for models that are equal everywhere."""
    gradients = torch.cat([each.grad.flatten() for each in parameters])
    distributed.all_reduce(gradients)
    for each, part in zip(parameters, gradients.split([each.numel() for each in parameters])):
        each.grad.copy_(part.view_as(each) / WORKERS)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch", type=int, default=1024, help="rows of a batch, of each worker")
    parser.add_argument("--experts", type=int, default=8, help="a multiple of the number of workers, or 1 with one worker")
    parser.add_argument("--balance", type=float, default=0.01, help="weight of the loss that evens out the experts' rows")
    options = parser.parse_args()
    if options.experts % WORKERS:
        parser.error(f"--experts {options.experts}: expected a multiple of {WORKERS} workers")
    torch.manual_seed(1 + RANK)  # experts differ
    torch.set_num_threads(1)

    model = tarn.torch.remote(Model(options.experts), initializer={"kind": "normal", "stddev": 0.5})
    if WORKERS > 1:
        workers.meet()
        for parameter in model.shared():
            distributed.broadcast(parameter.data, src=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    tarn.torch.attach(model, optimizer)

    right = []
    loader = (batch for batch, _ in zip(batches(options.batch, 1 + RANK), range(options.steps)))
    for step, (users, contexts, labels) in enumerate(tarn.torch.prefetch(loader, model), 1):
        optimizer.zero_grad()
        logits = model(users, contexts)
        loss = F.binary_cross_entropy_with_logits(logits, labels) + options.balance * model.experts.imbalance
        loss.backward()
        for expert in model.experts.own.parameters():
            expert.grad = torch.zeros_like(expert) if expert.grad is None else expert.grad / WORKERS
        if WORKERS > 1:
            average(model.shared())
        optimizer.step()
        right.append(((logits > 0) == (labels > 0)).float().mean().item())
        tarn.torch.report(accuracy=right[-1], largest_share=model.experts.shares.max())
        if RANK == 0 and (step % 100 == 0 or step == options.steps):
            shares = " ".join(f"{share:.0%}" for share in model.experts.shares.tolist())
            print(f"step {step}: accuracy {np.mean(right[-100:]):.4f}, rows of each expert {shares}")
    if WORKERS > 1:
        workers.part()


if __name__ == "__main__":
    main()
