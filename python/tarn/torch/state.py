"""The dense state of a program in checkpoints: parameters and buffers that stay in torch, their optimizer, random states.

Internal to tarn.torch; attach() uses it. One thread.
"""

from __future__ import annotations

import collections
import contextlib
import io
import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

if TYPE_CHECKING:
    from tarn.torch.dense import DenseTables

_VERSION = 1  # of what _bytes writes


def optimizers_in(optimizer: Any) -> Iterator[torch.optim.Optimizer]:
    """The optimizers of torch with parameters inside TorchRec's wrappers, or this one itself."""
    members = [each for _, each in getattr(optimizer, "optimizers", ()) if each.params]  # of a CombinedOptimizer
    inner = getattr(optimizer, "_optimizer", None)
    if members:
        for each in members:
            yield from optimizers_in(each)
    elif isinstance(inner, torch.optim.Optimizer):
        yield from optimizers_in(inner)
    else:
        yield optimizer


class ProgramState:
    """The state of one worker: `model` without the parameters that are in the tables of `dense`, its optimizers and
    `others`, objects with state_dict() and load_state_dict()."""

    def __init__(
        self, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer], others: Mapping[str, Any],
        dense: Sequence[DenseTables]
    ) -> None:
        self._model, self._others = model, dict(others)
        self._optimizers, self._dense = list(optimizers), dense
        own = {id(each) for tables in dense for each in tables.parameters()}
        self._in_tables = {path for path, each in model.named_parameters(remove_duplicate=False) if id(each) in own}

    def check(self) -> None:
        """ValueError if the state cannot be saved and loaded: better now than when the run is resumed."""
        _check_loadable(self._state(True))

    def keep(self, client: Any) -> None:
        """Restores the state from the checkpoint from which the run was resumed, if there is one. Later checkpoints
        contain the state."""
        own = _loaded(client.saved_state(client.rank))
        whole = own if own is not None and "model" in own else _loaded(client.saved_state(0))
        if whole is not None:
            self._restore(whole, whole is own)
        elif client.clock > 0:
            warnings.warn(f"tarn.torch.attach: this worker begins at clock {client.clock}, and there is no saved state of "
                          "what its model has in torch: it keeps its initial values. Expected a run resumed from a "
                          "checkpoint with them, or keep_state=False and parameters that the program loads itself",
                          stacklevel=3)
        if own is not None:  # otherwise, in a new rank, the random states remain as they are
            _set_random_states(own["random"])
        # Replicas are equal: one of them is enough.
        replica = any(isinstance(each, DistributedDataParallel) for each in self._model.modules())
        client.keep_state(lambda: self._bytes(client.rank == 0 or not replica))

    def _bytes(self, whole: bool) -> bytes:
        out = io.BytesIO()
        torch.save(self._state(whole), out)
        return out.getvalue()

    def _state(self, whole: bool) -> dict[str, Any]:
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call,unused-ignore]
            torch.cuda.synchronize()  # work of other streams
        state: dict[str, Any] = {"version": _VERSION, "random": _random_states()}
        if whole:
            state["shards"] = self._shards()
            state["model"] = _local(self._model_state())
            state["optimizers"] = [_local(each.state_dict()) for each in self._optimizers]
            state["others"] = {name: _local(each.state_dict()) for name, each in self._others.items()}
        return state

    def _model_state(self) -> dict[str, Any]:
        with contextlib.ExitStack() as stack:
            for each in self._dense:
                stack.enter_context(each.saving())
            return {name: each for name, each in self._model.state_dict().items() if name not in self._in_tables}

    def _shards(self) -> int:
        """The number of processes among which parameters are sharded; 1: none is sharded."""
        sharded = any(hasattr(each, "to_local") for each in self._model.parameters())
        return torch.distributed.get_world_size() if sharded else 1

    def _restore(self, state: Mapping[str, Any], own: bool) -> None:
        if len(state["optimizers"]) != len(self._optimizers) or set(state["others"]) != set(self._others):
            raise ValueError(f"tarn.torch.attach: the saved state has {len(state['optimizers'])} optimizers and {sorted(state['others'])}, "
                             f"expected {len(self._optimizers)} and {sorted(self._others)}: the program has changed")
        if state["shards"] != self._shards() or (state["shards"] > 1 and not own):
            raise ValueError(f"tarn.torch.attach: in the saved state parameters are sharded among {state['shards']} processes, here "
                             f"among {self._shards()}; expected as many processes, each with its own rank")
        here = self._model_state()
        if set(state["model"]) != set(here):
            raise ValueError(f"tarn.torch.attach: the saved state has values of {sorted(state['model'])}, expected "
                             f"{sorted(here)}: the model has changed")
        self._model.load_state_dict({name: _like(value, here[name]) for name, value in state["model"].items()},
                                    strict=not self._in_tables)
        for optimizer, saved in zip(self._optimizers, state["optimizers"]):
            parameters = [each for group in optimizer.param_groups for each in group["params"]]
            for number, values in saved["state"].items():
                for name, value in values.items():
                    same = isinstance(value, torch.Tensor) and value.dim() > 0 and number < len(parameters)
                    values[name] = _like(value, parameters[number]) if same else value
            optimizer.load_state_dict(saved)
        for name, each in self._others.items():
            each.load_state_dict(state["others"][name])


