"""The Python client for the parameters of a running fleet.

    import tarn

    with tarn.connect("runs/mine") as ps:
        users = ps.table("users", dim=16, optimizer={"kind": "adagrad", "learning_rate": 0.05})
        rows = users.pull([7, 42, 7])              # a future; duplicates are fine
        values = rows.wait()                       # float32 [3, 16], in the order of the keys
        users.push([7, 42, 7], gradients)          # acknowledged in the background
        ps.tick()                                  # finishes this clock

A thin layer over worker/tarn.h, which describes pulls, pushes and ticks, staleness, and the order of execution. Any
thread may use a client. Connect in each process, after a fork. Waiting releases the interpreter lock, and Ctrl-C
interrupts it. Needs NumPy and libtarn.so, which `tools/build` makes.
"""

import ctypes
import functools
import math
import operator
import os
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tarn.library import (
    FLOATS, KEYS, PATIENCE_SECONDS, POINTER, TEXT, CConnectOptions, CLease, CLeaseAnswer, CLeaseReport, CPlanPull, CPlanPush,
    CPlanRequest, CPullOptions, CTablePull, CTablePush, Error, Gone, Handle, InvalidArgument, Note, Timeout, as_bytes,
    interruptible, library)
from tarn.state import SAVE, Saver

# An initializer or an optimizer: the name of its kind, or a dict with the kind and its settings.
Settings = str | Mapping[str, Any]

__all__ = ["Client", "Error", "Future", "Gone", "InvalidArgument", "Lease", "LeaseAnswer", "LeaseReport", "Plan", "Rows",
           "Settings", "Table", "Timeout", "connect"]

_ANY_RANK = 2**32 - 1
_NO_TIME = 1e-9  # seconds; 0 is the library's default


