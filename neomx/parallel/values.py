"""Serialization of values for other workers: arrays, tensors, numbers, strings, and lists, tuples and dicts of these.

A JSON description is followed by the memory of all arrays. Decoding only creates these types, and runs no code.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ..base import MXNetError
from ..context import cpu
from ..ndarray import NDArray

_LENGTH = 8  # bytes of the length of the JSON


def encode(value: Any) -> torch.Tensor:
    """Return the value as a row of bytes. Raises TypeError, with the location, for unsupported types."""
    memory: list[torch.Tensor] = []
    told = json.dumps(_told(value, memory, "")).encode()
    head = torch.frombuffer(bytearray(len(told).to_bytes(_LENGTH, "little") + told), dtype=torch.uint8)
    return torch.cat([head, *(tensor.cpu().contiguous().view(-1).view(torch.uint8) for tensor in memory)])


def decode(content: torch.Tensor) -> Any:
    """Return the value that was encoded. Arrays and tensors are on the CPU."""
    try:
        end = _LENGTH + int.from_bytes(content[:_LENGTH].numpy().tobytes(), "little")
        value, rest = _heard(json.loads(content[_LENGTH:end].numpy().tobytes()), content[end:])
        if len(rest):
            raise ValueError(f"{len(rest)} bytes too many")
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise MXNetError(f"expected a value that a worker encoded, received {len(content)} bytes: {error!r}") from None
    return value


def _told(value: Any, memory: list[torch.Tensor], place: str) -> Any:
    """Return the JSON of a value: itself, or [kind, ...]; the memory of arrays is added to `memory`."""
    if value is None or isinstance(value, (bool, str)) or type(value) in (int, float):
        return value
    if type(value) in (list, tuple):
        return [type(value).__name__, *(_told(each, memory, f"{place}[{i}]") for i, each in enumerate(value))]
    if type(value) is dict:
        pairs = ((key, each, f"{place}[{key!r}]") for key, each in value.items())
        return ["dict", *([_told(key, memory, place), _told(each, memory, at)] for key, each, at in pairs)]
    kind, tensor = _tensor_of(value, place)
    memory.append(tensor)
    return [kind, str(tensor.dtype).removeprefix("torch."), list(tensor.shape)]


def _tensor_of(value: Any, place: str) -> tuple[str, torch.Tensor]:
    if isinstance(value, NDArray):
        return "NDArray", value._data.detach()
    if isinstance(value, torch.Tensor):
        return "tensor", value.detach()
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufc":
        return type(value).__name__ if isinstance(value, np.ndarray) else "number", torch.from_numpy(np.array(value))
    raise TypeError(
        f"expected arrays, tensors, numbers, strings, None, or lists, tuples and dictionaries of these, received "
        f"{type(value).__name__}" + (f" at {place}" if place else "")
    )


def _heard(told: Any, rest: torch.Tensor) -> tuple[Any, torch.Tensor]:
    """Return the value that the JSON describes, with its memory taken from the front of `rest`, and what is left."""
    if not isinstance(told, list):
        return told, rest
    kind, *parts = told
    if kind in ("list", "tuple"):
        values = []
        for part in parts:
            value, rest = _heard(part, rest)
            values.append(value)
        return (values if kind == "list" else tuple(values)), rest
    if kind == "dict":
        made = {}
        for key, part in parts:
            key, rest = _heard(key, rest)
            made[key], rest = _heard(part, rest)
        return made, rest
    dtype_name, shape = parts
    return _array(kind, dtype_name, shape, rest)


def _array(kind: str, dtype_name: str, shape: list[int], rest: torch.Tensor) -> tuple[Any, torch.Tensor]:
    dtype = getattr(torch, dtype_name)
    size = math.prod(shape) * dtype.itemsize
    if len(rest) < size:
        raise ValueError(f"no array of {dtype_name} and shape {shape} in {len(rest)} bytes")
    tensor = torch.empty(shape, dtype=dtype)
    tensor.view(-1).view(torch.uint8).copy_(rest[:size])
    return _KINDS[kind](tensor), rest[size:]


_KINDS: dict[str, Callable[[torch.Tensor], Any]] = {
    "NDArray": lambda tensor: NDArray(tensor, cpu()),
    "tensor": lambda tensor: tensor,
    "ndarray": lambda tensor: tensor.numpy(),
    "number": lambda tensor: tensor.numpy()[()],
}
