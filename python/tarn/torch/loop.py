"""attach() and prefetch(): the step and the loader of a training loop."""

from __future__ import annotations

import collections
import dataclasses
import sys
import tomllib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from tarn.torch.leases import LeasedDataset
from tarn.torch.modules import modules_of, session_of
from tarn.torch.recipe import Calls, Recipe
from tarn.torch.session import Session, of
from tarn.torch.state import ProgramState, optimizers_in

STEPS_WAITED_FOR = 64  # prefetch() pulls nothing more after the batches of so many steps without a step
_B = TypeVar("_B")


class TableOptimizer(torch.optim.Optimizer):
    """step() pushes. Made by attach(model) for a model all of whose parameters are in tables. Its own parameters are
    those of dense="tarn", so that zero_grad() and GradScaler find their gradients."""

    def __init__(self, parameters: Iterable[torch.Tensor] = ()) -> None:
        super().__init__([{"params": list(parameters)}], {})

    def step(self, closure: Any = None) -> Any:
        return None if closure is None else closure()


def attach(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    state: Mapping[str, Any] | None = None,
    keep_state: bool | None = None,
) -> torch.optim.Optimizer:
    """From now on optimizer.step() also pushes the gradients of the tables of `model` and finishes the clock. Returns the
    optimizer.

    optimizer: of the dense parameters, created after remote(); also TorchRec's wrappers of one. Without one, for a model
    without dense parameters or with dense="tarn", a new optimizer is returned, whose step() only pushes.

    The gradients of all backward passes since the last step are summed for each row and pushed with one call.
    The servers apply the optimizer of the table, with the learning rate of the job. Between backward and step the
    optimizer's last param_group also holds the pulled rows of the batch, so that optimizer.zero_grad() and
    torch.amp.GradScaler include them: a step that GradScaler skips pushes nothing. clip_grad_norm_ includes them if they
    are given to it: clip_grad_norm_([*model.parameters(), *tarn.torch.rows(model)], 1.0). With DistributedDataParallel
    clip the two with two calls: a norm that includes rows differs from process to process.

    With keep_state=True, the default if there is an optimizer or `state`, the checkpoints of the run also contain the
    dense state: model.state_dict() without what is in tables, the state of the optimizer, the random states of torch,
    NumPy and Python, and `state`: other objects with state_dict() and load_state_dict(), such as a learning rate
    scheduler, by name, of numbers, tensors and lists of them. In a run that is resumed from such a checkpoint, attach()
    restores all of it; build the model, the optimizer and `state` before. A run with a log is then resumed from its
    newest checkpoint, not from the end of the log. keep_state=False: the program saves and restores its dense state
    itself.

    Each step pushes all rows that have a gradient. Optimizers that step in turn on losses of their own, as in a GAN, are not
    supported.

    ValueError: no remote module, or the client has an optimizer already: a clock ends with one step; without an optimizer,
    the model has parameters that are in no table; the optimizer has parameters that neither `model` nor `state` has, and
    which a checkpoint would lack. TypeError: not a module or an optimizer, or one that calls its closure repeatedly. step()
    raises tarn.InvalidArgument if a gradient is not finite (the dense parameters have been updated then), and errors of
    earlier pushes. One thread.
    """
    session, given = session_of(model, "attach"), optimizer
    if optimizer is not None and not callable(getattr(optimizer, "step", None)):
        raise TypeError(f"tarn.torch.attach: optimizer is a {type(optimizer).__name__}, expected a torch.optim.Optimizer")
    # Hooks of wrappers do not run. Of several optimizers the last one steps last.
    given_optimizers = [] if optimizer is None else list(optimizers_in(optimizer))
    optimizer = given_optimizers[-1] if given_optimizers else None
    if isinstance(optimizer, torch.optim.LBFGS):
        raise TypeError("tarn.torch.attach: LBFGS calls its closure repeatedly; expected an optimizer with one backward "
                        "pass for each update of the rows")
    if session.attached is not None:
        raise ValueError(f"tarn.torch.attach: the tables are attached to a {type(session.attached).__name__} already; "
                         "expected one optimizer for each client. Of several optimizers attach the one that steps last")
    for group in (group for each in given_optimizers for group in each.param_groups):
        for parameter in group["params"]:
            if (path := session.path_of(parameter)) is not None:
                raise ValueError(f"tarn.torch.attach: the optimizer has the old weight {list(parameter.shape)} of module "
                                 f"{path!r}; expected an optimizer created from model.parameters() after remote(model)")
    dense = [parameter for tables in session.dense for parameter in tables.parameters()]
    for group in (group for each in given_optimizers for group in each.param_groups):
        if any(each is own for each in group["params"] for own in dense):
            raise ValueError(f"tarn.torch.attach: the {type(optimizer).__name__} has parameters that remote(dense=\"tarn\") "
                             "has put into tables, whose optimizer the servers run; expected attach(model) without an "
                             "optimizer")
    _check_trained(model, session, given_optimizers)
    attached = TableOptimizer(dense) if optimizer is None else optimizer
    kept = None
    if (given is not None or bool(state)) if keep_state is None else keep_state:
        _check_saved(model, given_optimizers, state or {})
        kept = ProgramState(model, given_optimizers, state or {}, session.dense)
        kept.check()
    elif state:
        raise ValueError("tarn.torch.attach: with keep_state=False nothing is kept, expected no `state`")
    session.attached = attached

    def before(stepped: torch.optim.Optimizer, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if _is_nested(stepped):
            return None
        session.client.save_state()  # in a step whose rows were pulled ahead nothing has saved it
        self, *others = arguments
        closure = others[0] if others else named.get("closure")
        if closure is None:
            session.taken += session.take_leaves()  # the optimizer must not update rows itself
            return None

        def with_leaves() -> Any:  # zero_grad() in the closure drops leaves, and backward() makes others
            loss = closure()
            session.taken += session.take_leaves()
            return loss

        return (self, with_leaves), {name: each for name, each in named.items() if name != "closure"}

    def after(stepped: torch.optim.Optimizer, *_: Any) -> None:
        if _is_nested(stepped):
            return
        leaves = [*session.taken, *session.take_leaves()]
        session.taken.clear()
        # Set by GradScaler for optimizers that unscale and skip by themselves (fused=True).
        found_inf, scale = getattr(stepped, "found_inf", None), getattr(stepped, "grad_scale", None)
        if found_inf is None or not found_inf.item():
            session.push(leaves, 1.0 if scale is None else scale.item())

    attached.register_step_pre_hook(before)
    attached.register_step_post_hook(after)
    attached.register_state_dict_pre_hook(lambda _: session.show_leaves(False))
    attached.register_state_dict_post_hook(lambda *_: session.show_leaves(True))
    attached.register_load_state_dict_pre_hook(lambda *_: session.show_leaves(False))
    attached.register_load_state_dict_post_hook(lambda _: session.show_leaves(True))
    if kept is not None:
        kept.keep(session.client)
    return attached if given is None else given


def _is_nested(optimizer: torch.optim.Optimizer) -> bool:
    """In a hook of a step: whether it runs within another step of the same optimizer. If step() of a subclass calls
    super().step(), torch runs the hooks of both."""
    step = getattr(type(optimizer).step, "__code__", None)  # of the function with which torch wraps every step
    frame, steps = sys._getframe(1), 0
    while frame.f_back is not None:
        frame = frame.f_back
        steps += frame.f_code is step and frame.f_locals.get("args", (None,))[0] is optimizer
    return steps > 1


def _check_trained(model: nn.Module, session: Session, optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """ValueError: no optimizer, though the model has parameters in torch. Warns if nothing exchanges them."""
    own = {id(each) for tables in session.dense for each in tables.parameters()}
    dense = [path for path, each in model.named_parameters() if each.requires_grad and id(each) not in own]
    if dense and not optimizers:
        raise ValueError(f"tarn.torch.attach: parameter {dense[0]!r} and {len(dense) - 1} others are in no table and would not be "
                         "trained; expected attach(model, optimizer), remote(model, dense=\"tarn\"), or requires_grad=False")
    workers = tomllib.loads(session.client.job_text).get("fleet", {}).get("workers", 1)
    exchanged = torch.distributed.is_available() and torch.distributed.is_initialized()
    if dense and optimizers and workers > 1 and not exchanged:
        warnings.warn(f"tarn.torch.attach: each of the {workers} workers trains dense parameters of its own, such as {dense[0]!r}; "
                      "expected DistributedDataParallel or another parallelism of torch, or remote(model, dense=\"tarn\")",
                      stacklevel=3)


def _check_saved(model: nn.Module, optimizers: Sequence[torch.optim.Optimizer], state: Mapping[str, Any]) -> None:
    """ValueError: a parameter of the optimizers is in no checkpoint."""
    modules = [model, *(each for each in state.values() if isinstance(each, nn.Module))]
    saved = {id(parameter) for module in modules for parameter in module.parameters()}
    for parameter in (each for optimizer in optimizers for group in optimizer.param_groups for each in group["params"]):
        if id(parameter) not in saved:
            raise ValueError(f"tarn.torch.attach: a parameter {list(parameter.shape)} of the optimizer is not in the model, so that "
                             "checkpoints would lack it; expected its module in `state`, as state={\"loss\": loss_module}, or "
                             "keep_state=False")


def rows(model: nn.Module) -> list[torch.Tensor]:
    """The rows that have a gradient since the last step, float32 [n, dim] each: for clip_grad_norm_ and for inspection.
    Rows that were pulled by several calls (gradient accumulation, a module called twice) are in several tensors. The
    tensors share memory: do not change the rows themselves, and clone what is kept."""
    return [leaf.rows for leaf in session_of(model, "rows").leaves()]


def report(**values: Any) -> None:
    """Reports figures of the program, as tarn.Client.report does for a client: report(loss=loss, hr=hits / users). The
    client is the only one that was given to remote(), else that of the environment."""
    of(or_given=True).client.report(**values)


def prefetch(
    loader: Iterable[_B],
    model: nn.Module,
    depth: int = 2,
    *,
    accumulate: int = 1,
    keys: Callable[[_B], Mapping[str, torch.Tensor]] | None = None,
) -> Prefetcher[_B]:
    """Iterates over `loader` and pulls the rows of the next `depth` batches while the model computes.

        for batch in tarn.torch.prefetch(loader, model, depth=2):

    Learns from the first batch which part of a batch each module gets: a tensor of the batch, a view of one such as
    ids[:, 3], or a copy of one, as on another device. If that does not suffice, a warning names the modules, and `keys`
    must return their ids: keys(batch) -> {"path.of.module": ids}.

    depth: in batches. A batch is pulled for the clock at which it will be used, so the consistency of the job holds: with
    "bsp" the rows arrive when the clock begins; with "ssp" and "asp" they may be as old as the job allows.
    accumulate: batches of a step, for loops with gradient accumulation.

    For training loops: without a step it soon pulls nothing more, and warns. If a call has other ids than those pulled
    ahead, it pulls its rows itself. Iterate in the process and the thread that call the model. The loader may use worker
    processes. It may wrap a LeasedDataset, as a generator that copies its batches does, if it gives one batch for each of
    its batches and reads none ahead.
    """
    if depth < 0 or accumulate < 1:
        raise ValueError(f"tarn.torch.prefetch: depth = {depth} and accumulate = {accumulate}, expected at least 0 and 1")
    return Prefetcher(loader, model, depth, accumulate, keys)


@dataclasses.dataclass
class _Waiting(Generic[_B]):
    batch: _B
    leased: Any  # what Session.batch is while the program has this batch
    is_leased: bool  # it came from a LeasedDataset
    pulled: bool = False


class Prefetcher(Generic[_B]):
    """What prefetch() returns. May be iterated again, as often as the loader."""

    def __init__(
        self,
        loader: Iterable[_B],
        model: nn.Module,
        depth: int,
        accumulate: int,
        keys: Callable[[_B], Mapping[str, torch.Tensor]] | None,
    ) -> None:
        self.loader, self.depth, self.accumulate = loader, depth, accumulate
        self._modules, self._keys = modules_of(model, "prefetch"), keys
        self._session = session_of(model, "prefetch")
        self._recipe = Recipe(self._session)
        self._warned = False
        self._clock, self._batches = -1, 0  # the clock of the last batch, and the batches since it has begun

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[_B]:
        source, waiting = iter(self.loader), collections.deque[_Waiting[_B]]()
        leased: LeasedDataset | None = None  # from which the loader, or what it wraps, takes its batches
        position = 0
        try:
            while True:
                while len(waiting) <= self.depth and (not waiting or leased is None or leased.has_ahead()):
                    before = self._session.batch
                    if (batch := next(source, waiting)) is waiting:
                        break
                    is_leased = self._session.batch is not before
                    leased = self._session.batch.of if is_leased else leased
                    waiting.append(_Waiting(batch, self._session.batch, is_leased))  # type: ignore[arg-type]
                if not waiting:
                    return
                if self._in_training():
                    self._pull_ahead(waiting, position)
                batch, self._session.batch = waiting[0].batch, waiting[0].leased
                waiting.popleft()
                self._recipe.begin(batch)
                self._session.copy_ahead_due = True
                yield batch
                self._session.client.save_state()  # the rows of the next step may be here, so that nothing else saves it
                self._recipe.end()
                self._warn()
                position = (position + 1) % self.accumulate
        finally:
            self._recipe.end()
            if leased is not None:  # after a break
                leased.unread([each.leased for each in waiting if each.is_leased])

    def _in_training(self) -> bool:
        """False, with a warning, after many batches without a step: rows pulled for later clocks stay in memory. Steps
        that GradScaler skips are no steps."""
        clock = self._session.client.clock
        self._batches = self._batches + 1 if clock == self._clock else 1
        self._clock = clock
        if self._batches == self.accumulate * STEPS_WAITED_FOR:
            warnings.warn(f"tarn.torch.prefetch: {self._batches} batches without a step: nothing is pulled ahead until the "
                          "next one. Expected a training loop, and accumulate=N if a step has N batches; for evaluation "
                          "iterate over the loader itself", stacklevel=3)
        return self._batches < self.accumulate * STEPS_WAITED_FOR

    def _pull_ahead(self, waiting: collections.deque[_Waiting[_B]], position: int) -> None:
        """Pulls the rows of batches that are not pulled yet. `position`: that of waiting[0] within its step, from 0."""
        clock = self._session.client.clock
        for i, each in enumerate(waiting):
            if each.pulled:
                continue
            use = clock + (position + i) // self.accumulate
            if self._keys is None:
                each.pulled = self._recipe.pull_ahead(each.batch, use)
            else:
                self._session.pull_ahead(self._calls(self._keys(each.batch)), use)
                each.pulled = True

    def _calls(self, keys: Mapping[str, torch.Tensor]) -> Calls:
        for path in keys:
            if path not in self._modules:
                raise ValueError(f"tarn.torch.prefetch: keys() returned {path!r}, expected paths of {sorted(self._modules)}")
        return [(self._modules[path], ids) for path, ids in keys.items()]

    def _warn(self) -> None:
        if self._recipe.missing and self._keys is None and not self._warned:
            self._warned = True
            warnings.warn(f"tarn.torch.prefetch: the ids of {self._recipe.missing} are not part of the batch: their rows "
                          "are not pulled ahead. Expected keys=, a function from a batch to {path: ids}", stacklevel=3)
