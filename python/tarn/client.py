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
import itertools
import operator
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tarn.connection import Connection
from tarn.futures import Arrival, Future, Rows, address_of, future_handle
from tarn.library import (
    POINTER, TEXT, CConnectOptions, CLease, CLeaseAnswer, CLeaseReport, CPullOptions, CTablePull, CTablePush, Error, Gone,
    Handle, InvalidArgument, Timeout, as_bytes, interruptible, library)
from tarn.state import Saver
from tarn.tables import Plan, Table, as_gradients, as_keys

# An initializer or an optimizer: the name of its kind, or a dict with the kind and its settings.
Settings = str | Mapping[str, Any]

__all__ = ["Client", "Error", "Future", "Gone", "InvalidArgument", "Lease", "LeaseAnswer", "LeaseReport", "Plan", "Rows",
           "Settings", "Table", "Timeout", "connect"]

_T = TypeVar("_T")
_ANY_RANK = 2**32 - 1
_NO_TIME = 1e-9  # seconds; the timeout passed for 0, which the library would replace by its default


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


def _as_clock(clock: int) -> int:
    number = operator.index(clock)
    if not 0 <= number < 2**64 - 1:
        raise InvalidArgument(1, f"clock {number}: expected a number from 0 to 2^64 - 2")
    return number


def _section(name: str, settings: Settings) -> list[str]:
    if isinstance(settings, str):
        settings = {"kind": settings}
    if not isinstance(settings, Mapping):
        raise InvalidArgument(1, f"{name}: expected the name of a kind or a dict, found {type(settings).__name__}")
    return [f"[{name}]"] + [f"{_toml(str(key))} = {_toml(value)}" for key, value in settings.items()]


def _words(count: int, rows: Iterable[Iterable[int]]) -> Any:
    """An array of C structs, all of whose fields have 64 bits."""
    return (ctypes.c_uint64 * count)(*itertools.chain.from_iterable(rows))


def _free_plans(addresses: list[int]) -> None:
    for address in addresses:
        library().plan_free(address)


_PURPOSES = ("train", "validate", "test")


class Lease(NamedTuple):
    """Rows [first_row, first_row + rows) of a data set; the first skip_rows of them are already trained. The scheduler
    counts the clocks of an epoch in batches of batch_rows."""

    id: int
    purpose: str  # "train", "validate" or "test"
    epoch: int
    first_row: int
    rows: int
    skip_rows: int
    batch_rows: int


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
    finished: bool  # training has ended: leave the fleet
    tick_to: int | None  # no data now: call Client.tick_to with this clock, and request again


class _LeaseReportOut(NamedTuple):
    """A report as the library takes it, with the arrays that it points to."""

    report: CLeaseReport
    kept: tuple[Any, ...]


def _lease_report(given: LeaseReport) -> _LeaseReportOut:
    report = CLeaseReport(lease=given.lease, rows=given.rows, loss_sum=given.loss_sum, correct=given.correct)
    if given.logits is None:
        return _LeaseReportOut(report, ())
    logits = np.ascontiguousarray(given.logits, dtype=np.float32)
    positives = np.ascontiguousarray(given.positives, dtype=np.uint8)
    if not logits.shape == positives.shape == (given.rows,):
        raise InvalidArgument(1, f"lease {given.lease}: logits are {list(logits.shape)} and positives "
                                 f"{list(positives.shape)}, expected [{given.rows}]")
    report.logits, report.positives = logits.ctypes.data, positives.ctypes.data
    return _LeaseReportOut(report, (logits, positives))


class _LeaseRequest:
    """A request of leases. Threads: any."""

    def __init__(self, call: Callable[..., Any], data_rows: Sequence[int], done: Sequence[_LeaseReportOut], want: int) -> None:
        self._call, self._done, self._want = call, list(done), want
        self._rows = (ctypes.c_uint64 * 3)(*data_rows)
        self._lock = threading.Lock()
        self._answer: LeaseAnswer | None = None

    def answer(self) -> LeaseAnswer:
        """Sends the request when it is first called, and returns the answer to that each time."""
        with self._lock:
            if self._answer is None:
                self._answer = self._send()
            return self._answer

    def _send(self) -> LeaseAnswer:
        reports = (CLeaseReport * len(self._done))(*(each.report for each in self._done))
        leases, answer = (CLease * self._want)(), CLeaseAnswer()
        self._call(library().request_leases, self._rows, reports, len(reports), leases, self._want, answer)
        granted = [Lease(each.id, _PURPOSES[each.purpose], each.epoch, each.first_row, each.rows, each.skip_rows,
                         each.batch_rows)
                   for each in leases[:answer.granted]]
        return LeaseAnswer(granted, bool(answer.finished), None if granted or answer.finished else answer.tick_to)


