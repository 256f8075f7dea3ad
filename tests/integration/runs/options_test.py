"""Shows, in real fleets on small data, what options of a job promise: early stopping keeps the best epoch, no pull is
staler than the bound, half-precision codecs halve the bytes of values without harm, int8 and held keys save more, and
clipping holds training back. And that docs/run.md describes every field in the files of a run."""

import json
import math
import re
import unittest

from fleet_case import ROOT, FleetCase

CHANCE_LOGLOSS = math.log(2)  # of a model that has learnt nothing


def settings(**values):
    """--set arguments; section__key=value stands for section.key."""
    return [part for key, value in values.items() for part in ("--set", f"{key.replace('__', '.')}={value}")]


def fields(value):
    """The names of all fields in a JSON value."""
    if isinstance(value, dict):
        return set(value).union(*(fields(inner) for inner in value.values()))
    return set().union(*(fields(inner) for inner in value)) if isinstance(value, list) else set()


class OptionsTest(FleetCase):
    rows = 4_000

    def run_with(self, name, job=None, **values):
        return self.run_ok(job or self.job(), name, *settings(**values))

    def test_early_stopping_keeps_the_best_epoch(self):
        job = self.job(epochs=30, valid="valid.tsv", test="test.tsv", durability="checkpoint")
        summary = self.run_with("patience", job, train__patience=2, optimizer__learning_rate=0.2)
        epochs = summary["epochs"]
        losses = [epoch["valid"]["logloss"] for epoch in epochs]
        best = losses.index(min(losses))
        self.assertLess(len(epochs), 30)
        self.assertEqual(len(epochs), best + 1 + 2, losses)
        self.assertEqual(summary["best_epoch"], best + 1)
        self.assertEqual(epochs[best]["epoch"], best + 1)
        self.assertEqual(summary["eval_logloss"], epochs[best]["test"]["logloss"])
        self.assertEqual(summary["samples"], len(epochs) * self.rows)
        self.assertTrue(summary["best_checkpoint"])

    def test_every_field_is_documented(self):
        job = self.job(durability="log", memory="64MiB", valid="valid.tsv", test="test.tsv", epochs=2)
        told = fields(self.run_with("documented", job))
        for line in (self.folder / "documented/metrics.jsonl").read_text().splitlines():
            told |= fields(json.loads(line))
        known = set(re.findall(r"`(\w+)`", (ROOT / "docs/run.md").read_text()))
        self.assertEqual(sorted(told - known), [])

    def test_no_pull_is_staler_than_the_bound(self):
        for mode, bound in (("ssp", 0), ("ssp", 1), ("ssp", 3), ("bsp", 0)):
            job = self.job(workers=3, mode=mode, staleness=bound, apply="immediate", batch_rows=32)
            summary = self.run_with(f"{mode}-{bound}", job, train__prefetch=8)
            self.assertEqual(summary["staleness_bound"], bound)
            self.assertLessEqual(summary["staleness_max"], bound)
            pulls = dict(summary["staleness_histogram"])
            self.assertLessEqual(max(pulls), bound)
            self.assertGreaterEqual(sum(pulls.values()), self.rows // 32)

    def test_half_precision_halves_the_bytes_of_values(self):
        wide = {"model__embedding_dim": 64}
        full = self.run_with("fp32", **wide)
        for codec in ("bf16", "fp16"):
            tables = {f"tables__embedding__{way}_codec": codec for way in ("pull", "push")}
            half = self.run_with(codec, **wide, **tables)
            for way in ("pull_bytes", "push_bytes"):
                self.assertLess(half[way], 0.7 * full[way])
                self.assertGreater(half[way], 0.4 * full[way])
            self.assertNotEqual(half["parameters_hash"], full["parameters_hash"])
            self.assertAlmostEqual(half["train_logloss"], full["train_logloss"], delta=0.01)
            # Still the same bits for another shape of the fleet.
            moved = self.run_with(f"{codec}-moved", self.job(servers=1, shards=3), **wide, **tables)
            self.assertEqual(moved["parameters_hash"], half["parameters_hash"])

    def test_bytes_and_held_keys_take_less_and_teach_the_same(self):
        # Large batches, so that the lists of keys are long enough to be numbered (W3).
        wide = {"model__embedding_dim": 16, "train__batch_rows": 512}
        full = self.run_with("raw", **wide, train__key_caching="false")
        # Over sockets: through shared memory lists are not numbered.
        held = self.run_ok(self.job(), "held", "--no-shm", *settings(**wide))
        # The same rows: only the encoding of their keys differs.
        self.assertEqual(held["parameters_hash"], full["parameters_hash"])
        self.assertLessEqual(held["pull_bytes"], full["pull_bytes"])
        self.assertLess(held["push_bytes"], 0.95 * full["push_bytes"])
        tables = {f"tables__embedding__{way}_codec": "int8" for way in ("pull", "push")}
        small = self.run_with("int8", **wide, **tables)
        self.assertLess(small["pull_bytes"] + small["push_bytes"], 0.6 * (full["pull_bytes"] + full["push_bytes"]))
        self.assertNotEqual(small["parameters_hash"], full["parameters_hash"])
        self.assertAlmostEqual(small["train_logloss"], full["train_logloss"], delta=0.01)
        # Still the same bits for another shape of the fleet, and with the keys in every message.
        moved = self.run_with("int8-moved", self.job(servers=1, shards=3), **wide, **tables, train__key_caching="false")
        self.assertEqual(moved["parameters_hash"], small["parameters_hash"])

    def test_clipping_holds_training_back(self):
        sgd = {"model__kind": "logistic_regression", "optimizer__kind": "sgd", "optimizer__learning_rate": 0.5}
        free = self.run_with("free", **sgd)
        self.assertLess(free["train_logloss"], CHANCE_LOGLOSS - 0.05)
        for number, key in enumerate(("train__clip_global_norm", "optimizer__clip_norm", "optimizer__clip_value")):
            clipped = self.run_with(f"clipped-{number}", **sgd, **{key: 1e-6})
            self.assertAlmostEqual(clipped["train_logloss"], CHANCE_LOGLOSS, delta=1e-3, msg=key)
            loose = self.run_with(f"loose-{number}", **sgd, **{key: 1e6})
            self.assertEqual(loose["parameters_hash"], free["parameters_hash"], key)


if __name__ == "__main__":
    unittest.main(verbosity=2)
