"""Serialization of optimizer states.

States without an optimizer are written in the pickle format of MXNet. States with their optimizer are written as a
`.params` file whose array `header` is JSON with the structure. MXNet's pickles of both are read by an interpreter that
executes no code (`formats/pickled.py`). An optimizer is created from a registered class and plain values, never from
code in the file.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..base import MXNetError
from ..formats import pickled
from ..lr_scheduler import LRScheduler
from ..ndarray import NDArray, array
from ..ndarray.serialize import array_frombuffer, array_tobuffer, load_frombuffer, save_tobuffer
from .base import Optimizer
from .moment import Moment

_FORMAT = "neomx optimizer states 1"
_PICKLE = b"\x80"
_ERRORS = (AttributeError, TypeError, ValueError, LookupError, ArithmeticError, RecursionError)


def dumps(states: dict[Any, Any], optimizer: Optimizer | None) -> bytes:
    """Return states, and optionally their optimizer, as bytes. Without an optimizer, the format is MXNet's."""
    if optimizer is None:
        return pickled.write(_for_mxnet(states))
    return container(*pack(states, optimizer))


def container(content: Any, arrays: Mapping[str, NDArray]) -> bytes:
    """Return the result of `pack` as bytes for a file."""
    header = np.frombuffer(json.dumps(content).encode(), dtype=np.uint8)
    return save_tobuffer({"header": array(header, dtype="uint8"), **arrays})


def pack(states: dict[Any, Any], optimizer: Optimizer | None) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Return states and their optimizer as JSON values and named arrays, such as `states/3/0`: the first for weight 3.

    The names of the arrays of a weight do not depend on those of other weights.
    """
    arrays: dict[str, NDArray] = {}
    packed = _pack(states, arrays, "states"), _pack(optimizer, arrays, "optimizer")
    return {"format": _FORMAT, "states": packed[0], "optimizer": packed[1]}, arrays


def owners(content: Any) -> dict[str, Any]:
    """Return the index of the weight to which each array belongs, in the JSON values that `pack` returned.

    The values are not trusted. Arrays that belong to no weight are left out.
    """
    found: dict[str, Any] = {}
    try:
        tables = [content["states"], *(value for _, value in content["optimizer"]["has"]["dict"])]
        for table in tables:
            for index, value in table["dict"] if isinstance(table, dict) and "dict" in table else ():
                found.update(dict.fromkeys(_names_in(value), index))
    except _ERRORS as error:
        raise MXNetError(f"invalid optimizer states: {type(error).__name__}: {error!s:.200}") from error
    return found


def _names_in(value: Any) -> Iterator[str]:
    """Yield the names of all arrays in packed values."""
    if isinstance(value, dict) and isinstance(value.get("array"), str):
        yield value["array"]
    elif isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _names_in(each)


def only(content: Any, indices: Collection[Any]) -> Any:
    """Return the result of `pack` without the states of other weights than these."""
    states = content.get("states") if isinstance(content, dict) else None
    if not isinstance(states, dict) or not isinstance(states.get("dict"), list):
        raise MXNetError("invalid optimizer states: expected a dict of states")
    return {**content, "states": {"dict": [pair for pair in states["dict"] if pair[0] in indices]}}


def merge(contents: Sequence[Any]) -> Any:
    """Return the result of `pack` for all weights, from those of ranks that have the states of different weights."""
    merged = contents[0]
    for other in contents[1:]:
        merged = _merged(merged, other)
    return merged


def _merged(one: Any, other: Any) -> Any:
    """Return packed values with the entries of both dictionaries. For other values, the first."""
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return one
    if "dict" not in one or "dict" not in other:
        return {name: _merged(value, other.get(name, value)) for name, value in one.items()}
    keys = [json.dumps(key) for key, _ in one["dict"]]
    more = {json.dumps(key): (key, value) for key, value in other["dict"]}
    pairs = zip(keys, one["dict"], strict=True)
    both = [[key, _merged(value, more.pop(text, (key, value))[1])] for text, (key, value) in pairs]
    return {"dict": [*both, *map(list, more.values())]}


def unpack(content: Any, arrays: Mapping[str, NDArray]) -> tuple[dict[Any, Any], Optimizer | None]:
    """Return the states and the optimizer from the result of `pack`, which is not trusted."""
    try:
        if content["format"] != _FORMAT:
            raise MXNetError(f"unknown format of optimizer states: {content['format']!r:.80}, expected {_FORMAT!r}")
        states, optimizer = _unpack(content["states"], arrays), _unpack(content["optimizer"], arrays)
    except _ERRORS as error:
        raise MXNetError(f"invalid optimizer states: {type(error).__name__}: {error!s:.200}") from error
    return _checked(states, optimizer)


def loads(data: bytes) -> tuple[dict[Any, Any], Optimizer | None]:
    """Return the states and the optimizer from the bytes of `dumps` or of MXNet's `get_states`."""
    if not isinstance(data, (bytes, bytearray)):
        raise TypeError(f"optimizer states must be bytes from get_states, received {type(data).__name__}")
    if data[:1] == _PICKLE:
        states, optimizer = _from_mxnet(data)
    else:
        states, optimizer = _from_container(data)
    return _checked(states, optimizer)


