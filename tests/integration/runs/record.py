"""Judges, from the records of the workers (worker/train/record.h), whether every row was trained exactly once.

A batch counts if its clock lies before the end clock of its incarnation (docs/protocol.md, M3); the end clocks of dead
incarnations are the verdicts in the scheduler's log. Nothing else of the scheduler's account is used.
"""

import collections
import re

VERDICT = re.compile(r"worker (\d+) \(incarnation (\d+)\) ended at clock (\d+)")

Batch = collections.namedtuple("Batch", "incarnation epoch split first rows clock")


class Record:
    """batches; ticks: the highest clock that each incarnation sent a tick of."""

    def __init__(self, text=""):
        self.batches, self.ticks = [], {}
        for line in text.splitlines():
            kind, *numbers = line.split()
            numbers = [int(number) for number in numbers]
            if kind == "batch":
                self.batches.append(Batch(*numbers))
            elif kind == "tick":
                incarnation, clock = numbers
                self.ticks[incarnation] = max(clock, self.ticks.get(incarnation, 0))


def verdicts(log):
    """{incarnation: end clock} of those that died, from the scheduler's log."""
    return {int(incarnation): int(end) for _, incarnation, end in VERDICT.findall(log)}


def counts(batch, ends):
    return batch.clock < ends.get(batch.incarnation, batch.clock + 1)


def coverage_errors(batches, ends, epochs, rows):
    """What is wrong with the rows that the counted batches cover; empty if each is covered once in every epoch."""
    errors = []
    spans = {epoch: [] for epoch in range(epochs)}
    for batch in batches:
        if counts(batch, ends):
            spans.setdefault(batch.epoch, []).append((batch.first, batch.first + batch.rows))
    for epoch, covered in sorted(spans.items()):
        at = 0
        for first, end in sorted(covered) + [(rows, rows)]:
            if first > at:
                errors.append(f"epoch {epoch}: rows {at} to {first} were not trained")
            elif first < at:
                errors.append(f"epoch {epoch}: rows {first} to {at} were trained twice")
            at = max(at, end)
        if at > rows or epoch >= epochs:
            errors.append(f"epoch {epoch}: rows beyond the set or an epoch beyond the job")
    return errors


def verdict_errors(record, ends):
    """The verdicts beyond the highest tick that the worker sent or, if it sent none, beyond its start; there must be
    none."""
    started = {}
    for batch in record.batches:
        started.setdefault(batch.incarnation, batch.clock)
    highest = started | record.ticks
    return [
        f"incarnation {incarnation} ended at clock {end}, but sent no tick beyond {highest[incarnation]}"
        for incarnation, end in ends.items()
        if end > highest.get(incarnation, end)
    ]


def repeats(record, ends):
    """(least, most) batches that were pushed, at least in part, and trained again.

    A tick is sent when all pushes before its clock are acknowledged, so batches from the end clock to the highest tick
    were applied. Batches beyond it were recorded before their pushes were sent, which may have arrived or not.
    """
    lost = [batch for batch in record.batches if not counts(batch, ends)]
    applied = [batch for batch in lost if batch.clock < record.ticks.get(batch.incarnation, 0)]
    return len(applied), len(lost)
