"""Parameters and results of neomx's functions and classes, and strings that name registered classes."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
from collections.abc import Iterator, Mapping
from types import FunctionType
from typing import Any

from .package import OPAQUE, Value, is_ours, source


@dataclasses.dataclass(frozen=True)
class Signature:
    """The keywords that a call accepts."""

    positional: tuple[str, ...] = ()
    keywords: frozenset[str] = frozenset()
    pattern: str = "(?!)"  # further keywords that it accepts
    ignores: bool = False  # whether it ignores all other keywords, with a warning

    def takes(self, keyword: str) -> bool:
        """Return whether a keyword is accepted."""
        return keyword in self.keywords or re.fullmatch(self.pattern, keyword) is not None


ANYTHING = r".*"


def row_of(value: Value) -> Any:
    """Return the row of the op table from which a function was made, or None."""
    from ..ops.table import Op

    row = None if value.made else getattr(value.thing, "op", None)
    return row if isinstance(row, Op) else None


def signature(value: Value) -> Signature:
    """Return the signature of a function, a method or a class."""
    row = row_of(value)
    if row is not None:
        return _of_op(row, value.thing.__module__)
    try:
        if value.made or not callable(value.thing):
            return Signature(pattern=ANYTHING)
        if isinstance(value.thing, type):
            return _of_class(value.thing)
        return _of_function(value.thing, value.owner)
    except (TypeError, ValueError):  # it has no signature
        return Signature(pattern=ANYTHING)


def _of_op(row: Any, module: str) -> Signature:
    from ..symbol.graph import ANNOTATIONS

    if row.takes_any or not row.checks_names or callable(row.takes):
        return Signature(pattern=ANYTHING)
    keywords = {*row.attrs, "name", "out"}
    if module.startswith("neomx.symbol"):
        keywords |= {"attr", *ANNOTATIONS}
    if row.variadic:
        return Signature((), frozenset(keywords), r"__\w+__|arg\d+")
    return Signature((*row.inputs, *row.attr_order), frozenset({*keywords, *row.inputs}), r"__\w+__")


def _of_class(cls: type) -> Signature:
    declared = vars(cls).get("__signature__")
    if declared is not None:  # an iterator that reads files
        return Signature((), frozenset(declared.parameters), ignores=True)
    made, init = inspect.signature(cls), cls.__init__  # type: ignore[misc]
    if isinstance(init, FunctionType) and [*made.parameters] == [*inspect.signature(init).parameters][1:]:
        return _of_function(init, cls)
    return _plain(made)


def _plain(given: inspect.Signature) -> Signature:
    parameters = given.parameters.values()
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    any_other = any(p.kind is p.VAR_KEYWORD for p in parameters)
    return Signature(tuple(positional), frozenset(named), ANYTHING if any_other else "(?!)")


def _of_function(function: Any, owner: type | None, depth: int = 0) -> Signature:
    """Return the signature of a function. Keywords that it forwards as **kwargs are looked up in the receiver."""
    own = _plain(inspect.signature(function))
    is_static = owner is not None and isinstance(inspect.getattr_static(owner, function.__name__, None), staticmethod)
    if owner is not None and isinstance(function, FunctionType) and not is_static:
        own = dataclasses.replace(own, positional=own.positional[1:])
    if own.pattern != ANYTHING or depth > 8:
        return own
    receivers = list(_receivers(inspect.unwrap(function), owner))
    if not receivers or None in receivers:
        return own
    theirs = [_of_function(*receiver, depth + 1) for receiver in receivers if receiver is not None]
    keywords = own.keywords.union(*(each.keywords for each in theirs))
    return Signature(own.positional, keywords, "|".join({each.pattern for each in theirs}))


def _receivers(function: Any, owner: type | None) -> Iterator[tuple[Any, type | None] | None]:
    """Yield the functions that receive a function's **kwargs, each with its class; None for other uses of **kwargs."""
    variable = next(p.name for p in inspect.signature(function).parameters.values() if p.kind is p.VAR_KEYWORD)
    tree = source(function)
    nodes = list(ast.walk(tree)) if tree else []
    passed = [
        node.func
        for node in nodes
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg is None and isinstance(keyword.value, ast.Name) and keyword.value.id == variable
    ]
    if sum(isinstance(node, ast.Name) and node.id == variable for node in nodes) != len(passed):
        yield None
    for called in passed:
        yield _called(called, function, owner)


