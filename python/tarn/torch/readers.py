"""Files as sets for LeasedDataset, or for a DataLoader: rows by number, without reading the whole file."""

from __future__ import annotations

import bisect
import collections
import gzip
import mmap
import os
import shutil
import tempfile
import threading
import zlib
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np
import torch

from tarn.keys import category_value

SCAN_BYTES = 1 << 24  # bytes searched for line ends at a time
GZIP = b"\x1f\x8b"


def _opened(path: str) -> BinaryIO:
    """Opens the file; unpacks a gzip file into a temporary file without a name."""
    file = open(path, "rb")
    if file.read(2) != GZIP:
        file.seek(0)
        return file
    file.seek(0)
    with file:
        whole = tempfile.TemporaryFile()
        try:
            shutil.copyfileobj(gzip.GzipFile(fileobj=file), whole)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            whole.close()
            raise ValueError(f"tarn.torch.CriteoRows: {path}: expected gzip data: {error}") from error
        whole.seek(0)
        return whole


class CriteoRows:
    """Rows of a tab-separated file in the Criteo format: a label 0 or 1, integer columns, categorical columns; plain or gzip.

        data = tarn.torch.LeasedDataset(tarn.torch.CriteoRows("train.tsv"), batch_rows=2048)
        for ids, dense, labels in tarn.torch.prefetch(data, model): ...

    A row is (ids, dense, label): ids int64 [categorical_columns], dense float32 [integer_columns], label float32. An id is
    the category's value modulo `ids_max`, plus 1; 0 for an empty field. The value of eight lower-case hexadecimal digits is
    their number; other categories are hashed, as in the keys of the built-in models. dense is log(1 + max(v, 0)), 0 for an
    empty field, as with `data.dense_integers`.

    The file is mapped into memory and indexed when it is opened: 8 bytes a row. It must not change while it is used.
    Errors: ValueError names the file, the line and what was expected. Any thread.
    """

    def __init__(self, path: str | os.PathLike[str], *, integer_columns: int = 13, categorical_columns: int = 26,
                 ids_max: int = 1 << 31) -> None:
        self.path, self.integer_columns, self.categorical_columns = os.fspath(path), integer_columns, categorical_columns
        if ids_max < 1 or integer_columns < 0 or categorical_columns < 0:
            raise ValueError(f"tarn.torch.CriteoRows: integer_columns {integer_columns}, categorical_columns {categorical_columns}, "
                             f"ids_max {ids_max}: expected at least 0, 0 and 1")
        self.ids_max = ids_max
        with _opened(self.path) as file:
            size = os.fstat(file.fileno()).st_size
            if size == 0:
                raise ValueError(f"tarn.torch.CriteoRows: {self.path}: expected rows, found an empty file")
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._ends = self._find_ends(size)

    def _find_ends(self, size: int) -> np.ndarray[Any, Any]:
        """The offset of the end of each line: of its line feed, or the size of the file for a last line without one."""
        found = []
        for begin in range(0, size, SCAN_BYTES):
            part = np.frombuffer(self._map, np.uint8, min(SCAN_BYTES, size - begin), begin)
            found.append(np.flatnonzero(part == ord("\n")).astype(np.int64) + begin)
        ends = np.concatenate(found)
        return ends if len(ends) and ends[-1] == size - 1 else np.append(ends, size)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        if not -len(self) <= row < len(self):
            raise IndexError(f"tarn.torch.CriteoRows: {self.path}: row {row}, expected one of {len(self)}")
        row %= len(self)
        begin = int(self._ends[row - 1]) + 1 if row else 0
        fields = self._map[begin:int(self._ends[row])].rstrip(b"\r").split(b"\t")
        expected = 1 + self.integer_columns + self.categorical_columns
        if len(fields) != expected:
            raise ValueError(f"tarn.torch.CriteoRows: {self.path}:{row + 1}: {len(fields)} columns, expected {expected}: a label, "
                             f"{self.integer_columns} integers, {self.categorical_columns} categories")
        if fields[0] not in (b"0", b"1"):
            raise ValueError(f"tarn.torch.CriteoRows: {self.path}:{row + 1}: label {fields[0]!r}, expected 0 or 1")
        split = 1 + self.integer_columns
        try:
            numbers = np.array([max(int(field), 0) if field else 0 for field in fields[1:split]], np.float64)
        except ValueError as error:
            raise ValueError(f"tarn.torch.CriteoRows: {self.path}:{row + 1}: {error}: expected whole numbers") from error
        ids = torch.tensor([self._id(field) for field in fields[split:]], dtype=torch.int64)
        return ids, torch.from_numpy(np.log1p(numbers).astype(np.float32)), torch.tensor(float(fields[0]))

    def _id(self, field: bytes) -> int:
        return category_value(field) % self.ids_max + 1 if field else 0


def _types() -> Any:
    from pyarrow import types  # type: ignore[import-untyped,import-not-found,unused-ignore]

    return types


def _is_list(of: Any) -> bool:
    types = _types()
    return bool(types.is_list(of) or types.is_large_list(of) or types.is_fixed_size_list(of))


