"""RNNCell, LSTMCell and GRUCell."""

from __future__ import annotations

from typing import Any

from ...base import MXNetError
from .recurrent_cell import HybridRecurrentCell


class GatedCell(HybridRecurrentCell):
    """A cell with weights and biases for the input and for the state, for a number of gates.

    With `projection_size`, an additional matrix projects the state to that size.
    """

    i2h_weight: Any
    _gates = 1

    def __init__(
        self,
        hidden_size: int,
        i2h_weight_initializer: Any,
        h2h_weight_initializer: Any,
        i2h_bias_initializer: Any,
        h2h_bias_initializer: Any,
        input_size: int,
        prefix: str | None,
        params: Any,
        projection_size: int | None = None,
        h2r_weight_initializer: Any = None,
    ):
        super().__init__(prefix=prefix, params=params)
        self._hidden_size = hidden_size
        self._input_size = input_size
        rows = self._gates * hidden_size
        for name, shape, init in (
            ("i2h_weight", (rows, input_size), i2h_weight_initializer),
            ("h2h_weight", (rows, projection_size or hidden_size), h2h_weight_initializer),
            ("h2r_weight", (projection_size, hidden_size), h2r_weight_initializer),
            ("i2h_bias", (rows,), i2h_bias_initializer),
            ("h2h_bias", (rows,), h2h_bias_initializer),
        ):
            if name == "h2r_weight" and projection_size is None:
                continue
            setattr(self, name, self.params.get(name, shape=shape, init=init, allow_deferred_init=True))

    def state_info(self, batch_size: int = 0) -> list[dict]:
        """Return the shape of the state: (batch, hidden)."""
        return [{"shape": (batch_size, self._hidden_size), "__layout__": "NC"}]

    def forward(self, inputs: Any, states: Any) -> tuple[Any, list]:
        """Compute one step. Return the output and the new states."""
        expected = len(self.state_info())
        if isinstance(states, (list, tuple)) and len(states) < expected:
            raise MXNetError(f"{self.name} expects {expected} states, as begin_state returns; received {len(states)}")
        return super().forward(inputs, states)

    def _sizes(self) -> str:
        rows, columns = self.i2h_weight.shape
        return f"{columns or None} -> {rows}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._sizes()})"

    def _products(self, F: Any, inputs: Any, state: Any, weights: tuple, step: str) -> tuple[Any, Any]:
        """Multiply the input and the state by their weights."""
        i2h_weight, h2h_weight, i2h_bias, h2h_bias = weights
        rows = self._gates * self._hidden_size
        i2h = F.FullyConnected(data=inputs, weight=i2h_weight, bias=i2h_bias, num_hidden=rows, name=step + "i2h")
        h2h = F.FullyConnected(data=state, weight=h2h_weight, bias=h2h_bias, num_hidden=rows, name=step + "h2h")
        return i2h, h2h


class RNNCell(GatedCell):
    """Elman cell: h' = act(W x + b + U h + c)."""

    def __init__(
        self,
        hidden_size: int,
        activation: Any = "tanh",
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        input_size: int = 0,
        prefix: str | None = None,
        params: Any = None,
    ):
        initializers = i2h_weight_initializer, h2h_weight_initializer, i2h_bias_initializer, h2h_bias_initializer
        super().__init__(hidden_size, *initializers, input_size, prefix, params)
        self._activation = activation

    def _alias(self) -> str:
        return "rnn"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._sizes()}, {self._activation})"

    def hybrid_forward(
        self, F: Any, inputs: Any, states: Any, i2h_weight: Any, h2h_weight: Any, i2h_bias: Any, h2h_bias: Any
    ) -> tuple[Any, list]:
        """Compute one step."""
        step = f"t{self._counter}_"
        i2h, h2h = self._products(F, inputs, states[0], (i2h_weight, h2h_weight, i2h_bias, h2h_bias), step)
        both = F.elemwise_add(i2h, h2h, name=step + "plus0")
        output = self._get_activation(F, both, self._activation, name=step + "out")
        return output, [output]


