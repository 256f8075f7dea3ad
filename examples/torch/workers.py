"""The workers of a job as a process group of torch, for what they exchange in addition to the tables."""

import os

from torch import distributed

WORKERS, RANK = int(os.environ.get("TARN_WORKERS", 1)), int(os.environ.get("TARN_RANK", 0))
STARTS = os.environ.get("TARN_STARTS_AGAIN", 0)  # starts of the fleet before this one, each of which needs its own rendezvous file
_last = None


def meet():
    """Joins the process group of all workers, which must run on one machine."""
    distributed.init_process_group("gloo", init_method=f"file://{os.environ['TARN_RUN_DIR']}/torch-{STARTS}", rank=RANK,
                                   world_size=WORKERS)


def part():
    """Waits for the other workers, so that none closes its connections while others work; then leaves the group.

    The last exchange is kept until Python ends. Otherwise gloo's thread may free it, for which it needs Python's lock,
    while DistributedDataParallel holds that lock and waits for the end of the thread: a deadlock (torch 2.13).
    """
    global _last
    _last = distributed.barrier(async_op=True)
    _last.wait()
    distributed.destroy_process_group()
