"""The load of the processors of this machine, of all programs together, from /proc/stat."""

import os

IDLE_FIELDS = (3, 4)  # fields of a line cpuN: idle, iowait


def times(text, usable):
    """(busy, all) clock ticks of the processors in `usable` since the machine started."""
    busy = total = 0
    for line in text.splitlines():
        name, *fields = line.split()
        if not name.startswith("cpu") or name == "cpu" or int(name[3:]) not in usable:
            continue
        ticks = [int(field) for field in fields[:8]]  # later fields are included in them
        total += sum(ticks)
        busy += sum(ticks) - sum(ticks[i] for i in IDLE_FIELDS)
    return busy, total


class Cores:
    """Measures the processors that this process may use, from `start` to `stop`."""

    def __init__(self):
        self._usable = os.sched_getaffinity(0)
        self._began = self._ended = None

    def _now(self):
        try:
            with open("/proc/stat", encoding="ascii") as file:
                return times(file.read(), self._usable)
        except (OSError, ValueError, IndexError):
            return None

    def start(self):
        """Begins the measurement. Later calls have no effect."""
        self._began = self._began or self._now()

    def stop(self):
        """Ends the measurement, if it has begun. Later calls have no effect."""
        if self._began:
            self._ended = self._ended or self._now()

    def record(self):
        """{"cores": 2, "cores_busy": 0.97} for a summary; empty if nothing was measured."""
        if not self._began or not self._ended or self._ended[1] <= self._began[1]:
            return {}
        share = (self._ended[0] - self._began[0]) / (self._ended[1] - self._began[1])
        return {"cores": len(self._usable), "cores_busy": round(share, 3)}
