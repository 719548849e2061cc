"""`mx.nd.save` and `mx.nd.load`: save and load arrays in MXNet's `.params` format."""

from __future__ import annotations

import os
from typing import Any

from ..base import modes
from ..context import Context, num_gpus
from ..formats import params
from .ndarray import NDArray
from .sparse_array import BaseSparseNDArray, CSRNDArray, RowSparseNDArray


def save(fname: str, data: NDArray | list[NDArray] | dict[str, NDArray], *, np_shape: bool | None = None) -> None:
    """Write an array, a list of arrays, or a dict from names to arrays. The file is written atomically.

    `np_shape` selects the format that supports scalars and empty arrays. By default, it depends on the np_shape mode.
    """
    if isinstance(data, NDArray):
        data = [data]
    if isinstance(data, dict):
        names, arrays = list(data), list(data.values())
    elif isinstance(data, list):
        names, arrays = [], data
    else:
        raise ValueError(
            f"save: expected an NDArray, a list of them or a dict from names to them, received {type(data).__name__}"
        )
    for key, array in zip(names or range(len(arrays)), arrays, strict=True):
        if not isinstance(array, NDArray):
            raise TypeError(f"save: item {key!r} is a {type(array).__name__}, expected an NDArray")
        if names and not isinstance(key, str):
            raise TypeError(f"save: the names must be strings, received {key!r}")
    params.write(fname, [_record(array) for array in arrays], names, modes.np_shape if np_shape is None else np_shape)


def load(fname: str) -> list[NDArray] | dict[str, NDArray]:
    """Load the arrays of a file: a dict if they have names, otherwise a list."""
    if not isinstance(fname, (str, os.PathLike)):
        raise TypeError(f"load: fname must be a string, received {type(fname).__name__}")
    return _arrays(*params.read(fname))


def load_frombuffer(buf: bytes | str) -> list[NDArray] | dict[str, NDArray]:
    """Load arrays from the bytes of a file."""
    if isinstance(buf, str):
        buf = buf.encode()
    if not isinstance(buf, (bytes, bytearray, memoryview)):
        raise TypeError(f"load_frombuffer: buf must be bytes, received {type(buf).__name__}")
    return _arrays(*params.read(buf))


def save_tobuffer(data: dict[str, NDArray]) -> bytes:
    """Return named arrays as the bytes of a file, which `load_frombuffer` reads."""
    return params.encode([_record(array) for array in data.values()], list(data))


def array_frombuffer(buf: bytes | bytearray) -> NDArray:
    """Load a single array from bytes, as in MXNet's pickles."""
    return _array(params.read_array(buf))


def array_tobuffer(array: NDArray) -> bytes:
    """Return a single array as bytes, which `array_frombuffer` reads."""
    return params.encode_array(_record(array))


def _record(array: NDArray) -> params.Record:
    device = array.context.device_typeid, array.context.device_id
    if isinstance(array, BaseSparseNDArray):
        return params.Sparse(array.stype, array.shape, array._values, array._index_tensors(), device)
    return params.Dense(array._data, device)


def _arrays(records: list[params.Record], names: list[str]) -> Any:
    arrays = [_array(record) for record in records]
    return dict(zip(names, arrays, strict=True)) if names else arrays


def _array(record: params.Record) -> NDArray:
    """Return an array on the GPU that it was saved from, or on the CPU if there is no such GPU."""
    kind, number = record.device
    ctx = Context("gpu", number) if kind == 2 and 0 <= number < num_gpus() else Context("cpu", 0)
    data = record.data.to(ctx.device)
    if isinstance(record, params.Dense):
        return NDArray(data, ctx)
    indices = [index.to(ctx.device).long() for index in record.indices]
    if record.storage == "csr":
        return CSRNDArray((data, indices[1], indices[0]), record.shape, ctx)
    return RowSparseNDArray((data, indices[0]), record.shape, ctx)
