"""Symbols out of nothing, and functions that take symbols or numbers."""

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
    """A symbol to be given a value by name when it is bound. What is known of it beforehand is kept as attributes."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a variable must be a string, received {name!r}")
    for key, value in (attr or {}).items():
        if not isinstance(value, str):
            raise ValueError(f"attributes must be strings, received {key}={value!r}")
    for key in kwargs:
        if not (key.startswith("__") and key.endswith("__")):
            raise ValueError(f"unknown attribute {key!r}: names of one's own begin and end with two underscores")
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
    """One symbol with the outputs of several."""
    symbols = list(symbols) if isinstance(symbols, (list, tuple, Symbol)) else []
    if not symbols or not all(isinstance(symbol, Symbol) for symbol in symbols):
        raise TypeError("Group expects a list of symbols")
    return create_fn([entry for symbol in symbols for entry in symbol._outputs])


def _create(op_name: str, *inputs: Symbol, **kwargs: Any) -> Symbol:
    return create(OPS[op_name], op_name, inputs, kwargs, Symbol, kwargs.pop("name", None), kwargs.pop("attr", None))


def zeros(shape: Any, dtype: Any = None, **kwargs: Any) -> Symbol:
    """An array of zeros."""
    return _create("_zeros", shape=shape, dtype=dtype or np.float32, **kwargs)


def ones(shape: Any, dtype: Any = None, **kwargs: Any) -> Symbol:
    """An array of ones."""
    return _create("_ones", shape=shape, dtype=dtype or np.float32, **kwargs)


def full(shape: Any, val: float, dtype: Any = None, **kwargs: Any) -> Symbol:
    """An array filled with `val`."""
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
    """The numbers from `start` below `stop`, each `repeat` times; with one number given, from 0."""
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
    """`num` numbers from `start` to `stop`, evenly spaced."""
    return _create(
        "_linspace", start=start, stop=stop, num=num, endpoint=endpoint, name=name, dtype=dtype or np.float32
    )


def eye(N: int, M: int = 0, k: int = 0, dtype: Any = None, **kwargs: Any) -> Symbol:
    """N x M zeros with ones on the k-th diagonal."""
    return _create("_eye", N=N, M=M, k=k, dtype=dtype or np.float32, **kwargs)


def histogram(a: Symbol, bins: int | Symbol = 10, range: Any = None, **kwargs: Any) -> Symbol:
    """How many elements are in each bin, and the bins' edges."""
    if isinstance(bins, Symbol):
        return _create("_histogram", a, bins, **kwargs)
    if range is None:
        raise ValueError("a symbol's histogram needs range=(lowest, highest): its values are not known yet")
    return _create("_histogram", a, bin_cnt=bins, range=range, **kwargs)


def split_v2(ary: Symbol, indices_or_sections: Any, axis: int = 0, squeeze_axis: bool = False) -> Symbol:
    """Parts of `ary` along `axis`: so many, or beginning at these indices."""
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
    function.__doc__ = f"{doc}; each side a symbol or a number."
    return function


maximum = _function("maximum", "_Maximum", "_MaximumScalar", "_MaximumScalar", max, "The larger one")
minimum = _function("minimum", "_Minimum", "_MinimumScalar", "_MinimumScalar", min, "The smaller one")
hypot = _function("hypot", "_Hypot", "_HypotScalar", "_HypotScalar", math.hypot, "The square root of a * a + b * b")
_power = _function("power", "_Power", "_PowerScalar", "_RPowerScalar", operator.pow, "base to the exp")


def pow(base: Any, exp: Any) -> Any:
    """`base` to the `exp`; each side a symbol or a number."""
    return _power(base, exp)


power = pow
