"""remote(): swaps embeddings for modules whose rows are in tables of a fleet."""

from __future__ import annotations

import copy
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Self

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from tarn import client as tarn_client
from tarn.client import Settings
from tarn.torch import dense as dense_tables, recipe, session as sessions, settings
from tarn.torch.session import Pulled, Session

_IDS = (torch.int32, torch.int64)


def _flat(ids: torch.Tensor) -> torch.Tensor:
    """int64 [n] on the CPU, contiguous."""
    if ids.dtype is torch.int64 and ids.dim() == 1 and ids.is_cpu and ids.is_contiguous():
        return ids  # most calls
    return ids.detach().to("cpu", torch.int64).reshape(-1).contiguous()


class Remote(nn.Module):
    """The base of RemoteEmbedding and RemoteEmbeddingBag. The rows are in `table`; the module has no parameters.

    num_embeddings, embedding_dim, padding_idx: as of the module that it replaces. The padding row is zero. Call it in
    the process that called remote().
    """

    def __init__(self, name: str, of: nn.Embedding | nn.EmbeddingBag, table: Any, session: Session) -> None:
        super().__init__()
        self.name, self.table, self.session = name, table, session
        self.num_embeddings, self.embedding_dim, self.padding_idx = of.num_embeddings, of.embedding_dim, of.padding_idx
        self.scale_grad_by_freq = of.scale_grad_by_freq
        self.gpu: torch.device | None = None  # of the last call's ids; None: they were on the CPU
        self.trains = True  # whether its rows get gradients

    def __deepcopy__(self, memo: dict[int, Any]) -> Remote:
        """The copy has the same table and session. Needed by copy.deepcopy(model), as for averaged weights."""
        copied = self.__new__(type(self))
        memo[id(self)] = copied
        copied.__dict__.update({name: copy.copy(each) if isinstance(each, dict) else each for name, each in self.__dict__.items()})
        return copied

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Freezes the rows in the calls of this module, or ends that. That of a parent module does not reach it, because
        the rows are no parameters."""
        self.trains = requires_grad
        return super().requires_grad_(requires_grad)

    def __getstate__(self) -> Any:
        return self.session.__getstate__()

    def __getattr__(self, name: str) -> Any:
        if name == "weight":
            raise AttributeError(f"tarn.torch: module {self.__dict__.get('name')!r} has no weight: its rows are in a table. "
                                 "Expected a call of the module for some ids, or module.table.pull(keys); a model that also "
                                 "uses the weight elsewhere keeps it in torch: remote(model, only=[...])")
        return super().__getattr__(name)

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}, table={self.table.name!r}"

    def keys(self, ids: torch.Tensor) -> torch.Tensor:
        """The ids that have a row: int64 [n] on the CPU, contiguous."""
        flat = _flat(ids)
        return flat if self.padding_idx is None else flat[flat != self.padding_idx]

    def with_padding(self, ids: torch.Tensor, rows: int, index: torch.Tensor) -> torch.Tensor:
        """Converts the index of each of keys(ids) to the index of each id, int64 [n]. Padding ids get the index
        `rows`: that of the row after the others."""
        if self.padding_idx is None:
            return index
        flat = _flat(ids)
        return torch.full_like(flat, rows).masked_scatter_(torch.ne(flat, self.padding_idx), index)

    def rows(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int | None]:
        """For ids of any shape: the index of each id's row, the rows, and the index of the padding."""
        self._check_process()
        self._check_ids(ids)
        self.gpu = ids.device if ids.is_cuda else None
        pulled = self.session.take(self, ids)
        leaf = self.session.leaf(pulled, ids.device)
        padding = None if self.padding_idx is None else pulled.plan.size
        return pulled.index(ids.device), leaf, padding

    def _check_process(self) -> None:
        if os.getpid() != self.session.process:
            raise RuntimeError(
                f"tarn.torch: module {self.name!r} was called in process {os.getpid()}, a fork of the process "
                f"{self.session.process} that is connected to the fleet. Expected calls in that process: workers of a "
                "DataLoader may read and transform data, but not call the model")

    def _check_ids(self, ids: torch.Tensor) -> None:
        if not isinstance(ids, torch.Tensor) or ids.dtype not in _IDS:
            found = ids.dtype if isinstance(ids, torch.Tensor) else type(ids).__name__
            raise TypeError(f"tarn.torch: module {self.name!r}: the ids are {found}, expected a tensor of torch.int64 or "
                            "torch.int32")
        if ids.device.type == "meta":
            raise ValueError(f"tarn.torch: module {self.name!r}: the ids are on the meta device and have no values, "
                             "expected a tensor on the CPU or a GPU")

    def check_range(self, flat: torch.Tensor) -> None:
        """IndexError: an id is negative, or not below num_embeddings."""
        if not flat.numel():
            return
        least, most = (int(each) for each in torch.aminmax(flat))
        if least < 0 or most >= self.num_embeddings:
            raise IndexError(f"tarn.torch: module {self.name!r}: an id is {least if least < 0 else most}, expected 0 to "
                             f"{self.num_embeddings - 1} (num_embeddings = {self.num_embeddings})")


