"""word2vec: vectors of words from a text, by skip-gram with negative sampling.

    tools/launch examples/torch/word2vec.toml -- python3 examples/torch/word2vec.py

Shows: a model all of whose parameters are in tables, so that attach(model) needs no optimizer of torch; asynchronous
workers, none of which waits for another; reading the vectors from the tables at the end. Needs torch and NumPy.

Expect: 15 seconds on two cores for a million words. The text is generated: its words belong to twenty subjects, and it
keeps to one subject for a while. Of the ten words nearest to a word, 99% are of its subject, by chance 5% would be. The
ten nearest to some words are printed.

Model: Mikolov et al., "Distributed representations of words and phrases and their compositionality", 2013.
"""

import argparse

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import tarn.torch
from workers import RANK, WORKERS

SUBJECTS = ["sea", "bread", "music", "war", "law", "garden", "engine", "winter", "market", "school",
            "river", "horse", "glass", "paper", "night", "stone", "money", "travel", "health", "theatre"]
OF_SUBJECT = 100  # words
WORDS = [f"{subject}-{i}" for subject in SUBJECTS for i in range(OF_SUBJECT)]
WINDOW, NEGATIVES, DIM = 4, 5, 32


class SkipGram(nn.Module):
    """words, contexts int64 [batch], others int64 [batch, NEGATIVES]. Returns each pair's loss, float32 [batch]."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(len(WORDS), DIM, device="meta")
        self.contexts = nn.Embedding(len(WORDS), DIM, device="meta")

    def forward(self, words, contexts, others):
        vectors = self.words(words)
        found = (vectors * self.contexts(contexts)).sum(dim=1)
        drawn = (self.contexts(others) @ vectors[:, :, None]).squeeze(2)
        return -F.logsigmoid(found) - F.logsigmoid(-drawn).sum(dim=1)


def text(count, random):
    """`count` words, int64: one subject for 25 words on average; one word in five is of a random subject. Words with
    low numbers are frequent."""
    changes = random.random(count) < 1 / 25
    subjects = random.integers(len(SUBJECTS), size=count)[np.maximum.accumulate(np.where(changes, np.arange(count), 0))]
    strays = random.random(count) < 0.2
    subjects[strays] = random.integers(len(SUBJECTS), size=strays.sum())
    ranks = np.exp(random.random(count) * np.log(OF_SUBJECT)).astype(np.int64) - 1
    return subjects * OF_SUBJECT + ranks


def batches(words, size, random):
    """Pairs of words at most WINDOW apart, in random order, each with NEGATIVES words drawn from the text."""
    count = len(words) - WINDOW
    for _ in range(count * WINDOW // size):
        places, distances = random.integers(count, size=size), random.integers(1, WINDOW + 1, size=size)
        pairs = words[places], words[places + distances]
        first = random.integers(2, size=size)
        one, other = np.where(first, pairs[0], pairs[1]), np.where(first, pairs[1], pairs[0])
        drawn = words[random.integers(len(words), size=(size, NEGATIVES))]
        yield torch.from_numpy(one), torch.from_numpy(other), torch.from_numpy(drawn)


def show(vectors):
    """Prints the nearest words of a few, and the share of neighbours of the same subject."""
    vectors = F.normalize(vectors, dim=1)
    nearest = (vectors @ vectors.T).fill_diagonal_(-1).topk(10, dim=1).indices
    for word in (0, 3 * OF_SUBJECT + 1, 9 * OF_SUBJECT + 2):
        print(f"near {WORDS[word]}: {', '.join(WORDS[i] for i in nearest[word])}")
    same = (nearest // OF_SUBJECT == torch.arange(len(WORDS))[:, None] // OF_SUBJECT).float().mean()
    print(f"share of neighbours of the same subject {same:.3f}, by chance {OF_SUBJECT / len(WORDS):.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--words", type=int, default=1_000_000, help="of the text, of all workers together")
    parser.add_argument("--batch", type=int, default=4096, help="pairs of words")
    options = parser.parse_args()
    torch.set_num_threads(1)

    model = tarn.torch.remote(SkipGram(), initializer={"kind": "uniform", "low": -0.1, "high": 0.1})
    optimizer = tarn.torch.attach(model)
    random, losses = np.random.default_rng(RANK), []
    loader = batches(text(options.words // WORKERS, random), options.batch, random)
    for step, batch in enumerate(tarn.torch.prefetch(loader, model), 1):
        optimizer.zero_grad()
        loss = model(*batch).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        tarn.torch.report(loss=losses[-1])
        if RANK == 0 and step % 100 == 0:
            print(f"step {step}: loss {np.mean(losses[-100:]):.4f}")
    model.words.session.client.barrier()  # all workers have pushed
    if RANK == 0:
        with torch.no_grad():
            show(model.words(torch.arange(len(WORDS))))


if __name__ == "__main__":
    main()
