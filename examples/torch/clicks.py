"""Generated click-through data in the shape of Criteo's, for dlrm.py and dcn_v2.py."""

import numpy as np
import torch

NUMBERS = 13
# Distinct values of the 26 columns of ids in Criteo's data set of 2014.
ROWS = [1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992, 5461306, 10, 5652,
        2173, 4, 7046547, 18, 15, 286181, 105, 142572]


class Clicks:
    """Draws rows from the hidden model: the logit of a row is a weighted sum of an effect of each id, of some numbers,
    and of the cosines between the directions of the ids of neighbouring columns. Effects and directions are hashes of
    the ids."""

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
        """Numbers from 0 to 1, a function of id, column and salt."""
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
