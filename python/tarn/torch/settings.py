"""Optimizers and initializers of torch and TorchRec as settings of tables. Internal to tarn.torch."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from tarn.client import Settings

# Name of an optimizer's argument -> name of the table's setting.
_SAME = {"lr": "learning_rate", "weight_decay": "l2", "eps": "epsilon"}
_ADAGRAD = {**_SAME, "initial_accumulator_value": "initial_accumulator"}
_ADAM = {**_SAME, "beta1": "beta1", "beta2": "beta2"}
_RULES: dict[str, tuple[str, dict[str, str]]] = {  # by the name of the class in torch.optim or torchrec.optim
    "SGD": ("sgd", {"lr": "learning_rate", "weight_decay": "l2"}),
    "Adagrad": ("adagrad", _ADAGRAD),
    "RowWiseAdagrad": ("row_wise_adagrad", _ADAGRAD),
    "RMSprop": ("rmsprop", {**_SAME, "alpha": "rho"}),
    "Adam": ("adam", _ADAM),
    "AdamW": ("adamw", {**_ADAM, "weight_decay": "weight_decay"}),
}
_WITHOUT_EFFECT = {"foreach", "fused", "capturable", "differentiable", "params"}  # on the values of the rows


def optimizer_of(weight: torch.Tensor, path: str) -> Settings | None:
    """The optimizer that apply_optimizer_in_backward gave to this weight, as settings of its table; None: it has none.

    ValueError: two optimizers, or one that no update rule of a server equals.
    """
    classes = getattr(weight, "_optimizer_classes", [])
    if not classes:
        return None
    if len(classes) > 1:
        names = [each.__name__ for each in classes]
        raise ValueError(f"tarn.torch.remote: module {path!r}: apply_optimizer_in_backward gave its weight the "
                         f"optimizers {names}, expected one optimizer for each table")
    return _rule(classes[0], weight._optimizer_kwargs[0], path)  # type: ignore[attr-defined]


def _rule(kind: type[torch.optim.Optimizer], given: Mapping[str, Any], path: str) -> Settings:
    where = f"tarn.torch.remote: module {path!r}: "
    known = _RULES.get(kind.__name__)
    if known is None or kind.__module__.split(".")[0] not in ("torch", "torchrec"):
        name = f"{kind.__module__}.{kind.__qualname__}"
        raise ValueError(f"{where}no update rule of a table equals the optimizer {name}; "
                         f"expected one of {sorted(_RULES)}, or tables={{{path!r}: {{'optimizer': ...}}}}")
    rule, names = known
    defaults = {name: each.default for name, each in inspect.signature(kind).parameters.items()
                if each.default is not inspect.Parameter.empty}
    arguments = {**defaults, **given}
    if "learning_rate" in arguments:  # as fbgemm names it
        arguments["lr"] = arguments.pop("learning_rate")
    if "lr" not in arguments:
        raise ValueError(f"{where}the optimizer {kind.__name__} has no learning rate, expected lr=")
    if "betas" in arguments:
        arguments["beta1"], arguments["beta2"] = arguments.pop("betas")
    if rule == "sgd" and (momentum := arguments.pop("momentum", 0)):
        rule = "nesterov" if arguments.pop("nesterov", False) else "momentum"
        names = {**names, "momentum": "momentum"}
        arguments["momentum"] = momentum
    settings: dict[str, Any] = {"kind": rule}
    for name, value in arguments.items():
        if name in names:
            settings[names[name]] = float(value)
        elif name not in _WITHOUT_EFFECT and value != defaults.get(name, False):
            raise ValueError(f"{where}{name} = {value!r} of the optimizer {kind.__name__} is not supported, expected "
                             f"{defaults.get(name, False)!r}")
    return settings


def initializers(model: nn.Module) -> dict[int, Callable[[], Settings]]:
    """By the id of each module in a collection of TorchRec: returns the initializer of its table. That raises
    ValueError if `init_fn` of the configuration cannot be converted."""
    if (torchrec := sys.modules.get("torchrec.modules.embedding_modules")) is None:
        return {}
    found: dict[int, Callable[[], Settings]] = {}
    for path, module in model.named_modules():
        if isinstance(module, torchrec.EmbeddingBagCollection):
            children, configs = module.embedding_bags, module.embedding_bag_configs()
        elif isinstance(module, torchrec.EmbeddingCollection):
            children, configs = module.embeddings, module.embedding_configs()
        else:
            continue
        for config in configs:
            found[id(children[config.name])] = functools.partial(_initializer, config, path)
    return found


def _initializer(config: Any, path: str) -> Settings:
    """The initializer of a torchrec BaseEmbeddingConfig, whose init_fn is a function of a weight, perhaps a partial."""
    function, arguments = config.init_fn, {}
    if isinstance(function, functools.partial):
        bound = inspect.signature(function.func).bind_partial(None, *function.args, **function.keywords)
        bound.apply_defaults()
        function, arguments = function.func, bound.arguments
    elif function in (nn.init.uniform_, nn.init.normal_):
        arguments = {"a": 0.0, "b": 1.0, "mean": 0.0, "std": 1.0}
    if function is nn.init.uniform_ and arguments["a"] < arguments["b"]:
        return {"kind": "uniform", "low": float(arguments["a"]), "high": float(arguments["b"])}
    if function is nn.init.normal_:
        return {"kind": "normal", "mean": float(arguments["mean"]), "stddev": float(arguments["std"])}
    if function is nn.init.constant_ and "val" in arguments:
        return {"kind": "constant", "value": float(arguments["val"])}
    if function is nn.init.zeros_:
        return "zero"
    if function is nn.init.ones_:
        return {"kind": "constant", "value": 1.0}
    raise ValueError(f"tarn.torch.remote: table {config.name!r} of {path!r}: init_fn = {config.init_fn!r} cannot run on "
                     "the servers, expected uniform_, normal_, constant_, zeros_ or ones_ of torch.nn.init (with "
                     "functools.partial), or initializer=")
