"""Live progress of a run: one updating line on a terminal, a line every two seconds elsewhere."""

import json
import os
import shutil
import sys
import time

LINE_SECONDS = 2.0
BAR_CELLS = 8
# Columns of the live line, and the order in which they are dropped on a narrow terminal.
LIVE_WIDTHS = {
    "bar": BAR_CELLS + 2,
    "share": 4,
    "left": 12,
    "epoch": 7,
    "samples_per_second": 17,
    "loss": 11,
    "auc": 10,
    "staleness_mean": 14,
}
LIVE_LEAST = ("bar", "epoch", "auc", "left")
NOT_REPORTED = ("time", "role", "rank", "clock")  # fields of every line of a program


class MetricsTail:
    """Reads what was appended to metrics.jsonl since the last call. `latest`: the newest line of the scheduler, with what
    the user's programs have reported as `reported`: {name: mean over the workers}; None: there is no line yet."""

    def __init__(self, path):
        self._path = path
        self._offset = 0
        self._rest = b""
        self.latest = None
        self._reported = {}  # by worker: {name: its last value}

    def poll(self):
        """Reads the new lines. Returns whether `latest` has changed."""
        try:
            with open(self._path, "rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return False
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        fresh = False
        for line in lines:
            if b"scheduler" not in line and b"program" not in line:
                continue
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if not isinstance(record, dict):
                continue
            if str(record.get("role", "")).startswith("scheduler"):
                self.latest, fresh = record, True
            elif record.get("role") == "program":
                self._reported.setdefault(record.get("rank"), {}).update(reported(record))
                fresh = self.latest is not None
        if fresh and self._reported:
            self.latest = self.latest | {"reported": mean_of(self._reported.values())}
        return fresh


def reported(record):
    """{name: value} of a program's line; None: it was not finite."""
    return {name: number(record, name) for name in record
            if name not in NOT_REPORTED and (record[name] is None or number(record, name) is not None)}


def mean_of(lines):
    """The mean of each name over the lines that have it; None if one of these values is None."""
    values = {}
    for line in lines:
        for name, value in line.items():
            values.setdefault(name, []).append(value)
    return {name: None if None in each else sum(each) / len(each) for name, each in values.items()}


def figure(value):
    return "not finite" if value is None else f"{value:.5g}"


def reported_text(record):
    """"loss 0.4312, hr 0.51"; None if no program has reported anything."""
    return ", ".join(f"{name} {figure(value)}" for name, value in (record.get("reported") or {}).items()) or None


def number(record, key):
    """record[key] if it is a finite number, else None."""
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value or abs(value) == float("inf"):
        return None
    return value


def duration(seconds):
    """3 -> "3 s", 95 -> "1:35", 4000 -> "1:06:40"."""
    seconds = int(round(seconds))
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def bar(share):
    filled = int(share * BAR_CELLS)
    return "[" + "#" * filled + "-" * (BAR_CELLS - filled) + "]"


def progress_parts(record):
    """{name: text} for the fields of a scheduler record, in the order of a line; missing fields are left out."""
    parts = {}
    share, left = number(record, "progress"), number(record, "eta_seconds")
    if share is not None:
        share = min(max(share, 0.0), 1.0)
        parts["bar"] = bar(share)
        parts["share"] = f"{100 * share:3.0f}%"
    if record.get("state") not in (None, "", "train", "training"):
        parts["left"] = str(record["state"])
    elif left is not None and left >= 0:
        parts["left"] = duration(left) + " left"
    if text := reported_text(record):
        parts["reported"] = text
    if number(record, "samples") == 0:
        return parts
    formats = {
        "epoch": "epoch {:.0f}",
        "samples": "{:,.0f} samples",
        "samples_per_second": "{:,.0f} samples/s",
        "loss": "loss {:.4f}",
        "auc": "AUC {:.4f}",
        "staleness_mean": "staleness {:.2f}",
    }
    for key, text in formats.items():
        value = number(record, key)
        if value is not None:
            parts[key] = text.format(value)
    return parts


def plain_line(record):
    """All fields in one line, for output that is not a terminal."""
    parts = progress_parts(record)
    parts.pop("bar", None)
    return "  ".join(parts.values())


def live_line(record, columns):
    """A line of at most that many columns. Fields have fixed positions; the least important ones are dropped."""
    shown, parts = dict(LIVE_WIDTHS), progress_parts(record)
    if "reported" in parts:
        if number(record, "samples") == 0:
            shown = {}  # unknown, as all other fields
        shown["reported"] = len(parts["reported"])
    for name in LIVE_LEAST:
        if sum(shown.values()) + 2 * (len(shown) - 1) > columns:
            shown.pop(name, None)
    cells = [
        f"{parts.get(name, ''):{'<' if name == 'left' else '>'}{width}}" for name, width in shown.items()
    ]
    return "  ".join(cells).rstrip()[:columns]


class Outlet:
    """An output stream whose reader may close it (| head), whose terminal may hang up or whose disk may be full: the run
    then continues without output."""

    def __init__(self, stream):
        self._stream = stream
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # the output of programs may not fit the locale

    def write(self, text):
        if self._stream is None:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:
            # Otherwise Python would report an error for buffered text at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
            self._stream = None


class Display:
    """Owns the terminal: messages scroll, the progress line stays at the bottom."""

    def __init__(self, quiet=False, plain=False, stream=sys.stdout):
        self._outlet = Outlet(stream)
        self._quiet = quiet
        self._live = not plain and not quiet and stream is not None and stream.isatty()
        self._shown = ""
        self._last_line = 0.0

    def say(self, text):
        """Shows a message, unless --quiet."""
        if not self._quiet:
            self.fail(text)

    def fail(self, text):
        """Shows a message, even with --quiet."""
        self._outlet.write(self._erased() + text + "\n" + self._shown)

    def progress(self, record):
        if self._live:
            erased = self._erased()
            self._shown = live_line(record, shutil.get_terminal_size().columns - 1)
            self._outlet.write(erased + self._shown)
        elif not self._quiet and time.monotonic() - self._last_line >= LINE_SECONDS:
            self._last_line = time.monotonic()
            if line := plain_line(record):  # no progress while workers read their first data
                self._outlet.write(line + "\n")

    def finish(self):
        """Leaves the last progress line in the scrollback."""
        if self._shown:
            self._shown = ""
            self._outlet.write("\n")

    def _erased(self):
        return "\r\x1b[K" if self._shown else ""
