"""The workers of a job as a process group of torch, for what they exchange beside the tables."""

import os

from torch import distributed

WORKERS, RANK = int(os.environ.get("TARN_WORKERS", 1)), int(os.environ.get("TARN_RANK", 0))
STARTS = os.environ.get("TARN_STARTS_AGAIN", 0)  # the place where a fleet met that has ended cannot be used again
_last = None


def meet():
    """For workers on one machine."""
    distributed.init_process_group("gloo", init_method=f"file://{os.environ['TARN_RUN_DIR']}/torch-{STARTS}", rank=RANK,
                                   world_size=WORKERS)


def part():
    """Waits for the others: no process ends its connections while others work.

    The last exchange is kept until Python ends. Otherwise gloo's thread may be the one that frees it, for which it needs
    Python's lock, while DistributedDataParallel, which holds the lock, waits for the end of that thread (torch 2.13).
    """
    global _last
    _last = distributed.barrier(async_op=True)
    _last.wait()
    distributed.destroy_process_group()
