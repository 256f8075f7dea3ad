"""The rows and gradients of one client's remote modules: pulls in progress, gradients that wait for the step.

Internal to tarn.torch. One thread calls it, except for `_on_gradient`, which autograd may call on a thread of its own.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import dataclasses
import functools
import itertools
import logging
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tarn import client as tarn_client

if TYPE_CHECKING:
    from tarn.torch.dense import DenseTables
    from tarn.torch.modules import Remote

NOTE_SECONDS = 10.0  # between two messages of a wait
# The next push waits while more bytes of gradients are not acknowledged. Half of the library's limit, beyond which a
# push would block without a message, and Ctrl-C would not interrupt it.
UNACKNOWLEDGED_BYTES_MAX = 128 << 20
FENCED, UNREACHABLE = 7, 12  # of worker/tarn_c.h
_log = logging.getLogger("tarn")


class _Slab:
    """The rows of the calls of one request, one after the other, and likewise the index of each id. They arrive together."""

    def __init__(self, rows: torch.Tensor, index: torch.Tensor) -> None:
        self._host = rows, index
        self._copies: dict[torch.device, tuple[torch.Tensor, torch.Tensor]] = {}
        self._copied: dict[torch.device, torch.cuda.Event] = {}  # by GPU: the end of its copies
        self._streams: set[torch.cuda.Stream] = set()  # that wait for the copies
        self.future: Any = None  # of the request

    def on(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """float32 and int64 [n] on this device. The current stream of a GPU waits for the copies, the caller does not."""
        if device.type == "cpu":
            return self._host
        if device not in self._copies:
            self._copy_to(device)
        copies = self._copies[device]
        if device.type == "cuda" and (stream := torch.cuda.current_stream(device)) not in self._streams:
            self._streams.add(stream)
            stream.wait_event(self._copied[device])
            for each in copies:
                each.record_stream(stream)  # their memory belongs to the stream of the copies
        return copies

    def copy_if_arrived(self, gpu: torch.device) -> None:
        """Begins the copies to the GPU before `on` is called, if the request has ended. If it failed, the copies are
        never used, because wait() raises. If the GPU has no memory for them, `on` tries again."""
        if gpu not in self._copies and self.future is not None and self.future.ready():
            with contextlib.suppress(torch.cuda.OutOfMemoryError):
                self._copy_to(gpu)

    def _copy_to(self, device: torch.device) -> None:
        """One copy each. Those to a GPU are on a stream of their own, so that they do not wait for the model's work."""
        rows, index = self._host
        with contextlib.ExitStack() as context:
            context.enter_context(torch.inference_mode(False))  # another module of the request may be in training
            stream = _stream_of_copies(device) if device.type == "cuda" else None
            if stream is not None:
                context.enter_context(torch.cuda.stream(stream))
            copies = rows.to(device, non_blocking=True), index.to(device, non_blocking=True)
            if stream is not None:
                self._copied[device] = stream.record_event()
            self._copies[device] = copies

    def wait(self, what: Callable[[], str]) -> None:
        if self.future is not None:
            _wait(self.future, what())
            self.future = None


@dataclasses.dataclass(eq=False, slots=True)
class Pulled:
    """The rows of one call of a module: distinct keys, and for each id of the input its row."""

    module: Remote
    ids: torch.Tensor  # int64 or int32, the input of the call
    plan: Any  # tarn.client.Plan of the distinct keys, without the padding
    clock: int  # at which the rows are used
    slab: _Slab
    first_row: int  # values (not rows) of the slab before its rows: [plan.size, dim], and a row of zeros for a padding
    host_index: torch.Tensor  # int64 [n], the part of the slab's index that belongs to the call

    def index(self, device: torch.device) -> torch.Tensor:
        """The row of each id: int64, in the shape of `ids`."""
        found = self.host_index
        if device.type != "cpu":
            found = self.slab.on(device)[1].as_strided(found.shape, (1,), found.storage_offset())
        return found if self.ids.dim() == 1 else found.view(self.ids.shape)

    def rows(self, device: torch.device) -> torch.Tensor:
        dim = self.module.embedding_dim
        size = self.plan.size + (self.module.padding_idx is not None)
        return self.slab.on(device)[0].as_strided((size, dim), (dim, 1), self.first_row)

    def wait(self) -> None:
        self.slab.wait(lambda: f"rows of table {self.module.table.name!r} at clock {self.clock}: other workers have not "
                               "finished an earlier clock, or a server does not answer")