class Client:
    """A worker of the fleet. Leaves the fleet at the end of a `with` block."""

    def __init__(self, pointer: Any) -> None:
        self._connection = Connection(pointer)
        self._saver: Saver | None = None
        self._lease_lock = threading.Lock()  # one request of leases at a time
        self._lease_request: _LeaseRequest | None = None  # after Ctrl-C: its answer has not been returned
        self._unsent_reports: list[_LeaseReportOut] = []
        self._saved_lock = threading.Lock()  # while the bytes that tarn_saved_state has returned are copied

    def __getstate__(self) -> Any:
        raise TypeError("tarn: a client cannot be pickled or copied: it is connected to a fleet; call tarn.connect in each "
                        "process")

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Internal. Calls a function of the library for this client."""
        return self._connection.call(function, *arguments)

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.leave()
        finally:
            self.close()

    def __del__(self) -> None:
        self.close()

    def _interruptible(self, call: Callable[..., _T], *arguments: Any, what: str) -> _T:
        return interruptible(call, *arguments, what=what)

    def pull_options(self, out: int | None, priority: int, clock: int | None) -> CPullOptions:
        """Internal. For the pulls of tables and plans."""
        return CPullOptions(size=ctypes.sizeof(CPullOptions), out=out, priority=operator.index(priority),
                            use_clock_plus_1=0 if clock is None else _as_clock(clock) + 1)

    @property
    def rank(self) -> int:
        """The rank of this worker, from 0."""
        return int(self.call(library().rank))

    @property
    def clock(self) -> int:
        """The clock of the next pull and push. Where the job has backup workers, the end of a pull may advance it."""
        return int(self.call(library().clock))

    @property
    def job_text(self) -> str:
        """The job as resolved TOML."""
        return str(self.call(library().job_text).decode())

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
            self._interruptible(self._connection.call, library().open_table, as_bytes(name), pointer,
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
        self._interruptible(self._connection.call, library().create_table, as_bytes(name), "\n".join(lines).encode(), pointer,
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
            array, shape, out = as_keys(table, keys), np.shape(keys) + (table.dim,), more[0] if more else None
            item.table, item.keys, item.n = table.address, array.ctypes.data, array.size
            item.out = address_of(table.name, out, shape)
            arrays.append(array)
            shapes.append(shape)
            outs.append(out)
        handle = future_handle(outs)
        self.call(library().pull_many, items, len(pulls), self.pull_options(None, priority, clock), handle.pointer)
        return [Rows(handle, shape, out, which) for which, (shape, out) in enumerate(zip(shapes, outs))]

    def push(self, pushes: Sequence[tuple[Table, ArrayLike, ArrayLike]]) -> Future:
        """Pushes gradients for several tables in one call: [(table, keys, gradients), ...]. Returns a Future; see
        Table.push.

        Nothing is sent if one of them is invalid.
        """
        arrays = []
        items = (CTablePush * len(pushes))()
        for item, (table, keys, gradients) in zip(items, pushes):
            array, values = as_keys(table, keys), as_gradients(table, np.shape(keys), gradients)
            item.table, item.keys, item.n, item.gradients = table.address, array.ctypes.data, array.size, values.ctypes.data
            arrays.append((array, values))
        pointer = POINTER()
        self.call(library().push_many, items, len(pushes), pointer)
        return Future(pointer)

    def plans(
        self, requests: Sequence[tuple[Table, ArrayLike]], limits: Sequence[int] | None = None
    ) -> tuple[list[Plan], NDArray[np.int64]]:
        """Makes the plans of several tables in one call: for [(table, keys), ...] returns a list of plans, and for each
        key of all requests, one after the other, its index in `keys` of its plan.

        limits: for each request the number that all its keys must be below; 0: any keys. If a key is not below it,
        raises InvalidArgument and makes no plan.
        """
        arrays = [as_keys(table, keys) for table, keys in requests]
        if limits is not None and not (len(limits) == len(arrays) and all(0 <= limit < 2**64 for limit in limits)):
            raise InvalidArgument(1, f"limits: expected {len(arrays)} numbers from 0, found {list(limits)}")
        index = np.empty(sum(array.size for array in arrays), np.int64)
        plans = self.plans_at([table for table, _ in requests], [array.ctypes.data for array in arrays],
                              [array.size for array in arrays], [0] * len(arrays) if limits is None else limits,
                              index.ctypes.data)
        for plan, (_, keys) in zip(plans, requests):
            plan.shape = np.shape(keys)
        return plans, index

    def plans_at(
        self, tables: Sequence[Table], keys: Iterable[int], counts: Sequence[int], limits: Iterable[int], index: int
    ) -> list[Plan]:
        """Internal, unchecked. plans() from addresses: tables[i] has counts[i] keys at keys[i]; sum(counts) indices are
        written to `index`."""
        count = len(tables)
        requests = _words(4 * count, zip((table.address for table in tables), keys, counts, limits))
        made, sizes = (ctypes.c_uint64 * count)(), (ctypes.c_size_t * count)()
        self.call(library().plan_make_many, requests, count, made, sizes, index)
        addresses = list(made)
        owner = Handle(addresses, _free_plans)
        return list(map(Plan, tables, ((n,) for n in counts), addresses, sizes, itertools.repeat(owner)))

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
        shapes, outs = [(plan.size, plan.table.dim) for plan, _ in pulls], [out for _, out in pulls]
        addresses = map(address_of, [plan.table.name for plan, _ in pulls], outs, shapes)
        handle = self._pull_to([plan for plan, _ in pulls], addresses, outs, priority, clock)
        return [Rows(handle, shape, out, which) for which, (shape, out) in enumerate(zip(shapes, outs))]

    def pull_to(self, plans: Sequence[Plan], addresses: Sequence[int], kept: object, clock: int) -> Future:
        """Internal, unchecked. Pulls the rows of plans[i] to the memory at addresses[i], which `kept` must keep alive.
        Ready when the rows are there."""
        return Arrival(self._pull_to(plans, addresses, kept, 0, clock))

    def _pull_to(
        self, plans: Sequence[Plan], addresses: Iterable[int | None], kept: object, priority: int, clock: int | None
    ) -> Handle:
        items = _words(2 * len(plans), ((plan.address, out or 0) for plan, out in zip(plans, addresses)))
        handle = future_handle(kept)
        self.call(library().pull_plans, items, len(plans), self.pull_options(None, priority, clock), handle.pointer)
        return handle

    def push_plans(self, pushes: Sequence[tuple[Plan, ArrayLike]]) -> Future:
        """Pushes gradients for several plans in one call: [(plan, gradients), ...], [n, dim] each, one row for each of
        plan.keys. Returns a Future; see Table.push.

        Nothing is sent if one of them is invalid.
        """
        arrays = [as_gradients(plan.table, (plan.size,), gradients) for plan, gradients in pushes]
        return self.push_from([plan for plan, _ in pushes], [array.ctypes.data for array in arrays])

    def push_from(self, plans: Sequence[Plan], addresses: Iterable[int]) -> Future:
        """Internal, unchecked. Pushes the gradients of plans[i] at addresses[i], float32 [plan.size, dim]. They are
        copied."""
        pointer, items = POINTER(), _words(2 * len(plans), zip((plan.address for plan in plans), addresses))
        self.call(library().push_plans, items, len(plans), 0, pointer)
        return Future(pointer)

    def tick(self, lease: int | None = None, rows: int = 0) -> Future:
        """Finishes this clock. Returns a Future, ready when every shard has the tick; waiting for it is optional.

        lease, rows: for programs that read data under leases: the first `rows` rows of the lease are trained.
        """
        pointer = POINTER()
        if lease is None:
            self.call(library().tick, pointer)
        else:
            self.call(library().tick_at, operator.index(lease), operator.index(rows), pointer)
        return Future(pointer)

    def tick_to(self, clock: int) -> Future:
        """Finishes all clocks before `clock` at once. Returns a Future, ready at once if `clock` is not ahead."""
        pointer = POINTER()
        self.call(library().tick_to, _as_clock(clock), pointer)
        return Future(pointer)

    def request_leases(
        self, data_rows: Sequence[int], done: Sequence[LeaseReport] = (), want: int = 1
    ) -> LeaseAnswer:
        """Requests up to `want` leases: ranges of rows of the data for this worker.

        data_rows: rows of the training, validation and test set, as read by this worker. done: the leases completed
        since the last request; for training, those whose last batch is followed by an acknowledged tick. Tick once for each
        batch of leased rows and not otherwise. The last checkpoint is written before the answer `finished`: it lacks what is
        pushed later. After Ctrl-C the request goes on: the next call returns its answer, and the call after that one sends
        `done`.
        """
        with self._lease_lock:
            self._connection.check()
            self._unsent_reports += [_lease_report(each) for each in done]
            if self._lease_request is None:
                request = _LeaseRequest(self._connection.call, data_rows, self._unsent_reports, want)
                self._lease_request, self._unsent_reports = request, []
            try:
                answer = self._interruptible(
                    self._lease_request.answer,
                    what="leases of data: other workers have not finished the epoch, or the scheduler does not answer")
            except Exception:
                self._lease_request = None
                raise
            self._lease_request = None
            return answer

    def request_checkpoint(self) -> Future:
        """Requests a checkpoint of the fleet. Returns a Future, ready when it is complete; wait() raises an error if it
        failed.

        In bsp and ssp all workers, including this one, must continue to tick meanwhile.
        """
        pointer = POINTER()
        self.call(library().request_checkpoint, pointer)
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
        The client calls save() when a checkpoint needs it: at the start of the first pull, push, tick, barrier, leave or
        save_state() after a tick, or within request_leases(). save() must not call the client; if it raises, the client
        ends.

        A checkpoint waits for the next tick of the program; a stop does so for 60 s, or two leases if that is longer.
        Call keep_state() once, before the first tick, and from then on use the client in one thread. After the program has
        changed its state, it may only push until its next tick.
        """
        self._saver = Saver(save)
        self.call(library().keep_state, self._saver.function, None)

    def save_state(self) -> None:
        """Saves the state if a checkpoint needs it. Call it where a program changes its state after a tick without having
        called anything that saves it, because it has pulled the rows of this clock in an earlier one."""
        self.call(library().save_state)

    def saved_state(self, rank: int = 0) -> bytes | None:
        """The state that the worker of this rank had in the checkpoint from which the run was resumed; None if it had
        none, or if this worker has joined later."""
        lock = self._saved_lock

        def read(pointer: Any) -> bytes | None:
            found, n = POINTER(), ctypes.c_size_t()
            with lock:
                library().saved_state(pointer, rank, found, n)
                return ctypes.string_at(found, n.value) if n.value else None

        saved: bytes | None = self._interruptible(self._connection.call, read,
                                                  what="the saved state of a program: a server does not answer")
        return saved

    def report(self, **values: float) -> None:
        """Reports figures of this program, such as report(loss=0.43, hr=0.51): one number for each name.

        They appear in the terminal, in metrics.jsonl (a line a second at most, with the mean of what was reported since
        the last one), in summary.json and in the report: the mean over all workers. Tensors and arrays of one value are
        numbers, too. Without `tools/launch`, which sets TARN_RUN_DIR, nothing is written. A mean that is not finite is
        null there, and shown as such. TypeError: a value is not a number. InvalidArgument: a name is empty, or is a field
        of every line.
        """
        numbers = (ctypes.c_double * len(values))()
        for i, (name, value) in enumerate(values.items()):
            try:
                numbers[i] = float(value.detach() if hasattr(value, "detach") else value)
            except (TypeError, ValueError):
                raise TypeError(f"tarn.report: {name} = {value!r}, expected a number") from None
        self.call(library().report, (TEXT * len(values))(*map(as_bytes, values)), numbers, len(values))

    def barrier(self) -> None:
        """Waits until every live worker of the fleet has called barrier() as often as this one."""
        self._interruptible(self._connection.call, library().barrier, what="a barrier: other workers have not called it")

    def leave(self) -> None:
        """Waits for all acknowledgements and leaves the fleet. Pulls for clocks that this worker has not reached end with
        tarn.Gone. After it only close() may be called."""
        self._interruptible(self._connection.call, library().leave, what="the answers to this worker's requests, before it leaves the "
                      "fleet: a server or the scheduler does not answer")

    def check(self) -> None:
        """Raises the error with which every request fails, once the client has ended. Does not wait."""
        self.call(library().ended)

    @property
    def closed(self) -> bool:
        return self._connection.closed

    def close(self) -> None:
        """Leaves first unless leave() was called, but waits at most 2 seconds. Does not wait long for calls in other threads,
        or for one that Ctrl-C has interrupted: if they have not returned after 2 seconds, they are cancelled, and the fleet
        counts this worker as dead."""
        self._connection.close(self._saver)


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
    with servers on this machine. Without `scheduler`, all arguments that are not given, except the timeout, come
    from the environment variables that `tools/launch JOB -- PROGRAM` sets: TARN_SCHEDULER, and if set TARN_KEYS,
    TARN_RANK, TARN_INSECURE, TARN_NO_SHM.
    """
    if not scheduler:
        variables = os.environ
        if not variables.get("TARN_SCHEDULER"):
            raise InvalidArgument(1, 'no scheduler: give the folder of its run or its address, such as "tcp://host:7700", or set TARN_SCHEDULER')
        scheduler, keys = variables["TARN_SCHEDULER"], keys or variables.get("TARN_KEYS")
        rank = _as_rank(variables["TARN_RANK"]) if rank is None and "TARN_RANK" in variables else rank
        insecure, shm = insecure or "TARN_INSECURE" in variables, shm and "TARN_NO_SHM" not in variables
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
