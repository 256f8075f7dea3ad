"""Finds the ids of the modules' calls in the arguments of a model or in a batch, to pull them together and ahead.

A Recipe learns from one pass: it notes which part of the data each call of a remote module received, a tensor, or a view
of it such as ids[:, 3]. It then takes the same parts from the next data. A wrong guess costs time, no more: a call uses
rows that were pulled ahead only if its ids are equal (Session.take), and an error of a guess is dropped. Internal to
tarn.torch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
from torch import nn

from tarn.library import Error

if TYPE_CHECKING:
    from tarn.torch.modules import Remote
    from tarn.torch.session import Session

Calls = list[tuple["Remote", torch.Tensor]]
_F = TypeVar("_F", bound=Callable[..., Any])


def not_compiled(function: _F) -> _F:
    """torch.compile leaves this function as it is: its graph breaks there."""
    return cast(_F, torch.compiler.disable(function))  # type: ignore[no-untyped-call]


def _tensors(data: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    """The tensors in lists, tuples, dicts and objects with fields, in a fixed order; of TorchRec's jagged tensors the
    values, for each key."""
    if isinstance(data, torch.Tensor):
        yield data
    elif (torchrec := sys.modules.get("torchrec.sparse.jagged_tensor")) and isinstance(
            data, (torchrec.JaggedTensor, torchrec.KeyedJaggedTensor)):
        keyed = isinstance(data, torchrec.KeyedJaggedTensor)
        yield from (each.values() for each in (data.to_dict().values() if keyed else [data]))
    elif depth < 8 and isinstance(data, dict):
        for value in data.values():
            yield from _tensors(value, depth + 1)
    elif depth < 8 and isinstance(data, (list, tuple)):
        for value in data:
            yield from _tensors(value, depth + 1)
    elif depth < 8 and dataclasses.is_dataclass(data):
        for field in dataclasses.fields(data):
            yield from _tensors(getattr(data, field.name), depth + 1)


@dataclasses.dataclass
class _Part:
    """A part of the data: the `which`-th tensor, or a view of it."""

    module: Remote
    which: int
    whole: tuple[torch.Size, tuple[int, ...]]  # shape and strides of the tensor
    view: tuple[torch.Size, tuple[int, ...], int] | None  # shape, strides and offset; None: the tensor itself

    def of(self, tensors: list[torch.Tensor]) -> torch.Tensor | None:
        """The same part of other data; None if that has another layout. Only its first dimension may differ."""
        if self.which >= len(tensors):
            return None
        tensor = tensors[self.which]
        if self.view is None:
            return tensor if tensor.dim() == len(self.whole[0]) else None
        (shape, strides), (part, steps, offset) = self.whole, self.view
        if tensor.stride() != strides or tensor.shape[1:] != shape[1:]:
            return None
        if len(part) == 0 or (tensor.shape != shape and part[0] != shape[0]):
            return None
        return tensor.as_strided((tensor.shape[0], *part[1:]) if part[0] == shape[0] else part, steps,
                                 tensor.storage_offset() + offset)


def _part(module: Remote, ids: torch.Tensor, tensors: list[torch.Tensor]) -> _Part | None:
    for which, each in enumerate(tensors):
        if each is ids:
            return _Part(module, which, (each.shape, each.stride()), None)
    for which, each in enumerate(tensors):
        whole = (each.shape, each.stride())
        if each.shape == ids.shape and torch.equal(each.to(ids.device, ids.dtype), ids):
            return _Part(module, which, whole, None)
        if each.dim() and each.dtype == ids.dtype and each.untyped_storage().data_ptr() == ids.untyped_storage().data_ptr():
            return _Part(module, which, whole, (ids.shape, ids.stride(), int(ids.storage_offset() - each.storage_offset())))
    return None


class Recipe:
    """Where the ids of the calls are in data of one kind. One thread."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._parts: list[_Part] | None = None
        self._data: list[torch.Tensor] = []
        self._recorder: Calls = []
        self.missing: list[str] = []  # modules whose ids were not found

    def begin(self, data: Any) -> None:
        """The calls that follow, until `end`, are calls for this data. Records those of the first pass that has any. Of a
        model that calls itself it records the innermost pass."""
        if self._parts is None:
            self._stop()
            self._data, self._recorder = list(_tensors(data)), []
            self._session.calls.append(self._recorder)

    def end(self) -> None:
        if not self._stop():
            return
        if self._recorder:
            found = [(module, _part(module, ids, self._data)) for module, ids in self._recorder]
            self._parts = [part for _, part in found if part is not None]
            self.missing = sorted({module.name for module, part in found if part is None})
        self._data, self._recorder = [], []

    def _stop(self) -> bool:
        """Ends the recording. False: none was in progress."""
        others = [each for each in self._session.calls if each is not self._recorder]
        stopped = len(others) < len(self._session.calls)
        self._session.calls = others
        return stopped

    def pull_ahead(self, data: Any, clock: int) -> bool:
        """Pulls the rows of the expected calls for this data, for use at `clock`. False: none is known."""
        if not self._parts:
            return False
        # The part may have other values in this data, such as ids of another module. The call reports its own errors.
        with contextlib.suppress(Error, IndexError, TypeError, ValueError, RuntimeError):
            self._session.pull_ahead(self._calls(data), clock)
        return True

    def _calls(self, data: Any) -> Calls:
        assert self._parts is not None
        tensors = list(_tensors(data))
        found = [(part.module, part.of(tensors)) for part in self._parts]
        return [(module, ids) for module, ids in found if ids is not None and ids.device.type != "meta"]


class _Together:
    """The hooks of a model that pull the rows of all its modules with one request."""

    def __init__(self, session: Session) -> None:
        self._session, self._recipe = session, Recipe(session)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Together:
        return self  # the copied model has the same hooks

    @not_compiled
    def before(self, _: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        data, clock = (arguments, named), self._session.client.clock
        self._session.client.save_state()  # before layers that come before the first pull change buffers or random states
        if not self._session.has_ahead(clock):
            self._recipe.pull_ahead(data, clock)
        self._recipe.begin(data)

    @not_compiled
    def after(self, *_: Any) -> None:
        self._recipe.end()


def pull_together(model: nn.Module, session: Session) -> None:
    """Registers hooks, with which from the second call of the model one request pulls the rows of all its modules."""
    hooks = _Together(session)
    model.register_forward_pre_hook(hooks.before, with_kwargs=True)
    model.register_forward_hook(hooks.after, always_call=True)
