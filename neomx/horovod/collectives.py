"""Collective calls on arrays and objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..base import MXNetError
from ..ndarray import NDArray, array
from ..optimizer.states import dumps, loads
from .job import DTYPES, ELSE, SUMS, ProcessSet, global_process_set, is_alone, local_size, meet, rank

Average, Sum, Adasum, Min, Max, Product = "average", "sum", "adasum", "min", "max", "product"
_REDUCED_BY = {Average: "sum", Sum: "sum", Min: "min", Max: "max", Product: "prod"}


# ---- arrays ----


def tensor_of(value: Any, call: str) -> torch.Tensor:
    """Return the tensor of an array, or raise an error that names the function called."""
    if not isinstance(value, NDArray):
        raise TypeError(f"hvd.{call} expects an NDArray, received {type(value).__name__} {value!r:.80}")
    if value.stype != "default":
        raise MXNetError(f"hvd.{call} expects a dense array, received {value.stype}. Use tostype('default')")
    if value._data.dtype not in DTYPES:
        raise MXNetError(f"hvd.{call} does not support arrays of {value._data.dtype}")
    return value._data.detach()


def told(call: str, name: str | None) -> str:
    """A call as it is named in errors."""
    return f"{call} of {name}" if name else call


def _operation(average: bool | None, op: str | None) -> str:
    if average is not None and op is not None:
        raise ValueError(f"pass average= or op=, not both; received average={average!r} and op={op!r}")
    op = op or (Average if average is None or average else Sum)
    if op == Adasum:
        raise MXNetError("Adasum is not supported. Use hvd.Average or hvd.Sum")
    if op not in _REDUCED_BY:
        raise ValueError(f"op must be hvd.Average, Sum, Min, Max or Product, received {op!r}")
    return op


def _scaled(tensor: torch.Tensor, factor: float) -> torch.Tensor:
    """The tensor times the factor, in the same dtype. Integers are truncated."""
    if factor == 1:
        return tensor
    if tensor.is_floating_point():
        return tensor.mul_(factor)
    return tensor.double().mul_(factor).to(tensor.dtype)


def _reduced(
    tensors: Sequence[torch.Tensor], op: str, before: float, after: float, process_set: Any, name: str | None
) -> list[torch.Tensor]:
    """Reduce tensors into new ones, with one call per dtype."""
    of = [[i for i, tensor in enumerate(tensors) if tensor.dtype == dtype] for dtype in DTYPES]
    counts = [sum(tensors[i].numel() for i in places) for places in of]
    kind = SUMS if _REDUCED_BY[op] == "sum" else ELSE
    results = [torch.empty(0)] * len(tensors)
    with meet(told("allreduce", name), process_set, kind, counts) as (group, joined):
        after = after / group.size if op == Average else after
        for places in filter(None, of):
            flat = _scaled(torch.cat([tensors[i].reshape(-1) for i in places]), before)
            group.all_reduce_(flat, _REDUCED_BY[op], "" if joined else name or "")
            parts = _scaled(flat, after).split([tensors[i].numel() for i in places])
            for i, part in zip(places, parts, strict=True):
                results[i] = part.view(tensors[i].shape)
    return results


def grouped_allreduce(
    tensors: Sequence[NDArray],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet | None = None,
    op: str | None = None,
) -> list[NDArray]:
    """The average (or the sum, or `op`) of each array over the workers, in new arrays.

    Arrays are multiplied by `prescale_factor` before the reduction and by `postscale_factor` after it.
    """
    given = [tensor_of(each, "allreduce") for each in tensors]
    found = _reduced(given, _operation(average, op), prescale_factor, postscale_factor, process_set, name)
    return [NDArray(result, each._ctx) for result, each in zip(found, tensors, strict=True)]


def grouped_allreduce_(tensors: Sequence[NDArray], *args: Any, **kwargs: Any) -> list[NDArray]:
    """`grouped_allreduce`, written into the arrays."""
    for each, result in zip(tensors, grouped_allreduce(tensors, *args, **kwargs), strict=True):
        result.copyto(each)
    return list(tensors)


def allreduce(
    tensor: NDArray,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet | None = None,
    op: str | None = None,
) -> NDArray:
    """The average over the workers, in a new array. With `average=False` the sum, or the reduction `op`."""
    rest = (average, name, priority, prescale_factor, postscale_factor, process_set, op)
    return grouped_allreduce([tensor], *rest)[0]


def allreduce_(tensor: NDArray, *args: Any, **kwargs: Any) -> NDArray:
    """`allreduce`, written into the array."""
    allreduce(tensor, *args, **kwargs).copyto(tensor)
    return tensor


def grouped_reducescatter(
    tensors: Sequence[NDArray],
    op: str = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[NDArray]:
    """This worker's rows of the average (or sum) over the workers. The first workers may have one more row."""
    if op not in (Average, Sum):
        raise ValueError(f"op must be hvd.Average or hvd.Sum, received {op!r}")
    rest = (None, name, priority, prescale_factor, postscale_factor, process_set, op)
    members = process_set or global_process_set
    whole = grouped_allreduce(tensors, *rest)
    count, place = (1, 0) if is_alone() else (members.size(), members.rank())
    return [NDArray(each._data.tensor_split(count)[place].clone(), each._ctx) for each in whole]


