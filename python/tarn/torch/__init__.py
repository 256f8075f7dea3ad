"""PyTorch modules whose rows are in the tables of a fleet.

    import tarn.torch

    model = tarn.torch.remote(model)                       # nn.Embedding, nn.EmbeddingBag and
                                                           # TorchRec's collections: rows in tables
    optimizer = torch.optim.Adam(model.parameters())       # of the dense parameters
    tarn.torch.attach(model, optimizer)                    # step() pushes
    for batch in tarn.torch.prefetch(loader, model):       # pulls ahead
        ...                                                # the loop is unchanged

    tools/launch JOB.toml -- python3 PROGRAM.py

A forward pass pulls the distinct rows of its ids into a tensor, from which torch computes as from a small weight. After
backward the gradient of that tensor has one row for each distinct id, and optimizer.step() pushes it. docs/python.md has
the details. Needs torch 2.4 or newer. Use it in one thread of the process that called
remote(); Ctrl-C interrupts every wait.
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError("tarn.torch needs torch 2.4 or newer, which is not installed: pip install torch") from error

from tarn.torch.checkpoints import Checkpoint, checkpoint
from tarn.torch.leases import LeasedDataset
from tarn.torch.loop import TableOptimizer, attach, prefetch, report, rows
from tarn.torch.modules import RemoteEmbedding, RemoteEmbeddingBag, remote
from tarn.torch.readers import CriteoRows, ParquetRows

__all__ = ["Checkpoint", "CriteoRows", "LeasedDataset", "ParquetRows", "RemoteEmbedding", "RemoteEmbeddingBag",
           "TableOptimizer", "attach", "checkpoint", "prefetch", "remote", "report", "rows"]
