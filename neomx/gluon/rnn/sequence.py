"""Sequences as cells take them: one array with a time axis, or a list with an array for each step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ... import ndarray, symbol
from ...base import MXNetError
from ...ndarray import NDArray
from ...symbol import Symbol
from ..kinds import front_of, of_kind, symbol_front_of

if TYPE_CHECKING:
    from .recurrent_cell import RecurrentCell

TENSORS = (NDArray, Symbol)


def front_end(tensor: Any) -> Any:
    """`F` for an array or a symbol."""
    return symbol_front_of(tensor) if isinstance(tensor, Symbol) else front_of(tensor)


def as_list(parts: Any) -> list:
    """What `split` gives, also where it gives only one part, as a list."""
    return [parts] if isinstance(parts, NDArray) else list(parts)


def time_axis(layout: str) -> int:
    """Where time is in a layout such as 'NTC'."""
    if "T" not in layout or "N" not in layout:
        raise AssertionError(f"layout must have T for time and N for the batch, as 'NTC' has. Received: {layout!r}")
    return layout.index("T")


def split_steps(length: int | None, inputs: Any, layout: str) -> list:
    """A sequence as a list of steps; `length` may be None for an array, which knows its own."""
    axis = time_axis(layout)
    if isinstance(inputs, TENSORS):
        if isinstance(inputs, NDArray):
            found, length = inputs.shape[axis], length or inputs.shape[axis]
            if found != length:
                raise AssertionError(f"unroll: length is {length}, but inputs of layout {layout} have {found} steps")
        return as_list(front_end(inputs).split(inputs, axis=axis, num_outputs=length, squeeze_axis=1))
    check_steps(length, inputs)
    return list(inputs)


def check_steps(length: int | None, inputs: Any) -> None:
    """A list of steps is one, and has the length that was told."""
    if not isinstance(inputs, (list, tuple)) or not inputs or not isinstance(inputs[0], TENSORS):
        raise AssertionError(
            f"unroll: inputs must be an array, a Symbol or a list of them, received {type(inputs).__name__}"
        )
    if length is not None and len(inputs) != length:
        raise AssertionError(f"unroll: length is {length}, but inputs are {len(inputs)} steps")


def stack_steps(inputs: Any, layout: str) -> Any:
    """A sequence as one array."""
    if isinstance(inputs, TENSORS):
        return inputs
    return front_end(inputs[0]).stack(*inputs, axis=time_axis(layout))


def formatted(length: int | None, inputs: Any, layout: str, merge: bool | None) -> Any:
    """A sequence as one array (`merge` is True), as a list (False), or as it is (None)."""
    if merge is None:
        return inputs
    return stack_steps(inputs, layout) if merge else split_steps(length, inputs, layout)


def batch_size(inputs: Any, layout: str) -> int:
    """How many sequences there are; 0, the unknown number, for symbols."""
    if isinstance(inputs, NDArray):
        return inputs.shape[layout.index("N")]
    if isinstance(inputs, Symbol) or isinstance(inputs[0], Symbol):
        return 0
    return inputs[0].shape[layout.replace("T", "").index("N")]


def known(states: list) -> list:
    """States of a batch that has a size, in the kind of array in use: only a symbol may leave the size open."""
    for state in states:
        if isinstance(state, NDArray) and 0 in state.shape:
            raise MXNetError(f"begin_state: batch_size must be told for arrays, received 0: a state of {state.shape}")
    return [of_kind(state) if isinstance(state, NDArray) else state for state in states]


def first_states(cell: RecurrentCell, inputs: Any, layout: str, states: Any) -> Any:
    """The states given to `unroll`, or the cell's zeros for such inputs."""
    if states is not None:
        return states
    time_axis(layout)
    first = inputs if isinstance(inputs, TENSORS) else inputs[0]
    if isinstance(first, Symbol):
        return cell.begin_state(func=symbol.zeros, batch_size=0)
    with first.context:
        return cell.begin_state(func=ndarray.zeros, batch_size=batch_size(inputs, layout))


def masked(outputs: Any, valid_length: Any, layout: str) -> Any:
    """Outputs as one array, 0 after each sequence's end."""
    merged = stack_steps(outputs, layout)
    F = front_end(merged)
    return F.SequenceMask(merged, sequence_length=valid_length, use_sequence_length=True, axis=time_axis(layout))


def reversed_steps(steps: list, valid_length: Any) -> list:
    """The steps of each sequence from its end to its start; what comes after its end stays there."""
    if valid_length is None:
        return steps[::-1]
    F = front_end(steps[0])
    turned = F.SequenceReverse(F.stack(*steps, axis=0), sequence_length=valid_length, use_sequence_length=True)
    return as_list(F.split(turned, axis=0, num_outputs=len(steps), squeeze_axis=True))
