"""Operations in progress. Internal: programs get them from tarn.client."""

import ctypes
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tarn.library import FLOATS, PATIENCE_SECONDS, POINTER, Handle, InvalidArgument, Note, Timeout, library

_ROWS = "rows: other workers have not finished an earlier clock, or a server does not answer"


def future_handle(kept: object = None) -> Handle:
    """An empty handle, into which a call of the library then writes its future. Created before the call, so that Ctrl-C
    after it frees the future before `kept`, the memory to which the library writes."""
    return Handle(POINTER(), library().future_free, kept)


class Future:
    """An operation in progress. Dropping the future does not cancel the operation."""

    _what = "the acknowledgement of a push or a tick: a server does not answer"  # what a long wait logs

    def __init__(self, pointer: Any) -> None:
        self._handle = Handle(pointer, library().future_free)

    def ready(self) -> bool:
        """Whether wait() would return at once."""
        return bool(library().ready(self._handle.of_this_process()))

    def wait(self, timeout: float | None = None) -> Any:
        """Waits until the operation is done. Raises Error if it failed, and Timeout after `timeout` seconds; wait() may
        then be called again. Without a timeout, logs every ten seconds what it waits for (logger `tarn`)."""
        self._wait(lambda seconds: library().wait(self._handle.pointer, seconds), timeout)

    def _wait(self, call: Callable[[float], Any], timeout: float | None) -> Any:
        self._handle.of_this_process()
        note = Note(self._what)
        left = math.inf if timeout is None else timeout
        while True:
            seconds = min(left, PATIENCE_SECONDS)
            try:
                return call(seconds)
            except Timeout as error:
                left -= seconds
                if left <= 0:  # the error names the last of several waits
                    raise Timeout(error.code, f"no answer within {timeout:g} s; wait() may be called again") from None
                if timeout is None:
                    note.log()


def view(pointer: Any, dtype: Any, shape: tuple[int, ...], owner: object) -> NDArray[Any]:
    """The memory at `pointer` as a read-only array, which keeps `owner` alive."""
    count = math.prod(shape)
    if count == 0:
        return np.empty(shape, dtype)
    memory = (pointer._type_ * count).from_address(ctypes.addressof(pointer.contents))
    memory.owner = owner
    array = np.frombuffer(memory, dtype).reshape(shape)
    array.flags.writeable = False
    return array


def address_of(table: str, out: NDArray[np.float32] | None, shape: tuple[int, ...]) -> int | None:
    """The address of a writable array for rows of this shape. table: its name, for errors."""
    if out is None:
        return None
    if not (isinstance(out, np.ndarray) and out.dtype == np.float32 and out.shape == shape and out.flags.c_contiguous
            and out.flags.writeable):
        found = f"{out.dtype} {list(out.shape)}" if isinstance(out, np.ndarray) else type(out).__name__
        raise InvalidArgument(1, f"table {table!r}: out: expected a writable, contiguous array of float32 {list(shape)}, "
                                 f"found {found}")
    return out.ctypes.data if out.size else None


class Rows(Future):
    """The rows of a pull. After it is dropped, `out` is not written to."""

    _what = _ROWS

    def __init__(self, handle: Handle, shape: tuple[int, ...], out: NDArray[np.float32] | None, which: int = 0) -> None:
        self._handle, self._shape, self._out, self._which = handle, shape, out, which

    def wait(self, timeout: float | None = None) -> NDArray[np.float32]:
        """Returns float32 [..., dim], in the order and the shape of the keys: a read-only array.

        With `out`, returns that array.
        """
        return self._values(timeout)[0]

    def staleness(self) -> int:
        """The number of clocks, before the clock of the pull, whose pushes the rows may lack. Waits for the rows."""
        return self._values(None)[1]

    def _values(self, timeout: float | None) -> tuple[NDArray[np.float32], int]:
        rows, staleness = FLOATS(), ctypes.c_uint64()
        self._wait(lambda seconds: library().rows_of(self._handle.pointer, self._which, seconds, rows, staleness), timeout)
        values = view(rows, np.float32, self._shape, self._handle) if self._out is None else self._out
        return values, staleness.value


class Arrival(Future):
    """The rows of a pull to memory of the caller. wait() returns nothing."""

    _what = _ROWS

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
