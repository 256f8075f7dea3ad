"""checkpoint(): requests a checkpoint of the fleet from a training loop."""

from __future__ import annotations

from typing import Any

from torch import nn

from tarn import client as tarn_client
from tarn.torch.modules import session_of

_UNAVAILABLE = 12  # of worker/tarn_c.h


class Checkpoint:
    """A checkpoint in progress, made by checkpoint(). One thread."""

    def __init__(self, client: Any) -> None:
        self._client, self._done = client, False
        self._future = client.request_checkpoint()

    def ready(self) -> bool:
        """Whether the checkpoint is complete. Call ready() once a step: the fleet cannot write it before the
        workers tick.

        tarn.Error: it failed, as on a full disk, or the job keeps no checkpoints (storage.durability). Training may go on.
        """
        if self._done or not self._future.ready():
            return self._done
        try:
            self._future.wait()
            self._done = True
        except tarn_client.Gone as error:
            if error.code != _UNAVAILABLE:
                raise
            # The scheduler does not know yet that training has begun, or it is restarting.
            self._client.check()
            self._future = self._client.request_checkpoint()
        return self._done


def checkpoint(model: nn.Module) -> Checkpoint:
    """Requests a checkpoint of the tables of the fleet. Call it on one worker.

        written = tarn.torch.checkpoint(model)
        ...                                        # training goes on
        if written.ready():
            print("the checkpoint is complete")

    It has the rows of all tables with the state of their optimizers, at one clock in "bsp", and the parameters that stay
    in torch, which attach() adds. tools/launch --resume RUN starts the fleet from it. The job also writes checkpoints by
    itself (storage).
    """
    return Checkpoint(session_of(model, "checkpoint").client)
