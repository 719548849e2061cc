"""Functions that create symbols, and functions of symbols or numbers."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..dtype import FLAG_OF_TORCH, to_torch
from ..ops.table import OPS
from .build import create, scope_attrs, text_of
from .graph import Node
from .symbol import Symbol, combine

__all__ = [
    "Group",
    "Variable",
    "arange",
    "eye",
    "full",
    "histogram",
    "hypot",
    "linspace",
    "maximum",
    "minimum",
    "ones",
    "pow",
    "power",
    "split_v2",
    "var",
    "zeros",
]

_STORAGE = {"default": 0, "row_sparse": 1, "csr": 2}


def Variable(
    name: str,
    attr: dict[str, str] | None = None,
    shape: Any = None,
    lr_mult: Any = None,
    wd_mult: Any = None,
    dtype: Any = None,
    init: Any = None,
    stype: str | None = None,
    **kwargs: Any,
) -> Symbol:
    """Return a symbol whose value is bound by name. Its known properties, such as its shape, are kept as attributes."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a variable must be a string, received {name!r}")
    for key, value in (attr or {}).items():
        if not isinstance(value, str):
            raise ValueError(f"attributes must be strings, received {key}={value!r}")
    for key in kwargs:
        if not (key.startswith("__") and key.endswith("__")):
            raise ValueError(f"unknown attribute {key!r}: custom attributes must begin and end with two underscores")
    known = {
        "__shape__": shape,
        "__lr_mult__": lr_mult,
        "__wd_mult__": wd_mult,
        "__dtype__": None if dtype is None else FLAG_OF_TORCH[to_torch(dtype)],
        "__init__": init if init is None or isinstance(init, str) else init.dumps(),
        "__storage_type__": None if stype is None else _STORAGE[stype],
        **kwargs,
    }
    attrs = scope_attrs(attr)
    attrs.update({key: text_of(value) for key, value in known.items() if value is not None})
    return Symbol([(Node(None, name, attrs=attrs), 0)])


var = Variable


def Group(symbols: Sequence[Symbol], create_fn: Callable[..., Symbol] = Symbol) -> Symbol:
    """Return a symbol with the outputs of several symbols."""
    symbols = list(symbols) if isinstance(symbols, (list, tuple, Symbol)) else []
    if not symbols or not all(isinstance(symbol, Symbol) for symbol in symbols):
        raise TypeError("Group expects a list of symbols")
    return create_fn([entry for symbol in symbols for entry in symbol._outputs])


def _create(op_name: str, *inputs: Symbol, **kwargs: Any) -> Symbol:
    return create(OPS[op_name], op_name, inputs, kwargs, Symbol, kwargs.pop("name", None), kwargs.pop("attr", None))


def zeros(shape: Any, dtype: Any = None, **kwargs: Any) -> Symbol:
    """Return an array of zeros."""
    return _create("_zeros", shape=shape, dtype=dtype or np.float32, **kwargs)


def ones(shape: Any, dtype: Any = None, **kwargs: Any) -> Symbol:
    """Return an array of ones."""
    return _create("_ones", shape=shape, dtype=dtype or np.float32, **kwargs)


def full(shape: Any, val: float, dtype: Any = None, **kwargs: Any) -> Symbol:
    """Return an array filled with `val`."""
    return _create("_full", shape=shape, dtype=dtype or np.float32, value=float(val), **kwargs)


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1.0,
    repeat: int = 1,
    infer_range: bool = False,
    name: str | None = None,
    dtype: Any = None,
) -> Symbol:
    """Return values from [`start`, `stop`), each repeated `repeat` times. With one argument, start from 0."""
    return _create(
        "_arange",
        start=start,
        stop=stop,
        step=step,
        repeat=repeat,
        infer_range=infer_range,
        name=name,
        dtype=dtype or np.float32,
    )


def linspace(
    start: float, stop: float, num: int, endpoint: bool = True, name: str | None = None, dtype: Any = None
) -> Symbol:
    """Return `num` evenly spaced values from `start` to `stop`."""
    return _create(
        "_linspace", start=start, stop=stop, num=num, endpoint=endpoint, name=name, dtype=dtype or np.float32
    )


def eye(N: int, M: int = 0, k: int = 0, dtype: Any = None, **kwargs: Any) -> Symbol:
    """Return an N x M array of zeros with ones on the k-th diagonal."""
    return _create("_eye", N=N, M=M, k=k, dtype=dtype or np.float32, **kwargs)


def histogram(a: Symbol, bins: int | Symbol = 10, range: Any = None, **kwargs: Any) -> Symbol:
    """Return the number of elements in each bin, and the bin edges."""
    if isinstance(bins, Symbol):
        return _create("_histogram", a, bins, **kwargs)
    if range is None:
        raise ValueError("histogram of a symbol requires range=(lowest, highest), because its values are not known yet")
    return _create("_histogram", a, bin_cnt=bins, range=range, **kwargs)


def split_v2(ary: Symbol, indices_or_sections: Any, axis: int = 0, squeeze_axis: bool = False) -> Symbol:
    """Split `ary` along `axis` into a number of equal sections, or at the given indices."""
    indices, sections = [], 0
    if isinstance(indices_or_sections, (int, np.integer)):
        sections = int(indices_or_sections)
    elif isinstance(indices_or_sections, (tuple, list, set)):
        indices = [0, *indices_or_sections]
    else:
        raise ValueError(f"indices_or_sections must be an int or a tuple of ints, received {indices_or_sections!r}")
    return _create("_split_v2", ary, indices=indices, axis=axis, squeeze_axis=squeeze_axis, sections=sections)


def _function(name: str, symbol_op: str, scalar_op: str, reverse_op: str, python: Callable[..., Any], doc: str) -> Any:
    def function(left: Any, right: Any) -> Any:
        if isinstance(left, Symbol):
            return combine(left, right, symbol_op, scalar_op)
        if isinstance(right, Symbol):
            return combine(right, left, symbol_op, reverse_op)
        return python(left, right)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{doc}. Each argument is a symbol or a number."
    return function


maximum = _function("maximum", "_Maximum", "_MaximumScalar", "_MaximumScalar", max, "Elementwise maximum")
minimum = _function("minimum", "_Minimum", "_MinimumScalar", "_MinimumScalar", min, "Elementwise minimum")
hypot = _function("hypot", "_Hypot", "_HypotScalar", "_HypotScalar", math.hypot, "Elementwise hypotenuse")
_power = _function("power", "_Power", "_PowerScalar", "_RPowerScalar", operator.pow, "Elementwise power")


def pow(base: Any, exp: Any) -> Any:
    """Elementwise `base` raised to the power `exp`. Each argument is a symbol or a number."""
    return _power(base, exp)


power = pow
