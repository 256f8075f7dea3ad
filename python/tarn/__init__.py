"""tarn from Python: `tarn.connect` for training, `tarn.export`, `tarn.score` and `tarn.keys` for serving."""

import importlib.metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tarn.client import (
        Client, Error, Future, Gone, InvalidArgument, Lease, LeaseAnswer, LeaseReport, Plan, Rows, Table, Timeout, connect)

__all__ = ["Client", "Error", "Future", "Gone", "InvalidArgument", "Lease", "LeaseAnswer", "LeaseReport", "Plan", "Rows",
           "Table", "Timeout", "connect"]

try:
    __version__ = importlib.metadata.version("tarn")
except importlib.metadata.PackageNotFoundError:  # in a checkout
    __version__ = "checkout"


def __getattr__(name: str) -> object:  # lazily, so that reading exports does not need libtarn.so
    if name in __all__:
        from tarn import client

        return getattr(client, name)
    raise AttributeError(f"module 'tarn' has no attribute {name!r}")