class RemoteEmbedding(Remote):
    """An nn.Embedding whose rows are in a table."""

    @recipe.not_compiled
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """input: int64 or int32 ids of any shape [*]. Returns float32 [*, embedding_dim] on the device of the ids.

        IndexError: an id that is not below num_embeddings. TypeError: other dtypes. tarn.Gone: the fleet has ended.
        """
        index, rows, padding = self.rows(input)
        return F.embedding(index, rows, padding, scale_grad_by_freq=self.scale_grad_by_freq)


class RemoteEmbeddingBag(Remote):
    """An nn.EmbeddingBag whose rows are in a table."""

    def __init__(self, name: str, of: nn.Embedding | nn.EmbeddingBag, table: Any, session: Session) -> None:
        super().__init__(name, of, table, session)
        assert isinstance(of, nn.EmbeddingBag)
        self.mode, self.include_last_offset = of.mode, of.include_last_offset

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, mode={self.mode!r}"

    @recipe.not_compiled
    def forward(
        self, input: torch.Tensor, offsets: torch.Tensor | None = None, per_sample_weights: torch.Tensor | None = None
    ) -> torch.Tensor:
        """input: int64 or int32 ids, [bags, n], or [n] with `offsets` [bags], the first id of each bag. per_sample_weights:
        float32, the shape of the input, with mode "sum". Returns float32 [bags, embedding_dim] on the device of the ids.

        Errors as of RemoteEmbedding; ValueError for shapes that do not fit.
        """
        self._check_bags(input, offsets, per_sample_weights)
        index, rows, padding = self.rows(input)
        return F.embedding_bag(
            index, rows, None if offsets is None else offsets.to(torch.int64), mode=self.mode, padding_idx=padding,
            scale_grad_by_freq=self.scale_grad_by_freq, per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset)

    def _check_bags(
        self, ids: torch.Tensor, offsets: torch.Tensor | None, weights: torch.Tensor | None
    ) -> None:
        self._check_ids(ids)
        where = f"tarn.torch: module {self.name!r}: "
        if ids.dim() not in (1, 2) or (ids.dim() == 1) != (offsets is not None):
            given = "without offsets" if offsets is None else "with offsets"
            raise ValueError(f"{where}the ids are {list(ids.shape)} {given}, expected [n] with offsets [bags], or "
                             "[bags, n] without offsets")
        if offsets is not None and offsets.dtype not in _IDS:
            raise TypeError(f"{where}the offsets are {offsets.dtype}, expected torch.int64 or torch.int32")
        for name, each in (("offsets", offsets), ("per_sample_weights", weights)):
            if each is not None and each.device != ids.device:
                raise ValueError(f"{where}{name} are on {each.device} and the ids on {ids.device}, expected one device")
        if weights is None:
            return
        if weights.shape != ids.shape or weights.dtype != torch.float32 or self.mode != "sum":
            raise ValueError(f"{where}per_sample_weights are {weights.dtype} {list(weights.shape)} with mode "
                             f"{self.mode!r}, expected torch.float32 {list(ids.shape)} with mode 'sum'")