class LSTMCell(GatedCell):
    """Long short-term memory cell. The states are the output and the memory cell."""

    _gates = 4

    def __init__(
        self,
        hidden_size: int,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        input_size: int = 0,
        prefix: str | None = None,
        params: Any = None,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
    ):
        initializers = i2h_weight_initializer, h2h_weight_initializer, i2h_bias_initializer, h2h_bias_initializer
        super().__init__(hidden_size, *initializers, input_size, prefix, params)
        self._activation = activation
        self._recurrent_activation = recurrent_activation

    def state_info(self, batch_size: int = 0) -> list[dict]:
        """Return the shapes of the two states: (batch, hidden)."""
        return super().state_info(batch_size) + super().state_info(batch_size)

    def _alias(self) -> str:
        return "lstm"

    def hybrid_forward(
        self, F: Any, inputs: Any, states: Any, i2h_weight: Any, h2h_weight: Any, i2h_bias: Any, h2h_bias: Any
    ) -> tuple[Any, list]:
        """Compute one step."""
        step = f"t{self._counter}_"
        i2h, h2h = self._products(F, inputs, states[0], (i2h_weight, h2h_weight, i2h_bias, h2h_bias), step)
        gates = F.elemwise_add(i2h, h2h, name=step + "plus0")
        i, f, g, o = F.SliceChannel(gates, num_outputs=4, name=step + "slice")
        i = self._get_activation(F, i, self._recurrent_activation, name=step + "i")
        f = self._get_activation(F, f, self._recurrent_activation, name=step + "f")
        g = self._get_activation(F, g, self._activation, name=step + "c")
        o = self._get_activation(F, o, self._recurrent_activation, name=step + "o")
        kept = F.elemwise_mul(f, states[1], name=step + "mul0")
        cell = F.elemwise_add(kept, F.elemwise_mul(i, g, name=step + "mul1"), name=step + "state")
        squashed = F.Activation(cell, act_type=self._activation, name=step + "activation0")
        output = F.elemwise_mul(o, squashed, name=step + "out")
        return output, [output, cell]


class GRUCell(GatedCell):
    """Gated recurrent unit, with the reset gate applied after the matrix product, as in cuDNN."""

    _gates = 3

    def __init__(
        self,
        hidden_size: int,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        input_size: int = 0,
        prefix: str | None = None,
        params: Any = None,
    ):
        initializers = i2h_weight_initializer, h2h_weight_initializer, i2h_bias_initializer, h2h_bias_initializer
        super().__init__(hidden_size, *initializers, input_size, prefix, params)

    def _alias(self) -> str:
        return "gru"

    def hybrid_forward(
        self, F: Any, inputs: Any, states: Any, i2h_weight: Any, h2h_weight: Any, i2h_bias: Any, h2h_bias: Any
    ) -> tuple[Any, list]:
        """Compute one step."""
        step, before = f"t{self._counter}_", states[0]
        i2h, h2h = self._products(F, inputs, before, (i2h_weight, h2h_weight, i2h_bias, h2h_bias), step)
        i2h_r, i2h_z, i2h = F.SliceChannel(i2h, num_outputs=3, name=step + "i2h_slice")
        h2h_r, h2h_z, h2h = F.SliceChannel(h2h, num_outputs=3, name=step + "h2h_slice")
        r = F.elemwise_add(i2h_r, h2h_r, name=step + "plus0")
        r = F.Activation(r, act_type="sigmoid", name=step + "r_act")
        z = F.elemwise_add(i2h_z, h2h_z, name=step + "plus1")
        z = F.Activation(z, act_type="sigmoid", name=step + "z_act")
        new = F.elemwise_add(i2h, F.elemwise_mul(r, h2h, name=step + "mul0"), name=step + "plus2")
        new = F.Activation(new, act_type="tanh", name=step + "h_act")
        share = F.elemwise_sub(F.ones_like(z, name=step + "ones_like0"), z, name=step + "minus0")
        new = F.elemwise_mul(share, new, name=step + "mul1")
        old = F.elemwise_mul(z, before, name=step + "mul20")
        output = F.elemwise_add(new, old, name=step + "out")
        return output, [output]
