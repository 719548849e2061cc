"""Sequences as inputs of cells: one symbol with a time axis, or a list with one symbol per step."""

from __future__ import annotations

from typing import Any

from .. import symbol
from ..gluon.rnn.sequence import check_steps, known, split_steps, time_axis
from ..symbol import Symbol

__all__ = ["checked", "formatted", "known", "merged", "split_steps", "time_axis"]


def checked(length: int, inputs: Any, layout: str) -> Any:
    """Check the `inputs` of `unroll`: one symbol with one output, or a list of `length` symbols."""
    time_axis(layout)
    if isinstance(inputs, Symbol):
        if len(inputs.list_outputs()) != 1:
            raise AssertionError(
                f"unroll doesn't allow grouped symbol as input, received {len(inputs.list_outputs())} outputs. "
                "Pass list(inputs), or one symbol with a time axis"
            )
        return inputs
    if inputs is None:
        raise AssertionError("unroll(inputs=None) has been deprecated. Please create input variables outside unroll.")
    if not isinstance(inputs, (list, tuple)) or not all(isinstance(step, Symbol) for step in inputs):
        raise AssertionError(
            f"unroll: inputs must be a symbol or a list of symbols, received {inputs!r:.100}. "
            "Use mx.gluon.rnn for arrays"
        )
    check_steps(length, inputs)
    return list(inputs)


def merged(steps: Any, layout: str) -> Symbol:
    """Return a sequence as one symbol."""
    if isinstance(steps, Symbol):
        return steps
    axis = time_axis(layout)
    return symbol.Concat(*[symbol.expand_dims(step, axis=axis) for step in steps], dim=axis)


def formatted(length: int, inputs: Any, layout: str, merge: bool | None) -> Any:
    """Return a sequence as one symbol (`merge` is True), as a list (False), or unchanged (None)."""
    if merge is None:
        return inputs
    return merged(inputs, layout) if merge else split_steps(length, inputs, layout)
