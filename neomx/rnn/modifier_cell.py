"""Cells that modify the behavior of another cell: zoneout and residual connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import symbol
from ..symbol import Symbol
from . import sequence
from .base_cell import Arrays, BaseRNNCell, RNNParams
from .composite_cell import BidirectionalCell, SequentialRNNCell
from .fused_cell import FusedRNNCell


class ModifierCell(BaseRNNCell):
    """A cell that wraps another and uses its parameters and states. The base cell can no longer be called directly."""

    def __init__(self, base_cell: Any):
        super().__init__()
        base_cell._modified = True
        self.base_cell = base_cell

    @property
    def params(self) -> RNNParams:
        """The variables of the base cell."""
        return self.base_cell.params

    @property
    def state_info(self) -> list[dict]:
        """The states of the base cell."""
        return self.base_cell.state_info

    def begin_state(self, init_sym: Callable[..., Any] = symbol.zeros, **kwargs: Any) -> list:  # type: ignore[override]
        """Return the initial states of the base cell. `func`, the argument name of other cells, is also accepted."""
        self._refuse_modified()
        return self._unmodified(self.base_cell.begin_state, **{"func": init_sym, **kwargs})

    def _unmodified(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a method that the base cell only allows its modifier to call."""
        self.base_cell._modified = False
        try:
            return call(*args, **kwargs)
        finally:
            self.base_cell._modified = True

    def unpack_weights(self, args: Arrays) -> Arrays:
        """Return the parameters with those of the base cell split by gate."""
        return self.base_cell.unpack_weights(args)

    def pack_weights(self, args: Arrays) -> Arrays:
        """Reverse `unpack_weights`."""
        return self.base_cell.pack_weights(args)


class ZoneoutCell(ModifierCell):
    """During training, randomly keeps elements of the output and the states at their values of the previous step."""

    def __init__(self, base_cell: Any, zoneout_outputs: float = 0.0, zoneout_states: float = 0.0):
        _refuse_unsteppable(base_cell)
        super().__init__(base_cell)
        self.zoneout_outputs = zoneout_outputs
        self.zoneout_states = zoneout_states

    def reset(self) -> None:
        """Discard the last output."""
        super().reset()
        self.prev_output: Symbol | None = None

    def __call__(self, inputs: Symbol, states: list) -> tuple[Any, list]:
        """Run one step of the base cell, and apply zoneout."""
        output, after = self.base_cell(inputs, states)
        if self.zoneout_outputs:
            before = symbol.zeros((0, 0)) if self.prev_output is None else self.prev_output
            output = self._changed(self.zoneout_outputs, output, before)
        if self.zoneout_states:
            after = [self._changed(self.zoneout_states, now, old) for now, old in zip(after, states, strict=True)]
        self.prev_output = output
        return output, after

    @staticmethod
    def _changed(rate: float, now: Symbol, before: Symbol) -> Symbol:
        return symbol.where(symbol.Dropout(symbol.ones_like(now), p=rate), now, before)


def _refuse_unsteppable(cell: Any) -> None:
    if isinstance(cell, FusedRNNCell):
        raise AssertionError("FusedRNNCell doesn't support zoneout. Please unfuse first.")
    cells = cell._cells if isinstance(cell, SequentialRNNCell) else [cell]
    if any(isinstance(each, BidirectionalCell) for each in cells):
        raise AssertionError(
            "BidirectionalCell doesn't support zoneout since it doesn't support step. "
            "Please add ZoneoutCell to the cells underneath instead."
        )


class ResidualCell(ModifierCell):
    """Adds the input to the output."""

    def __call__(self, inputs: Symbol, states: list) -> tuple[Any, list]:
        """Run one step of the base cell, and add the input to its output."""
        output, states = self.base_cell(inputs, states)
        return _plus_residual(output, inputs), states

    def unroll(
        self, length: int, inputs: Any, begin_state: Any = None, layout: str = "NTC", merge_outputs: bool | None = None
    ) -> tuple[Any, list]:
        """Unroll the base cell, then add the whole sequence of inputs."""
        self.reset()
        inputs = sequence.checked(length, inputs, layout)
        outputs, states = self._unmodified(self.base_cell.unroll, length, inputs, begin_state, layout, merge_outputs)
        merge = isinstance(outputs, Symbol)
        inputs = sequence.formatted(length, inputs, layout, merge)
        if merge:
            return _plus_residual(outputs, inputs), states
        return [_plus_residual(output, step) for output, step in zip(outputs, inputs, strict=True)], states


def _plus_residual(output: Symbol, inputs: Symbol) -> Symbol:
    return symbol.elemwise_add(output, inputs, name=f"{output.name}_plus_residual")
