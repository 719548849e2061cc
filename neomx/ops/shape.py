"""Ops that only move elements: reshape, transpose, slice, join, split, repeat."""

from __future__ import annotations

import math

import torch

from ..base import MXNetError
from .table import Shape, op

Tensor = torch.Tensor


def infer_reshape(shape: tuple[int, ...], codes: tuple[int, ...], reverse: bool = False) -> tuple[int, ...]:
    """The shape that reshape codes give.

    n > 0 is a length; 0 keeps the input's; -1 is what remains; -2 keeps all that follow; -3 joins two;
    -4 splits one into the next two codes. `reverse` reads shape and codes from the right.
    """
    if reverse:
        shape, codes = shape[::-1], codes[::-1]
    result: list[int] = []
    source = 0  # the input dimension that the next code speaks of
    unknown = -1  # where -1 stands in the result
    i = 0
    while i < len(codes):
        code = codes[i]
        i += 1
        if code > 0:
            result.append(code)
            source += 1
        elif code == 0:
            result.append(_dimension(shape, source, codes))
            source += 1
        elif code == -1:
            if unknown >= 0:
                raise MXNetError(f"shape {codes} has more than one -1")
            unknown = len(result)
            result.append(1)
            source += 1
        elif code == -2:
            result.extend(shape[source:])
            source = len(shape)
        elif code == -3:
            result.append(_dimension(shape, source, codes) * _dimension(shape, source + 1, codes))
            source += 2
        elif code == -4:
            if i + 2 > len(codes):
                raise MXNetError(f"shape {codes}: -4 must be followed by two lengths")
            result.extend(_split_in_two(_dimension(shape, source, codes), *codes[i : i + 2]))
            source += 1
            i += 2
        else:
            raise MXNetError(f"shape {codes}: {code} is not a reshape code (0, -1, -2, -3, -4)")
    total, known = math.prod(shape), math.prod(result)
    if unknown >= 0:
        if known == 0 or total % known:
            raise MXNetError(f"cannot reshape {shape} to {codes}: {total} elements do not divide by {known}")
        result[unknown] = total // known
    elif known != total:
        raise MXNetError(f"cannot reshape {shape} ({total} elements) to {codes} ({known} elements)")
    return tuple(result[::-1] if reverse else result)


def _dimension(shape: tuple[int, ...], axis: int, codes: tuple[int, ...]) -> int:
    if axis >= len(shape):
        raise MXNetError(f"shape {codes} speaks of dimension {axis} of an array with shape {shape}")
    return shape[axis]


def _split_in_two(length: int, first: int, second: int) -> tuple[int, int]:
    if first == -1 and second == -1:
        raise MXNetError("-4 must be followed by two lengths of which one is known")
    if first == -1:
        first = length // second
    if second == -1:
        second = length // first
    if first * second != length:
        raise MXNetError(f"-4 cannot split a dimension of {length} into {first} and {second}")
    return first, second


@op("Reshape", "reshape", may_alias=True)
def reshape(data: Tensor, *, shape: Shape = (), reverse: bool = False) -> Tensor:
    """The same elements in another shape; see the reshape codes in `infer_reshape`."""
    return data.reshape(infer_reshape(tuple(data.shape), shape, reverse))