@dataclasses.dataclass(eq=False, slots=True)
class Leaf:
    """Rows on the device of the model, with a gradient that is not pushed yet."""

    rows: torch.Tensor
    plan: Any  # of their keys
    beside_dense: bool  # whether parameters of the optimizer had gradients, too, after the backward pass
    taken: torch.Tensor | None = None  # the gradient, once a step has taken it from the rows

    def take(self) -> None:
        """Takes the gradient: a later backward pass over the same graph begins another."""
        assert self.rows.grad is not None
        # With create_graph the gradient has a graph, which refers to the rows.
        self.taken, self.rows.grad = self.rows.grad.detach(), None

    def gradients(self, scale: float) -> torch.Tensor:
        """The taken gradients of the rows divided by `scale`, without the padding's: [plan.size, dim], as from on_host."""
        found = self.taken
        assert found is not None
        if len(found) != self.plan.size:
            found = found[:self.plan.size]
        return on_host(found if scale == 1.0 else found / scale)


class Session:
    """What tarn.torch keeps for one client: pulls in progress, and gradients for the next step. Made by `of`."""

    def __init__(self, client: Any) -> None:
        self.client, self.process = client, os.getpid()
        self.attached: torch.optim.Optimizer | None = None
        self.calls: list[list[tuple[Remote, torch.Tensor]]] = []  # the recorders of the calls in progress
        self.dense: list[DenseTables] = []  # of the models with dense="tarn"
        self._ahead: list[Pulled] = []  # requested, not used yet
        self.copy_ahead_due = False  # the next call of a module also begins the copies of rows pulled ahead
        self._clock = 0  # of the last call
        self.taken: list[Leaf] = []  # by a step that has not ended, or has failed
        self._leaves: dict[int, Leaf] = {}  # by the id of the rows, in the order of backward
        self._sent: collections.deque[tuple[Any, int]] = collections.deque()  # futures of pushes and ticks, bytes of each
        self._sent_bytes = 0
        self.leases: Any = None  # of its LeasedDatasets
        self.batch: Any = None  # of a LeasedDataset: the one that the program has
        self.ticked: tuple[int, int] = (0, 0)  # the position of the last tick: lease, rows
        self._lock = threading.Lock()
        self._warned = False
        self._replaced: list[tuple[weakref.ref[torch.Tensor], str]] = []
        self.named: dict[str, int] = {}  # num_embeddings by table, of the tables that got their name from a path

    def __getstate__(self) -> Any:
        raise TypeError("tarn.torch: this model cannot be pickled: its rows are in a fleet, to which this process is "
                        "connected. Expected torch.save(model.state_dict()), which has the dense parameters; a process "
                        "that is spawned builds its own model, and workers of a DataLoader need none")

    def replaced(self, weight: torch.Tensor, path: str) -> None:
        """remote() has replaced the module of this weight."""
        self._replaced.append((weakref.ref(weight), path))

    def path_of(self, parameter: torch.Tensor) -> str | None:
        """The path of the module that had this parameter before remote()."""
        return next((path for weight, path in self._replaced if weight() is parameter), None)

    # --- pulls -----------------------------------------------------------------------------------------------------

    def pull(self, calls: Sequence[tuple[Remote, torch.Tensor]], clock: int) -> list[Pulled]:
        """Pulls the rows of several calls with one request, for use at `clock`."""
        with torch.inference_mode(False):  # the rows may be used in training
            pulled, slab, rows = self._planned(calls, clock)
        start = rows.data_ptr()
        slab.future = self.client.pull_to([each.plan for each in pulled], [start + 4 * each.first_row for each in pulled],
                                          rows, clock)
        return pulled

    def _planned(
        self, calls: Sequence[tuple[Remote, torch.Tensor]], clock: int
    ) -> tuple[list[Pulled], _Slab, torch.Tensor]:
        """The distinct keys of each call, and memory for their rows, which are not pulled yet."""
        keys = [module.keys(ids) for module, ids in calls]
        counts, pinned = [each.numel() for each in keys], any(module.gpu is not None or ids.is_cuda for module, ids in calls)
        index = torch.empty(sum(counts), dtype=torch.int64, device="cpu", pin_memory=pinned)
        try:
            plans = self.client.plans_at([module.table for module, _ in calls], [each.data_ptr() for each in keys], counts,
                                         [module.num_embeddings for module, _ in calls], index.data_ptr())
        except tarn_client.InvalidArgument:
            for (module, _), each in zip(calls, keys):
                module.check_range(each)
            raise
        if any(module.padding_idx is not None for module, _ in calls):
            parts = [module.with_padding(ids, plan.size, part)
                     for (module, ids), plan, part in zip(calls, plans, torch.split(index, counts))]
            whole = torch.empty(sum(each.numel() for each in parts), dtype=torch.int64, device="cpu", pin_memory=pinned)
            index = torch.cat(parts, out=whole)
        starts = list(itertools.accumulate(
            ((plan.size + (module.padding_idx is not None)) * module.embedding_dim for (module, _), plan in zip(calls, plans)),
            initial=0))
        rows = torch.empty(starts[-1], dtype=torch.float32, device="cpu", pin_memory=pinned)
        for (module, _), end in zip(calls, starts[1:]):
            if module.padding_idx is not None:
                rows[end - module.embedding_dim:end] = 0
        slab = _Slab(rows, index)
        indices = index.split_with_sizes([ids.numel() for _, ids in calls])
        pulled = [Pulled(module, ids, plan, clock, slab, start, part)
                  for (module, ids), plan, start, part in zip(calls, plans, starts, indices)]
        return pulled, slab, rows

    def pull_ahead(self, calls: Sequence[tuple[Remote, torch.Tensor]], clock: int) -> None:
        """Pulls the rows of calls before they are made. `take` finds the rows if the call then has the same ids."""
        if not calls:
            return
        for each in self.pull(calls, clock):
            each.ids = each.ids.clone()  # the program may write to its tensor before the call
            self._ahead.append(each)

    def _copy_ahead(self) -> None:
        """Begins to copy rows pulled ahead to the GPUs of their modules, as far as they have arrived."""
        self.copy_ahead_due = False
        for slab, gpu in dict.fromkeys((each.slab, each.module.gpu) for each in self._ahead):  # in the order of the requests
            if gpu is not None:
                slab.copy_if_arrived(gpu)

    def has_ahead(self, clock: int) -> bool:
        return any(each.clock == clock for each in self._ahead)

    def take(self, module: Remote, ids: torch.Tensor) -> Pulled:
        """The rows of this call: pulled ahead, else pulled now."""
        clock = self.client.clock
        if clock != self._clock:
            self._clock = clock
            self._ahead = [each for each in self._ahead if each.clock >= clock]  # older rows would exceed the bound
        for recorder in self.calls:
            recorder.append((module, ids))
        for i, each in enumerate(self._ahead):
            # Servers may hold back rows for a later clock until this worker has ticked: a wait for them might not end.
            if each.module is module and each.clock == clock and _equal(each.ids, ids):
                return self._ahead.pop(i)
        return self.pull([(module, ids)], clock)[0]

    # --- gradients -------------------------------------------------------------------------------------------------

    def leaf(self, pulled: Pulled, device: torch.device) -> torch.Tensor:
        """Waits for the rows and returns them on the device; in training a leaf whose gradient is pushed by the next step,
        unless the module is frozen. Call it once."""
        pulled.wait()
        rows = pulled.rows(device)
        if self.copy_ahead_due:  # behind the copy of the rows that are needed now
            self._copy_ahead()
        if torch.is_grad_enabled() and pulled.module.trains:
            self._before_training()
            rows.requires_grad_()
            # The hook must not refer to the rows, nor to an object that does: the cycle would keep them in memory.
            rows.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                functools.partial(self._on_gradient, pulled.plan))
        return rows

    def leaves(self) -> list[Leaf]:
        """The leaves with a gradient that is not pushed yet."""
        with self._lock:
            return [leaf for leaf in self._leaves.values() if leaf.rows.grad is not None]

    def show_leaves(self, shown: bool) -> None:
        """Puts the leaves into the optimizer, or takes them out while it saves or loads its state."""
        with self._lock:
            params = self._params()
            params[:] = [each for each in params if id(each) not in self._leaves]
            if shown:
                params += [leaf.rows for leaf in self._leaves.values()]

    def _params(self) -> list[torch.Tensor]:
        """The parameters of the optimizer's last group, to which leaves are added."""
        if self.attached is None:
            return []
        params: list[torch.Tensor] = self.attached.param_groups[-1]["params"]
        return params

    def take_leaves(self) -> list[Leaf]:
        """Takes the leaves out of the optimizer, and their gradients from the rows. Those without a gradient, after
        zero_grad, are dropped."""
        self.show_leaves(False)
        with self._lock:
            leaves = [leaf for leaf in self._leaves.values() if leaf.rows.grad is not None]
            self._leaves = {}
            for leaf in leaves:
                leaf.take()
        return leaves

    def _on_gradient(self, plan: Any, rows: torch.Tensor) -> None:
        """Autograd has added to the gradient of these rows."""
        with self._lock:
            if id(rows) in self._leaves:
                return
            leaf = self._leaves[id(rows)] = Leaf(rows, plan, False)
            self._params().append(rows)  # zero_grad and GradScaler find it there
        # Autograd may reach the rows before the dense parameters.
        torch.autograd.Variable._execution_engine.queue_callback(
            functools.partial(self._after_backward, leaf))

    def _after_backward(self, leaf: Leaf) -> None:
        with self._lock:
            leaf.beside_dense = any(each.grad is not None for each in self._dense())

    def _dense(self) -> Iterator[torch.Tensor]:
        """The parameters of the attached optimizer, without leaves."""
        for group in () if self.attached is None else self.attached.param_groups:
            yield from (each for each in group["params"] if id(each) not in self._leaves)

    def has_optimizer(self, parameter: torch.Tensor) -> bool:
        return any(each is parameter for each in self._dense())

    def _before_training(self) -> None:
        """Drops gradients that no step will push, and warns if there is no step at all."""
        self.taken.clear()  # the step that has taken them has failed
        if not self._leaves:
            return
        if self.attached is None:
            self.take_leaves()
            if not self._warned:
                self._warned = True
                warnings.warn("tarn.torch: a second training step begins, but the gradients of the first were not "
                              "pushed: the tables do not learn. Expected tarn.torch.attach(model, optimizer) before "
                              "the training loop", stacklevel=6)
        # The dense parameters had gradients with these leaves and have none now, but no step has taken the leaves: the
        # program dropped the gradients, as model.zero_grad() does after a skipped step. So the leaves are dropped, too.
        elif all(leaf.beside_dense for leaf in self._leaves.values()) and all(each.grad is None for each in self._dense()):
            self.take_leaves()

    # --- the step --------------------------------------------------------------------------------------------------

    def push(self, leaves: Iterable[Leaf], scale: float = 1.0) -> None:
        """Pushes the gradients divided by `scale` and ticks."""
        leaves = list(leaves)
        for tables in self.dense:
            tables.begin_step()
        of_rows = [(leaf.plan, leaf.gradients(scale)) for leaf in leaves]
        of_dense = [(each, each.flat_gradients(scale)) for tables in self.dense for each in tables.with_gradients()]
        wait_for_copies({leaf.rows.device for leaf in leaves if leaf.rows.is_cuda}
                        | {each.parameter.device for each, _ in of_dense})
        pushes = _summed(of_rows) + [each.planned(flat) for each, flat in of_dense]
        size = sum(gradients.nbytes for _, gradients in pushes)
        self._wait_for_sent(UNACKNOWLEDGED_BYTES_MAX - size)
        if pushes:
            self._sent.append((self.client.push_from([plan for plan, _ in pushes],
                                                     [gradients.data_ptr() for _, gradients in pushes]), size))
            self._sent_bytes += size
        self.tick()

    def tick(self) -> None:
        """Finishes the clock, with the position in the leased data."""
        if self.batch is None:
            self._sent.append((self.client.tick(), 0))
        else:
            self.batch.progress.on_step(self.client)
            self.ticked = self.batch.position
            self._sent.append((self.client.tick(*self.ticked), 0))

    def wait_for_ticks(self) -> tuple[int, int]:
        """Waits until every server has acknowledged the pushes and ticks so far. Returns the position of the last."""
        while self._sent:
            self._finish_oldest("the acknowledgement of this worker's pushes and ticks: a server does not answer")
        return self.ticked

    def wait(self, future: Any, what: str) -> None:
        """Waits for a future of the client. Logs what it waits for."""
        _wait(future, what)

    def _wait_for_sent(self, bytes_max: int) -> None:
        """Waits until at most `bytes_max` bytes are not acknowledged. Raises known errors of earlier pushes."""
        while self._sent and (self._sent_bytes > max(bytes_max, 0) or self._sent[0][0].ready()):
            self._finish_oldest("the acknowledgement of pushed gradients: a server does not answer")

    def _finish_oldest(self, what: str) -> None:
        future, size = self._sent[0]
        try:
            _wait(future, what)
        finally:
            if future.ready():  # not after Ctrl-C
                self._sent.popleft()
                self._sent_bytes -= size

    def leave(self) -> None:
        """At the end of the program: waits until the pushes are acknowledged, leaves, and ends the client's thread."""
        if os.getpid() != self.process:
            return
        pending = bool(self._sent)
        try:
            self.wait_for_ticks()
            self.client.leave()
        except tarn_client.Gone as error:
            if error.code == FENCED or (pending and error.code == UNREACHABLE):
                raise
            # else the fleet has ended first
        finally:
            self.client.close()

    def leave_at_exit(self) -> None:
        """leave() for atexit, which ignores exceptions: an error ends the process with exit status 1."""
        try:
            self.leave()
        except Exception as error:
            with contextlib.suppress(Exception):
                print(f"tarn.torch: the last pushes of this program may be lost: {error}", file=sys.stderr, flush=True)
                sys.stdout.flush()
                logging.shutdown()
            os._exit(1)


