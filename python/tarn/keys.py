"""Encodes rows of data like tarn's workers: converts them to keys, weights and dense values by a job's [data] section.

    import tomllib
    from tarn.keys import Encoder

    job = tomllib.load(open("runs/mine/job.toml", "rb"))
    encoder = Encoder(job["data"])
    rows = encoder.rows([[3, None, 17, "05db9164", "", "Zürich"]])   # criteo: the integers, then the categories
    rows = encoder.rows([{7: 1, 12: 0.5}])                           # libsvm: {column: value}, or pairs of them
    rows = encoder.lines(open_lines("test.tsv.gz"))                  # lines with labels, as in files

docs/serving.md describes how fields are converted to keys. The C++ implementation is in worker/data: keys.h, bins.h and
the parsers. Needs NumPy and nothing else.
"""

import bisect
import dataclasses
import decimal
import gzip
import io
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

# keys, weights and dense values of one row
_Row = tuple[list[int], list[float], list[float]]

# The layout of keys, as in worker/data/keys.h.
_VALUE_BITS = 48
_HASHED = 1 << 47
_MISSING = _HASHED - 1
_BIN_BASE = 1 << 46
_EXACT = 1 << 45  # integers of at least this magnitude are hashed
_WORD = 2**64 - 1
_STEP = 0x9e3779b97f4a7c15
_LIBSVM_END = 1 << 47