class ParquetRows:
    """Rows of Parquet files: a row is a dict of the columns, which torch's default_collate combines into batches.

        data = tarn.torch.LeasedDataset(tarn.torch.ParquetRows(["day_0.parquet", "day_1.parquet"], columns=["user", "click"]))
        for batch in tarn.torch.prefetch(data, model, keys=lambda batch: {"users": batch["user"]}): ...

    The files are one set, in this order. Columns must be numbers, booleans or strings, and lists of numbers of one length.
    A batch reads each row group that it touches once, whole; the last `groups_kept` are kept. Shuffled batches touch up to
    all groups of a lease (data.split_rows), so keep as many if they fit in memory. Needs pyarrow.
    Errors: ValueError names the file and the column. Any thread.
    """

    def __init__(self, paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], *, columns: Sequence[str] | None = None,
                 groups_kept: int = 4) -> None:
        try:
            from pyarrow import parquet  # type: ignore[import-untyped,import-not-found,unused-ignore]
        except ImportError as error:
            raise ImportError("tarn.torch.ParquetRows needs pyarrow, which is not installed: pip install pyarrow") from error
        given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
        if not given or groups_kept < 1:
            raise ValueError(f"tarn.torch.ParquetRows: {len(given)} files, groups_kept {groups_kept}: expected at least 1")
        self.paths = [os.fspath(path) for path in given]
        self._files = [self._open(parquet, path) for path in self.paths]
        self.columns = list(columns) if columns is not None else self._files[0].schema_arrow.names
        for path, file in zip(self.paths, self._files):
            for name in self.columns:
                self._check_column(path, file.schema_arrow, name)
        self._groups = [(f, g) for f, file in enumerate(self._files) for g in range(file.num_row_groups)]
        sizes = [self._files[f].metadata.row_group(g).num_rows for f, g in self._groups]
        self._begins = [0, *np.cumsum(sizes).tolist()]  # of each group, and the end of the last
        self._kept: collections.OrderedDict[int, dict[str, list[Any]]] = collections.OrderedDict()
        self._groups_kept, self._lock = groups_kept, threading.Lock()
        self._lengths: dict[str, int] = {}  # of the lists of a column

    @staticmethod
    def _check_column(path: str, schema: Any, name: str) -> None:
        types = _types()
        if name not in schema.names:
            raise ValueError(f"tarn.torch.ParquetRows: {path}: no column {name!r}, expected one of {schema.names}")
        of = schema.field(name).type
        if types.is_dictionary(of):
            of = of.value_type
        is_text = types.is_string(of) or types.is_large_string(of) or types.is_binary(of) or types.is_large_binary(of)
        in_list = _is_list(of)
        number = of.value_type if in_list else of
        if not is_text and not types.is_integer(number) and not types.is_floating(number) and not types.is_boolean(number):
            raise ValueError(f"tarn.torch.ParquetRows: {path}: column {name!r} has the type {of}, expected numbers, booleans, strings, "
                             "or lists of numbers of one length; columns=[...] chooses others")

    @staticmethod
    def _open(parquet: Any, path: str) -> Any:
        try:
            return parquet.ParquetFile(path)
        except OSError:
            raise
        except Exception as error:
            raise ValueError(f"tarn.torch.ParquetRows: {path}: expected a Parquet file: {error}") from error

    def __len__(self) -> int:
        return int(self._begins[-1])

    def __getitem__(self, row: int) -> dict[str, Any]:
        return self.__getitems__([row])[0]

    def __getitems__(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = [{}] * len(rows)
        for place in sorted(range(len(rows)), key=rows.__getitem__):  # reads each group once
            row = rows[place]
            if not 0 <= row < len(self):
                raise IndexError(f"tarn.torch.ParquetRows: row {row}, expected 0 to {len(self) - 1}")
            group = bisect.bisect_right(self._begins, row) - 1
            values = self._read(group)
            found[place] = {name: values[name][row - self._begins[group]] for name in self.columns}
        return found

    def _read(self, group: int) -> dict[str, list[Any]]:
        with self._lock:
            if group in self._kept:
                self._kept.move_to_end(group)
                return self._kept[group]
            file, number = self._groups[group]
            try:
                table = self._files[file].read_row_group(number, columns=self.columns)
            except (OSError, ValueError) as error:  # pyarrow's name neither
                raise ValueError(f"tarn.torch.ParquetRows: {self.paths[file]}: columns {self.columns} of row group {number} cannot be "
                                 f"read: {error}") from error
            values = {name: self._values(self.paths[file], name, table.column(name)) for name in self.columns}
            self._kept[group] = values
            while len(self._kept) > self._groups_kept:
                self._kept.popitem(last=False)
            return values

    def _values(self, path: str, name: str, column: Any) -> list[Any]:
        lists = _is_list(column.type)
        nulls = column.null_count + (sum(chunk.flatten().null_count for chunk in column.chunks) if lists else 0)
        if nulls:
            raise ValueError(f"tarn.torch.ParquetRows: {path}: column {name!r} has {nulls} null values in a row group, expected none")
        values: list[Any] = column.to_pylist()
        if not lists:
            return values
        for length in {len(value) for value in values}:
            if length != self._lengths.setdefault(name, length):
                raise ValueError(f"tarn.torch.ParquetRows: {path}: column {name!r} has lists of {length} and of {self._lengths[name]} "
                                 "values, expected one length")
        return [torch.tensor(value) for value in values]
