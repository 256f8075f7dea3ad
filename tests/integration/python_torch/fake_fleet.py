"""A client without a fleet: tables in memory, with SGD. It keeps what was pulled and pushed."""

import ctypes
import math

import numpy as np

from tarn import client as tarn_client


def array_at(address, kind, shape):
    if not math.prod(shape):
        return np.empty(shape, kind)
    return np.frombuffer((kind * math.prod(shape)).from_address(address), kind).reshape(shape)


class FakeFuture:
    def __init__(self, value=None):
        self._value = value

    def ready(self):
        return True

    def wait(self, timeout=None):
        return self._value


class HeldRows:
    """Rows that arrive when their clock begins."""

    def __init__(self, client, clock, kept, write):
        self._client, self._clock, self._kept, self._write = client, clock, kept, write

    def wait(self, timeout=None):
        if self._clock > self._client.clock:
            raise tarn_client.Timeout(13, "the clock has not begun")
        self._write()


class FakePlan:
    def __init__(self, table, keys):
        self.table = table
        self.keys, index = np.unique(np.asarray(keys, np.uint64), return_inverse=True)
        self.index = index.astype(np.uint32)
        self.size = len(self.keys)


class FakeTable:
    def __init__(self, client, name, dim, initializer, optimizer):
        self.client, self.name, self.dim = client, name, dim
        self.described = {"dim": dim, "initializer": initializer, "optimizer": optimizer}
        self.rate = optimizer["learning_rate"] if isinstance(optimizer, dict) else 1.0
        self.values = {}

    def row(self, key):
        return self.values.setdefault(int(key), np.full(self.dim, int(key) % 7, np.float32))

    def plan(self, keys):
        return FakePlan(self, keys)


class FakeClient:
    def __init__(self):
        self.tables, self.clock, self.job_text = {}, 0, ""
        self.pulls = []  # (clock, names of the tables) of each request
        self.pushes = []  # {name: {key: gradient}} of each request
        self.left = False
        self.closed = False
        self.rank = 0
        self.saved = {}  # states of programs in the checkpoint, by rank
        self.save = None  # of keep_state
        self.states = []  # what it has saved: in the first call after each tick
        self._ticked = False

    def check(self):
        """The client has not ended."""

    def table(self, name, dim, initializer, optimizer):
        made = FakeTable(self, name, dim, initializer, optimizer)
        found = self.tables.setdefault(name, made)
        if found.described != made.described:
            raise tarn_client.InvalidArgument(5, f"table {name!r} exists with another description")
        made.values = found.values
        return made

    def plans_at(self, tables, keys, counts, limits, index):
        plans = []
        for table, address, count, limit in zip(tables, keys, counts, limits):
            given = array_at(address, ctypes.c_uint64, (count,))
            if count and given.max() >= limit:
                raise tarn_client.InvalidArgument(1, f"table {table.name!r}: key {given.max()}, expected below {limit}")
            plans.append(table.plan(given))
            array_at(index, ctypes.c_int64, (count,))[:] = plans[-1].index
            index += 8 * count
        return plans

    def pull_to(self, plans, addresses, kept, clock):
        self.save_state()
        self.pulls.append((clock, [plan.table.name for plan in plans]))

        def write():  # the rows of a request arrive together
            for plan, address in zip(plans, addresses):
                out = array_at(address, ctypes.c_float, (plan.size, plan.table.dim))
                for i, key in enumerate(plan.keys):
                    out[i] = plan.table.row(key)

        return HeldRows(self, clock, kept, write)

    def push_from(self, plans, addresses):
        self.save_state()
        pushed = {}
        for plan, address in zip(plans, addresses):
            gradients = array_at(address, ctypes.c_float, (plan.size, plan.table.dim)).copy()
            assert plan.table.name not in pushed, "one push for each table"
            if not np.isfinite(gradients).all():
                raise tarn_client.InvalidArgument(1, f"table {plan.table.name!r}: not finite")
            pushed[plan.table.name] = dict(zip(map(int, plan.keys), gradients))
            for key, gradient in zip(plan.keys, gradients):
                plan.table.row(key)[...] -= np.float32(plan.table.rate) * gradient
        self.pushes.append(pushed)
        return FakeFuture()

    def saved_state(self, rank=0):
        return self.saved.get(rank)

    def keep_state(self, save):
        self.save = save

    def save_state(self):
        if self._ticked and self.save is not None:
            self.states.append(self.save())
        self._ticked = False

    def tick(self):
        self.save_state()
        self.clock += 1
        self._ticked = True
        return FakeFuture()

    def leave(self):
        self.left = True