def modules_of(model: nn.Module, caller: str) -> dict[str, Remote]:
    """The remote modules of the model by path; ValueError without one, TypeError if it is no module."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"tarn.torch.{caller}: model is a {type(model).__name__}, expected a torch.nn.Module")
    found = {path: each for path, each in model.named_modules() if isinstance(each, Remote)}
    if not found:
        raise ValueError(f"tarn.torch.{caller}: {type(model).__name__} has no module whose rows are in a table, expected "
                         "tarn.torch.remote(model) before")
    return found


def session_of(model: nn.Module, caller: str) -> Session:
    """The session of the model's remote modules; ValueError without one."""
    return next(iter(modules_of(model, caller).values())).session


def remote(
    model: nn.Module,
    client: Any = None,
    *,
    optimizer: Settings | None = None,
    initializer: Settings | None = None,
    tables: Mapping[str, Mapping[str, Any]] | None = None,
    only: Iterable[str] | None = None,
    dense: str = "torch",
    dense_optimizer: Settings | None = None,
) -> nn.Module:
    """Swaps every nn.Embedding and nn.EmbeddingBag of `model`, also in the collections of TorchRec, for one whose rows are
    in a table of the fleet. Returns the model, or, if it is itself an embedding, its replacement.

    client: of tarn.connect(); default: a client of the fleet that `tools/launch ... -- PROGRAM` names; it leaves the
    fleet when the program ends. Every worker calls remote() with the same model.

    The table of a module has the module's path as name, "towers.user"; that of an embedding that is given by itself has
    the name "embedding". Modules that are one object or share one weight share a table, and so do modules of two models
    with the same path and num_embeddings. Rows are created by their first push, so num_embeddings costs nothing: build the model with
    device="meta" if its tables do not fit in memory. The values of allocated weights are not used.

    optimizer, initializer: as of tarn.Client.table. Default: the job's [optimizer.embedding], and N(0, 1), with which
    torch initializes its embeddings, or the init_fn of TorchRec's configuration. A weight to which
    apply_optimizer_in_backward has given an optimizer keeps that one, with its learning rate; the servers run it. The
    learning rate of the torch optimizer does not apply to tables. tables: by path of a module, a dict with any of "name",
    "optimizer", "initializer", which override the others; those of a shared weight belong to its first module. only: the paths of the modules to swap; default: all, except
    frozen ones (requires_grad=False) and subclasses, which stay as they are.

    Create the torch optimizer afterwards, from the parameters that are left, and call attach(). state_dict() has no
    rows.

    dense: "torch" leaves all other parameters in torch. "tarn" puts the trainable ones into dense tables, one each,
    with the path of the parameter as name: the first forward pass of a clock pulls them, and the step pushes their
    gradients. The consistency of the job then holds for the whole model, and workers need no DistributedDataParallel.
    The servers run their optimizer: dense_optimizer, by default the job's [optimizer.dense]; call attach(model) without
    one. All workers must begin with the same values: call torch.manual_seed. Buffers, such as the averages of
    BatchNorm, stay in each worker; attach(model, keep_state=True) puts them into checkpoints. A table holds the change since the start, so l2, weight_decay and ftrl are rejected.

    ValueError: nothing to swap, a name that would be shared by tables of different sizes, weights shared with another kind of module, max_norm, weights that are not float32, an
    optimizer or an init_fn of TorchRec that has no equal on the servers; dense parameters that are not float32.
    tarn.InvalidArgument: no fleet, or a table of that name with another shape or optimizer. One thread.
    """
    if dense not in ("torch", "tarn") or (dense == "torch" and dense_optimizer is not None):
        raise ValueError(f"tarn.torch.remote: dense = {dense!r}, dense_optimizer = {dense_optimizer!r}, expected "
                         "dense=\"tarn\", or \"torch\" without dense_optimizer")
    chosen = _chosen(model, only, tables or {})
    swapped: dict[int, Remote] = {}  # by the id of the weight
    replacements: dict[int, Remote] = {}
    described = _described(model, chosen, optimizer, initializer, tables or {})
    session = sessions.of(client)
    _check_names(session, chosen, described, tables or {})
    if dense == "tarn":
        dense_tables.check(model, {id(module.weight) for _, module in chosen}, dense_optimizer, session)
    for path, module in chosen:
        weight = id(module.weight)
        first = swapped.get(weight)
        if first is None:
            table = _table(session.client, module, **described[path])
            if "name" not in (tables or {}).get(path, {}):
                session.named[described[path]["name"]] = module.num_embeddings
        else:
            table = first.table
        kind = RemoteEmbedding if isinstance(module, nn.Embedding) else RemoteEmbeddingBag
        replacements[id(module)] = swapped[weight] = kind(path or "embedding", module, table, session)
        session.replaced(module.weight, path)
    whole = replacements.get(id(model))
    if whole is not None:  # has no dense parameters
        return whole.train(model.training)
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if id(child) in replacements:
                parent._modules[name] = replacements[id(child)].train(parent.training)
    recipe.pull_together(model, session)
    if dense == "tarn":
        dense_tables.DenseTables(model, session, dense_optimizer)
    return model