def _toml(value: object) -> str:
    """A value as TOML; strings are quoted."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + "".join(c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in value) + '"'
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    if isinstance(value, (float, np.floating)):
        return repr(float(value))
    raise TypeError(f"expected a text or a number, found {type(value).__name__}")


def _section(name: str, settings: Settings) -> list[str]:
    if isinstance(settings, str):
        settings = {"kind": settings}
    if not isinstance(settings, Mapping):
        raise InvalidArgument(1, f"{name}: expected the name of a kind or a dict, found {type(settings).__name__}")
    return [f"[{name}]"] + [f"{_toml(str(key))} = {_toml(value)}" for key, value in settings.items()]


def _as_whole_numbers(keys: ArrayLike, array: NDArray[Any]) -> NDArray[Any]:
    """Converts keys exactly: NumPy would convert a list of integers below and above 2^63 to floats."""
    objects = np.asarray(keys, dtype=object)
    whole = all(isinstance(key, (int, np.integer)) and 0 <= key < 2**64 for key in objects.flat)
    return objects.astype(np.uint64) if whole else array


def _as_keys(keys: ArrayLike) -> NDArray[np.uint64]:
    if type(keys) is np.ndarray and keys.dtype == np.uint64 and keys.ndim == 1 and keys.flags.c_contiguous:
        return keys
    array = np.asarray(keys)
    if array.dtype == np.float64 and array.size and not isinstance(keys, np.ndarray):
        array = _as_whole_numbers(keys, array)
    if array.size == 0:
        array = array.astype(np.uint64)
    if array.dtype.kind not in "iu" or (array.dtype.kind == "i" and array.size and array.min() < 0):
        raise InvalidArgument(1, f"keys: expected integers from 0, found {array.dtype} {'below 0' if array.dtype.kind == 'i' else ''}".rstrip())
    return np.ascontiguousarray(array.reshape(-1), dtype=np.uint64)


class Future:
    """An operation in progress. Dropping the future does not cancel the operation."""

    _what = "the acknowledgement of a push or a tick: a server does not answer"  # a message of a long wait

    def __init__(self, pointer: Any, kept: object = None) -> None:
        self._handle = Handle(pointer, library().future_free, kept)

    def ready(self) -> bool:
        """Whether wait() would return at once."""
        return bool(library().ready(self._handle.pointer))

    def wait(self, timeout: float | None = None) -> Any:
        """Waits until it is done, at most `timeout` seconds. After a Timeout it may be called again. Without a timeout a
        line in the logger `tarn` says every ten seconds what it waits for."""
        self._wait(lambda seconds: library().wait(self._handle.pointer, seconds), timeout)

    def _wait(self, call: Callable[[float], Any], timeout: float | None) -> Any:
        note = Note(self._what)
        left = math.inf if timeout is None else timeout
        while True:
            seconds = min(left, PATIENCE_SECONDS)
            try:
                return call(seconds)
            except Timeout:
                left -= seconds
                if left <= 0:
                    raise
                if timeout is None:
                    note.log()


def _view(pointer: Any, dtype: Any, shape: tuple[int, ...], owner: object) -> NDArray[Any]:
    """The memory at `pointer` as a read-only array, which keeps `owner` alive."""
    count = math.prod(shape)
    if count == 0:
        return np.empty(shape, dtype)
    memory = (pointer._type_ * count).from_address(ctypes.addressof(pointer.contents))
    memory.owner = owner
    array = np.frombuffer(memory, dtype).reshape(shape)
    array.flags.writeable = False
    return array


def _address_of(out: NDArray[np.float32] | None, shape: tuple[int, ...]) -> int | None:
    """The address of a writable array for rows of this shape."""
    if out is None:
        return None
    if not (isinstance(out, np.ndarray) and out.dtype == np.float32 and out.shape == shape and out.flags.c_contiguous
            and out.flags.writeable):
        found = f"{out.dtype} {list(out.shape)}" if isinstance(out, np.ndarray) else type(out).__name__
        raise InvalidArgument(1, f"out: expected a writable, contiguous array of float32 {list(shape)}, found {found}")
    return out.ctypes.data if out.size else None


class Rows(Future):
    """The rows of a pull. After it is dropped, `out` is not written to."""

    _what = "rows: other workers have not finished an earlier clock, or a server does not answer"

    def __init__(self, handle: Handle, shape: tuple[int, ...], out: NDArray[np.float32] | None, which: int = 0) -> None:
        self._handle, self._shape, self._out, self._which = handle, shape, out, which

    def wait(self, timeout: float | None = None) -> NDArray[np.float32]:
        """Returns float32 [..., dim], in the order and the shape of the keys: a read-only array.

        With `out`, returns that array.
        """
        return self._values(timeout)[0]

    def staleness(self) -> int:
        """By how many clocks the rows may be stale, relative to the clock of the pull. Waits for the rows."""
        return self._values(None)[1]

    def _values(self, timeout: float | None) -> tuple[NDArray[np.float32], int]:
        rows, staleness = FLOATS(), ctypes.c_uint64()
        self._wait(lambda seconds: library().rows_of(self._handle.pointer, self._which, seconds, rows, staleness), timeout)
        values = _view(rows, np.float32, self._shape, self._handle) if self._out is None else self._out
        return values, staleness.value


def _rows(pointer: Any, shape: tuple[int, ...], out: NDArray[np.float32] | None) -> Rows:
    return Rows(Handle(pointer, library().future_free, out), shape, out)


def _as_gradients(table: "Table", shape: tuple[int, ...], gradients: ArrayLike, what: str = "gradients"
                  ) -> NDArray[np.float32]:
    values = np.ascontiguousarray(gradients, dtype=np.float32)
    if values.shape != shape + (table.dim,) and (values.size or math.prod(shape)):
        raise InvalidArgument(1, f"table {table.name!r}: {what} are {list(values.shape)}, expected {list(shape) + [table.dim]}")
    return values


class Plan:
    """Keys of one table that are used several times, without duplicates."""

    def __init__(self, table: "Table", shape: tuple[int, ...], pointer: Any, size: int | None = None) -> None:
        self.table, self._shape = table, shape
        self._handle = Handle(pointer, library().plan_free)
        self.size: int = library().plan_size(pointer) if size is None else size  # the number of distinct keys

    @functools.cached_property
    def keys(self) -> NDArray[np.uint64]:
        """Each key once, in the order of the rows."""
        return _view(library().plan_keys(self.pointer), np.uint64, (self.size,), self._handle)

    @functools.cached_property
    def index(self) -> NDArray[np.uint32]:
        """For each given key its index in `keys`, in the shape of the given keys."""
        return _view(library().plan_index(self.pointer), np.uint32, self._shape, self._handle)

    @property
    def pointer(self) -> Any:
        return self._handle.pointer

    def pull(self, priority: int = 0, out: NDArray[np.float32] | None = None, clock: int | None = None) -> Rows:
        """Pulls the rows of `keys`, float32 [n, dim]. Arguments as in Table.pull."""
        shape, pointer = (self.size, self.table.dim), POINTER()
        options = self.table.client._pull_options(_address_of(out, shape), priority, clock)
        library().pull_plan(self.table.client.pointer, self._handle.pointer, options, pointer)
        return _rows(pointer, shape, out)

    def push(self, gradients: ArrayLike) -> Future:
        """Pushes a gradient for each of `keys`, [n, dim]; see Table.push."""
        pointer = POINTER()
        values = _as_gradients(self.table, (self.size,), gradients)
        library().push_plan(self.table.client.pointer, self._handle.pointer, values.ctypes.data_as(FLOATS), None, None, 0,
                         pointer)
        return Future(pointer)


class Table:
    """A table of the fleet. Valid for the whole run."""

    def __init__(self, client: "Client", name: str, pointer: Any) -> None:
        self.client, self.name = client, name
        self._handle = Handle(pointer, library().table_free)
        self.dim: int = library().table_dim(pointer)
        self.rows: int | None = library().table_rows(pointer) or None  # of a dense table

    def __repr__(self) -> str:
        return f"<tarn.Table {self.name!r}, {'sparse' if self.rows is None else f'{self.rows} rows'}, dim {self.dim}>"

    @property
    def pointer(self) -> Any:
        return self._handle.pointer

    def pull(
        self, keys: ArrayLike, priority: int = 0, out: NDArray[np.float32] | None = None, clock: int | None = None
    ) -> Rows:
        """The rows of `keys`, an array of any shape: a Rows future.

        clock: at which the rows will be used; default: the current clock. out: a float32 array for the rows, with the
        shape of the keys + [dim]. priority: of the waiting pulls of a clock, the highest is sent first.
        """
        array, pointer, shape = _as_keys(keys), POINTER(), np.shape(keys) + (self.dim,)
        options = self.client._pull_options(_address_of(out, shape), priority, clock)
        library().pull(self.client.pointer, self._handle.pointer, array.ctypes.data_as(KEYS), array.size, options, pointer)
        return _rows(pointer, shape, out)

    def plan(self, keys: ArrayLike) -> Plan:
        """Makes a plan for pulls and pushes of the same keys."""
        array, pointer = _as_keys(keys), POINTER()
        library().plan_make(self.client.pointer, self._handle.pointer, array.ctypes.data_as(KEYS), array.size, pointer)
        return Plan(self, np.shape(keys), pointer)

    def prefetch(self, keys: ArrayLike) -> None:
        """Announces that these rows will be pulled soon, so that servers read those on disk into memory."""
        array = _as_keys(keys)
        library().prefetch(self.client.pointer, self._handle.pointer, array.ctypes.data_as(KEYS), array.size)

    def push(self, keys: ArrayLike, gradients: ArrayLike) -> Future:
        """Pushes a gradient for each key, [..., dim]; gradients of the same key are summed. Returns a Future; waiting
        for it is optional.

        Raises InvalidArgument, with table and key, if a gradient is infinite or NaN; nothing of the push is sent then.
        Blocks only while too many bytes are in flight.
        """
        array, pointer = _as_keys(keys), POINTER()
        values = _as_gradients(self, np.shape(keys), gradients)
        library().push(self.client.pointer, self._handle.pointer, array.ctypes.data_as(KEYS), array.size,
                    values.ctypes.data_as(FLOATS), pointer)
        return Future(pointer)

    def assign(self, keys: ArrayLike, values: ArrayLike) -> Future:
        """Sets rows to values, [..., dim], such as those of a model trained elsewhere. Of a repeated key the last row
        counts.

        The optimizer's state of an existing row remains. A new row is created even if admission would refuse it. In
        an aggregated table the values are set when the clock closes, after the sum of its gradients; if several workers
        set a row in one clock, the one of the highest rank counts. Else like push.
        """
        array, pointer = _as_keys(keys), POINTER()
        rows = _as_gradients(self, np.shape(keys), values, "values")
        library().assign(self.client.pointer, self._handle.pointer, array.ctypes.data_as(KEYS), array.size,
                      rows.ctypes.data_as(FLOATS), pointer)
        return Future(pointer)

    def delete(self, keys: ArrayLike) -> Future:
        """Deletes the rows of a sparse table, with the optimizer's state: the keys have their initial values again, as
        if they had never been pushed. Keys may have no row. Else like assign.

        Raises InvalidArgument if the table is dense.
        """
        array, pointer = _as_keys(keys), POINTER()
        library().delete(self.client.pointer, self._handle.pointer, array.ctypes.data_as(KEYS), array.size, pointer)
        return Future(pointer)


_PURPOSES = ("train", "validate", "test")


class Lease(NamedTuple):
    """Rows [first_row, first_row + rows) of a data set; the first skip_rows of them are already trained."""

    id: int
    purpose: str  # "train", "validate" or "test"
    epoch: int
    first_row: int
    rows: int
    skip_rows: int


class LeaseReport(NamedTuple):
    """The quality of a lease's predictions, before each update."""

    lease: int
    rows: int
    loss_sum: float
    logits: ArrayLike | None = None  # of each row, with its label in `positives`, for the area under the curve
    positives: ArrayLike | None = None
    correct: int = 0  # for a classifier: number of rows with the right class


