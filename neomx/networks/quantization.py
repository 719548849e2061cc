"""Quantization by a scale that is found from the data, with any number of bits up to 8."""

from __future__ import annotations

from ..symbol import Symbol
from .common import check_symbols, finished, named, sym

BITS = range(2, 9)


def quantize(data: Symbol, bit: int = 8, dtype: str = "int8", name: str | None = None) -> Symbol:
    """Return a group of integers and their scale: data is about integers * scale.

    With `bit` bits, the integers are between -n and n for n = 2 ** (bit - 1) - 1. The scale is max |data| / n, with as
    many dimensions as the data. With `dtype="float32"`, gradients pass through rounding unchanged, for training.
    """
    check_symbols("quantize", data=data)
    if isinstance(bit, bool) or bit not in BITS:
        raise ValueError(f"quantize: bit must be an integer from {BITS[0]} to {BITS[-1]}, received {bit!r}")
    if dtype not in ("int8", "float32"):
        raise ValueError(f"quantize: dtype must be 'int8' or 'float32', received {dtype!r}")
    with named(name, "quantize"):
        highest = sym.BlockGrad(sym.max(sym.abs(data), keepdims=True))
        scale = sym.maximum(highest / (2 ** (bit - 1) - 1), 1e-30)  # not 0 for data of zeros
        levels = sym.contrib.round_ste(sym.broadcast_div(data, scale))
        return sym.Group([levels if dtype == "float32" else sym.cast(levels, dtype=dtype), scale])


def dequantize(data: Symbol, scale: Symbol | None = None, name: str | None = None) -> Symbol:
    """Return the numbers that quantized integers represent. `data` is the result of `quantize`, or its first output."""
    if scale is None and isinstance(data, Symbol) and len(data) == 2:
        data, scale = data
    if scale is None:
        raise ValueError("dequantize: expected the result of quantize, or its two outputs: dequantize(data, scale)")
    check_symbols("dequantize", data=data, scale=scale)
    with named(name, "dequantize") as whole:
        return finished(sym.broadcast_mul(sym.cast(data, dtype="float32"), scale), whole)
