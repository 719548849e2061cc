"""Conversion of the states of Parts to and from those of whole weights, which are stored in files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..ndarray import NDArray
from .moment import Moment
from .part import Part

Gather = Callable[[torch.Tensor, Part], torch.Tensor]  # (this rank's part of a tensor, the weight) -> the whole tensor


def gather_states(states: Mapping[Any, Any], weights: Mapping[Any, Any], gather: Gather) -> dict[Any, Any]:
    """Return the states of whole weights by index. All ranks of the weights must call it: `gather` is a collective."""
    return {index: _gathered(state, weights.get(index), gather) for index, state in states.items()}


def cut_states(states: Mapping[Any, Any], weights: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the states of this rank's Parts from those of whole weights, by index. Split states are unchanged."""
    return {index: cut_state(state, weights.get(index)) for index, state in states.items()}


def _gathered(state: Any, weight: Any, gather: Gather) -> Any:
    if not isinstance(weight, Part):
        return state
    return _of_arrays(state, lambda array, data: NDArray(_whole(array, data, weight, gather), array._ctx))


def cut_state(state: Any, weight: Any) -> Any:
    """Return the state of one weight, split if the weight is a Part."""
    return _of_arrays(state, lambda array, data: _cut(array, data, weight)) if isinstance(weight, Part) else state


def as_part(array: NDArray, weight: Any) -> NDArray:
    """Return an array of the state of a weight as a Part, if it is split like the weight."""
    if isinstance(array, Part) or not isinstance(weight, Part) or array._sparse:
        return array
    shared = _shared(array, array._data, weight)
    if shared is None or all(shared):
        return array
    split = [slice(None) if one else cut for one, cut in zip(shared, weight.split, strict=True)]
    whole = [1 if one else size for one, size in zip(shared, weight.whole_shape, strict=True)]
    return Part(array._data, array._ctx, whole, split, weight._total)


def join_state(pieces: Sequence[Any], parts: Sequence[Part | None]) -> Any:
    """Join the states of the Parts of a weight, which is split along its first dimension, in order."""
    first = pieces[0]
    if len(pieces) == 1:
        return first
    if isinstance(first, (list, tuple)):
        return type(first)(join_state(each, parts) for each in zip(*pieces, strict=True))
    if isinstance(first, Moment) and len({piece._factor for piece in pieces}) == 1:
        return Moment.restored(_joined(first, [piece._kept for piece in pieces], parts), first._factor)
    if isinstance(first, NDArray):
        return _joined(first, [piece.tostype("default")._data for piece in pieces], parts)
    return first


def _joined(array: NDArray, data: Sequence[torch.Tensor], parts: Sequence[Part | None]) -> NDArray:
    """Concatenate the pieces of an array of a state, or return the first if it is not split like its weight."""
    shared = None if parts[0] is None else _shared(array, data[0], parts[0])
    whole = NDArray(data[0] if shared is None or shared[0] else torch.cat(list(data)), array._ctx)
    return whole.tostype(array.stype)


def _of_arrays(state: Any, change: Callable[[NDArray, torch.Tensor], NDArray]) -> Any:
    """Return a state with `change` applied to its arrays. A Moment is changed in its stored form."""
    if isinstance(state, Moment):
        return Moment.restored(change(state, state._kept), state._factor)
    if isinstance(state, NDArray):
        return change(state, state.tostype("default")._data)
    if isinstance(state, dict):
        return {key: _of_arrays(each, change) for key, each in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(_of_arrays(each, change) for each in state)
    return state


def _whole(array: NDArray, data: torch.Tensor, weight: Part, gather: Gather) -> torch.Tensor:
    """Gather a state that has the shape of its weight, or one element per row. Others are returned unchanged."""
    shared = _shared(array, data, weight)
    if shared is None:
        return data
    whole = gather(data.expand(weight.shape).contiguous(), weight)
    return whole[tuple(slice(0, 1) if one else slice(None) for one in shared)]


def _shared(array: NDArray, data: torch.Tensor, weight: Part) -> list[bool] | None:
    """Return in which dimensions a state has size 1 but its weight does not, or None if the shapes do not match."""
    if data.dim() != weight.ndim or any(size not in (1, of) for size, of in zip(data.shape, weight.shape, strict=True)):
        return None
    if isinstance(array, Part):
        return [size != of for size, of in zip(array.whole_shape, weight.whole_shape, strict=True)]
    return [size != of for size, of in zip(data.shape, weight.shape, strict=True)]


def _cut(array: NDArray, data: torch.Tensor, weight: Part) -> NDArray:
    return NDArray(weight.cut(data).clone() if data.dim() == weight.ndim else data, array._ctx).tostype(array.stype)


def marked(state: Any, fresh: Any) -> Any:
    """Return a state with Parts where a new state has them: arrays that are not split like their weight."""
    if isinstance(fresh, Part):
        return fresh.same_part(state)
    if isinstance(fresh, (list, tuple)):
        return type(state)(marked(each, like) for each, like in zip(state, fresh, strict=True))
    return state


def by_row(data: torch.Tensor, weight: Part) -> Part:
    """Return a state with one element for each row of a weight, given for all rows, as a separate Part."""
    split = (weight.split[0], weight.split[1] if weight.whole_shape[1] == 1 else slice(None))
    return Part(weight.cut(data).clone(), weight._ctx, tuple(data.shape), split, weight._total)
