"""The tables of a fleet, and plans: keys of one table that are used several times. Internal: see tarn.client."""

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tarn.futures import Future, Rows, address_of, future_handle, view
from tarn.library import FLOATS, KEYS, POINTER, Handle, InvalidArgument, library

if TYPE_CHECKING:
    from tarn.client import Client


def _as_whole_numbers(keys: ArrayLike, array: NDArray[Any]) -> NDArray[Any]:
    """Converts keys exactly: NumPy would convert a list of integers below and above 2^63 to floats."""
    objects = np.asarray(keys, dtype=object)
    whole = all(isinstance(key, (int, np.integer)) and 0 <= key < 2**64 for key in objects.flat)
    return objects.astype(np.uint64) if whole else array


def as_keys(table: "Table", keys: ArrayLike) -> NDArray[np.uint64]:
    """Keys of any shape as uint64 [n], contiguous. Raises InvalidArgument unless they are integers from 0."""
    if type(keys) is np.ndarray and keys.dtype == np.uint64 and keys.ndim == 1 and keys.flags.c_contiguous:
        return keys
    array = np.asarray(keys)
    if array.dtype == np.float64 and array.size and not isinstance(keys, np.ndarray):
        array = _as_whole_numbers(keys, array)
    if array.size == 0:
        array = array.astype(np.uint64)
    if array.dtype.kind not in "iu" or (array.dtype.kind == "i" and array.size and array.min() < 0):
        below = " below 0" if array.dtype.kind == "i" else ""
        raise InvalidArgument(1, f"table {table.name!r}: keys: expected integers from 0, found {array.dtype}{below}")
    return np.ascontiguousarray(array.reshape(-1), dtype=np.uint64)


def as_gradients(table: "Table", shape: tuple[int, ...], gradients: ArrayLike, what: str = "gradients"
                  ) -> NDArray[np.float32]:
    """Gradients or values for keys of this shape, as contiguous float32. Raises InvalidArgument for another shape."""
    values = np.ascontiguousarray(gradients, dtype=np.float32)
    if values.shape != shape + (table.dim,) and (values.size or math.prod(shape)):
        raise InvalidArgument(1, f"table {table.name!r}: {what} are {list(values.shape)}, expected {list(shape) + [table.dim]}")
    return values


class Plan:
    """Keys of one table that are used several times, without duplicates."""

    def __init__(self, table: "Table", shape: tuple[int, ...], address: int, size: int, owner: Handle) -> None:
        self.table, self.shape = table, shape  # of the given keys
        self.address, self._owner = address, owner  # of the library's plan, and what frees it
        self.size = size  # the number of distinct keys

    @functools.cached_property
    def keys(self) -> NDArray[np.uint64]:
        """Each key once, in the order of the rows."""
        return view(library().plan_keys(self.address), np.uint64, (self.size,), self._owner)

    @functools.cached_property
    def index(self) -> NDArray[np.uint32]:
        """For each given key its index in `keys`, in the shape of the given keys."""
        return view(library().plan_index(self.address), np.uint32, self.shape, self._owner)

    def pull(self, priority: int = 0, out: NDArray[np.float32] | None = None, clock: int | None = None) -> Rows:
        """Pulls the rows of `keys`, float32 [n, dim]. Arguments as in Table.pull."""
        shape, handle = (self.size, self.table.dim), future_handle(out)
        options = self.table.client.pull_options(address_of(self.table.name, out, shape), priority, clock)
        self.table.client.call(library().pull_plan, self.address, options, handle.pointer)
        return Rows(handle, shape, out)

    def push(self, gradients: ArrayLike) -> Future:
        """Pushes a gradient for each of `keys`, [n, dim]; see Table.push."""
        pointer = POINTER()
        values = as_gradients(self.table, (self.size,), gradients)
        self.table.client.call(library().push_plan, self.address, values.ctypes.data_as(FLOATS), None, None, 0, pointer)
        return Future(pointer)


