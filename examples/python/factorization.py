"""Matrix factorization by SGD on a tarn fleet: ratings[u, i] is about <users[u], items[i]>.

    tools/launch examples/python/factorization.toml -- python3 examples/python/factorization.py

Every worker of the fleet is one process of this program with its own share of the ratings. The workers share two tables
on the servers; the job's [consistency] sets how stale their rows may be. Needs NumPy. The ratings are generated, of
rank RANK with noise of NOISE: no model has a lower error on ratings that it has not seen.
"""

import os

import numpy as np

import tarn

USERS, ITEMS, RANK, NOISE = 5000, 1000, 8, 0.1
TRAIN, TEST = 400_000, 20_000
BATCH, EPOCHS = 500, 15


def ratings(seed, count):
    truth = np.random.default_rng(0)
    users, items = (truth.normal(size=(n, RANK)) / RANK**0.25 for n in (USERS, ITEMS))
    random = np.random.default_rng(seed)
    u, i = random.integers(USERS, size=count), random.integers(ITEMS, size=count)
    return u, i, (users[u] * items[i]).sum(axis=1) + random.normal(scale=NOISE, size=count)


def rmse(users, items, data):
    u, i, rating = data
    of_users, of_items = users.pull(u), items.pull(i)  # both pulls are in flight
    return np.sqrt(np.mean(((of_users.wait() * of_items.wait()).sum(axis=1) - rating) ** 2))


def train(ps, mine):
    settings = {"initializer": {"kind": "normal", "stddev": 0.3}, "optimizer": {"kind": "adagrad", "learning_rate": 0.2}}
    users, items = (ps.table(name, dim=RANK, **settings) for name in ("users", "items"))
    test = ratings(1, TEST)
    order = np.random.default_rng(ps.rank)
    for epoch in range(EPOCHS):
        staleness = []
        for batch in np.array_split(order.permutation(len(mine[0])), len(mine[0]) // BATCH):
            u, i, rating = (column[batch] for column in mine)
            rows_u, rows_i = users.pull(u), items.pull(i)
            of_u, of_i = rows_u.wait(), rows_i.wait()
            error = ((of_u * of_i).sum(axis=1) - rating)[:, None]
            users.push(u, error * of_i)
            items.push(i, error * of_u)
            ps.tick()
            staleness.append(rows_u.staleness())
        if ps.rank == 0:
            print(f"epoch {epoch + 1}: test error {rmse(users, items, test):.4f}, at best {NOISE}, "
                  f"rows {np.mean(staleness):.2f} clocks behind")
    ps.barrier()  # waits until every worker has trained its ratings
    if ps.rank == 0:
        print(f"at the end: test error {rmse(users, items, test):.4f}")


if __name__ == "__main__":
    workers = int(os.environ["TARN_WORKERS"])
    with tarn.connect() as ps:  # to the fleet that tools/launch names in the environment
        train(ps, [column[ps.rank::workers] for column in ratings(2, TRAIN)])
