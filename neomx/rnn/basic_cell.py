"""RNNCell, LSTMCell and GRUCell: recurrent cells for vectors."""

from __future__ import annotations

from typing import Any

from .. import initializer, symbol
from ..symbol import Symbol
from .base_cell import RNNParams
from .gates import Elman, GatedCell, GatedRecurrentUnit, LongShortTermMemory


class _DenseCell(GatedCell):
    """A cell whose products are matrix products."""

    def __init__(self, num_hidden: int, prefix: str, params: RNNParams | None, i2h_bias_init: Any = None):
        super().__init__(prefix=prefix, params=params)
        self._num_hidden = num_hidden
        self._iW = self.params.get("i2h_weight")
        self._hW = self.params.get("h2h_weight")
        self._iB = self.params.get("i2h_bias", init=i2h_bias_init)
        self._hB = self.params.get("h2h_bias")

    def _state(self) -> dict:
        return {"shape": (0, self._num_hidden), "__layout__": "NC"}

    def _products(self, inputs: Symbol, state: Symbol, name: str) -> tuple[Symbol, Symbol]:
        rows = self._num_hidden * len(self._gate_names)
        i2h = symbol.FullyConnected(data=inputs, weight=self._iW, bias=self._iB, num_hidden=rows, name=f"{name}i2h")
        h2h = symbol.FullyConnected(data=state, weight=self._hW, bias=self._hB, num_hidden=rows, name=f"{name}h2h")
        return i2h, h2h


class RNNCell(Elman, _DenseCell):
    """The Elman cell: h' = act(W x + b + U h + c)."""

    def __init__(
        self, num_hidden: int, activation: Any = "tanh", prefix: str = "rnn_", params: RNNParams | None = None
    ):
        super().__init__(num_hidden, prefix, params)
        self._activation = activation


class LSTMCell(LongShortTermMemory, _DenseCell):
    """The long short-term memory cell. The bias of its forget gate is initialized to `forget_bias`."""

    def __init__(
        self, num_hidden: int, prefix: str = "lstm_", params: RNNParams | None = None, forget_bias: float = 1.0
    ):
        super().__init__(num_hidden, prefix, params, initializer.LSTMBias(forget_bias=forget_bias))


class GRUCell(GatedRecurrentUnit, _DenseCell):
    """The gated recurrent unit cell."""

    def __init__(self, num_hidden: int, prefix: str = "gru_", params: RNNParams | None = None):
        super().__init__(num_hidden, prefix, params)

    def _products(self, inputs: Symbol, state: Symbol, name: str) -> tuple[Symbol, Symbol]:
        return super()._products(inputs, state, f"{name}_")  # as in MXNet's node names