_HEX8 = re.compile(rb"[0-9a-f]{8}")
_INTEGER = re.compile(rb"-?[0-9]+")
_NUMBER = re.compile(rb"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


class RowError(ValueError):
    """A row with an invalid format; the message has what was expected."""


@dataclasses.dataclass
class Rows:
    """Row r has keys[offsets[r]:offsets[r + 1]]. `fields`: keys per row; 0: varies."""

    fields: int
    keys: NDArray[np.uint64]
    weights: NDArray[np.float32]  # one per key
    offsets: NDArray[np.int64]  # [rows + 1]
    dense: NDArray[np.float32]  # [rows, dense columns]
    labels: NDArray[np.float32] | None = None  # [rows], only from lines

    def __len__(self) -> int:
        return len(self.offsets) - 1


def mix64(x: int) -> int:
    """core/hash.h: Mix64."""
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9 & _WORD
    x = (x ^ x >> 27) * 0x94d049bb133111eb & _WORD
    return x ^ x >> 31


def hash_bytes(data: bytes) -> int:
    """core/hash.h: HashBytes."""
    state = mix64(len(data) * _STEP & _WORD)
    whole = len(data) // 8 * 8
    for at in range(0, whole, 8):
        state = _combine(state, data[at:at + 8])
    return _combine(state, data[whole:])


def _combine(state: int, word: bytes) -> int:
    return mix64((state + _STEP + mix64((int.from_bytes(word, "little") + _STEP) & _WORD)) & _WORD)


def integer_value(v: int) -> int:
    """The 48-bit value of a 64-bit integer under the rule "identity"."""
    if not -_EXACT < v < _EXACT:
        return _HASHED | mix64(v & _WORD) >> 17
    return 2 * v if v >= 0 else -2 * v - 1


def category_value(text: str | bytes | None) -> int:
    """The 48-bit value of a category: bytes, or a string, which is encoded as UTF-8; None or "" is missing."""
    if text is None or text in ("", b""):
        return _MISSING
    if isinstance(text, str):
        text = text.encode()
    if not isinstance(text, bytes):
        raise TypeError(f"a category of type {type(text).__name__}: expected text or bytes")
    if _HEX8.fullmatch(text):
        return int(text, 16)
    return _HASHED | hash_bytes(text) >> 17


def key(column: int, value: int) -> int:
    """The key of a value in a column. Columns count from 0; `value` has 48 bits."""
    return (column + 1) << _VALUE_BITS | value


def _log2_begins() -> list[int]:
    """The lower bounds of the bins of the rule "log2", up to 2^63."""
    begins = [1]
    while (begin := math.ceil(math.exp(math.sqrt(len(begins))))) < 2**63:
        begins.append(begin)
    return begins


_LOG2_BEGINS = _log2_begins()


def _log2_value(v: int) -> int:
    return integer_value(v) if v <= 2 else _BIN_BASE + bisect.bisect_right(_LOG2_BEGINS, v) - 1


def _width_rule(width: float) -> Callable[[int], int]:
    if not 0 < width <= 1e15:
        raise ValueError(f"bin rule 'width:{width}': expected a width above 0, at most 1e15")
    return lambda v: integer_value(math.floor(min(max(float(v) / width, -2.0**62), 2.0**62)))


def _rule(text: str) -> Callable[[int], int] | None:
    """A function from an integer to its 48-bit value; None for the rule "none"."""
    if text.startswith("width:"):
        return _width_rule(float(text.removeprefix("width:")))
    rules: dict[str, Callable[[int], int] | None] = {"log2": _log2_value, "identity": integer_value, "none": None}
    if text not in rules:
        raise ValueError(f"bin rule '{text}': expected 'log2', 'width:W', 'identity' or 'none'")
    return rules[text]


def _dense_value(v: int | None) -> float:
    if v is None or v <= 0:
        return 0.0
    return math.log1p(v) if v < 4096 else math.log(float(v) + 1)


def _shown(field: bytes) -> str:
    """A field as shown in messages."""
    text = field.decode("utf-8", "replace")
    return repr(text[:64]) + ("..." if len(text) > 64 else "")


def _integer(field: Any) -> int | None:
    """The integer of a field; None if it is missing."""
    if field is None or field in ("", b""):
        return None
    if isinstance(field, str):
        field = field.encode()
    if isinstance(field, bytes):
        digits = field.removeprefix(b"-").lstrip(b"0")
        if not _INTEGER.fullmatch(field) or len(digits) > 19:
            raise RowError(f"{_shown(field)}: expected a 64-bit integer or nothing")
        field = int(digits or b"0") * (-1 if field.startswith(b"-") else 1)
    v = operator.index(field)
    if not -2**63 <= v < 2**63:
        raise RowError(f"{v}: expected a 64-bit integer or nothing")
    return v


def _float32(text: bytes) -> np.float32:
    """Converts a decimal number to the nearest float32; through float64 it would be rounded twice."""
    wide = float(text)
    with np.errstate(over="ignore"):
        near = np.float32(wide)
    if not np.isfinite(near):
        raise RowError(f"{_shown(text)}: expected a number that fp32 can hold")
    exact = decimal.Decimal(text.decode())
    for other in (np.nextafter(near, np.float32(-np.inf)), np.nextafter(near, np.float32(np.inf))):
        if (float(near) + float(other)) / 2 == wide and exact != wide and (exact > wide) == (other > near):
            return np.float32(other)
    return np.float32(near)


class _Criteo:
    def __init__(self, data: Mapping[str, Any]) -> None:
        self._integers: int = data.get("integer_columns", 13)
        self._categories: int = data.get("categorical_columns", 26)
        bins = data.get("bins", []) or ["log2"]
        if len(bins) == 1:
            bins = bins * self._integers
        if len(bins) != self._integers:
            raise ValueError(f"data.bins has {len(bins)} rules: expected none, one for all, or one for each of the "
                             f"{self._integers} integer columns")
        self._rules = [_rule(text) for text in bins]
        self._dense: bool = data.get("dense_integers", False)
        self.fields = self._categories + sum(rule is not None for rule in self._rules)
        self.dense_columns = self._integers if self._dense else 0

    def row(self, row: Sequence[Any]) -> _Row:
        """Returns keys, weights and dense values of a row."""
        if len(row) != self._integers + self._categories:
            raise RowError(f"{len(row)} fields: expected {self._integers} integers and {self._categories} categories")
        integers = self._parse_integers(row[:self._integers])
        keys = [key(column, _MISSING if v is None else rule(v))
                for column, (rule, v) in enumerate(zip(self._rules, integers)) if rule is not None]
        keys += [key(column, category_value(text)) for column, text in enumerate(row[self._integers:], self._integers)]
        return keys, [1.0] * len(keys), [_dense_value(v) for v in integers] if self._dense else []

    @staticmethod
    def _parse_integers(fields: Sequence[Any]) -> list[int | None]:
        found: list[int | None] = []
        for field in fields:
            try:
                found.append(_integer(field))
            except RowError as error:
                raise RowError(f"integer column {len(found) + 1} is {error}") from None
        return found

    def line(self, line: bytes) -> tuple[float, _Row]:
        """Returns the label, and the result of row() for the rest."""
        label, *row = line.split(b"\t")
        if len(row) != self._integers + self._categories:
            found, expected = 1 + len(row), 1 + self._integers + self._categories
            raise RowError(f"{found} tab-separated field{'s' if row else ''}: expected {expected} "
                           f"(label, {self._integers} integers, {self._categories} categorical)")
        if label not in (b"0", b"1"):
            raise RowError(f"label {_shown(label)}: expected 0 or 1")
        return float(label), self.row(row)


class _Libsvm:
    fields, dense_columns = 0, 0

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._classes: int = data.get("classes", 2)

    def row(self, row: Any) -> _Row:
        """Returns keys, weights and dense values of a row: pairs of a column and a number, or a mapping."""
        pairs = [(operator.index(column), float(x)) for column, x in (row.items() if hasattr(row, "items") else row)]
        for column, x in pairs:
            if not 0 <= column < _LIBSVM_END or not math.isfinite(x):
                raise RowError(f"{column}:{x}: expected a column from 0 to 2^47 - 1 and a finite number")
        return [key(0, column) for column, _ in pairs], [x for _, x in pairs], []

    def line(self, line: bytes) -> tuple[float, _Row]:
        tokens = re.findall(rb"[^ \t]+", line.split(b"#", 1)[0])
        if not tokens:
            raise RowError("empty line")
        return self._label(tokens[0]), self.row([self._feature(token) for token in tokens[1:]])

    def _label(self, token: bytes) -> float:
        number = token[1:] if token[:1] == b"+" and token[1:2] != b"-" else token
        value = float(_float32(number)) if _NUMBER.fullmatch(number) else math.nan
        if self._classes == 2 and value == -1:
            return 0.0
        if not value.is_integer() or not 0 <= value < self._classes:
            raise RowError(f"label {_shown(token)}: expected " + ("-1, 0 or 1" if self._classes == 2 else
                                                            f"0 to {self._classes - 1}"))
        return value + 0.0

    @staticmethod
    def _feature(token: bytes) -> tuple[int, float]:
        column, colon, x = token.partition(b":")
        digits = column.lstrip(b"0") or b"0"
        if not column.isdigit() or len(digits) > 15:
            raise RowError(f"{_shown(token)}: expected column:value or column, with a column from 0 to 2^47 - 1")
        if not colon or x == b"1":
            return int(digits), 1.0
        if not _NUMBER.fullmatch(x):
            raise RowError(f"{_shown(token)}: expected a finite number after the colon")
        return int(digits), float(_float32(x))


class Encoder:
    """Encodes by the [data] section of a job file, as a dict; missing keys have the defaults of docs/job-file.md.

    `fields`: keys per row; 0: varies. `dense_columns`: dense values per row. Supports the formats criteo and libsvm.
    Column numbers of libsvm are used as they are. Raises ValueError for an invalid section.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        formats: dict[str, type[_Criteo] | type[_Libsvm]] = {"criteo": _Criteo, "libsvm": _Libsvm}
        name = data.get("format", "criteo")
        if name not in formats:
            raise ValueError(f"data.format is '{name}': expected " + " or ".join(f"'{known}'" for known in formats))
        self._format = formats[name](data)
        self.fields, self.dense_columns = self._format.fields, self._format.dense_columns

    def rows(self, rows: Iterable[Any]) -> Rows:
        """Encodes rows, given as fields without a label. criteo: the integers (int or text), then the categories (text
        or bytes); None or "" is missing. libsvm: {column: value}, or pairs. Raises RowError."""
        return self._gather(map(self._format.row, rows))

    def lines(self, lines: Iterable[bytes | str], first: int = 1) -> Rows:
        """Encodes lines with labels, as bytes or text, with or without line ends. Raises RowError for a malformed line,
        with its number, counted from `first`."""
        labels: list[float] = []

        def parsed() -> Iterator[_Row]:
            for number, line in enumerate(lines, first):
                line = line.encode() if isinstance(line, str) else line
                try:
                    label, row = self._format.line(line.removesuffix(b"\n").removesuffix(b"\r"))
                except RowError as error:
                    raise RowError(f"line {number}: {error}") from None
                labels.append(label)
                yield row

        rows = self._gather(parsed())
        rows.labels = np.array(labels, np.float32)
        return rows

    def _gather(self, rows: Iterable[_Row]) -> Rows:
        keys: list[int] = []
        weights: list[float] = []
        dense: list[float] = []
        offsets = [0]
        for row_keys, row_weights, row_dense in rows:
            keys += row_keys
            weights += row_weights
            dense += row_dense
            offsets.append(len(keys))
        return Rows(fields=self.fields, keys=np.array(keys, np.uint64), weights=np.array(weights, np.float32),
                    offsets=np.array(offsets, np.int64),
                    dense=np.array(dense, np.float32).reshape(len(offsets) - 1, self.dense_columns))


def dense_rows(values: ArrayLike) -> Rows:
    """Makes rows without keys from dense values [rows, columns]; for the format idx these are the pixels / 255."""
    dense = np.ascontiguousarray(values, np.float32)
    return Rows(fields=0, keys=np.empty(0, np.uint64), weights=np.empty(0, np.float32),
                offsets=np.zeros(len(dense) + 1, np.int64), dense=dense)


def open_lines(path: str | PathLike[str]) -> BinaryIO:
    """Opens a file of lines, plain or gzip (detected by its first bytes)."""
    file = open(path, "rb")
    head = file.read(2)
    packed = head == b"\x1f\x8b"
    if file.seekable():
        file.close()
        return cast(BinaryIO, gzip.open(path)) if packed else open(path, "rb")
    whole = io.BufferedReader(_Pipe(head, file))
    return cast(BinaryIO, gzip.GzipFile(fileobj=cast(BinaryIO, whole)) if packed else whole)


class _Pipe(io.RawIOBase):
    """A pipe, whose first bytes were read already: `head`."""

    def __init__(self, head: bytes, file: BinaryIO) -> None:
        self._head, self._file = head, file

    def readable(self) -> bool:
        return True

    def readinto(self, out: Any) -> int:
        found = self._head or self._file.read1(len(out))  # type: ignore[attr-defined]
        found, self._head = found[:len(out)], self._head[len(out):]
        out[:len(found)] = found
        return len(found)

    def close(self) -> None:
        self._file.close()
        super().close()
