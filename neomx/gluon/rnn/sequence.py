"""Input sequences of cells: one array with a time axis, or a list with one array per step."""

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
    """The `F` for an array or a symbol."""
    return symbol_front_of(tensor) if isinstance(tensor, Symbol) else front_of(tensor)


def as_list(parts: Any) -> list:
    """Return the result of `split` as a list, even if it is a single part."""
    return [parts] if isinstance(parts, NDArray) else list(parts)


def time_axis(layout: str) -> int:
    """Return the index of the time axis in a layout such as 'NTC'."""
    if "T" not in layout or "N" not in layout:
        raise AssertionError(f"layout must contain T (time) and N (batch), as in 'NTC'. Received: {layout!r}")
    return layout.index("T")


def split_steps(length: int | None, inputs: Any, layout: str) -> list:
    """Return a sequence as a list of steps. For an array, `length` may be None."""
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
    """Raise unless `inputs` is a list of steps of the given length."""
    if not isinstance(inputs, (list, tuple)) or not inputs or not isinstance(inputs[0], TENSORS):
        raise AssertionError(
            f"unroll: inputs must be an array, a Symbol or a list of them, received {type(inputs).__name__}"
        )
    if length is not None and len(inputs) != length:
        raise AssertionError(f"unroll: length is {length}, but inputs are {len(inputs)} steps")


def stack_steps(inputs: Any, layout: str) -> Any:
    """Return a sequence as one array."""
    if isinstance(inputs, TENSORS):
        return inputs
    return front_end(inputs[0]).stack(*inputs, axis=time_axis(layout))


def formatted(length: int | None, inputs: Any, layout: str, merge: bool | None) -> Any:
    """Return a sequence as one array (`merge` is True), as a list (False), or unchanged (None)."""
    if merge is None:
        return inputs
    return stack_steps(inputs, layout) if merge else split_steps(length, inputs, layout)


def batch_size(inputs: Any, layout: str) -> int:
    """Return the number of sequences, or 0 (unknown) for symbols."""
    if isinstance(inputs, NDArray):
        return inputs.shape[layout.index("N")]
    if isinstance(inputs, Symbol) or isinstance(inputs[0], Symbol):
        return 0
    return inputs[0].shape[layout.replace("T", "").index("N")]


def known(states: list) -> list:
    """Return the states in the current kind of array. Raise if an array has an unknown batch size."""
    for state in states:
        if isinstance(state, NDArray) and 0 in state.shape:
            raise MXNetError(f"begin_state: arrays need a batch_size, received 0 (a state of shape {state.shape})")
    return [of_kind(state) if isinstance(state, NDArray) else state for state in states]


def first_states(cell: RecurrentCell, inputs: Any, layout: str, states: Any) -> Any:
    """Return the states passed to `unroll`, or zero states that match these inputs."""
    if states is not None:
        return states
    time_axis(layout)
    first = inputs if isinstance(inputs, TENSORS) else inputs[0]
    if isinstance(first, Symbol):
        return cell.begin_state(func=symbol.zeros, batch_size=0)
    with first.context:
        return cell.begin_state(func=ndarray.zeros, batch_size=batch_size(inputs, layout))


def masked(outputs: Any, valid_length: Any, layout: str) -> Any:
    """Return the outputs as one array, set to 0 after the end of each sequence."""
    merged = stack_steps(outputs, layout)
    F = front_end(merged)
    return F.SequenceMask(merged, sequence_length=valid_length, use_sequence_length=True, axis=time_axis(layout))


def reversed_steps(steps: list, valid_length: Any) -> list:
    """Reverse the steps of each sequence up to its end. Steps after the end keep their positions."""
    if valid_length is None:
        return steps[::-1]
    F = front_end(steps[0])
    turned = F.SequenceReverse(F.stack(*steps, axis=0), sequence_length=valid_length, use_sequence_length=True)
    return as_list(F.split(turned, axis=0, num_outputs=len(steps), squeeze_axis=True))
