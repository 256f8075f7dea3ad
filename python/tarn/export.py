"""Reads exports for serving: parameters without optimizer state, written by `tools/inspect export`.

    from tarn.export import Model

    model = Model("model.tarn")           # a full export
    model.apply("delta-12.tarn")          # the changes since
    values, found = model.lookup("users", keys)   # float32 [len(keys), dim], bool [len(keys)]
    keys, values = model.table("users")   # all rows

The format is described in serving/export_format.h and schemas/export.fbs. Needs NumPy and nothing else. A file is
mapped. Opening it with verify=False reads only the header and the index; look-ups then read the pages that they need.
Replace an open file by renaming another to its name (mv, or a new `tools/inspect export`), never by writing to it (cp):
a process that reads a truncated part gets SIGBUS.
"""

import operator
import os
import re
import stat
import statistics
import struct
import zlib
from collections.abc import Iterable
from os import PathLike
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]
Values = NDArray[np.float32]

# The header of a file and the entry of a section, as in serving/export_format.h and schemas/export.fbs.
_MAGIC = b"TARNEXPT"
_VERSION = 1
_HEADER = struct.Struct("<8sIIQQIIQQQ")
_SECTION = np.dtype([("first", "<u8"), ("last", "<u8"), ("offset", "<u8"), ("bytes", "<u8"), ("rows", "<u4"),
                     ("removed", "<u4"), ("partition", "<u4"), ("crc32", "<u4")])
_CODECS = ("fp32", "bf16", "fp16")
_DIM_MAX = 4096
_PARTITION_BITS_MAX = 12


class ExportError(ValueError):
    """A file that is not an export, is damaged, or does not match the model; the message names it."""