class Table:
    """A table of the fleet. Valid for the whole run."""

    def __init__(self, client: "Client", name: str, pointer: Any) -> None:
        self.client, self.name = client, name
        self._handle = Handle(pointer, library().table_free)
        self.address: int = pointer.value
        self.dim: int = library().table_dim(pointer)
        self.rows: int | None = library().table_rows(pointer) or None  # of a dense table

    def __repr__(self) -> str:
        return f"<tarn.Table {self.name!r}, {'sparse' if self.rows is None else f'{self.rows} rows'}, dim {self.dim}>"

    def pull(
        self, keys: ArrayLike, priority: int = 0, out: NDArray[np.float32] | None = None, clock: int | None = None
    ) -> Rows:
        """The rows of `keys`, an array of any shape: a Rows future.

        clock: at which the rows will be used; default: the current clock. out: a float32 array for the rows, with the
        shape of the keys + [dim]. priority: of the waiting pulls of a clock, the highest is sent first.
        """
        array, handle, shape = as_keys(self, keys), future_handle(out), np.shape(keys) + (self.dim,)
        options = self.client.pull_options(address_of(self.name, out, shape), priority, clock)
        self.client.call(library().pull, self.address, array.ctypes.data_as(KEYS), array.size, options,
                       handle.pointer)
        return Rows(handle, shape, out)

    def plan(self, keys: ArrayLike) -> Plan:
        """Makes a plan for pulls and pushes of the same keys."""
        array, pointer = as_keys(self, keys), POINTER()
        self.client.call(library().plan_make, self.address, array.ctypes.data_as(KEYS), array.size, pointer)
        owner = Handle(pointer, library().plan_free)
        return Plan(self, np.shape(keys), pointer.value or 0, library().plan_size(pointer), owner)

    def prefetch(self, keys: ArrayLike) -> None:
        """Announces that these rows will be pulled soon, so that servers read those on disk into memory."""
        array = as_keys(self, keys)
        self.client.call(library().prefetch, self.address, array.ctypes.data_as(KEYS), array.size)

    def push(self, keys: ArrayLike, gradients: ArrayLike) -> Future:
        """Pushes a gradient for each key, [..., dim]; gradients of the same key are summed. Returns a Future; waiting
        for it is optional.

        Raises InvalidArgument, with table and key, if a gradient is infinite or NaN; nothing of the push is sent then.
        Blocks only while too many bytes are in flight.
        """
        array, pointer = as_keys(self, keys), POINTER()
        values = as_gradients(self, np.shape(keys), gradients)
        self.client.call(library().push, self.address, array.ctypes.data_as(KEYS), array.size,
                    values.ctypes.data_as(FLOATS), pointer)
        return Future(pointer)

    def assign(self, keys: ArrayLike, values: ArrayLike) -> Future:
        """Sets rows to values, [..., dim], such as those of a model trained elsewhere. Of a repeated key the last row
        counts.

        The optimizer's state of an existing row remains. A new row is created even if admission would refuse it. In
        an aggregated table the values are set when the clock closes, after the sum of its gradients; if several workers
        set a row in one clock, the one of the highest rank counts. Otherwise like push.
        """
        array, pointer = as_keys(self, keys), POINTER()
        rows = as_gradients(self, np.shape(keys), values, "values")
        self.client.call(library().assign, self.address, array.ctypes.data_as(KEYS), array.size,
                      rows.ctypes.data_as(FLOATS), pointer)
        return Future(pointer)

    def delete(self, keys: ArrayLike) -> Future:
        """Deletes the rows of a sparse table, with the optimizer's state: the keys have their initial values again, as
        if they had never been pushed. Keys may have no row. Otherwise like assign.

        Raises InvalidArgument if the table is dense.
        """
        array, pointer = as_keys(self, keys), POINTER()
        self.client.call(library().delete, self.address, array.ctypes.data_as(KEYS), array.size, pointer)
        return Future(pointer)
