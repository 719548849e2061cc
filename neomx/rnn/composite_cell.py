"""Cells composed of other cells: stacked, or bidirectional."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .. import symbol
from ..symbol import Symbol
from . import sequence
from .base_cell import Arrays, BaseRNNCell, RNNParams


class _ManyCells(BaseRNNCell):
    """A list of cells, with their states in one flat list."""

    def __init__(self, params: RNNParams | None):
        self._cells: list[Any] = []
        super().__init__(prefix="", params=params)
        self._override_cell_params = params is not None

    def _adopt(self, cell: Any) -> None:
        """Add a cell and its variables."""
        if self._override_cell_params and cell.params._params:
            raise AssertionError(f"Either specify params for {type(self).__name__} or child cells, not both.")
        self._cells.append(cell)
        self.params._params.update(cell.params._params)

    def reset(self) -> None:
        """Reset the step counters of all cells."""
        super().reset()
        for cell in self._cells:
            cell.reset()

    @property
    def state_info(self) -> list[dict]:
        """The states of all cells."""
        return [info for cell in self._cells for info in cell.state_info]

    def begin_state(self, **kwargs: Any) -> list:  # type: ignore[override]
        """Return the initial states of all cells. Arguments are passed by name."""
        self._refuse_modified()
        return [state for cell in self._cells for state in cell.begin_state(**kwargs)]

    def _with_states(self, states: list) -> Iterator[tuple[Any, list]]:
        """Yield each cell with its states."""
        start = 0
        for cell in self._cells:
            end = start + len(cell.state_info)
            yield cell, states[start:end]
            start = end

    def unpack_weights(self, args: Arrays) -> Arrays:
        """Return the parameters with the weights and biases of all cells split by gate."""
        for cell in self._cells:
            args = cell.unpack_weights(args)
        return args

    def pack_weights(self, args: Arrays) -> Arrays:
        """Reverse `unpack_weights`."""
        for cell in self._cells:
            args = cell.pack_weights(args)
        return args


class SequentialRNNCell(_ManyCells):
    """Stacked cells: each takes the output of the previous one."""

    def __init__(self, params: RNNParams | None = None):
        super().__init__(params)

    def add(self, cell: Any) -> None:
        """Append a cell."""
        self._adopt(cell)

    def __call__(self, inputs: Symbol, states: list) -> tuple[Any, list]:
        """Run one step of every cell."""
        self._next_step(states)
        after: list = []
        for cell, own in self._with_states(states):
            if isinstance(cell, BidirectionalCell):
                raise AssertionError("a BidirectionalCell cannot be stepped. Use unroll")
            inputs, new = cell(inputs, own)
            after += new
        return inputs, after

    def unroll(
        self, length: int, inputs: Any, begin_state: Any = None, layout: str = "NTC", merge_outputs: bool | None = None
    ) -> tuple[Any, list]:
        """Unroll each cell over the outputs of the previous one."""
        self.reset()
        states = self.begin_state() if begin_state is None else begin_state
        last, after = len(self._cells) - 1, []
        for i, (cell, own) in enumerate(self._with_states(states)):
            merge = merge_outputs if i == last else None
            inputs, new = cell.unroll(length, inputs, begin_state=own, layout=layout, merge_outputs=merge)
            after += new
        return inputs, after


class BidirectionalCell(_ManyCells):
    """Two cells that process the sequence in opposite directions, with concatenated outputs. Only supports `unroll`.

    `unroll` returns the states as two lists, one per cell.
    """

    def __init__(self, l_cell: Any, r_cell: Any, params: RNNParams | None = None, output_prefix: str = "bi_"):
        super().__init__(params)
        self._output_prefix = output_prefix
        self._adopt(l_cell)
        self._adopt(r_cell)

    def __call__(self, inputs: Symbol, states: list) -> tuple[Any, list]:
        """Raise NotImplementedError; use `unroll`."""
        raise NotImplementedError("Bidirectional cannot be stepped. Please use unroll")

    def unroll(
        self, length: int, inputs: Any, begin_state: Any = None, layout: str = "NTC", merge_outputs: bool | None = None
    ) -> tuple[Any, list]:
        """Unroll both cells, the second one in reverse."""
        self.reset()
        steps = sequence.split_steps(length, sequence.checked(length, inputs, layout), layout)
        states = self.begin_state() if begin_state is None else begin_state
        (left, own_left), (right, own_right) = self._with_states(states)
        l_out, l_states = left.unroll(length, steps, own_left, layout, merge_outputs)
        r_out, r_states = right.unroll(length, steps[::-1], own_right, layout, merge_outputs)
        if merge_outputs is None:
            merge_outputs = isinstance(l_out, Symbol) and isinstance(r_out, Symbol)
            if not merge_outputs:
                l_out, r_out = (self._steps(length, each, layout) for each in (l_out, r_out))
        return self._side_by_side(l_out, r_out, layout, merge_outputs), [l_states, r_states]

    @staticmethod
    def _steps(length: int, outputs: Any, layout: str) -> list:
        if not isinstance(outputs, Symbol):
            return outputs
        axis = sequence.time_axis(layout)
        return list(symbol.SliceChannel(outputs, axis=axis, num_outputs=length, squeeze_axis=1))

    def _side_by_side(self, left: Any, right: Any, layout: str, merge: bool) -> Any:
        if merge:
            right = symbol.reverse(right, axis=sequence.time_axis(layout))
            return symbol.Concat(left, right, dim=2, name=f"{self._output_prefix}out")
        return [
            symbol.Concat(l_step, r_step, dim=1, name=f"{self._output_prefix}t{i}")
            for i, (l_step, r_step) in enumerate(zip(left, reversed(right), strict=True))
        ]
