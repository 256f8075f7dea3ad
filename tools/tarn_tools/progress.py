"""Live progress of a run: one updating line on a terminal, a line every two seconds elsewhere."""

import json
import shutil
import sys
import time

LINE_SECONDS = 2.0
BAR_CELLS = 20


class MetricsTail:
    """Reads what was appended to metrics.jsonl since the last call; keeps the newest line of the scheduler."""

    def __init__(self, path):
        self._path = path
        self._offset = 0
        self._rest = b""
        self.latest = None

    def poll(self):
        """Whether a new line of the scheduler has come."""
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
            if b"scheduler" not in line:
                continue
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and str(record.get("role", "")).startswith("scheduler"):
                self.latest, fresh = record, True
        return fresh


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
    """(name, text) of what one scheduler record tells; fields that it lacks are left out."""
    share, left = number(record, "progress"), number(record, "eta_seconds")
    trained = number(record, "samples")
    if share is not None:
        share = min(max(share, 0.0), 1.0)
        yield "bar", bar(share)
        yield "share", f"{100 * share:3.0f}%"
    if record.get("state") not in (None, "", "train", "training"):
        yield "state", str(record["state"])
    if trained == 0:
        return
    formats = [
        ("epoch", "epoch {:.0f}"),
        ("samples", "{:,.0f} samples"),
        ("samples_per_second", "{:,.0f} samples/s"),
        ("loss", "loss {:.4f}"),
        ("auc", "AUC {:.4f}"),
        ("staleness_mean", "staleness {:.2f}"),
    ]
    for key, text in formats:
        value = number(record, key)
        if value is not None:
            yield key, text.format(value + 1 if key == "epoch" else value)
    if left is not None and left >= 0:
        yield "eta_seconds", duration(left) + " left"


def progress_line(record, columns=None):
    """One line, with a bar and at most that many columns (what matters least goes first), or plain and whole."""
    parts = dict(progress_parts(record))
    if columns is None:
        parts.pop("bar", None)
        return "  ".join(parts.values())
    for name in ("samples", "bar", "state", "epoch"):
        line = "  ".join(parts.values())
        if len(line) <= columns:
            return line
        parts.pop(name, None)
    return "  ".join(parts.values())[:columns]


class Display:
    """Owns the terminal: messages scroll, the progress line stays at the bottom."""

    def __init__(self, quiet=False, plain=False, stream=sys.stdout):
        self._stream = stream
        self._quiet = quiet
        self._live = not plain and not quiet and stream.isatty()
        self._shown = ""
        self._last_line = 0.0

    def say(self, text):
        """A message of the launcher, not shown under --quiet."""
        if not self._quiet:
            self.fail(text)

    def fail(self, text):
        """A message that is always shown."""
        self._erase()
        print(text, file=self._stream, flush=True)
        self._redraw()

    def progress(self, record):
        if self._live:
            self._erase()
            self._shown = progress_line(record, shutil.get_terminal_size().columns - 1)
            self._redraw()
        elif not self._quiet and time.monotonic() - self._last_line >= LINE_SECONDS:
            self._last_line = time.monotonic()
            line = progress_line(record)
            print(line, file=self._stream, flush=True)

    def finish(self):
        """Leaves the last progress line in the scrollback."""
        if self._shown:
            print(file=self._stream, flush=True)
            self._shown = ""

    def _erase(self):
        if self._shown:
            self._stream.write("\r\x1b[K")

    def _redraw(self):
        if self._shown:
            self._stream.write(self._shown)
            self._stream.flush()
