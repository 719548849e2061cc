"""Recurrent layers, which process whole sequences through all layers and directions in one kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ... import ndarray
from ...ndarray import NDArray
from ...ndarray.invoke import apply
from ...ops.rnn import RNN_OF_PARTS
from ...symbol import Symbol
from ...symbol import zeros as symbol_zeros
from ..block import HybridBlock
from ..kinds import is_eager
from .basic_cell import GRUCell, LSTMCell, RNNCell
from .composite_cell import BidirectionalCell, HybridSequentialRNNCell
from .modifier_cell import DropoutCell
from .sequence import known

_GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}


class _RNNLayer(HybridBlock):
    """The base of RNN, LSTM and GRU."""

    l0_i2h_weight: Any

    def __init__(
        self,
        mode: str,
        hidden_size: int,
        num_layers: int,
        layout: str,
        dropout: float,
        bidirectional: bool,
        input_size: int,
        i2h_weight_initializer: Any,
        h2h_weight_initializer: Any,
        i2h_bias_initializer: Any,
        h2h_bias_initializer: Any,
        dtype: Any,
        projection_size: int | None = None,
        h2r_weight_initializer: Any = None,
        state_clip_min: float | None = None,
        state_clip_max: float | None = None,
        state_clip_nan: bool = False,
        use_sequence_length: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if layout not in ("TNC", "NTC"):
            raise AssertionError(f"Invalid layout {layout}; must be one of ['TNC' or 'NTC']")
        self._mode = mode
        self._hidden_size = hidden_size
        self._projection_size = projection_size
        self._num_layers = num_layers
        self._layout = layout
        self._dropout = dropout
        self._dir = 2 if bidirectional else 1
        self._input_size = input_size
        self._use_sequence_length = use_sequence_length
        self._dtype = dtype
        self._gates = _GATES[mode]
        self.skip_states = False
        # The attributes of the op, in the form that its function expects and that a graph stores.
        self._attrs = {
            "state_size": hidden_size,
            "projection_size": projection_size,
            "num_layers": num_layers,
            "bidirectional": bidirectional,
            "p": dropout,
            "state_outputs": True,
            "mode": mode,
            "lstm_state_clip_min": state_clip_min,
            "lstm_state_clip_max": state_clip_max,
            "lstm_state_clip_nan": state_clip_nan,
            "use_sequence_length": use_sequence_length,
        }
        rows, out = self._gates * hidden_size, projection_size or hidden_size
        for side in self._sides():
            columns = input_size if side[1:] == "0" else self._dir * out
            for name, shape, init in (
                ("i2h_weight", (rows, columns), i2h_weight_initializer),
                ("h2h_weight", (rows, out), h2h_weight_initializer),
                ("i2h_bias", (rows,), i2h_bias_initializer),
                ("h2h_bias", (rows,), h2h_bias_initializer),
                ("h2r_weight", (projection_size, hidden_size), h2r_weight_initializer),
            ):
                if name != "h2r_weight" or projection_size:
                    self._register(f"{side}_{name}", shape, init)
        self._packed_order = self._order()

    def _register(self, name: str, shape: tuple, init: Any) -> None:
        param = self.params.get(name, shape=shape, init=init, allow_deferred_init=True, dtype=self._dtype)
        setattr(self, name, param)

    def _sides(self) -> Iterator[str]:
        """The layers and directions: 'l0', 'r0', 'l1', ..."""
        for layer in range(self._num_layers):
            for direction in "lr"[: self._dir]:
                yield f"{direction}{layer}"

    def _order(self) -> list[str]:
        """The names of the parameters in the order of the op's packed vector: all matrices, then all biases."""
        matrices = ["i2h_weight", "h2h_weight"] + (["h2r_weight"] if self._projection_size else [])
        sides = list(self._sides())
        return [f"{side}_{name}" for names in (matrices, ["i2h_bias", "h2h_bias"]) for side in sides for name in names]

    def __repr__(self) -> str:
        rows, columns = self.l0_i2h_weight.shape
        words = [f"{columns or None} -> {rows // self._gates}", self._layout]
        words += [f"num_layers={self._num_layers}"] if self._num_layers != 1 else []
        words += [f"dropout={self._dropout}"] if self._dropout != 0 else []
        words += ["bidirectional"] if self._dir == 2 else []
        return f"{type(self).__name__}({', '.join(words)})"

    def _collect_params_with_prefix(self, prefix: str = "") -> dict[str, Any]:
        """The parameters by their names in files, which are those of an equivalent stack of cells."""
        prefix = prefix + "." if prefix else ""
        collected = {}
        for name, param in self._reg_params.items():
            side, _, rest = name.partition("_")
            cell = f"{side[0]}_cell." if self._dir == 2 else ""
            collected[f"{prefix}_unfused.{side[1:]}.{cell}{rest}"] = param
        return collected

    def state_info(self, batch_size: int = 0) -> list[dict]:
        """Return the shape, layout and dtype of each state."""
        layers = self._num_layers * self._dir
        sizes = [self._projection_size or self._hidden_size] + [self._hidden_size] * (self._mode == "lstm")
        return [{"shape": (layers, batch_size, size), "__layout__": "LNC", "dtype": self._dtype} for size in sizes]

    def cast(self, dtype: Any) -> None:
        """Cast the parameters, and the states that `begin_state` creates."""
        super().cast(dtype)
        self._dtype = dtype

    def begin_state(self, batch_size: int = 0, func: Callable[..., Any] = ndarray.zeros, **kwargs: Any) -> list:
        """Return the initial states, created with `func(name=..., shape=..., **kwargs)`."""
        infos = enumerate(self.state_info(batch_size))
        return known([func(name=f"{self.prefix}h0_{i}", **{**info, **kwargs}) for i, info in infos])

    def _unfuse(self) -> HybridSequentialRNNCell:
        """The same network as cells that share the layer's parameters."""
        if self._projection_size:
            raise AssertionError("_unfuse does not support a layer with projection_size")
        stack = HybridSequentialRNNCell(prefix=self.prefix, params=self.params)
        with stack.name_scope():
            for layer in range(self._num_layers):
                width = self._dir * self._hidden_size if layer else self._input_size
                cells = [self._cell(f"{side}{layer}_", width) for side in "lr"[: self._dir]]
                stack.add(cells[0] if self._dir == 1 else BidirectionalCell(*cells))
                if self._dropout > 0 and layer != self._num_layers - 1:
                    stack.add(DropoutCell(self._dropout))
        return stack

    def _cell(self, prefix: str, input_size: int) -> Any:
        kwargs: dict[str, Any] = {"input_size": input_size, "prefix": prefix}
        if self._mode == "lstm":
            return LSTMCell(self._hidden_size, **kwargs)
        if self._mode == "gru":
            return GRUCell(self._hidden_size, **kwargs)
        return RNNCell(self._hidden_size, activation=self._mode.removeprefix("rnn_"), **kwargs)

    def __call__(self, inputs: Any, states: Any = None, sequence_length: Any = None) -> Any:
        if sequence_length is None:
            return super().__call__(inputs) if states is None else super().__call__(inputs, states)
        return super().__call__(inputs, states, sequence_length)

    def forward(self, inputs: Any, states: Any = None, sequence_length: Any = None) -> Any:  # type: ignore[override]
        """Return the outputs, and also the last states if `states` were given."""
        if (states is None) is not self.skip_states:
            self.skip_states = states is None
            self._clear_cached_op()
        if states is None:
            states = self._first_states(inputs)
        elif isinstance(states, (NDArray, Symbol)):
            states = [states]
        if self._use_sequence_length and sequence_length is not None:
            return super().forward(inputs, list(states), sequence_length)
        return super().forward(inputs, list(states))

    def _first_states(self, inputs: Any) -> list:
        if isinstance(inputs, Symbol):
            return self.begin_state(0, func=symbol_zeros)
        batch = inputs.shape[self._layout.index("N")]
        return self.begin_state(batch, ctx=inputs.context, dtype=inputs.dtype)

    def hybrid_forward(  # type: ignore[override]
        self, F: Any, inputs: Any, states: Any, sequence_length: Any = None, **params: Any
    ) -> Any:
        """Return the outputs, and the last states unless `skip_states` is set."""
        if self._layout == "NTC":
            inputs = F.swapaxes(inputs, dim1=0, dim2=1)
        parts = [params[name] for name in self._packed_order]
        lengths = {} if sequence_length is None else {"sequence_length": sequence_length}
        if is_eager(F):
            arrays = [inputs, *states, *lengths.values(), *parts]
            outputs, *states = apply(RNN_OF_PARTS, arrays, dict(self._attrs), None, inputs._kind)
        else:
            packed = F._internal._rnn_param_concat(*(F.reshape(part, shape=-1) for part in parts), dim=0)
            outputs, *states = F.RNN(inputs, packed, *states, **lengths, **self._attrs)
        if self._layout == "NTC":
            outputs = F.swapaxes(outputs, dim1=0, dim2=1)
        return outputs if self.skip_states else (outputs, states)