class LeaseAnswer(NamedTuple):
    """The result of Client.request_leases."""

    leases: list[Lease]
    finished: bool  # there is no more work: leave
    tick_to: int | None  # no data now: tick_to this clock, and request again


class Client:
    """A worker of the fleet. Leaves the fleet at the end of a `with` block."""

    def __init__(self, pointer: Any) -> None:
        self._pointer, self._process = pointer, os.getpid()
        self._saver: Saver | None = None

    def __getstate__(self) -> Any:
        raise TypeError("tarn: a client cannot be pickled or copied: it is connected to a fleet; call tarn.connect in each "
                        "process")

    @property
    def pointer(self) -> Any:
        if self._process != os.getpid():  # a fork has no threads of the library
            raise Gone(17, "this client belongs to the parent process: connect again after a fork")
        if self._pointer is None:
            raise Gone(17, "the client is closed")
        return self._pointer

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.leave()
        self.close()

    def __del__(self) -> None:
        self.close()

    def _pull_options(self, out: int | None, priority: int, clock: int | None) -> CPullOptions:
        """For the pulls of tables and plans."""
        return CPullOptions(size=ctypes.sizeof(CPullOptions), out=out, priority=operator.index(priority),
                            use_clock_plus_1=0 if clock is None else operator.index(clock) + 1)

    @property
    def rank(self) -> int:
        """The rank of this worker, from 0."""
        return int(library().rank(self.pointer))

    @property
    def clock(self) -> int:
        """The clock of the next pull and push. Where the job has backup workers, the end of a pull may advance it."""
        return int(library().clock(self.pointer))

    @property
    def job_text(self) -> str:
        """The job as resolved TOML."""
        return str(library().job_text(self.pointer).decode())

    def table(
        self,
        name: str,
        dim: int | None = None,
        rows: int | None = None,
        initializer: Settings | None = None,
        optimizer: Settings | None = None,
        pushes: str = "gradients",
    ) -> Table:
        """Returns the table with this name.

        With `dim` it is created if it does not exist: sparse, or with `rows` dense, with the keys 0..rows-1.
        `initializer` and `optimizer` are the name of a kind or a dict of settings: "zero" (the default),
        {"kind": "normal", "stddev": 0.01}, "uniform" (low, high), "constant" (value); "sgd" or any other of the job
        file's [optimizer] with its keys. The default optimizer is the job's: [optimizer.embedding], of dense tables
        [optimizer.dense]. Consistency, codecs and life are those of the job. Without `dim`, waits until the table
        exists. `pushes`: what this program pushes, "gradients" or, after local steps, "deltas" (old minus new values).
        All workers must agree; a table of deltas has no l2.
        """
        pointer = POINTER()
        if dim is None:
            if not (rows is None and initializer is None and optimizer is None and pushes == "gradients"):
                raise InvalidArgument(1, f"table {name!r}: rows, initializer, optimizer and pushes need dim")
            interruptible(library().open_table, self.pointer, as_bytes(name), pointer,
                          what=f"table {name!r}: no worker has created it")
            return Table(self, name, pointer)
        lines = [f"dim = {_toml(operator.index(dim))}"]
        if rows is not None:
            lines += ['kind = "dense"', f"rows = {_toml(operator.index(rows))}"]
        if pushes != "gradients":
            lines.append(f"pushes = {_toml(pushes)}")
        if initializer is not None:
            lines += _section("initializer", initializer)
        if optimizer is not None:
            lines += _section("optimizer", optimizer)
        interruptible(library().create_table, self.pointer, as_bytes(name), "\n".join(lines).encode(), pointer,
                      what=f"table {name!r}: a server or the scheduler does not answer")
        return Table(self, name, pointer)

    def pull(self, pulls: Sequence[tuple[Any, ...]], priority: int = 0, clock: int | None = None) -> list[Rows]:
        """Pulls rows of several tables in one call: for [(table, keys), ...] returns a list of Rows. An optional third
        element is `out`.

        All are ready at the same time. Arguments as in Table.pull.
        """
        arrays, shapes, outs = [], [], []
        items = (CTablePull * len(pulls))()
        for item, (table, keys, *more) in zip(items, pulls):
            array, shape, out = _as_keys(keys), np.shape(keys) + (table.dim,), more[0] if more else None
            item.table, item.keys, item.n, item.out = table.pointer, array.ctypes.data, array.size, _address_of(out, shape)
            arrays.append(array)
            shapes.append(shape)
            outs.append(out)
        pointer = POINTER()
        library().pull_many(self.pointer, items, len(pulls), self._pull_options(None, priority, clock), pointer)
        handle = Handle(pointer, library().future_free, outs)
        return [Rows(handle, shape, out, which) for which, (shape, out) in enumerate(zip(shapes, outs))]

    def push(self, pushes: Sequence[tuple[Table, ArrayLike, ArrayLike]]) -> Future:
        """Pushes gradients for several tables in one call: [(table, keys, gradients), ...]. Returns a Future; see
        Table.push.

        Nothing is sent if one of them is invalid.
        """
        arrays = []
        items = (CTablePush * len(pushes))()
        for item, (table, keys, gradients) in zip(items, pushes):
            array, values = _as_keys(keys), _as_gradients(table, np.shape(keys), gradients)
            item.table, item.keys, item.n, item.gradients = table.pointer, array.ctypes.data, array.size, values.ctypes.data
            arrays.append((array, values))
        pointer = POINTER()
        library().push_many(self.pointer, items, len(pushes), pointer)
        return Future(pointer)

    def plans(
        self, requests: Sequence[tuple[Table, ArrayLike]], limits: Sequence[int] | None = None
    ) -> tuple[list[Plan], NDArray[np.int64]]:
        """Makes the plans of several tables in one call: for [(table, keys), ...] returns a list of plans, and for each
        key of all requests, one after the other, its index in `keys` of its plan.

        limits: for each request a number that all its keys must be below; 0: any keys. Raises InvalidArgument otherwise,
        and makes no plan.
        """
        count, arrays = len(requests), [_as_keys(keys) for _, keys in requests]
        items, pointers, sizes = (CPlanRequest * count)(), (ctypes.c_void_p * count)(), (ctypes.c_size_t * count)()
        for item, (table, _), array, limit in zip(items, requests, arrays, limits or [0] * count):
            item.table, item.keys, item.n, item.limit = table.pointer, array.ctypes.data, array.size, limit
        index = np.empty(sum(array.size for array in arrays), np.int64)
        library().plan_make_many(self.pointer, items, count, pointers, sizes, index.ctypes.data)
        plans = [Plan(table, np.shape(keys), ctypes.c_void_p(pointer), size)
                 for (table, keys), pointer, size in zip(requests, pointers, sizes)]
        return plans, index

    def pull_plans(
        self,
        pulls: Sequence[tuple[Plan, NDArray[np.float32] | None]],
        priority: int = 0,
        clock: int | None = None,
    ) -> list[Rows]:
        """Pulls the rows of several plans in one call: for [(plan, out), ...] returns a list of Rows, float32 [n, dim]
        each, one row for each of plan.keys.

        All are ready at the same time. Arguments as in Table.pull; `out` may be None.
        """
        items = (CPlanPull * len(pulls))()
        shapes = [(plan.size, plan.table.dim) for plan, _ in pulls]
        for item, (plan, out), shape in zip(items, pulls, shapes):
            item.plan, item.out = plan.pointer, _address_of(out, shape)
        pointer = POINTER()
        library().pull_plans(self.pointer, items, len(pulls), self._pull_options(None, priority, clock), pointer)
        handle = Handle(pointer, library().future_free, [out for _, out in pulls])
        return [Rows(handle, shape, out, which) for which, (shape, (_, out)) in enumerate(zip(shapes, pulls))]

    def push_plans(self, pushes: Sequence[tuple[Plan, ArrayLike]]) -> Future:
        """Pushes gradients for several plans in one call: [(plan, gradients), ...], [n, dim] each, one row for each of
        plan.keys. Returns a Future; see Table.push.

        Nothing is sent if one of them is invalid.
        """
        items, kept = (CPlanPush * len(pushes))(), []
        for item, (plan, gradients) in zip(items, pushes):
            values = _as_gradients(plan.table, (plan.size,), gradients)
            item.plan, item.gradients = plan.pointer, values.ctypes.data
            kept.append(values)
        pointer = POINTER()
        library().push_plans(self.pointer, items, len(pushes), 0, pointer)
        return Future(pointer)

    def tick(self, lease: int | None = None, rows: int = 0) -> Future:
        """Finishes this clock. Returns a Future, ready when every shard has the tick; waiting for it is optional.

        lease, rows: for programs that read data under leases: the first `rows` rows of the lease are trained.
        """
        pointer = POINTER()
        if lease is None:
            library().tick(self.pointer, pointer)
        else:
            library().tick_at(self.pointer, operator.index(lease), operator.index(rows), pointer)
        return Future(pointer)

    def tick_to(self, clock: int) -> Future:
        """Ticks to `clock`; ready at once if that is not ahead."""
        pointer = POINTER()
        library().tick_to(self.pointer, operator.index(clock), pointer)
        return Future(pointer)

    def request_leases(
        self, data_rows: Sequence[int], done: Sequence[LeaseReport] = (), want: int = 1
    ) -> LeaseAnswer:
        """Requests up to `want` leases: ranges of rows of the data for this worker.

        data_rows: rows of the training, validation and test set, as read by this worker. done: the leases completed
        since the last request; for training, those whose last batch is followed by an acknowledged tick.
        """
        reports, kept = (CLeaseReport * len(done))(), []
        for report, given in zip(reports, done):
            report.lease, report.rows, report.loss_sum, report.correct = given.lease, given.rows, given.loss_sum, given.correct
            if given.logits is None:
                continue
            logits = np.ascontiguousarray(given.logits, dtype=np.float32)
            positives = np.ascontiguousarray(given.positives, dtype=np.uint8)
            if not logits.shape == positives.shape == (given.rows,):
                raise InvalidArgument(1, f"lease {given.lease}: logits are {list(logits.shape)} and positives {list(positives.shape)}, expected [{given.rows}]")
            report.logits, report.positives = logits.ctypes.data, positives.ctypes.data
            kept.append((logits, positives))
        leases, answer = (CLease * want)(), CLeaseAnswer()
        rows = (ctypes.c_uint64 * 3)(*data_rows)
        interruptible(library().request_leases, self.pointer, rows, reports, len(done), leases, want, answer,
                      what="leases of data: other workers have not finished the epoch, or the scheduler does not answer")
        granted = [Lease(each.id, _PURPOSES[each.purpose], each.epoch, each.first_row, each.rows, each.skip_rows)
                   for each in leases[:answer.granted]]
        ahead = None if granted or answer.finished else answer.tick_to
        return LeaseAnswer(granted, bool(answer.finished), ahead)

    def request_checkpoint(self) -> Future:
        """Requests a checkpoint of the fleet. Returns a Future, ready when it is complete; wait() raises an error if it
        failed.

        In bsp and ssp all workers, including this one, must continue to tick meanwhile.
        """
        pointer = POINTER()
        library().request_checkpoint(self.pointer, pointer)
        written = Future(pointer)
        written._what = "a checkpoint: not all workers have ticked to its clock, or a server still writes"
        return written

    def keep_state(self, save: Callable[[], bytes]) -> None:
        """From now on checkpoints contain state of this program: what save() returns, as of its last tick. b"": none.

            saved = ps.saved_state(ps.rank)
            if saved is not None:
                layers.load(saved)
            ps.keep_state(layers.save)

        The checkpoint has the tables at the clock of that tick; in "asp" with apply = "immediate" the state may be newer.
        The client calls save() when a checkpoint needs it: at the start of the first pull, push, tick, barrier or leave
        after a tick, or within request_leases(). save() must not call the client; if it raises, the client ends.

        Call keep_state() once, before the first tick, and from then on use the client in one thread. After the program has
        changed its state, it may only push until its next tick.
        """
        self._saver = Saver(save)
        library().keep_state(self.pointer, self._saver.function, None)

    def saved_state(self, rank: int = 0) -> bytes | None:
        """The state that the worker of this rank had in the checkpoint from which the run goes on; None: it had none, or
        this worker has joined later."""
        found, n = POINTER(), ctypes.c_size_t()
        interruptible(library().saved_state, self.pointer, rank, found, n, what="the saved state of a program: a server does not answer")
        return ctypes.string_at(found, n.value) if n.value else None

    def report(self, **values: float) -> None:
        """Reports figures of this program, such as report(loss=0.43, hr=0.51): one number for each name.

        They appear in the terminal, in metrics.jsonl (a line a second at most, with the mean of what was reported since
        the last one), in summary.json and in the report: the mean over all workers. Tensors and arrays of one value are
        numbers, too. Without `tools/launch`, which sets TARN_RUN_DIR, nothing is written. Values that are not finite are
        left out. TypeError, InvalidArgument: a value is no number, or a name is taken.
        """
        numbers = (ctypes.c_double * len(values))()
        for i, (name, value) in enumerate(values.items()):
            try:
                numbers[i] = float(value)
            except (TypeError, ValueError):
                raise TypeError(f"tarn.report: {name} = {value!r}, expected a number") from None
        library().report(self.pointer, (TEXT * len(values))(*map(as_bytes, values)), numbers, len(values))

    def barrier(self) -> None:
        """Waits until every live worker of the fleet has called it equally often."""
        interruptible(library().barrier, self.pointer, what="a barrier: other workers have not called it")

    def leave(self) -> None:
        """Waits for all acknowledgements and leaves the fleet. Pulls for clocks that this worker has not reached end with
        tarn.Gone. After it only close() may be called."""
        interruptible(library().leave, self.pointer, what="the answers to requests of this worker, to leave the fleet: a server "
                      "or the scheduler does not answer")

    def close(self) -> None:
        """Leaves first unless leave() was called, but waits only briefly."""
        pointer, self._pointer = self._pointer, None
        if pointer is not None and self._process == os.getpid():
            library().close(pointer)