@functools.cache
def _stream_of_copies(gpu: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(gpu)  # type: ignore[no-untyped-call,unused-ignore]


def on_host(values: torch.Tensor) -> torch.Tensor:
    """The values as float32, contiguous, on the CPU. For a GPU's tensor the copy, in pinned memory, is only begun: call
    wait_for_copies before reading it."""
    if not values.is_cuda:
        return values if values.dtype is torch.float32 and values.is_contiguous() else values.to(torch.float32).contiguous()
    copy = torch.empty(values.shape, dtype=torch.float32, device="cpu", pin_memory=True)
    return copy.copy_(values, non_blocking=True)


def wait_for_copies(devices: Iterable[torch.device]) -> None:
    """Waits for the copies that on_host has begun on the current streams of these devices."""
    for device in devices:
        if device.type == "cuda":
            torch.cuda.current_stream(device).synchronize()


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one.to(other.device), other)


def _summed(parts: list[tuple[Any, torch.Tensor]]) -> list[tuple[Any, torch.Tensor]]:
    """One plan and its gradients for each table: those of several plans of one table are summed in their order."""
    tables: dict[str, list[tuple[Any, torch.Tensor]]] = {}
    for part in parts:
        tables.setdefault(part[0].table.name, []).append(part)
    return parts if len(tables) == len(parts) else [_sum(each) if len(each) > 1 else each[0] for each in tables.values()]


