"""remote(model, dense="tarn"): the dense parameters of a model in dense tables of the fleet. Internal to tarn.torch.

A table holds the change of a parameter since the start, so its rows begin at 0. The parameters may therefore begin with
any values, those of torch or of an earlier training, and the servers need none of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import tomllib
import zlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from tarn import client as tarn_client
from tarn.client import Settings
from tarn.torch import session as sessions
from tarn.torch.recipe import not_compiled

if TYPE_CHECKING:
    from tarn.torch.session import Session

ROW_VALUES_MAX = 4096  # values of a table's row
CHUNK_VALUES = 1024  # values of a row, for parameters whose own rows are longer than ROW_VALUES_MAX
ALREADY_EXISTS = 5  # of worker/tarn_c.h
CHECK_TABLE = "tarn.torch.start"  # and a checksum of the paths: a program may have several models


@dataclasses.dataclass(eq=False)
class _Dense:
    """A parameter and its table."""

    path: str
    parameter: nn.Parameter
    start: torch.Tensor  # its values before training
    plan: Any  # tarn.client.Plan of all keys of the table
    changes: np.ndarray[Any, np.dtype[np.float32]]  # [rows, dim], as pulled
    renormalizes: bool  # its embedding has max_norm, and so changes it before each use
    version: int = 0  # of the parameter, when it was last set to its value in the table

    def __post_init__(self) -> None:
        self.version = self.parameter._version

    def value(self) -> torch.Tensor:
        """As pulled."""
        flat = torch.from_numpy(self.changes[self.plan.index]).reshape(-1)[:self.start.numel()]
        return self.start + flat.reshape(self.start.shape).to(self.start.device)

    def check_unchanged(self) -> None:
        if self.parameter._version == self.version or self.renormalizes:
            return
        if not torch.equal(self.parameter.detach(), self.value().to(self.parameter.device)):
            raise RuntimeError(f"tarn.torch: parameter {self.path!r} was changed by the program; its table in the fleet has another "
                               "value, which would now replace it. Expected changes before remote(model, dense=\"tarn\"), such as "
                               "initial values, and averaged or clamped values in a copy of the model (copy.deepcopy)")

    def update(self) -> None:
        with torch.no_grad():
            self.parameter.copy_(self.value())
        self.version = self.parameter._version

    def _gradients(self) -> torch.Tensor:
        """The gradients of the parameter, which are sparse for nn.Embedding(sparse=True), as a dense tensor."""
        assert self.parameter.grad is not None
        gradients = self.parameter.grad.detach()
        return gradients.to_dense() if gradients.is_sparse else gradients

    def has_gradient(self) -> bool:
        """Whether the parameter has a gradient other than 0."""
        return self.parameter.grad is not None and bool(self._gradients().count_nonzero())

    def flat_gradients(self, scale: float) -> torch.Tensor:
        """The gradients of the parameter divided by `scale`, as returned by session.on_host."""
        flat = self._gradients().reshape(-1)
        return sessions.on_host(flat if scale == 1.0 else flat / scale)

    def planned(self, flat: torch.Tensor) -> tuple[Any, torch.Tensor]:
        """A push of these gradients: the plan, and the rows in its order."""
        rows = torch.zeros(self.changes.shape, dtype=torch.float32, device="cpu")
        rows.view(-1)[:flat.numel()] = flat
        return self.plan, rows[torch.from_numpy(self.plan.keys.astype(np.int64))]


class DenseTables:
    """The dense tables of one model: pulled at the first forward pass of a clock, pushed by the step. One thread."""

    def __init__(self, model: nn.Module, session: Session, optimizer: Settings | None) -> None:
        self._session, self._clock = session, -1
        self._called = False  # whether the model was called since the last step
        self._saving = False
        found = _trainable(model)
        self._check_start(found)
        renormalized = {id(each.weight) for each in model.modules()
                        if isinstance(each, (nn.Embedding, nn.EmbeddingBag)) and each.max_norm is not None}
        self._dense = [self._table(path, each, id(each) in renormalized, optimizer) for path, each in found.items()]
        self._frozen = {path: each for path, each in model.named_parameters() if not each.requires_grad and each.numel()}
        session.dense.append(self)
        model.register_forward_pre_hook(self.before)
        model.register_state_dict_pre_hook(self.before)  # type: ignore[no-untyped-call,unused-ignore]
        model.register_load_state_dict_pre_hook(self.before_load)  # type: ignore[no-untyped-call,unused-ignore]

    def __deepcopy__(self, memo: dict[int, Any]) -> DenseTables:
        """For the hooks of a copied model, whose parameters are its own: they do nothing."""
        without = DenseTables.__new__(DenseTables)
        without._session, without._clock, without._dense, without._frozen = self._session, -1, [], {}
        without._called = without._saving = False
        return without

    def parameters(self) -> list[nn.Parameter]:
        return [each.parameter for each in self._dense]

    def paths(self) -> list[str]:
        return [each.path for each in self._dense]

    def begin_step(self) -> None:
        """RuntimeError: a parameter has a gradient other than 0, but the model was not called since the last step, so the
        values of this clock were not pulled; or a parameter that was frozen at remote() has a gradient, and no table."""
        for path, frozen in self._frozen.items():
            if frozen.requires_grad and frozen.grad is not None and not self._session.has_optimizer(frozen):
                raise RuntimeError(f"tarn.torch: parameter {path!r} has a gradient, but no table, because it did not require one "
                                   "at remote(model, dense=\"tarn\"): it would not be trained. Expected requires_grad=True before "
                                   "remote(), and again False for the steps in which it is frozen")
        if not self._called:
            for each in self._dense:
                if each.has_gradient():
                    raise RuntimeError(f"tarn.torch: parameter {each.path!r} has a gradient, but its value was not pulled at clock "
                                       f"{self._session.client.clock}. Expected a call of the model that was given to "
                                       "remote(model, dense=\"tarn\"), not only of its modules or methods, before each step")
        self._called = False

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """state_dict() of the model then leaves its parameters as they are: a state is saved without calls of the client."""
        self._saving = True
        try:
            yield
        finally:
            self._saving = False

    def with_gradients(self) -> list[_Dense]:
        return [each for each in self._dense if each.parameter.grad is not None]

    @not_compiled
    def before(self, *_: Any) -> None:
        """Sets the parameters to their values at this clock. RuntimeError: the program has changed one."""
        if not self._dense or self._saving:
            return
        self._called = True
        clock = self._session.client.clock
        if clock == self._clock:
            return
        for each in self._dense:
            each.check_unchanged()
        rows = self._session.client.pull_plans([(each.plan, each.changes) for each in self._dense], clock=clock)
        self._session.wait(rows[-1], f"dense parameters at clock {clock}: other workers have not finished an earlier "
                           "clock, or a server does not answer")
        for each in self._dense:
            each.update()
        self._clock = clock

    def before_load(self, _: nn.Module, state: Mapping[str, Any], prefix: str, *__: Any) -> None:
        if kept := [each.path for each in self._dense if prefix + each.path in state]:
            raise RuntimeError(f"tarn.torch: load_state_dict has values of {kept}, which are in tables of the fleet. "
                               "Expected load_state_dict before remote(model, dense=\"tarn\"), on every worker")

    def _check_start(self, found: Mapping[str, nn.Parameter]) -> None:
        """All workers, also after a resume, must begin with the same values: a table has their checksum."""
        total, paths = 0, zlib.crc32("\n".join(found).encode())
        for path, each in found.items():
            total = zlib.crc32(path.encode() + each.detach().cpu().contiguous().numpy().tobytes(), total)
        try:
            self._session.client.table(f"{CHECK_TABLE}.{paths:08x}", dim=1, rows=1, optimizer={"kind": "sgd", "learning_rate": 0.0},
                                       initializer={"kind": "constant", "value": total % 2**24})  # exact in float32
        except tarn_client.InvalidArgument as error:
            if error.code != ALREADY_EXISTS:
                raise
            raise tarn_client.InvalidArgument(
                error.code, "tarn.torch.remote: the dense parameters do not begin with the values that another worker, or "
                "an earlier start of this run, has. Expected the same model on every worker and the same "
                "torch.manual_seed before it is built") from None

    def _table(self, path: str, parameter: nn.Parameter, renormalizes: bool, optimizer: Settings | None) -> _Dense:
        rows, dim = _shape(parameter)
        try:
            table = self._session.client.table(path, dim=dim, rows=rows, initializer="zero", optimizer=optimizer)
        except tarn_client.InvalidArgument as error:
            raise tarn_client.InvalidArgument(error.code, f"tarn.torch.remote: {error}") from None
        plan = table.plan(np.arange(rows))
        return _Dense(path, parameter, parameter.detach().clone(), plan, np.zeros((rows, dim), np.float32), renormalizes)


def check(model: nn.Module, swapped: set[int], optimizer: Settings | None, session: Session) -> None:
    """Raises ValueError if a trainable parameter, other than those with an id in `swapped`, cannot be in a table with
    this optimizer, or has the path of a parameter of an earlier model."""
    _check_optimizer(optimizer, session.client.job_text)
    if taken := {path for tables in session.dense for path in tables.paths()}.intersection(_trainable(model)):
        raise ValueError(f"tarn.torch.remote: an earlier model with dense=\"tarn\" has a parameter {min(taken)!r}, too, and would "
                         "share its table; expected one call of remote() for a module of your own whose forward calls both models")
    for path, each in _trainable(model).items():
        if id(each) not in swapped and (each.dtype != torch.float32 or each.device.type == "meta"):
            raise ValueError(f"tarn.torch.remote: parameter {path!r} is {each.dtype} on {each.device}, expected "
                             "torch.float32 with values, on the CPU or a GPU; dense=\"torch\" leaves it in torch")


def _trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    return {path: each for path, each in model.named_parameters() if each.requires_grad and each.numel()}


def _shape(parameter: torch.Tensor) -> tuple[int, int]:
    """(rows, values of a row) of the parameter's table: the rows of a matrix, one row for a vector, or chunks if those
    rows are too long."""
    values = parameter.numel()
    dim = values // parameter.shape[0] if parameter.dim() > 1 else values
    if dim > ROW_VALUES_MAX:
        dim = CHUNK_VALUES
    return -(-values // dim), dim


def _check_optimizer(optimizer: Settings | None, job_text: str) -> None:
    """Rejects rules that use the value of a parameter, because the tables hold changes of it."""
    if optimizer is None:
        job = tomllib.loads(job_text).get("optimizer", {})
        settings = {**job, **job.get("dense", {})}
    else:
        settings = {"kind": optimizer} if isinstance(optimizer, str) else dict(optimizer)
    for key in ("l2", "weight_decay"):
        if settings.get(key, 0):
            raise ValueError(f"tarn.torch.remote: {key} = {settings[key]} of the dense tables is not supported with "
                             "dense=\"tarn\", whose tables hold changes of the parameters; expected 0")
    if settings.get("kind") == "ftrl":
        raise ValueError("tarn.torch.remote: ftrl sets parameters to values of its own, expected another rule for the "
                         "dense tables with dense=\"tarn\"")
