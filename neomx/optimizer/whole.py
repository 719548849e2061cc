"""States of Parts to and from those of whole weights, which is what files hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..ndarray import NDArray
from .moment import Moment
from .part import Part

Gather = Callable[[torch.Tensor, Part], torch.Tensor]  # (this rank's part of a tensor, the weight) -> the whole tensor


def gather_states(states: Mapping[Any, Any], weights: Mapping[Any, Any], gather: Gather) -> dict[Any, Any]:
    """States, by index, as one process would have them; all ranks of the weights call it, `gather` is a collective."""
    return {index: _gathered(state, weights.get(index), gather) for index, state in states.items()}


def cut_states(states: Mapping[Any, Any], weights: Mapping[Any, Any]) -> dict[Any, Any]:
    """Whole states, by index, as this rank needs them for its Parts; what is cut already stays."""
    return {index: cut_state(state, weights.get(index)) for index, state in states.items()}


def _gathered(state: Any, weight: Any, gather: Gather) -> Any:
    if not isinstance(weight, Part):
        return state
    return _of_arrays(state, lambda array, data: NDArray(_whole(array, data, weight, gather), array._ctx))


def cut_state(state: Any, weight: Any) -> Any:
    """The state of one weight, cut if the weight is a Part."""
    return _of_arrays(state, lambda array, data: _cut(array, data, weight)) if isinstance(weight, Part) else state


def join_state(pieces: Sequence[Any], parts: Sequence[Part | None]) -> Any:
    """The state of a weight from the states of its Parts, which cut it along its first dimension and come in order."""
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
    """The pieces of an array of a state, one after the other; one of them where it is not cut as its weight is."""
    shared = None if parts[0] is None else _shared(array, data[0], parts[0])
    whole = NDArray(data[0] if shared is None or shared[0] else torch.cat(list(data)), array._ctx)
    return whole.tostype(array.stype)


def _of_arrays(state: Any, change: Callable[[NDArray, torch.Tensor], NDArray]) -> Any:
    """A state with its arrays changed; a moment's memory as it is kept."""
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
    """The whole of a state that is like its weight, or has one element for each row; any other as it is."""
    shared = _shared(array, data, weight)
    if shared is None:
        return data
    whole = gather(data.expand(weight.shape).contiguous(), weight)
    return whole[tuple(slice(0, 1) if one else slice(None) for one in shared)]


def _shared(array: NDArray, data: torch.Tensor, weight: Part) -> list[bool] | None:
    """Of which dimensions a state has one element for all of the weight's; None if it is not like the weight."""
    if data.dim() != weight.ndim or any(size not in (1, of) for size, of in zip(data.shape, weight.shape, strict=True)):
        return None
    if isinstance(array, Part):
        return [size != of for size, of in zip(array.whole_shape, weight.whole_shape, strict=True)]
    return [size != of for size, of in zip(data.shape, weight.shape, strict=True)]


def _cut(array: NDArray, data: torch.Tensor, weight: Part) -> NDArray:
    return NDArray(weight.cut(data).clone() if data.dim() == weight.ndim else data, array._ctx).tostype(array.stype)


def marked(state: Any, fresh: Any) -> Any:
    """A state with Parts where a fresh one has them: those that are not like their weight, even if of its shape."""
    if isinstance(fresh, Part):
        return fresh.same_part(state)
    if isinstance(fresh, (list, tuple)):
        return type(state)(marked(each, like) for each, like in zip(state, fresh, strict=True))
    return state


def by_row(data: torch.Tensor, weight: Part) -> Part:
    """A state with one element for each row of a weight, given for all rows, as a Part of its own."""
    split = (weight.split[0], weight.split[1] if weight.whole_shape[1] == 1 else slice(None))
    return Part(weight.cut(data).clone(), weight._ctx, tuple(data.shape), split, weight._total)
