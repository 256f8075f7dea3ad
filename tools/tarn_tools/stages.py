"""Where the time of a run's workers went: how long each stage of their pipeline worked and waited, and what bounds it.

A summary has the seconds of all workers in `stage_seconds`. The reader's thread has `read`, `plan`, and `room`, in which it
waits because enough batches are ready. The training loop has `compute`, `push`, `pull` (waiting for rows) and `wait` (for
data); the rest of its time is spent on messages. During `flight` pulls are in progress. All are shares of `wall`.
"""

from tarn_tools.progress import number

TIMES = ("read", "plan", "room", "flight", "pull", "compute", "push", "wait")


def shares(record):
    """{"read": 0.3, ...}: shares of the wall time, of TIMES and `messages`; empty if the summary lacks a time."""
    stages = record.get("stage_seconds") or {}
    wall = number(stages, "wall")
    seconds = {name: number(stages, name) for name in TIMES}
    if not wall or None in seconds.values():
        return {}
    found = {name: min(1.0, value / wall) for name, value in seconds.items()}
    found["messages"] = max(0.0, 1 - sum(found[name] for name in ("compute", "push", "pull", "wait")))
    return found


CORES_BUSY = 0.85  # share of the cores' time from which on processes wait for a core
CORE_SHARE = 0.75  # CPU time of a computing thread, as a share of its wall time; with less, it waited for a core


def contention(record):
    """("more processes than cores", why) if that is what the run shows; else None.

    Training loops that compute most of the time are bound by computing, as long as they get enough CPU time.
    """
    cores, busy = number(record, "cores"), number(record, "cores_busy")
    fleet = [number(record, key) for key in ("servers", "shards", "workers")]
    if not cores or busy is None or busy < CORES_BUSY or None in fleet:
        return None
    servers, shards, workers = fleet
    if servers * shards + workers <= cores:
        return None
    part, used = shares(record), record.get("cpu_seconds") or {}
    stages = record.get("stage_seconds") or {}
    wanted = (number(stages, "compute") or 0) + (number(stages, "push") or 0)
    had = (number(used, "compute") or 0) + (number(used, "push") or 0)
    if part["compute"] + part["push"] > 0.5 and had >= CORE_SHARE * wanted:
        return None
    threads = f"{servers * shards:.0f} shards and {workers:.0f} workers share {cores:.0f} core{'' if cores == 1 else 's'}"
    return "more processes than cores", f"{threads}, busy {percent(busy)} of the time"


def percent(share):
    return f"{100 * share:.0f}%"


def table(record):
    """One row of texts per stage: its name, the shares of busy and waiting time, what it waits for."""
    part = shares(record)
    if not part:
        return []
    reads = min(1.0, part["read"] + part["plan"])
    room = min(part["room"], 1 - reads)
    return [
        (
            "reader",
            percent(reads),
            percent(1 - reads),
            f"{percent(room)} for room, {percent(1 - reads - room)} for work",
        ),
        ("pulls", percent(part["flight"]), percent(1 - part["flight"]), "for batches to come in"),
        (
            "compute",
            percent(part["compute"]),
            percent(part["pull"] + part["wait"]),
            f"{percent(part['pull'])} for rows, {percent(part['wait'])} for data",
        ),
        ("push", percent(part["push"]), percent(1 - part["push"]), "for gradients"),
    ]


def bound(record):
    """("compute", "it is busy 62% of the time"): what takes the most of the training loop's time, or contention() if
    that is not None; None if unknown."""
    part = shares(record)
    if not part:
        return None
    if crowded := contention(record):
        return crowded
    largest = max(("compute", "push", "pull", "wait", "messages"), key=part.get)
    share, reads = percent(part[largest]), part["read"] + part["plan"]
    if largest in ("compute", "push"):
        return largest, f"it is busy {share} of the time"
    if largest == "pull":
        return "pulls", f"compute waits for rows {share} of the time: for servers, the network or slower workers"
    if largest == "messages":
        return "messages", f"the training loop sends and receives {share} of the time"
    if reads >= part["wait"]:
        return "the reader", f"compute waits for data {share} of the time, and the reader is busy {percent(reads)}"
    return "work", f"workers have no data {share} of the time: they wait for leases, other workers or a checkpoint"


def sentence(record):
    found = bound(record)
    return f"What bounds this job: {found[0]}; {found[1]}." if found else ""