def reducescatter(tensor: NDArray, *args: Any, **kwargs: Any) -> NDArray:
    """This worker's rows of the average (or sum) over the workers."""
    return grouped_reducescatter([tensor], *args, **kwargs)[0]


def allgather(
    tensor: NDArray, name: str | None = None, priority: int = 0, process_set: ProcessSet | None = None
) -> NDArray:
    """The arrays of all workers, concatenated in rank order. The first dimensions may differ."""
    values = tensor_of(tensor, "allgather")
    with meet(told("allgather", name), process_set, ELSE) as (group, _):
        return NDArray(torch.cat(group.all_gather(values, name or "")), tensor._ctx)


def grouped_allgather(
    tensors: Sequence[NDArray], name: str | None = None, priority: int = 0, process_set: ProcessSet | None = None
) -> list[NDArray]:
    """`allgather` of each array."""
    return [allgather(each, name, priority, process_set) for each in tensors]


def root_among(root_rank: int, members: ProcessSet) -> int:
    """Return the position of `root_rank` among the members of a process set."""
    if root_rank not in members.ranks:
        raise ValueError(f"root_rank must be one of the workers {members.ranks}, received {root_rank!r}")
    return 0 if is_alone() else members.ranks.index(root_rank)


def broadcast(
    tensor: NDArray,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet | None = None,
) -> NDArray:
    """The array of the worker `root_rank`, as a new array."""
    return broadcast_(tensor.detach().copy(), root_rank, name, priority, process_set)


def broadcast_(
    tensor: NDArray,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet | None = None,
) -> NDArray:
    """The array of the worker `root_rank`, written into the array."""
    values, root = tensor_of(tensor, "broadcast"), root_among(root_rank, process_set or global_process_set)
    with meet(told("broadcast", name), process_set, ELSE) as (group, _):
        group.broadcast_(values.data, root, name or "")
    return tensor


def alltoall(
    tensor: NDArray,
    splits: Any = None,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet | None = None,
) -> Any:
    """Send rows of the array to each worker and receive theirs: equal parts, or `splits[i]` rows to worker i.

    With `splits`, the result is a pair: the rows, and the number received from each worker.
    """
    values = tensor_of(tensor, "alltoall")
    rows = None if splits is None else np.asarray(splits.asnumpy() if isinstance(splits, NDArray) else splits).tolist()
    with meet(told("alltoall", name), process_set, ELSE) as (group, _):
        received, counts = group.all_to_all(values, rows, name or "")
    result = NDArray(received, tensor._ctx)
    return result if splits is None else (result, array(counts, dtype="int32"))


# ---- objects ----


def _gathered(tensor: torch.Tensor, what: str) -> list[torch.Tensor]:
    with meet(what, None, ELSE) as (group, _):
        return group.all_gather(tensor, what)


def _packed(value: Any) -> torch.Tensor:
    """A value as bytes, in JSON and plain arrays. Reading them executes no code."""
    try:
        return torch.frombuffer(bytearray(dumps({"object": value}, None)), dtype=torch.uint8)
    except MXNetError:
        raise TypeError(
            f"cannot send {value!r:.80}: expected numbers, strings, None, NDArrays, and lists, tuples and dicts of "
            "them. Convert a NumPy array with mx.nd.array"
        ) from None


def _unpacked(content: torch.Tensor) -> Any:
    return loads(content.numpy().tobytes())[0]["object"]


def broadcast_object(obj: Any, root_rank: int = 0, name: str | None = None) -> Any:
    """The object of the worker `root_rank`: numbers, strings, NDArrays, and lists, tuples and dicts of them."""
    root = root_among(root_rank, global_process_set)
    gives = rank() == root or is_alone()
    content = _packed(obj) if gives else torch.empty(0, dtype=torch.uint8)
    everyone = _gathered(content, told("broadcast_object", name))
    return obj if gives else _unpacked(everyone[root])


def allgather_object(obj: Any, name: str | None = None) -> list[Any]:
    """The objects of all workers, in rank order. `broadcast_object` lists the supported types."""
    return [_unpacked(each) for each in _gathered(_packed(obj), told("allgather_object", name))]


def is_homogeneous() -> bool:
    """Whether every host has the same number of workers."""
    return len({int(each) for each in _gathered(torch.tensor([local_size()]), "is_homogeneous")}) == 1