class RNN(_RNNLayer):
    """Elman layers with relu or tanh activation."""

    def __init__(
        self,
        hidden_size: int,
        num_layers: int = 1,
        activation: str = "relu",
        layout: str = "TNC",
        dropout: float = 0,
        bidirectional: bool = False,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        input_size: int = 0,
        dtype: Any = "float32",
        **kwargs: Any,
    ):
        if activation not in ("relu", "tanh"):
            raise KeyError(f"RNN: activation must be 'relu' or 'tanh', received {activation!r}. RNNCell has others")
        sizes = hidden_size, num_layers, layout, dropout, bidirectional, input_size
        initializers = i2h_weight_initializer, h2h_weight_initializer, i2h_bias_initializer, h2h_bias_initializer
        # projection_size is passed here, so that it is rejected in kwargs.
        super().__init__("rnn_" + activation, *sizes, *initializers, dtype, projection_size=None, **kwargs)


class LSTM(_RNNLayer):
    """Long short-term memory layers. With `projection_size`, their outputs are projected to that size."""

    def __init__(
        self,
        hidden_size: int,
        num_layers: int = 1,
        layout: str = "TNC",
        dropout: float = 0,
        bidirectional: bool = False,
        input_size: int = 0,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        projection_size: int | None = None,
        h2r_weight_initializer: Any = None,
        state_clip_min: float | None = None,
        state_clip_max: float | None = None,
        state_clip_nan: bool = False,
        dtype: Any = "float32",
        **kwargs: Any,
    ):
        sizes = hidden_size, num_layers, layout, dropout, bidirectional, input_size
        initializers = i2h_weight_initializer, h2h_weight_initializer, i2h_bias_initializer, h2h_bias_initializer
        projection = projection_size, h2r_weight_initializer
        clipping: tuple = state_clip_min, state_clip_max, state_clip_nan
        super().__init__("lstm", *sizes, *initializers, dtype, *projection, *clipping, **kwargs)


class GRU(_RNNLayer):
    """Gated recurrent unit layers."""

    def __init__(
        self,
        hidden_size: int,
        num_layers: int = 1,
        layout: str = "TNC",
        dropout: float = 0,
        bidirectional: bool = False,
        input_size: int = 0,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        dtype: Any = "float32",
        **kwargs: Any,
    ):
        sizes = hidden_size, num_layers, layout, dropout, bidirectional, input_size
        initializers = i2h_weight_initializer, h2h_weight_initializer, i2h_bias_initializer, h2h_bias_initializer
        # projection_size is passed here, so that it is rejected in kwargs.
        super().__init__("gru", *sizes, *initializers, dtype, projection_size=None, **kwargs)