def _checked(states: Any, optimizer: Any) -> tuple[dict[Any, Any], Optimizer | None]:
    if not isinstance(states, dict) or not isinstance(optimizer, (Optimizer, type(None))):
        raise MXNetError("invalid optimizer states: expected a dict of states, and optionally an optimizer")
    return states, optimizer


# ---- neomx's format ----


def _from_container(data: bytes) -> tuple[Any, Any]:
    try:
        arrays: Any = load_frombuffer(data)
    except MXNetError as error:
        raise MXNetError(f"invalid optimizer states: {error}") from None
    if not isinstance(arrays, dict) or "header" not in arrays:
        raise MXNetError(
            "invalid optimizer states: there is no array 'header'. Expected a file written by save_states, not a "
            "model's .params file"
        )
    try:
        content = json.loads(arrays["header"].asnumpy().tobytes())
    except _ERRORS as error:
        raise MXNetError(f"invalid optimizer states: {type(error).__name__}: {error!s:.200}") from error
    return unpack(content, arrays)


def _pack(value: Any, arrays: dict[str, NDArray], path: str) -> Any:
    """Convert a value to JSON. Other types become {kind: content}, and arrays their name in `arrays`."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Moment):  # as stored: rescaling it twice would change its bits
        return {"moment": _pack(NDArray(value._kept, value._ctx), arrays, path), "factor": value._factor}
    if isinstance(value, NDArray):
        name = path if path not in arrays else f"{path}#{len(arrays)}"  # of a key that occurs as a number and as text
        arrays[name] = value
        return {"array": name}
    if isinstance(value, list):
        return [_pack(each, arrays, f"{path}/{i}") for i, each in enumerate(value)]
    if isinstance(value, tuple):
        return {"tuple": [_pack(each, arrays, f"{path}/{i}") for i, each in enumerate(value)]}
    if isinstance(value, dict):
        pairs = [[_pack(key, arrays, path), _pack(each, arrays, f"{path}/{key}")] for key, each in value.items()]
        return {"dict": pairs}
    if isinstance(value, (Optimizer, LRScheduler)):
        kept = value.__getstate__() if isinstance(value, Optimizer) else vars(value)
        return {"object": type(value).__name__, "has": _pack(kept, arrays, path)}
    raise MXNetError(
        f"optimizer states cannot contain a {type(value).__name__}. Expected arrays, numbers, strings, tuples, lists, "
        "dicts, an Optimizer and an LRScheduler"
    )


def _unpack(value: Any, arrays: Mapping[str, NDArray]) -> Any:
    if isinstance(value, list):
        return [_unpack(each, arrays) for each in value]
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return arrays[value["array"]]
    if "moment" in value:
        return Moment.restored(_unpack(value["moment"], arrays), float(value["factor"]))
    if "tuple" in value:
        return tuple(_unpack(each, arrays) for each in value["tuple"])
    if "dict" in value:
        return {pickled.plain_key(_unpack(key, arrays)): _unpack(each, arrays) for key, each in value["dict"]}
    return _make(value["object"], _unpack(value["has"], arrays))


# ---- MXNet's format ----


def _from_mxnet(data: bytes) -> tuple[Any, Any]:
    try:
        content = _from_pickle(pickled.read(bytes(data)), {})
    except _ERRORS as error:
        raise MXNetError(f"invalid optimizer states: {type(error).__name__}: {error!s:.200}") from error
    return content if isinstance(content, tuple) and len(content) == 2 else (content, None)


def _for_mxnet(value: Any) -> Any:
    """Return a value with its arrays in the form that MXNet pickles."""
    if isinstance(value, Moment):  # the Moment itself is not changed
        value = NDArray(value._kept * value._factor, value._ctx)
    if isinstance(value, NDArray):
        module, name = ("sparse", type(value).__name__) if value._sparse else ("ndarray", "NDArray")
        state = {"handle": bytearray(array_tobuffer(value))}
        return pickled.Instance(pickled.Name(f"mxnet.ndarray.{module}", name), (None,), state)
    if isinstance(value, (list, tuple)):
        return type(value)(_for_mxnet(each) for each in value)
    if isinstance(value, dict):
        return {key: _for_mxnet(each) for key, each in value.items()}
    return value.item() if isinstance(value, np.generic) else value


def _from_pickle(value: Any, made: dict[int, Any]) -> Any:
    """Return a value with its arrays and objects, each created once. `made` maps ids of pickled instances to them."""
    if isinstance(value, (list, tuple)):
        return type(value)(_from_pickle(each, made) for each in value)
    if isinstance(value, dict):
        return {key: _from_pickle(each, made) for key, each in value.items()}
    if not isinstance(value, pickled.Instance):
        return value
    if id(value) not in made:
        made[id(value)] = _instance(value, made)
    return made[id(value)]


def _instance(value: pickled.Instance, made: dict[int, Any]) -> Any:
    if value.maker.name in ("NDArray", "RowSparseNDArray", "CSRNDArray", "ndarray"):
        handle = value.state.get("handle") if isinstance(value.state, dict) else None
        if not isinstance(handle, (bytes, bytearray)):
            raise MXNetError("a pickled array has no data")
        if id(handle) not in made:
            made[id(handle)] = array_frombuffer(handle)
        return made[id(handle)]
    return _make(value.maker.name, _from_pickle(value.state, made), value.maker.module)


def _make(name: str, has: Any, module: str = "") -> Any:
    """Create a registered optimizer, or a schedule of this program, with these attributes."""
    known: dict[str, Any] = {cls.__name__: cls for cls in (*Optimizer.opt_registry.values(), *_subclasses(LRScheduler))}
    if name not in known or not isinstance(has, dict) or not all(isinstance(key, str) for key in has):
        raise MXNetError(
            f"the states contain an object of class {f'{module}.{name}' if module else name!r}, which is not a known "
            "optimizer or schedule. None of its code was run. If the class is yours, register it with "
            "mx.optimizer.register before loading, or save the states without the optimizer. Otherwise the file may "
            "be malicious"
        )
    made = known[name].__new__(known[name])
    if isinstance(made, Optimizer):
        made.__setstate__({**vars(Optimizer()), **has})  # older versions wrote fewer attributes
    else:
        vars(made).update(has)
    return made


def _subclasses(cls: Any) -> Iterator[Any]:
    for each in cls.__subclasses__():
        yield each
        yield from _subclasses(each)