def _embeddings(model: nn.Module) -> Iterator[tuple[str, nn.Embedding | nn.EmbeddingBag]]:
    for path, module in model.named_modules():
        if type(module) in (nn.Embedding, nn.EmbeddingBag):
            yield path, module


def _chosen(
    model: nn.Module, only: Iterable[str] | None, tables: Mapping[str, Any]
) -> list[tuple[str, nn.Embedding | nn.EmbeddingBag]]:
    """The modules to swap, checked."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"tarn.torch.remote: model is a {type(model).__name__}, expected a torch.nn.Module")
    if isinstance(model, DistributedDataParallel) or hasattr(model, "_orig_mod"):
        raise ValueError(f"tarn.torch.remote: model is a {type(model).__name__}; call remote() once, before the model is wrapped "
                         "or compiled")
    found = dict(_embeddings(model))
    names = None if only is None else list(only)
    for path in (*(names or ()), *tables):
        if path not in found:
            raise ValueError(f"tarn.torch.remote: {type(model).__name__} has no nn.Embedding or nn.EmbeddingBag at "
                             f"{path!r}; it has {sorted(found)}")
    for path, settings in tables.items():
        if unknown := set(settings) - {"name", "optimizer", "initializer"}:
            raise ValueError(f"tarn.torch.remote: tables[{path!r}] has {sorted(unknown)}, expected any of 'name', "
                             "'optimizer', 'initializer'")
    chosen = [(path, module) for path, module in found.items()
              if module.weight.requires_grad and (names is None or path in names)]
    if not chosen:
        raise ValueError(f"tarn.torch.remote: {type(model).__name__} has no trainable nn.Embedding or nn.EmbeddingBag, "
                         "expected at least one; call remote() once, before the model is wrapped or compiled")
    for path, module in chosen:
        _check(model, path, module, {path for path, _ in chosen})
    return chosen


def _check_names(
    session: Session, chosen: Iterable[tuple[str, nn.Embedding | nn.EmbeddingBag]], described: Mapping[str, Mapping[str, Any]],
    tables: Mapping[str, Mapping[str, Any]]
) -> None:
    """ValueError: a table that got its name from a path would be shared with a module of an earlier call of remote(),
    and the two have different sizes, or the module has no path; or `tables` describes a table by a path that is not the
    first of its weight."""
    firsts: dict[int, str] = {}  # by the id of the weight
    for path, module in chosen:
        first = firsts.setdefault(id(module.weight), path)
        if first != path and tables.get(path) and tables[path] != tables.get(first):
            raise ValueError(f"tarn.torch.remote: tables[{path!r}]: this module shares its weight, and so its table, with {first!r}: "
                             f"expected its settings as tables[{first!r}]")
        if first != path or "name" in tables.get(path, {}):
            continue
        name, rows = described[path]["name"], module.num_embeddings
        earlier = session.named.get(name)
        if earlier is not None and (earlier != rows or not path):
            raise ValueError(f"tarn.torch.remote: module {path!r} with num_embeddings = {rows} would share the table {name!r} with a "
                             f"module of an earlier call of remote(), which has {earlier}; expected a name of its own: "
                             f"tables={{{path!r}: {{\"name\": ...}}}}")


def _check(model: nn.Module, path: str, module: nn.Embedding | nn.EmbeddingBag, chosen: Collection[str]) -> None:
    where = f"tarn.torch.remote: module {path!r}: "
    if module.weight.dtype != torch.float32:
        raise ValueError(f"{where}its weight is {module.weight.dtype}, expected torch.float32; codecs of the job "
                         "narrow what is stored and sent ([tables.NAME] row_codec, pull_codec)")
    if module.max_norm is not None:
        raise ValueError(f"{where}max_norm = {module.max_norm} is not supported: rows are changed by their optimizer alone")
    hooks = [module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks,
             module.weight._backward_hooks, module.weight._post_accumulate_grad_hooks]
    if any(hooks):
        raise ValueError(f"{where}it or its weight has a hook, which its replacement would lack; expected hooks registered after "
                         "remote(), on the module that it has put there, and none on the weight")
    for other, each in model.named_modules():
        if type(each) in (nn.Embedding, nn.EmbeddingBag) and other in chosen:
            if each.weight is module.weight and each.padding_idx != module.padding_idx:
                raise ValueError(f"{where}it has padding_idx = {module.padding_idx}, and module {other!r}, which shares its weight, "
                                 f"has {each.padding_idx}; expected the same, or weights of their own")
            continue
        if any(parameter is module.weight for parameter in each.parameters(recurse=False)):
            raise ValueError(f"{where}its weight is also a parameter of {other!r}, a {type(each).__name__}: expected a "
                             "weight of embeddings alone; untie them, or leave the module out by `only`")


def _described(
    model: nn.Module, chosen: Iterable[tuple[str, nn.Embedding | nn.EmbeddingBag]], optimizer: Settings | None,
    initializer: Settings | None, tables: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """By path: name, optimizer and initializer of the module's table."""
    of_collections, described = settings.initializers(model), {}
    for path, module in chosen:
        own = dict(tables.get(path, {}))
        if "optimizer" not in own:
            in_backward = settings.optimizer_of(module.weight, path)
            own["optimizer"] = optimizer if in_backward is None else in_backward
        if own.get("initializer", initializer) is None and id(module) in of_collections:
            own["initializer"] = of_collections[id(module)]()
        described[path] = {"name": path or "embedding", "initializer": initializer, **own}
    return described


def _table(
    client: Any, module: nn.Embedding | nn.EmbeddingBag, name: str, initializer: Settings | None, optimizer: Settings | None
) -> Any:
    normal = {"kind": "normal", "stddev": 1.0}
    try:
        return client.table(name, dim=module.embedding_dim, optimizer=optimizer,
                            initializer=normal if initializer is None else initializer)
    except tarn_client.InvalidArgument as error:
        raise tarn_client.InvalidArgument(error.code, f"tarn.torch.remote: {error}") from None