def _sum(parts: list[tuple[Any, torch.Tensor]]) -> tuple[Any, torch.Tensor]:
    plan = parts[0][0].table.plan(np.concatenate([plan.keys for plan, _ in parts]))
    index, values = torch.from_numpy(plan.index.astype(np.int64)), torch.cat([gradients for _, gradients in parts])
    sums = torch.zeros(plan.size, values.shape[1], dtype=torch.float32, device="cpu")
    return plan, sums.index_add_(0, index, values)


def _wait(future: Any, what: str) -> Any:
    """Waits for a future. Logs what it waits for every NOTE_SECONDS."""
    seconds = 0.0
    while True:
        try:
            return future.wait(timeout=NOTE_SECONDS)
        except tarn_client.Timeout:
            seconds += NOTE_SECONDS
            _log.warning("tarn.torch: waiting for %.0f s for %s; see the logs of the run", seconds, what)


_of_environment: Session | None = None
_given: weakref.WeakSet[Session] = weakref.WeakSet()  # the sessions of clients that the program has made


def of(client: Any = None, or_given: bool = False) -> Session:
    """The session of a client. Without one, of the fleet that the environment names, joined at the first call and left
    when the program ends. or_given: rather that of the only open client that the program has given to remote()."""
    global _of_environment
    if client is not None:
        if not hasattr(client, "push_from"):
            raise TypeError(f"tarn.torch: client is a {type(client).__name__}, expected a tarn.Client, as of tarn.connect()")
        if not hasattr(client, "torch_session"):
            client.torch_session = Session(client)
            _given.add(client.torch_session)
        session: Session = client.torch_session
        return session
    given = [each for each in _given if each.process == os.getpid() and not each.client.closed] if or_given else []
    if len(given) == 1 and _of_environment is None:
        return given[0]
    if _of_environment is None or _of_environment.process != os.getpid():
        if not os.environ.get("TARN_SCHEDULER"):
            raise tarn_client.InvalidArgument(
                1, "tarn.torch.remote: there is no fleet: TARN_SCHEDULER is not set. Expected a program started by "
                   "`tools/launch JOB.toml -- python3 PROGRAM.py`, or remote(model, client=tarn.connect(...))")
        _of_environment = of(tarn_client.connect())
        atexit.register(_of_environment.leave_at_exit)
    return _of_environment