def _as_rank(text: str) -> int:
    if not text.isdecimal():
        raise InvalidArgument(1, f"TARN_RANK: expected a rank, such as 0, found {text!r}")
    return int(text)


def connect(
    scheduler: str | os.PathLike[str] | None = None,
    *,
    keys: str | os.PathLike[str] | None = None,
    timeout: float = 60.0,
    rank: int | None = None,
    insecure: bool = False,
    shm: bool = True,
) -> Client:
    """Joins the fleet as a worker and waits until the fleet is complete.

    scheduler: the run directory, "runs/mine", of this user's fleet on this machine; or an address, "tcp://host:7700",
    with `keys`, the key file of the fleet (made by tarn-keys), or `insecure`. timeout: seconds, also for tables that do
    not exist yet; math.inf waits without limit. rank: from 0; default: chosen by the scheduler. shm: use shared memory
    with servers on this machine. Without `scheduler` all but the timeout come from the environment variables that
    `tools/launch JOB -- PROGRAM` sets: TARN_SCHEDULER, and if set TARN_KEYS, TARN_RANK, TARN_INSECURE, TARN_NO_SHM.
    """
    if not scheduler:
        told = os.environ
        if not told.get("TARN_SCHEDULER"):
            raise InvalidArgument(1, 'no scheduler: give the folder of its run or its address, such as "tcp://host:7700", or set TARN_SCHEDULER')
        scheduler, keys = told["TARN_SCHEDULER"], keys or told.get("TARN_KEYS")
        rank = _as_rank(told["TARN_RANK"]) if rank is None and "TARN_RANK" in told else rank
        insecure, shm = insecure or "TARN_INSECURE" in told, shm and "TARN_NO_SHM" not in told
    if rank is not None and not 0 <= operator.index(rank) < _ANY_RANK:
        raise InvalidArgument(1, f"rank: expected 0 to {_ANY_RANK - 1}, found {rank}")
    options = CConnectOptions(size=ctypes.sizeof(CConnectOptions), keys=as_bytes(keys) if keys else None,
                              timeout_seconds=timeout or _NO_TIME, rank_plus_1=0 if rank is None else rank + 1,
                              insecure=insecure, no_shm=not shm)

    def join() -> Client:  # an unused client leaves when it is deleted
        pointer = POINTER()
        library().connect(as_bytes(scheduler), options, pointer)
        return Client(pointer)

    return interruptible(join)
