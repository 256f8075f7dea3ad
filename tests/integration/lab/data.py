"""A small generated libsvm set: clicks of a known logistic model over 60 features."""

import math
import random

FEATURES = 60


def write(path, rows, seed):
    rng = random.Random(seed)
    weights = random.Random(1)
    truth = [weights.gauss(0, 1) for _ in range(FEATURES)]
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(rows):
            features = sorted(rng.sample(range(FEATURES), 6))
            chance = 1 / (1 + math.exp(-sum(truth[feature] for feature in features)))
            file.write(f"{int(rng.random() < chance)} " + " ".join(f"{feature + 1}:1" for feature in features) + "\n")


JOB = """[job]
name = "small"
[fleet]
servers = 2
workers = 4
[data]
dir = "{folder}"
format = "libsvm"
train = "train.txt"
valid = "valid.txt"
test = "test.txt"
[model]
kind = "logistic_regression"
[train]
batch_rows = 16
[optimizer]
kind = "sgd"
learning_rate = 0.5
"""


def make(folder):
    """Writes the data and job.toml. Returns the path of the job."""
    write(folder / "train.txt", 3000, 2)
    write(folder / "valid.txt", 500, 3)
    write(folder / "test.txt", 500, 4)
    job = folder / "job.toml"
    job.write_text(JOB.format(folder=folder), encoding="utf-8")
    return job
