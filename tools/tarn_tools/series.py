"""Curves from metrics.jsonl: one object per second and process, counters cumulative since the process started."""

import json

from tarn_tools.progress import number, reported

TRAINING = ("train", "training", None)
INTERVAL_SECONDS_MIN = 0.3  # a slope over less is noise


class Metrics:
    """The lines of one metrics.jsonl. `start`: the earliest time of a line, 0 if there is none."""

    def __init__(self, records):
        self._records = [(number(record, "time"), record) for record in records]
        self._records = [(when, record) for when, record in self._records if when is not None]
        self.start = min((when for when, _ in self._records), default=0)

    @classmethod
    def load(cls, path):
        """What can be read of the file: damaged lines are skipped, a missing file is empty."""
        records = []
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                for line in file:
                    try:
                        record = json.loads(line)
                    except ValueError:
                        continue
                    if isinstance(record, dict):
                        records.append(record)
        except OSError:
            pass
        return cls(records)

    def _of_role(self, role):
        return [(when, record) for when, record in self._records if str(record.get("role", "")).split("-")[0] == role]

    def scheduler(self, key, axis):
        """[(x, value)] of the scheduler's lines; axis is "time" (seconds since the start) or "samples"."""
        points = []
        for when, record in self._of_role("scheduler"):
            x = when - self.start if axis == "time" else number(record, "samples")
            y = number(record, key)
            if x is not None and y is not None and number(record, "samples") != 0:
                points.append((x, y))
        return points

    def by_epoch(self, key, axis):
        """Like scheduler(), with None between two epochs, because the figures of each epoch start again."""
        points, epoch = [], None
        for when, record in self._of_role("scheduler"):
            x = when - self.start if axis == "time" else number(record, "samples")
            y = number(record, key)
            if x is None or y is None or number(record, "samples") == 0:
                continue
            if points and number(record, "epoch") != epoch:
                points.append(None)
            epoch = number(record, "epoch")
            points.append((x, y))
        return points

    def reported(self):
        """{name: [(seconds, value)]} of what programs have reported: the mean over the workers of each second."""
        seconds = {}
        for when, record in self._of_role("program"):
            for name, value in ((name, value) for name, value in reported(record).items() if value is not None):
                seconds.setdefault(name, {}).setdefault(int(when - self.start), []).append((when - self.start, value))
        return {name: [tuple(sum(each) / len(points) for each in zip(*points)) for _, points in sorted(of.items())]
                for name, of in seconds.items()}

    def epochs_begun(self):
        return int(max((number(record, "epoch") or 1 for _, record in self._of_role("scheduler")), default=1))

    def epoch_ends(self, epochs, train_rows, axis):
        """{epoch: x} where each of the epochs 1, 2, ... was trained to its end; those that this run has not seen are left
        out."""
        lines = [(when - self.start, number(record, "samples")) for when, record in self._of_role("scheduler")]
        lines = [(when, samples) for when, samples in lines if samples is not None]
        if not lines or not train_rows:
            return {}
        first = min(samples for _, samples in lines)  # more than 0: the run was resumed
        ends = {}
        for epoch in range(1, epochs + 1):
            target = epoch * train_rows
            reached = next((i for i, (_, samples) in enumerate(lines) if samples >= target), None)
            if reached is None or (target <= first and first > 0):
                continue
            ends[epoch] = target if axis == "samples" else self._crossing(lines, reached, target)
        return ends

    @staticmethod
    def _crossing(lines, reached, target):
        """The time at which `target` samples were trained: interpolated between lines[reached] and the line before."""
        when, samples = lines[reached]
        if reached == 0 or samples == lines[reached - 1][1]:
            return when
        earlier, fewer = lines[reached - 1]
        return earlier + (when - earlier) * (target - fewer) / (samples - fewer)

    def throughput(self):
        """Samples per second, from the growth of the sample count."""
        lines = [(when, record) for when, record in self._of_role("scheduler") if record.get("state") in TRAINING]
        return self._slopes([(when, number(record, "samples")) for when, record in lines])

    def rate(self, key):
        """Growth per second of a counter: of the scheduler's lines if they have it, else the sum over the workers."""
        lines = self._of_role("scheduler")
        if any(number(record, key) is not None for _, record in lines):
            return self._slopes([(when, number(record, key)) for when, record in lines])
        growth, last = {}, {}
        for when, record in self._of_role("worker"):
            node, value = str(record.get("rank", record["role"])), number(record, key)
            if value is None:
                continue
            if node in last and value >= last[node][1] and when > last[node][0]:  # smaller: the worker was restarted
                second = int(when - self.start)
                growth[second] = growth.get(second, 0.0) + (value - last[node][1]) / (when - last[node][0])
            last[node] = (when, value)
        return sorted(growth.items())

    def last_by_node(self, role, key):
        """[(node, last value)] of the role's lines that have the key."""
        values = {
            str(record.get("rank", record["role"])): number(record, key)
            for _, record in self._of_role(role)
            if number(record, key) is not None
        }
        return sorted(values.items(), key=lambda item: (len(item[0]), item[0]))

    def _slopes(self, points):
        points = [(when - self.start, value) for when, value in points if value is not None]
        return [
            (x2, (y2 - y1) / (x2 - x1))
            for (x1, y1), (x2, y2) in zip(points, points[1:])
            if x2 - x1 >= INTERVAL_SECONDS_MIN and y2 >= y1
        ]
