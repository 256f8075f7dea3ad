"""A client without a fleet: tables in memory, with SGD. It keeps what was pulled and pushed."""

import numpy as np

from tarn import client as tarn_client


class FakeFuture:
    def __init__(self, value=None):
        self._value = value

    def ready(self):
        return True

    def wait(self, timeout=None):
        return self._value


class HeldRows:
    """Rows that arrive when their clock begins."""

    def __init__(self, client, clock, write):
        self._client, self._clock, self._write = client, clock, write

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
        self.tables, self.clock = {}, 0
        self.pulls = []  # (clock, names of the tables) of each request
        self.pushes = []  # {name: {key: gradient}} of each request
        self.left = False
        self.rank = 0
        self.saved = {}  # states of programs in the checkpoint, by rank
        self.save = None  # of keep_state

    def table(self, name, dim, initializer, optimizer):
        made = FakeTable(self, name, dim, initializer, optimizer)
        found = self.tables.setdefault(name, made)
        if found.described != made.described:
            raise tarn_client.InvalidArgument(5, f"table {name!r} exists with another description")
        made.values = found.values
        return made

    def plans(self, requests, limits):
        for (table, keys), limit in zip(requests, limits):
            if len(keys) and keys.max() >= limit:
                raise tarn_client.InvalidArgument(1, f"table {table.name!r}: key {keys.max()}, expected below {limit}")
        plans = [table.plan(keys) for table, keys in requests]
        return plans, np.concatenate([plan.index for plan in plans]).astype(np.int64)

    def pull_plans(self, pulls, clock):
        self.pulls.append((clock, [plan.table.name for plan, _ in pulls]))

        def write():  # the rows of a request arrive together
            for plan, out in pulls:
                for i, key in enumerate(plan.keys):
                    out[i] = plan.table.row(key)

        return [HeldRows(self, clock, write) for _ in pulls]

    def push_plans(self, pushes):
        pushed = {}
        for plan, gradients in pushes:
            assert plan.table.name not in pushed, "one push for each table"
            if not np.isfinite(gradients).all():
                raise tarn_client.InvalidArgument(1, f"table {plan.table.name!r}: not finite")
            pushed[plan.table.name] = dict(zip(map(int, plan.keys), gradients.copy()))
            for key, gradient in zip(plan.keys, gradients):
                plan.table.row(key)[...] -= np.float32(plan.table.rate) * gradient
        self.pushes.append(pushed)
        return FakeFuture()

    def saved_state(self, rank=0):
        return self.saved.get(rank)

    def keep_state(self, save):
        self.save = save

    def tick(self):
        self.clock += 1
        return FakeFuture()

    def leave(self):
        self.left = True