def _open(path: str, flags: int) -> int:
    """Opens a file without waiting for the writer of a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


class _FlatTable:
    """One table of a FlatBuffer. Every access is checked: an offset outside the buffer is an ExportError."""

    def __init__(self, buffer: memoryview, at: int) -> None:
        self._buffer, self._at = buffer, at
        vtable = at - self._unpack("<i", at)
        self._vtable, self._size = vtable, self._unpack("<H", vtable)

    def _unpack(self, kind: str, at: int) -> int:
        size = struct.calcsize(kind)
        if at < 0 or at + size > len(self._buffer):
            raise ExportError("its index has an offset outside the index")
        return int(struct.unpack_from(kind, self._buffer, at)[0])

    def _field(self, number: int) -> int | None:
        entry = 4 + 2 * number
        if entry + 2 > self._size:
            return None
        offset = self._unpack("<H", self._vtable + entry)
        return self._at + offset if offset else None

    def scalar(self, number: int, kind: str) -> int:
        at = self._field(number)
        return 0 if at is None else self._unpack(kind, at)

    def _vector(self, number: int) -> tuple[int, int]:
        """Offset of the first item, and number of items."""
        at = self._field(number)
        if at is None:
            return 0, 0
        at += self._unpack("<I", at)
        return at + 4, self._unpack("<I", at)

    def text(self, number: int) -> str:
        at, size = self._vector(number)
        if at + size > len(self._buffer):
            raise ExportError("its index has an offset outside the index")
        return bytes(self._buffer[at:at + size]).decode("utf-8", "replace")

    def structs(self, number: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        at, count = self._vector(number)
        if at + count * dtype.itemsize > len(self._buffer):
            raise ExportError("its index has an offset outside the index")
        return np.frombuffer(self._buffer, dtype, count, at) if count else np.empty(0, dtype)

    def tables(self, number: int) -> list["_FlatTable"]:
        at, count = self._vector(number)
        return [_FlatTable(self._buffer, at + 4 * i + self._unpack("<I", at + 4 * i)) for i in range(count)]


def _mix64(x: Any) -> Any:
    """core/hash.h: Mix64."""
    x = x ^ (x >> np.uint64(30))
    x = x * np.uint64(0xbf58476d1ce4e5b9)
    x = x ^ (x >> np.uint64(27))
    x = x * np.uint64(0x94d049bb133111eb)
    return x ^ (x >> np.uint64(31))


_STEP = np.uint64(0x9e3779b97f4a7c15)


def initial_rows(initializer: str, salt: int | np.uint64, keys: Keys, dim: int) -> Values:
    """float32 [len(keys), dim]: the initial values of rows (kernels/initialize.h), for an initializer as text,
    "normal(0, 0.01)"."""
    kind, *numbers = re.findall(r"[a-z]+|[-+.e0-9]+", initializer) or [""]
    a, b = [float(np.float32(number)) for number in (*numbers, 0, 0)][:2]
    if kind in ("zero", "constant"):
        return np.full((len(keys), dim), a, np.float32)
    with np.errstate(over="ignore"):
        state = _mix64(np.uint64(salt) + _STEP + _mix64(keys + _STEP))
        words = _mix64(state[:, None] + np.arange(1, dim + 1, dtype=np.uint64) * _STEP)
    if kind == "uniform":
        return np.asarray(a + (b - a) * ((words >> np.uint64(11)).astype(np.float64) * 2.0**-53), np.float32)
    if kind != "normal":
        raise ExportError(f"initializer '{initializer}' is not known")
    quantile = statistics.NormalDist().inv_cdf
    u = ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    return np.asarray(a + b * np.array([quantile(x) for x in u.ravel()]), np.float32).reshape(u.shape)


class Table:
    """A table of one file."""

    def __init__(self, file: memoryview, entry: _FlatTable, partition_bits: int) -> None:
        self._file, self._bits = file, partition_bits
        self.name = entry.text(0)
        self.dense = bool(entry.scalar(1, "<B"))
        self.dense_rows = entry.scalar(2, "<Q")
        self.dim = entry.scalar(3, "<I")
        codec = entry.scalar(4, "<B")
        self._salt = np.uint64(entry.scalar(5, "<Q"))
        self.initializer = entry.text(6)
        self.rows = entry.scalar(7, "<Q")
        self.sections = entry.structs(9, _SECTION)
        if codec >= len(_CODECS) or not 0 < self.dim <= _DIM_MAX or (self.dense and self.dense_rows == 0):
            raise ExportError(f"table '{self.name}' is invalid")
        self.codec = _CODECS[codec]
        self._value: np.dtype[Any] = np.dtype("<f4") if self.codec == "fp32" else np.dtype("<u2")
        self._check()
        # separate contiguous arrays, because every look-up searches them
        self._partitions, self._firsts, self._lasts = (
            np.ascontiguousarray(self.sections[name]) for name in ("partition", "first", "last"))

    def _check(self) -> None:
        before: tuple[int, int] | None = None
        for s in self.sections:
            rows, removed = int(s["rows"]), int(s["removed"])
            size = 8 * (rows + removed) + rows * self.dim * self._value.itemsize
            place = (int(s["partition"]), int(s["first"]))
            if (int(s["bytes"]) != size or int(s["offset"]) % 64 or int(s["offset"]) + size > len(self._file)
                    or place[0] >> self._bits or s["first"] > s["last"]
                    or (before is not None and place <= before)):
                raise ExportError(f"a section of table '{self.name}' at {s['offset']} is invalid")
            before = (place[0], int(s["last"]))

    def initial(self, keys: Keys) -> Values:
        """The initial values that servers give to rows with these uint64 keys. With a row_codec other than fp32 servers
        also round them."""
        return initial_rows(self.initializer, self._salt, keys, self.dim)

    def verify(self) -> None:
        """Raises ExportError for damaged bytes."""
        for s in self.sections:
            begin = int(s["offset"])
            if zlib.crc32(self._file[begin:begin + int(s["bytes"])]) != int(s["crc32"]):
                raise ExportError(f"a section of table '{self.name}' at {begin} is damaged")

    def keys(self, section: Any) -> Keys:
        """The keys of a section's rows: uint64 [rows], ascending."""
        return np.frombuffer(self._file, "<u8", int(section["rows"]), int(section["offset"]))

    def removed(self, section: Any) -> Keys:
        """Keys whose rows were removed since the base export."""
        return np.frombuffer(self._file, "<u8", int(section["removed"]),
                             int(section["offset"]) + 8 * int(section["rows"]))

    def values(self, section: Any) -> Values:
        """The rows of a section, in the order of its keys: float32 [rows, dim]."""
        rows = int(section["rows"])
        begin = int(section["offset"]) + 8 * (rows + int(section["removed"]))
        raw = np.frombuffer(self._file, self._value, rows * self.dim, begin).reshape(rows, self.dim)
        if self.codec == "fp32":
            return raw.astype(np.float32, copy=False)
        if self.codec == "fp16":
            return raw.view("<f2").astype(np.float32)
        return (raw.astype(np.uint32) << 16).view(np.float32)

    def partitions(self, keys: Keys) -> Keys:
        """The partition of each key (core/position.h)."""
        if self._bits == 0:
            return np.zeros(len(keys), np.uint64)
        if self.dense:
            position = np.array([((int(k) << 64) // self.dense_rows + int(self._salt)) & (2**64 - 1) for k in keys],
                                np.uint64)
        else:
            with np.errstate(over="ignore"):
                position = _mix64(keys ^ self._salt)
        return np.asarray(position >> np.uint64(64 - self._bits), np.uint64)

    def find(self, keys: Keys, values: Values, state: NDArray[np.uint8]) -> None:
        """Looks up the keys whose state is 0. Copies the rows found to `values` and sets their state to 1. Sets the
        state of keys whose row this delta has removed to 2."""
        wanted = np.flatnonzero(state == 0)
        if self.dense:
            wanted = wanted[keys[wanted] < np.uint64(self.dense_rows)]
        if not len(wanted) or not len(self.sections):
            return
        place = self.partitions(keys[wanted])
        for partition in np.unique(place):
            self._find_in(wanted[place == partition], partition, keys, values, state)

    def _find_in(
        self, wanted: NDArray[np.intp], partition: np.uint64, keys: Keys, values: Values, state: NDArray[np.uint8]
    ) -> None:
        """find() for keys of one partition, in the sections whose range contains them."""
        begin, end = np.searchsorted(self._partitions, partition, "left"), np.searchsorted(self._partitions, partition, "right")
        section = begin + np.searchsorted(self._firsts[begin:end], keys[wanted], "right") - 1
        inside = section >= begin
        inside[inside] = keys[wanted[inside]] <= self._lasts[section[inside]]
        wanted, section = wanted[inside], section[inside]
        for number in np.unique(section):
            self._find_within(self.sections[number], wanted[section == number], keys, values, state)

    def _find_within(
        self, section: Any, wanted: NDArray[np.intp], keys: Keys, values: Values, state: NDArray[np.uint8]
    ) -> None:
        mine = self.keys(section)
        at = np.searchsorted(mine, keys[wanted])
        hit = np.zeros(len(wanted), bool)
        hit[at < len(mine)] = mine[at[at < len(mine)]] == keys[wanted][at < len(mine)]
        values[wanted[hit]] = self.values(section)[at[hit]]
        state[wanted[hit]] = 1
        rest = wanted[~hit]
        state[rest[np.isin(keys[rest], self.removed(section))]] = 2


def _as_keys(keys: Iterable[int] | NDArray[Any]) -> Keys:
    """Converts keys to uint64; fractions and negative numbers are errors."""
    if not isinstance(keys, np.ndarray):
        keys = [operator.index(key) for key in keys]
        if any(not 0 <= key < 2**64 for key in keys):
            raise ValueError("keys are whole numbers from 0 to 2**64 - 1")
        return np.array(keys, np.uint64)
    if keys.shape == (0,):
        return np.empty(0, np.uint64)  # NumPy converts an empty list to floats
    if keys.dtype.kind not in "iu" or keys.ndim != 1:
        raise TypeError(f"keys of type {keys.dtype} in {keys.ndim} dimensions, expected whole numbers in one")
    if keys.dtype.kind == "i" and len(keys) and keys.min() < 0:
        raise ValueError("keys are whole numbers from 0 to 2**64 - 1")
    return np.ascontiguousarray(keys, np.uint64)


class Export:
    """One export file: its `tables` by name, `is_delta`, `job`, `checkpoint`, `clock`, and of a delta
    `base_checkpoint`. Raises ExportError if the file is damaged or not an export."""

    def __init__(self, path: str | PathLike[str], verify: bool = True) -> None:
        self.path = str(path)
        try:
            self._read(verify)
        except ExportError as error:
            raise ExportError(f"{self.path}: {error}") from None

    def _read(self, verify: bool) -> None:
        with open(self.path, "rb", opener=_open) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ExportError("not a regular file")
            head = file.read(_HEADER.size)
            size = file.seek(0, 2)
            # Of this file, even if another one gets its name meanwhile.
            mapped = np.memmap(cast(Any, file), np.uint8, "r") if size else np.empty(0, np.uint8)
        if len(head) < _HEADER.size:
            raise ExportError(f"{len(head)} bytes, expected at least {_HEADER.size}")
        magic, version, crc, at, count, index_crc, _, file_bytes, _, _ = _HEADER.unpack(head)
        if magic != _MAGIC:
            raise ExportError('not an export: expected "TARNEXPT" at the beginning')
        if not 1 <= version <= _VERSION:
            raise ExportError(f"format version {version}, expected 1 to {_VERSION}: a newer tarn wrote it")
        if zlib.crc32(head[16:]) != crc:
            raise ExportError("damaged header")
        if file_bytes != size:
            raise ExportError(f"{size} bytes, expected {file_bytes}")
        if at + count > size:
            raise ExportError("its index is outside the file")
        self._bytes = memoryview(cast(Any, mapped))
        index = self._bytes[at:at + count]
        if zlib.crc32(index) != index_crc:
            raise ExportError("damaged index")
        if count < 8 or bytes(index[4:8]) != b"TRNE":
            raise ExportError("its index is not a valid FlatBuffer")
        root = _FlatTable(index, struct.unpack_from("<I", index)[0])
        self.job = root.text(0)
        self.checkpoint, self.clock, self.content = (root.scalar(i, "<Q") for i in (1, 2, 3))
        self.base_checkpoint, self.base_content = root.scalar(4, "<Q"), root.scalar(5, "<Q")
        bits = root.scalar(6, "<I")
        if bits > _PARTITION_BITS_MAX:
            raise ExportError(f"field partition_bits is {bits}, expected at most {_PARTITION_BITS_MAX}")
        self.tables: dict[str, Table] = {}
        for entry in root.tables(7):
            table = Table(self._bytes, entry, bits)
            if verify:
                table.verify()
            self.tables[table.name] = table

    @property
    def is_delta(self) -> bool:
        return self.base_checkpoint != 0


class Model:
    """A full export and the deltas applied to it."""

    def __init__(self, path: str | PathLike[str], verify: bool = True) -> None:
        full = Export(path, verify)
        if full.is_delta:
            raise ExportError(f"{path}: a delta against checkpoint {full.base_checkpoint}; open the full export of that "
                              "checkpoint first")
        self._layers = [full]

    def apply(self, path: str | PathLike[str], verify: bool = True) -> None:
        """Applies a delta. Raises ExportError if its base is not the model's current state."""
        delta, here = Export(path, verify), self._layers[-1]
        if not delta.is_delta:
            raise ExportError(f"{path}: a full export, expected a delta; open it instead")
        if delta.base_content != here.content:
            raise ExportError(f"{path}: applies to checkpoint {delta.base_checkpoint} ({delta.base_content:016x}), "
                              f"but the model is at checkpoint {here.checkpoint} ({here.content:016x})"
                              + ("; the checkpoints have the same number but come from different runs or table sets"
                                 if delta.base_checkpoint == here.checkpoint else ""))
        for name, table in delta.tables.items():
            for layer in self._layers:
                if name in layer.tables and layer.tables[name].dim != table.dim:
                    raise ExportError(f"{path}: table '{name}' has rows of {table.dim} values, expected "
                                      f"{layer.tables[name].dim} as before")
        self._layers.append(delta)

    @property
    def checkpoint(self) -> int:
        """The checkpoint of the newest layer."""
        return self._layers[-1].checkpoint

    @property
    def names(self) -> list[str]:
        """The names of the tables."""
        return sorted({name for layer in self._layers for name in layer.tables})

    def _of(self, name: str) -> list[Table]:
        tables = [layer.tables[name] for layer in reversed(self._layers) if name in layer.tables]
        if not tables:
            raise KeyError(f"no table '{name}'; the tables are {', '.join(self.names) or 'none'}")
        return tables

    def dense_rows(self, name: str) -> int:
        """The number of rows of a dense table; 0: sparse."""
        return self._of(name)[0].dense_rows

    def lookup(
        self, name: str, keys: Iterable[int] | NDArray[Any], initial: bool = False
    ) -> tuple[Values, NDArray[np.bool_]]:
        """Returns values [len(keys), dim] and found [len(keys)]. Keys without a row have zeros or, with `initial` and
        in a sparse table, their initial values. Keys that are not integers are a TypeError, keys outside 0..2**64-1 a
        ValueError."""
        tables = self._of(name)
        keys = _as_keys(keys)
        values = np.zeros((len(keys), tables[0].dim), np.float32)
        state = np.zeros(len(keys), np.uint8)
        for table in tables:  # the newest layer with the key decides
            table.find(keys, values, state)
        if initial and not tables[0].dense:
            absent = state != 1
            values[absent] = tables[0].initial(keys[absent])
        return values, state == 1

    def table(self, name: str) -> tuple[Keys, Values]:
        """Returns all rows: keys [n] in ascending order and values [n, dim], in memory."""
        tables = self._of(name)
        keys = [np.empty(0, np.uint64)]
        keys += [table.keys(section) for table in tables for section in table.sections]
        every = np.unique(np.concatenate(keys))
        values, found = self.lookup(name, every)
        return every[found], values[found]