def _loaded(saved: bytes | None) -> dict[str, Any] | None:
    if saved is None:
        return None
    state: dict[str, Any] = torch.load(io.BytesIO(saved), map_location="cpu", weights_only=True)
    if state["version"] != _VERSION:
        raise ValueError(f"tarn.torch.attach: the saved state has version {state['version']}, expected {_VERSION}: another version of "
                         "tarn wrote it")
    return state


def _random_states() -> dict[str, Any]:
    version, words, gauss = random.getstate()
    name, keys, *rest = np.random.get_state()
    used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call,unused-ignore]
    cuda = torch.cuda.get_rng_state_all() if used else []
    return {"torch": torch.get_rng_state(), "cuda": cuda, "python": [version, list(words), gauss],
            "numpy": [name, [int(key) for key in keys], *rest]}


def _set_random_states(states: Mapping[str, Any]) -> None:
    torch.set_rng_state(states["torch"])
    if states["cuda"] and len(states["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(states["cuda"])
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words), gauss))
    name, keys, *rest = states["numpy"]
    np.random.set_state((name, np.array(keys, np.uint32), *rest))


def _local(values: Any) -> Any:
    """Sharded tensors (DTensor) as this worker's part of them, and numbers of NumPy, which torch.load rejects, as
    Python's. Mappings of other types, such as a scheduler's Counter, remain as they are."""
    if type(values) in (dict, collections.OrderedDict):
        return {name: _local(each) for name, each in values.items()}
    if type(values) in (list, tuple):
        return type(values)(_local(each) for each in values)
    if isinstance(values, np.generic):
        return values.item()
    return values.to_local() if hasattr(values, "to_local") else values


def _check_loadable(state: dict[str, Any]) -> None:
    """ValueError if torch.load would reject the saved state."""
    def without_values(values: Any) -> Any:
        if type(values) in (dict, collections.OrderedDict):
            return {name: without_values(each) for name, each in values.items()}
        if type(values) in (list, tuple):
            return type(values)(without_values(each) for each in values)
        return 0 if isinstance(values, torch.Tensor) else values

    for name, each in state.items():
        out = io.BytesIO()
        try:
            torch.save(without_values(each), out)
            torch.load(io.BytesIO(out.getvalue()), weights_only=True)
        except Exception as error:
            raise ValueError(f"tarn.torch.attach: the state of {name} cannot be saved and loaded: {error}; expected "
                             "numbers, strings, tensors, and lists and dicts of them") from None


def _like(value: Any, here: Any) -> Any:
    """This worker's part of a sharded tensor as one sharded like `here`."""
    if not hasattr(here, "to_local"):
        return value
    from torch.distributed.tensor import DTensor
    return DTensor.from_local(value.to(here.to_local().device), here.device_mesh, here.placements, run_check=False,
                              shape=here.shape, stride=here.stride())
