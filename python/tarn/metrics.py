"""Figures that a program reports: its lines of metrics.jsonl. Internal to tarn; Client.report is the interface."""

from __future__ import annotations

import json
import math
import os
import pathlib
import threading
import time
from typing import Any

LINE_SECONDS = 1.0  # as of the other processes of a fleet
RESERVED = ("time", "role", "rank", "clock")


class Reports:
    """Of one worker. Values are averaged over a second and appended to metrics.jsonl of the run. Any thread."""

    def __init__(self, rank: int, run_dir: str | None = None) -> None:
        folder = os.environ.get("TARN_RUN_DIR") if run_dir is None else run_dir
        self._path = pathlib.Path(folder) / "metrics.jsonl" if folder else None
        self._rank, self._lock = rank, threading.Lock()
        self._sums: dict[str, list[float]] = {}  # sum and number since the last line
        self._clock, self._written = 0, 0.0

    def add(self, clock: int, values: dict[str, Any]) -> None:
        """TypeError, ValueError: a value is no number, or a name is taken. Values that are not finite are left out."""
        numbers = {}
        for name, value in values.items():
            if name in RESERVED:
                raise ValueError(f"tarn.report: {name!r} is a field of every line, expected another name")
            try:
                numbers[name] = float(value)
            except (TypeError, ValueError):
                raise TypeError(f"tarn.report: {name} = {value!r}, expected a number") from None
        if self._path is None:
            return
        with self._lock:
            self._clock = clock
            for name, number in numbers.items():
                if math.isfinite(number):
                    sums = self._sums.setdefault(name, [0.0, 0])
                    sums[0] += number
                    sums[1] += 1
            if time.monotonic() - self._written >= LINE_SECONDS:
                self._write()

    def flush(self) -> None:
        """Writes what was reported since the last line."""
        with self._lock:
            self._write()

    def _write(self) -> None:
        if not self._sums or self._path is None:
            return
        means = {name: total / count for name, (total, count) in self._sums.items()}
        line = {"time": round(time.time(), 6), "role": "program", "rank": self._rank, "clock": self._clock} | means
        self._sums, self._written = {}, time.monotonic()
        # One write of a file opened for appending: the lines of several processes do not mix.
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            os.write(file, json.dumps(line).encode() + b"\n")
        finally:
            os.close(file)
