"""Cells composed of cells: stacked, or one for each direction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..utils import _indent
from . import sequence
from .recurrent_cell import HybridRecurrentCell, RecurrentCell


class _ManyCells(RecurrentCell):
    """A cell with child cells, whose states are concatenated into one list."""

    def state_info(self, batch_size: int = 0) -> list[dict]:
        """Return the shapes of the states of all cells."""
        return [info for cell in self._children.values() for info in cell.state_info(batch_size)]

    def begin_state(self, **kwargs: Any) -> list:  # type: ignore[override]
        """Return the initial states of all cells. Accepts keyword arguments only."""
        if self._modified:
            return super().begin_state(**kwargs)  # raises an error
        return [state for cell in self._children.values() for state in cell.begin_state(**kwargs)]

    def _with_states(self, states: list) -> Iterator[tuple[Any, list]]:
        """Iterate over the cells and their states."""
        start = 0
        for cell in self._children.values():
            end = start + len(cell.state_info())
            yield cell, states[start:end]
            start = end


class _Sequential(_ManyCells):
    """The base of SequentialRNNCell and HybridSequentialRNNCell."""

    def __repr__(self) -> str:
        rows = [_indent(f"({name}): {cell!r}", 2) for name, cell in self._children.items()]
        return "{}(\n{}\n)".format(type(self).__name__, "\n".join(rows))

    def add(self, cell: Any) -> None:
        """Append a cell."""
        self.register_child(cell)

    def __getitem__(self, i: int) -> Any:
        return self._children[str(i)]

    def __len__(self) -> int:
        return len(self._children)

    def _step(self, inputs: Any, states: list) -> tuple[Any, list]:
        after: list = []
        for cell, own in self._with_states(states):
            if isinstance(cell, BidirectionalCell):
                raise AssertionError("a BidirectionalCell does not support single steps. Use unroll")
            inputs, new = cell(inputs, own)
            after += new
        return inputs, after

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Any = None,
    ) -> tuple[Any, list]:
        """Unroll each cell over the outputs of the previous cell."""
        self.reset()
        if not isinstance(inputs, sequence.TENSORS):
            sequence.check_steps(length, inputs)
        states = sequence.first_states(self, inputs, layout, begin_state)
        last, after = len(self._children) - 1, []
        for i, (cell, own) in enumerate(self._with_states(states)):
            merge = merge_outputs if i == last else None
            inputs, new = cell.unroll(length, inputs, own, layout, merge, valid_length)
            after += new
        return inputs, after


class SequentialRNNCell(_Sequential):
    """Stacked cells: the input of each is the output of the previous one."""

    def forward(self, inputs: Any, states: Any) -> tuple[Any, list]:
        """Compute one step through all cells."""
        return self._step(inputs, states)


class HybridSequentialRNNCell(_Sequential, HybridRecurrentCell):
    """Stacked hybrid cells, which can be hybridized as one."""

    def hybrid_forward(self, F: Any, inputs: Any, states: Any) -> tuple[Any, list]:  # type: ignore[override]
        """Compute one step through all cells."""
        return self._step(inputs, states)


class BidirectionalCell(_ManyCells, HybridRecurrentCell):
    """Runs two cells over a sequence in opposite directions and concatenates their outputs. Supports only `unroll`."""

    def __init__(self, l_cell: Any, r_cell: Any, output_prefix: str = "bi_"):
        super().__init__(prefix="", params=None)
        self.register_child(l_cell, "l_cell")
        self.register_child(r_cell, "r_cell")
        self._output_prefix = output_prefix

    def __call__(self, inputs: Any, states: Any) -> Any:
        raise NotImplementedError("a BidirectionalCell does not support single steps. Use unroll")

    def __repr__(self) -> str:
        forward, backward = self._children.values()
        return f"{type(self).__name__}(forward={forward!r}, backward={backward!r})"

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Any = None,
    ) -> tuple[Any, list]:
        """Unroll both cells, the second one from the end of each sequence to its start."""
        self.reset()
        steps = sequence.split_steps(length, inputs, layout)
        states = sequence.first_states(self, steps, layout, begin_state)
        (left, own_left), (right, own_right) = self._with_states(states)
        l_out, l_states = left.unroll(length, steps, own_left, layout, merge_outputs, valid_length)
        turned = sequence.reversed_steps(steps, valid_length)
        r_out, r_states = right.unroll(length, turned, own_right, layout, False, valid_length)
        r_steps = sequence.reversed_steps(r_out, valid_length)
        merge = isinstance(l_out, sequence.TENSORS) if merge_outputs is None else merge_outputs
        outputs = self._side_by_side(l_out, r_steps, layout, merge)
        if valid_length is not None:
            outputs = sequence.formatted(length, sequence.masked(outputs, valid_length, layout), layout, merge)
        return outputs, l_states + r_states

    def _side_by_side(self, left: Any, right: list, layout: str, merge: bool) -> Any:
        F = sequence.front_end(right[0])
        if merge:
            both = left, sequence.stack_steps(right, layout)
            return F.concat(*both, dim=layout.index("C"), name=self._output_prefix + "out")
        dim = layout.replace("T", "").index("C")
        return [
            F.concat(l_step, r_step, dim=dim, name=f"{self._output_prefix}t{i}")
            for i, (l_step, r_step) in enumerate(zip(left, right, strict=True))
        ]
