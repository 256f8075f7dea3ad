"""LeasedDataset: the rows of a data set, divided among the workers of a fleet."""

from __future__ import annotations

import collections
import dataclasses
import tomllib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, default_collate

from tarn.client import Lease, LeaseReport
from tarn.torch.session import Session, of

WANTED = 2  # leases requested at a time: one is being trained, one is next


@dataclasses.dataclass(eq=False)
class _Progress:
    """A lease whose rows are being handed out, and the quality that the program reports for it."""

    lease: Lease
    handed: int  # rows, including those that were trained before
    rows: int = 0  # with a reported loss
    loss_sum: float = 0.0
    logits: list[np.ndarray[Any, Any]] = dataclasses.field(default_factory=list)
    labels: list[np.ndarray[Any, Any]] = dataclasses.field(default_factory=list)
    steps: int = 0

    def on_step(self, client: Any) -> None:
        """Counts a step. Raises ValueError, except in asp, if the lease has more steps than the scheduler counts for
        it: at the end of the epoch this worker and the others would wait for each other."""
        self.steps += 1
        steps_max = -(-(self.lease.rows - self.lease.skip_rows) // self.lease.batch_rows)
        if self.steps > steps_max and tomllib.loads(client.job_text)["consistency"]["mode"] != "asp":
            raise ValueError(
                f"tarn.torch.LeasedDataset: step {self.steps} with {self.lease.rows - self.lease.skip_rows} leased rows, for "
                f"which the scheduler counts {steps_max} steps of {self.lease.batch_rows} rows. Expected one step for each "
                "batch of LeasedDataset(data), or for several smaller ones; or another train.batch_rows in the job")

    def report(self) -> LeaseReport:
        scored = bool(self.logits) and sum(map(len, self.logits)) == self.rows
        return LeaseReport(self.lease.id, self.rows, self.loss_sum, np.concatenate(self.logits) if scored else None,
                           np.concatenate(self.labels) if scored else None)


@dataclasses.dataclass(frozen=True)
class _Batch:
    """A batch, as Session.batch holds it: what the next tick reports."""

    of: LeasedDataset
    progress: _Progress
    end: int  # rows of the lease up to this batch
    rows: int

    @property
    def position(self) -> tuple[int, int]:
        return self.progress.lease.id, self.end


@dataclasses.dataclass(eq=False)
class _Leases:
    """The leases of one worker. Every LeasedDataset of its client has the same ones, so that the program may make a new one
    for each epoch."""

    data_rows: int
    order: tuple[bool, int]  # shuffle, seed: another order of a lease in progress would repeat rows and skip others
    granted: collections.deque[Lease] = dataclasses.field(default_factory=collections.deque)
    handed_out: list[_Progress] = dataclasses.field(default_factory=list)  # in progress, or awaiting their tick
    finished: bool = False
    tick_to: int | None = None  # the clock to tick to when all rows handed out are trained


class LeasedDataset(IterableDataset[Any]):
    """Batches of the rows that the scheduler leases to this worker: each row once an epoch, whichever worker trains it.

        data = tarn.torch.LeasedDataset(rows, batch_rows=256)
        for epoch in range(epochs):                      # train.epochs of the job
            for ids, labels in tarn.torch.prefetch(data, model):
                ...
                optimizer.step()                         # also reports how far this worker is

    Iterating once gives the batches of one epoch and ends when the fleet has trained all of its rows. A fast worker gets
    more of them than a slow one. When a worker dies, the others get its rows from the last step that every server has
    acknowledged: in tables with apply = "aggregated" each row is trained exactly once; in "immediate" ones the batches
    after that step may be applied twice. After the last epoch an iteration is empty.

    data: any set with len(data) and data[i], or data.__getitems__(list of i), of the same size on every worker. The job
    decides the epochs (train.epochs) and the rows of a lease (data.split_rows).
    batch_rows: rows of a batch, at most, and fewer at the end of a lease; default: the size by which the scheduler counts
        the clocks of an epoch, which is train.batch_rows of the job, or this rank's part by train.batch_shares. A smaller
        one needs several batches a step, except in asp.
    shuffle: the rows of a lease come in an order that depends on `seed`, the epoch and the lease alone. Give the same seed
        on every worker and in every epoch.
    collate: makes a batch of a list of items; default: torch's default_collate.
    client: of tarn.connect; default: the only one that was given to remote(), else that of the environment.

    After a break the next iteration continues the epoch, also that of another LeasedDataset of the same client. Expects
    one optimizer.step() for one batch, or for several with gradient accumulation. Use it in the process that calls the
    model, not in a DataLoader with worker processes, which have no fleet. Workers get different numbers of batches, and
    one without rows waits for the end of the epoch: DistributedDataParallel needs equal parts. One thread.
    """

    def __init__(
        self,
        data: Any,
        batch_rows: int | None = None,
        *,
        shuffle: bool = False,
        seed: int = 0,
        collate: Callable[[list[Any]], Any] = default_collate,
        client: Any = None,
    ) -> None:
        session = of(client, or_given=True)
        if (batch_rows is not None and batch_rows < 1) or len(data) == 0:
            raise ValueError(f"tarn.torch.LeasedDataset: {len(data)} rows in batches of {batch_rows}, expected at least 1")
        self.data, self.batch_rows, self.shuffle, self.seed, self.collate = data, batch_rows, shuffle, seed, collate
        self._session: Session = session
        if session.leases is None:
            session.leases = _Leases(len(data), (shuffle, seed))
        self._leases: _Leases = session.leases
        if self._leases.data_rows != len(data):
            raise ValueError(f"tarn.torch.LeasedDataset: {len(data)} rows, but an earlier LeasedDataset of this client has "
                             f"{self._leases.data_rows}; expected one set of data for each job")
        if self._leases.order != (shuffle, seed):
            raise ValueError(f"tarn.torch.LeasedDataset: (shuffle, seed) is {(shuffle, seed)}, but of an earlier LeasedDataset of this "
                             f"client {self._leases.order}; expected the same, because a lease may be in progress. The order "
                             "differs from epoch to epoch by itself")

    def report(self, loss: Any, logits: Any = None, labels: Any = None) -> None:
        """Reports the quality of the last batch before its step, for the terminal, metrics and report of the run.

        loss: the mean over its rows. logits, labels: of each row, labels 0 or 1, for the area under the curve; give them
        for all batches or for none.
        """
        batch = self._session.batch
        if batch is None:
            raise ValueError("tarn.torch.LeasedDataset.report: no batch has been handed out, expected one before")
        batch.progress.rows += batch.rows
        batch.progress.loss_sum += float(loss.detach() if isinstance(loss, torch.Tensor) else loss) * batch.rows
        if logits is not None and labels is not None:
            batch.progress.logits.append(_flat(logits, np.float32))
            batch.progress.labels.append(_flat(labels, np.uint8))

    def has_ahead(self) -> bool:
        """Whether the iteration can go on while earlier batches are not trained yet. Called by prefetch()."""
        if self._reading() is not None:
            return True
        if not self._leases.granted and not self._leases.finished and self._leases.tick_to is None:
            self._request_more()
        return bool(self._leases.granted) or self._leases.finished

    def __iter__(self) -> Iterator[Any]:
        if torch.utils.data.get_worker_info() is not None:
            raise RuntimeError("tarn.torch.LeasedDataset: a DataLoader's worker process has no fleet; expected to be "
                               "iterated itself, or in a DataLoader with num_workers=0 and batch_size=None")
        epoch = None
        while (progress := self._next()) is not None:
            if epoch is not None and progress.lease.epoch != epoch:
                return
            epoch = progress.lease.epoch
            yield from self._batches(progress)

    def unread(self, batches: Sequence[_Batch]) -> None:
        """Takes back the last batches, which prefetch() has read ahead and the program has not received: the next
        iteration reads them again."""
        for each in reversed(batches):
            each.progress.handed = min(each.progress.handed, each.end - each.rows)  # prefetch() may wrap another one

    def _reading(self) -> _Progress | None:
        """The lease whose rows come next: the first with rows that are not handed out; None if a new one is needed."""
        return next((each for each in self._leases.handed_out if each.handed < each.lease.rows), None)

    def _next(self) -> _Progress | None:
        """Like _reading(), but waits for a new lease if it is needed; None after the last epoch."""
        if self._reading() is None and (lease := self._next_lease()) is not None:
            self._leases.handed_out.append(_Progress(lease, lease.skip_rows))
        return self._reading()

    def _batches(self, progress: _Progress) -> Iterator[Any]:
        lease = progress.lease
        order: Sequence[int] = range(lease.first_row, lease.first_row + lease.rows)
        if self.shuffle:
            order = np.random.default_rng((self.seed, lease.epoch, lease.first_row)).permutation(order).tolist()
        while progress.handed < lease.rows:
            rows = order[progress.handed:progress.handed + (self.batch_rows or lease.batch_rows)]
            progress.handed += len(rows)
            self._session.batch = _Batch(self, progress, progress.handed, len(rows))
            yield self.collate(self._items(rows))

    def _items(self, rows: Sequence[int]) -> list[Any]:
        if hasattr(self.data, "__getitems__"):
            return list(self.data.__getitems__(list(rows)))
        return [self.data[row] for row in rows]

    def _next_lease(self) -> Lease | None:
        """Waits for a new lease; None after the last epoch."""
        while not self._leases.granted and not self._leases.finished:
            if self._leases.tick_to is None:
                self._request_more()
            # Nothing is left for this worker now, but others may wait for its rows, or for its clock.
            elif self._session.batch is not None and self._session.batch.position != self._session.ticked:
                self._session.tick()  # the program has not called step() for its last batch
            else:
                tick_to, self._leases.tick_to = self._leases.tick_to, None
                self._session.client.tick_to(tick_to).wait()
        return self._leases.granted.popleft() if self._leases.granted else None

    def _request_more(self) -> None:
        """Reports leases that are done and requests more."""
        answer = self._session.client.request_leases((len(self.data), 0, 0), done=self._take_done(), want=WANTED)
        self._leases.granted += answer.leases
        self._leases.finished = answer.finished
        self._leases.tick_to = answer.tick_to  # the scheduler names a clock once: the next request waits until it is another

    def _take_done(self) -> list[LeaseReport]:
        """Leases all of whose rows are trained: a step has ticked after them, and every server has acknowledged it."""
        ticked = self._session.wait_for_ticks()
        done = [each for each in self._leases.handed_out if (each.lease.id, each.lease.rows) <= ticked]
        self._leases.handed_out = [each for each in self._leases.handed_out if each not in done]
        return [each.report() for each in done]


def _flat(values: Any, dtype: Any) -> np.ndarray[Any, Any]:
    if isinstance(values, torch.Tensor):
        values = values.detach().float().cpu().numpy()  # numpy has no bfloat16
    return np.asarray(values).reshape(-1).astype(dtype)
