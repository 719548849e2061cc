"""`mx.sym.to_static`: a Symbol of a Symbol, of a HybridBlock, or of a function on arrays."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from .. import autograd, symbol
from ..base import MXNetError, modes
from ..ndarray import NDArray
from ..ndarray.integers import nothing_like
from ..ndarray.invoke import in_graph
from ..ops.precision import set_stand_in
from ..symbol import Symbol
from ..symbol.history import traced_symbol
from .block import Block, HybridBlock, SymbolBlock
from .cached import joined
from .parameter import Parameter
from .structure import flatten

__all__ = ["to_static"]

Output = TypeVar("Output", Symbol, NDArray)


def to_static(x: Any, *inputs: Any) -> Symbol:
    """Return the graph of a Symbol (itself), of a HybridBlock or of a function.

    A HybridBlock is called with `inputs`, which are symbols or names, by default `data`, or `data0`, `data1` and so on
    for several inputs. Arrays stand for as many of these names. A function is called with them too, by default with
    variables named after its parameters. If it needs arrays, because it calls functions of `mx.nd`, pass arrays: it is
    recorded once on them, and their variables have the names of its parameters. Other arrays that it uses become
    variables, too: global and enclosing ones with their names, parameters of Blocks with the names of the parameters,
    and other arrays as `constant0`, `constant1` and so on.

    As in every trace, Python's branches and loops run once. Raises if they depend on the values of traced arrays.
    """
    if isinstance(x, Symbol):
        return x
    if isinstance(x, SymbolBlock) and not inputs:
        return joined(flatten(x._outputs)[0])
    if isinstance(x, HybridBlock):
        named = inputs and not any(isinstance(each, NDArray) for each in inputs)
        variables = [*map(_variable, inputs)] if named else _inputs_of(x, len(inputs))
        return _called(x, variables, type(x).__name__)
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
        found = function(*inputs)
    except Exception as error:
        raise MXNetError(
            f"to_static: {name} cannot be traced with symbols: {type(error).__name__}: {error}. {_remedy(function)}"
        ) from error
    return joined(_outputs(found, Symbol, name))


def _remedy(function: Any) -> str:
    if isinstance(function, HybridBlock):
        return "To choose by value, use F.where, F.contrib.cond or F.contrib.while_loop"
    return (
        "Pass example arrays, as in to_static(function, x), or compute only with operators, methods and mx.np. To "
        "choose by value, use mx.sym.where, mx.sym.contrib.cond or mx.sym.contrib.while_loop"
    )


def _outputs(found: Any, kind: type[Output], name: str) -> list[Output]:
    """Return the results of a call, in nested lists or tuples, as one list."""
    if isinstance(found, (list, tuple)):
        return [output for each in found for output in _outputs(each, kind, name)]
    if not isinstance(found, kind):
        raise MXNetError(f"to_static: {name} must return a {kind.__name__} or several, returned {type(found).__name__}")
    return [found]


def _recorded(function: Callable[..., Any], examples: Sequence[Any]) -> Symbol:
    """Return the graph of the ops that a function calls on arrays."""
    known_names = _parameters(function, with_defaults=True)
    names = [*known_names[: len(examples)], *(f"data{i}" for i in range(len(known_names), len(examples)))]
    arrays = [each.copy() if isinstance(each, NDArray) else each for each in examples]
    given = [(name, array) for name, array in zip(names, arrays, strict=True) if isinstance(array, NDArray)]
    for _, array in given:
        array.attach_grad()
        if in_graph(array.to_torch()) is None:  # integers, which have no gradient
            set_stand_in(array.to_torch(), nothing_like(array.to_torch()).requires_grad_())
    before, modes.tracing = modes.tracing, _name(function)
    try:
        with autograd.record():
            outputs = _outputs(function(*arrays), NDArray, _name(function))
    finally:
        modes.tracing = before
    return traced_symbol(outputs, given, _known_arrays(function))


def _known_arrays(function: Callable[..., Any]) -> list[tuple[str, NDArray]]:
    """Return the arrays that a function uses from elsewhere, with their names: its variables, parameters of Blocks."""
    found: dict[str, Any] = {"self": getattr(function, "__self__", function)}
    with contextlib.suppress(TypeError, ValueError):  # not a Python function, or with a variable that has no value yet
        closure = inspect.getclosurevars(function)
        found |= {**closure.globals, **closure.nonlocals}
    known = [(name, value) for name, value in found.items() if isinstance(value, NDArray)]
    blocks = [value for value in found.values() if isinstance(value, Block)]
    params = [param for block in blocks for param in block.collect_params().values()]
    params += [value for value in found.values() if isinstance(value, Parameter)]
    return known + [(param.name, array) for param in params for array in (param._arrays or {}).values()]


def _parameters(function: Callable[..., Any], with_defaults: bool = False) -> list[str]:
    """Return the names of a function's positional parameters, by default of those that a call must give."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise TypeError(f"to_static: {_name(function)} has no signature. Pass its inputs") from None
    return [each.name for each in found if each.kind in kinds and (with_defaults or each.default is each.empty)]


def _inputs_of(block: HybridBlock, count: int) -> list[Symbol]:
    """Return variables for `count` arguments, by default those that a call of `hybrid_forward` must give."""
    wanted = [name for name in _parameters(block.hybrid_forward)[1:] if name not in block._reg_params]
    count = count or max(1, len(wanted))
    return [symbol.var("data" if count == 1 else f"data{i}") for i in range(count)]


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", type(function).__name__)
