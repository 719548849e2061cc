"""`mx.sym.to_static`: a Symbol of a Symbol, of a HybridBlock, or of a function on arrays."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from .. import autograd, symbol
from ..base import MXNetError
from ..ndarray import NDArray
from ..symbol import Symbol
from .block import HybridBlock, SymbolBlock
from .cached import joined
from .structure import flatten

__all__ = ["to_static"]


def to_static(x: Any, *inputs: Any) -> Symbol:
    """Return the graph of a Symbol (itself), of a HybridBlock or of a function.

    A HybridBlock is called with `inputs`, which are symbols or names, by default `data`, or `data0`, `data1` and so on
    for several inputs. A function is called with them too, by default with variables named after its parameters. If it
    needs arrays, because it calls functions of `mx.nd`, pass arrays: it is recorded once on them, and their variables
    have the names of its parameters. Other arrays that it uses become variables `null0`, ... then. As in every trace,
    Python's branches and loops run once.
    """
    if isinstance(x, Symbol):
        return x
    if isinstance(x, SymbolBlock) and not inputs:
        return joined(flatten(x._outputs)[0])
    if isinstance(x, HybridBlock):
        return _called(x, [*map(_variable, inputs)] or _inputs_of(x), type(x).__name__)
    if not callable(x):
        raise TypeError(f"to_static expects a Symbol, a HybridBlock or a function, received {type(x).__name__}")
    if any(isinstance(each, NDArray) for each in inputs):
        return _recorded(x, inputs)
    return _called(x, [*map(_variable, inputs)] or [symbol.var(name) for name in _parameters(x)], _name(x))


def _variable(given: Any) -> Symbol:
    if isinstance(given, (Symbol, str)):
        return symbol.var(given) if isinstance(given, str) else given
    raise TypeError(f"inputs must be Symbols or names, or all arrays, received {type(given).__name__}")


def _called(function: Callable[..., Any], inputs: Sequence[Symbol], name: str) -> Symbol:
    """Return the result of a call on symbols."""
    try:
        outputs = flatten(function(*inputs))[0]
    except Exception as error:
        raise MXNetError(
            f"to_static: {name} cannot be traced with symbols: {type(error).__name__}: {error}. Pass example arrays, "
            "as in to_static(function, x), or compute only with operators, methods and mx.np"
        ) from error
    return joined([_checked(each, name) for each in outputs])


def _checked(output: Any, name: str) -> Symbol:
    if not isinstance(output, Symbol):
        raise MXNetError(f"to_static: {name} returned {type(output).__name__} for symbols, expected a Symbol")
    return output


def _recorded(function: Callable[..., Any], examples: Sequence[Any]) -> Symbol:
    """Return the graph of the ops that a function calls on arrays."""
    known_names = _parameters(function, with_defaults=True)
    names = [*known_names[: len(examples)], *(f"data{i}" for i in range(len(known_names), len(examples)))]
    arrays = [each.copy() if isinstance(each, NDArray) else each for each in examples]
    given = [(name, array) for name, array in zip(names, arrays, strict=True) if isinstance(array, NDArray)]
    for _, array in given:
        array.attach_grad()
    with autograd.record():
        outputs = flatten(function(*arrays))[0]
    graph = joined([autograd.get_symbol(each) for each in outputs])
    variables = {autograd.get_symbol(array).name: symbol.var(name) for name, array in given}
    known = set(graph.list_inputs())
    return graph(**{old: new for old, new in variables.items() if old in known})


def _parameters(function: Callable[..., Any], with_defaults: bool = False) -> list[str]:
    """Return the names of a function's positional parameters, by default of those that a call must give."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise TypeError(f"to_static: {_name(function)} has no signature. Pass its inputs") from None
    return [each.name for each in found if each.kind in kinds and (with_defaults or each.default is each.empty)]


def _inputs_of(block: HybridBlock) -> list[Symbol]:
    """Return variables for the required arguments of `hybrid_forward` that are not parameters of the Block."""
    wanted = [name for name in _parameters(block.hybrid_forward)[1:] if name not in block._reg_params]
    names = ["data"] if len(wanted) <= 1 else [f"data{i}" for i in range(len(wanted))]
    return [symbol.var(name) for name in names]


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", type(function).__name__)
