"""Additional cells: variational dropout and LSTM with a projection. Also `dynamic_unroll`."""

from __future__ import annotations

from typing import Any

from ...rnn import sequence
from ...rnn.basic_cell import GatedCell
from ...rnn.rnn_cell import BidirectionalCell, ModifierCell

__all__ = ["LSTMPCell", "VariationalDropoutCell", "dynamic_unroll"]


class VariationalDropoutCell(ModifierCell):
    """Dropout of inputs, first state and outputs, each with one mask for the whole sequence, until `reset`."""

    def __init__(self, base_cell: Any, drop_inputs: float = 0.0, drop_states: float = 0.0, drop_outputs: float = 0.0):
        if drop_states and isinstance(base_cell, BidirectionalCell):
            raise AssertionError(
                "VariationalDropoutCell with drop_states cannot wrap a BidirectionalCell, which does not support "
                "single steps. Wrap the cells inside it instead"
            )
        super().__init__(base_cell)
        self.drop_inputs = drop_inputs
        self.drop_states = drop_states
        self.drop_outputs = drop_outputs

    def _alias(self) -> str:
        return "vardrop"

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p_out = {self.drop_outputs}, p_state = {self.drop_states})"

    def reset(self) -> None:
        """Reset the counters and the dropout masks."""
        super().reset()
        self.drop_inputs_mask = None
        self.drop_states_mask = None
        self.drop_outputs_mask = None

    def hybrid_forward(self, F: Any, inputs: Any, states: Any) -> tuple[Any, list]:  # type: ignore[override]
        """Compute one step."""
        if self.drop_states:
            states = [self._dropped(F, "states", states[0]), *states[1:]]
        if self.drop_inputs:
            inputs = self._dropped(F, "inputs", inputs)
        output, states = self.base_cell(inputs, states)
        if self.drop_outputs:
            output = self._dropped(F, "outputs", output)
        return output, states

    def _dropped(self, F: Any, what: str, value: Any) -> Any:
        """Apply the mask to `value`. The first step of a sequence creates it."""
        name = f"drop_{what}_mask"
        if getattr(self, name) is None:
            setattr(self, name, F.Dropout(F.ones_like(value), p=getattr(self, "drop_" + what)))
        return value * getattr(self, name)

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Any = None,
    ) -> tuple[Any, list]:
        """Unroll the cell. Without dropout of states, dropout is applied to the whole input and output sequences."""
        if self.drop_states:
            return super().unroll(length, inputs, begin_state, layout, merge_outputs, valid_length)
        self.reset()
        if not isinstance(inputs, sequence.TENSORS):
            sequence.check_steps(length, inputs)
        merged = sequence.stack_steps(inputs, layout)
        states = sequence.first_states(self, merged, layout, begin_state)
        F, axis = sequence.front_end(merged), sequence.time_axis(layout)
        if self.drop_inputs:
            merged = F.Dropout(merged, p=self.drop_inputs, axes=(axis,))
        outputs, states = self._unmodified(self.base_cell.unroll, length, merged, states, layout, True, valid_length)
        if self.drop_outputs:
            outputs = F.Dropout(outputs, p=self.drop_outputs, axes=(axis,))
        return sequence.formatted(length, outputs, layout, merge_outputs), states


class LSTMPCell(GatedCell):
    """LSTM whose output is projected to a smaller size before it is used as the state."""

    _gates = 4

    def __init__(
        self,
        hidden_size: int,
        projection_size: int,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        h2r_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        input_size: int = 0,
        prefix: str | None = None,
        params: Any = None,
    ):
        initializers = i2h_weight_initializer, h2h_weight_initializer, i2h_bias_initializer, h2h_bias_initializer
        projection = projection_size, h2r_weight_initializer
        super().__init__(hidden_size, *initializers, input_size, prefix, params, *projection)
        self._projection_size = projection_size

    def state_info(self, batch_size: int = 0) -> list[dict]:
        """Return the shapes of the projected output and the memory cell."""
        sizes = self._projection_size, self._hidden_size
        return [{"shape": (batch_size, size), "__layout__": "NC"} for size in sizes]

    def _alias(self) -> str:
        return "lstmp"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._sizes()} -> {self._projection_size})"

    def hybrid_forward(  # type: ignore[override]
        self,
        F: Any,
        inputs: Any,
        states: Any,
        i2h_weight: Any,
        h2h_weight: Any,
        h2r_weight: Any,
        i2h_bias: Any,
        h2h_bias: Any,
    ) -> tuple[Any, list]:
        """Compute one step."""
        step = f"t{self._counter}_"
        i2h, h2h = self._products(F, inputs, states[0], (i2h_weight, h2h_weight, i2h_bias, h2h_bias), step)
        i, f, g, o = F.SliceChannel(i2h + h2h, num_outputs=4, name=step + "slice")
        i = F.Activation(i, act_type="sigmoid", name=step + "i")
        f = F.Activation(f, act_type="sigmoid", name=step + "f")
        g = F.Activation(g, act_type="tanh", name=step + "c")
        o = F.Activation(o, act_type="sigmoid", name=step + "o")
        cell = F._internal._plus(f * states[1], i * g, name=step + "state")
        hidden = F._internal._mul(o, F.Activation(cell, act_type="tanh"), name=step + "hidden")
        size = self._projection_size
        output = F.FullyConnected(hidden, weight=h2r_weight, num_hidden=size, no_bias=True, name=step + "out")
        return output, [output, cell]


def dynamic_unroll(
    cell: Any,
    inputs: Any,
    begin_state: Any,
    drop_inputs: float = 0,
    drop_outputs: float = 0,
    layout: str = "TNC",
    valid_length: Any = None,
) -> tuple[Any, list]:
    """Unroll a cell with `foreach`, so that the graph contains a single step for sequences of any length.

    With `valid_length`, outputs are 0 after the end of each sequence, and states are those at its end.
    """
    F, axis = sequence.front_end(inputs), sequence.time_axis(layout)
    if layout == "NTC":
        inputs = F.transpose(inputs, axes=(1, 0, 2))
    if drop_inputs:
        inputs = F.Dropout(inputs, p=drop_inputs, axes=(axis,))

    def step(each: Any, states: list) -> tuple[Any, list]:
        output, states = cell(each, states)
        return [output, *states] if valid_length is not None else [output], states

    (outputs, *history), states = F.contrib.foreach(step, inputs, begin_state)
    if drop_outputs:
        outputs = F.Dropout(outputs, p=drop_outputs, axes=(axis,))
    if layout == "NTC":
        outputs = F.transpose(outputs, axes=(1, 0, 2))
    if valid_length is not None:
        outputs = sequence.masked(outputs, valid_length, layout)
        states = [F.SequenceLast(each, sequence_length=valid_length, use_sequence_length=True) for each in history]
    return outputs, states
