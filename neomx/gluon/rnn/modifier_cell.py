"""Cells that modify another cell: dropout, zoneout, residual connections."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

from ... import symbol
from . import sequence
from .composite_cell import BidirectionalCell
from .recurrent_cell import HybridRecurrentCell


class DropoutCell(HybridRecurrentCell):
    """Applies dropout to the input. It has no states."""

    def __init__(self, rate: float, axes: tuple[int, ...] = (), prefix: str | None = None, params: Any = None):
        super().__init__(prefix, params)
        if not isinstance(rate, numbers.Number):
            raise AssertionError(f"rate must be a number, received {rate!r}")
        self._rate = rate
        self._axes = axes

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rate={self._rate}, axes={self._axes})"

    def state_info(self, batch_size: int = 0) -> list[dict]:
        """Return an empty list: the cell has no states."""
        return []

    def _alias(self) -> str:
        return "dropout"

    def hybrid_forward(self, F: Any, inputs: Any, states: Any) -> tuple[Any, list]:  # type: ignore[override]
        """Compute one step."""
        if self._rate > 0:
            inputs = F.Dropout(inputs, p=self._rate, axes=self._axes, name=f"t{self._counter}_fwd")
        return inputs, states

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Any = None,
    ) -> tuple[Any, list]:
        """Apply dropout to the whole sequence in one call if it is a single array."""
        self.reset()
        inputs = sequence.formatted(length, inputs, layout, merge_outputs)
        if isinstance(inputs, sequence.TENSORS):
            return self.hybrid_forward(sequence.front_end(inputs), inputs, begin_state or [])
        return super().unroll(length, inputs, begin_state, layout, merge_outputs, None)


class ModifierCell(HybridRecurrentCell):
    """A cell that wraps another cell and uses its parameters and states. A cell can be wrapped only once."""

    def __init__(self, base_cell: Any):
        if base_cell._modified:
            raise AssertionError(f"Cell {base_cell.name} is already modified. One cell cannot be modified twice")
        base_cell._modified = True
        super().__init__(prefix=base_cell.prefix + self._alias(), params=None)
        self.base_cell = base_cell

    @property
    def params(self) -> Any:
        """The parameters of the wrapped cell."""
        return self.base_cell.params

    def state_info(self, batch_size: int = 0) -> list[dict]:
        """Return the shapes of the wrapped cell's states."""
        return self.base_cell.state_info(batch_size)

    def begin_state(self, func: Callable[..., Any] = symbol.zeros, **kwargs: Any) -> list:  # type: ignore[override]
        """Return the initial states of the wrapped cell: symbols unless `func` is given."""
        if self._modified:
            return super().begin_state(func=func, **kwargs)  # raises an error
        return self._unmodified(self.base_cell.begin_state, func=func, **kwargs)

    def _unmodified(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a method of the wrapped cell that raises an error when it is called directly."""
        self.base_cell._modified = False
        try:
            return call(*args, **kwargs)
        finally:
            self.base_cell._modified = True

    def hybrid_forward(self, F: Any, inputs: Any, states: Any) -> Any:  # type: ignore[override]
        """Compute one step. Subclasses must override this method."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_cell!r})"


class ZoneoutCell(ModifierCell):
    """While training, randomly keeps elements of the output and the states from the previous step."""

    def __init__(self, base_cell: Any, zoneout_outputs: float = 0.0, zoneout_states: float = 0.0):
        if isinstance(base_cell, BidirectionalCell):
            raise AssertionError(
                "ZoneoutCell cannot wrap a BidirectionalCell, which has no single steps. Wrap the cells inside it"
            )
        super().__init__(base_cell)
        self._zoneout_outputs = zoneout_outputs
        self._zoneout_states = zoneout_states

    def __repr__(self) -> str:
        rates = f"p_out={self._zoneout_outputs}, p_state={self._zoneout_states}"
        return f"{type(self).__name__}({rates}, {self.base_cell!r})"

    def _alias(self) -> str:
        return "zoneout"

    def reset(self) -> None:
        """Reset the counters and the previous output."""
        super().reset()
        self._prev_output = None

    def hybrid_forward(self, F: Any, inputs: Any, states: Any) -> tuple[Any, list]:  # type: ignore[override]
        """Compute one step."""
        new, new_states = self.base_cell(inputs, states)
        output = new
        if self._zoneout_outputs > 0:
            before = F.zeros_like(new) if self._prev_output is None else self._prev_output
            output = self._changed(F, self._zoneout_outputs, new, before)
        if self._zoneout_states > 0:
            new_states = [
                self._changed(F, self._zoneout_states, now, old) for now, old in zip(new_states, states, strict=True)
            ]
        self._prev_output = output
        return output, new_states

    @staticmethod
    def _changed(F: Any, rate: float, now: Any, before: Any) -> Any:
        return F.where(F.Dropout(F.ones_like(now), p=rate), now, before)


class ResidualCell(ModifierCell):
    """Adds the input to the output."""

    def hybrid_forward(self, F: Any, inputs: Any, states: Any) -> tuple[Any, list]:  # type: ignore[override]
        """Compute one step."""
        output, states = self.base_cell(inputs, states)
        return F.elemwise_add(output, inputs, name=f"t{self._counter}_fwd"), states

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Any = None,
    ) -> tuple[Any, list]:
        """Unroll the wrapped cell and add the inputs to its outputs."""
        self.reset()
        outputs, states = self._unmodified(
            self.base_cell.unroll, length, inputs, begin_state, layout, merge_outputs, valid_length
        )
        merge = isinstance(outputs, sequence.TENSORS)
        if valid_length is not None:
            inputs = sequence.masked(inputs, valid_length, layout)
        inputs = sequence.formatted(length, inputs, layout, merge)
        if merge:
            return sequence.front_end(outputs).elemwise_add(outputs, inputs), states
        F = sequence.front_end(outputs[0])
        return [F.elemwise_add(output, step) for output, step in zip(outputs, inputs, strict=True)], states