def _called(called: ast.expr, function: Any, owner: type | None) -> tuple[Any, type | None] | None:
    first, *rest = ast.unparse(called).split(".")
    if first == "super()" and rest == ["__init__"] and owner is not None:
        order = list(owner.__mro__)
        definer = next((cls for cls in order if vars(cls).get("__init__") is function), None)
        for cls in order[order.index(definer) + 1 :] if definer else ():
            if isinstance(init := vars(cls).get("__init__"), FunctionType):
                return init, owner
        return None
    thing = function.__globals__.get(first)
    for part in rest:
        thing = getattr(thing, part, None)
    if isinstance(thing, type) and isinstance(thing.__init__, FunctionType):  # type: ignore[misc]
        return thing.__init__, thing  # type: ignore[misc]
    return (thing, None) if isinstance(thing, FunctionType) and not hasattr(thing, "op") else None


def result(value: Value) -> Value | None:
    """Return the object that a call returns; None if its class is unknown."""
    if value.made or value.thing is OPAQUE or not is_ours(value.path):
        return None
    if isinstance(value.thing, type):
        return Value(value.path, value.thing, made=True)
    row = row_of(value)
    if row is not None:
        array = "symbol.Symbol" if value.thing.__module__.startswith("neomx.symbol") else "ndarray.NDArray"
        return _array(array) if row.outputs == 1 and row.visible in (None, 1) else None
    function = inspect.unwrap(value.thing) if callable(value.thing) else None
    annotation = getattr(function, "__annotations__", {}).get("return")
    cls = getattr(function, "__globals__", {}).get(annotation) if isinstance(annotation, str) else annotation
    if not isinstance(cls, type) or not cls.__module__.startswith("neomx"):
        return None
    arrays = [_array(path) for path in ("ndarray.NDArray", "symbol.Symbol")]
    return next((array for array in arrays if array.thing is cls), Value(cls.__name__, cls, made=True, sure=False))


def _array(path: str) -> Value:
    module, _, name = path.partition(".")
    return Value(f"mxnet.{path}", getattr(importlib.import_module(f"neomx.{module}"), name), made=True)


# ---- strings that name registered classes ----

# Parameter names, in any function, whose string arguments name a class of this kind.
_PARAMETERS = {
    **dict.fromkeys(("optimizer",), "optimizer"),
    **dict.fromkeys(("eval_metric", "metric", "validation_metric"), "metric"),
    **dict.fromkeys(("init", "initializer"), "initializer"),
    **dict.fromkeys(("kvstore",), "kvstore"),
    **dict.fromkeys(("activation",), "activation"),
}
# Functions that create an object from a name.
_FACTORIES = {
    "optimizer": ("neomx.optimizer", "create"),
    "kvstore": ("neomx.kvstore", "create"),
    "network": ("neomx.gluon.model_zoo.vision", "get_model"),
}


def kind_of(value: Value, parameter: str) -> str | None:
    """Return the kind of class that a string argument of this parameter names: an optimizer, a metric, ..."""
    if parameter in _PARAMETERS:
        return _PARAMETERS[parameter]
    if parameter.endswith("_initializer"):
        return "initializer"
    for kind, (module, function) in _FACTORIES.items():
        if parameter == "name" and value.thing is getattr(importlib.import_module(module), function):
            return kind
    return None


def registered(kind: str) -> Mapping[str, Any]:
    """Return {name: class} of a kind: the valid strings."""
    if kind == "optimizer":
        from ..optimizer import Optimizer

        return Optimizer.opt_registry
    if kind == "activation":
        return dict.fromkeys(("relu", "sigmoid", "softrelu", "softsign", "tanh"))
    if kind == "kvstore":
        from ..kvstore import names

        return dict.fromkeys(names())
    if kind == "network":
        from ..gluon.model_zoo.vision import MODELS

        return MODELS
    from ..initializer import Initializer
    from ..metric import EvalMetric
    from ..registry import get_registry

    return get_registry(EvalMetric if kind == "metric" else Initializer)
