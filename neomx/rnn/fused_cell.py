"""FusedRNNCell: all layers and steps as one op, with conversion of its weights to those of single cells."""

from __future__ import annotations

from typing import Any

from .. import ndarray as nd
from .. import symbol
from ..initializer import FusedRNN
from ..ops.rnn import rnn_param_size
from ..symbol import Symbol
from . import sequence
from .base_cell import Arrays, BaseRNNCell, RNNParams, take
from .basic_cell import GRUCell, LSTMCell, RNNCell
from .composite_cell import BidirectionalCell, SequentialRNNCell
from .dropout_cell import DropoutCell

_GATES = {"rnn_relu": ("",), "rnn_tanh": ("",), "lstm": LSTMCell._gate_names, "gru": GRUCell._gate_names}


class FusedRNNCell(BaseRNNCell):
    """Layers of 'rnn_relu', 'rnn_tanh', 'lstm' or 'gru', computed by the op RNN. Only supports `unroll`.

    `unroll` returns the last states if `get_next_state`, otherwise an empty list.
    """

    def __init__(
        self,
        num_hidden: int,
        num_layers: int = 1,
        mode: str = "lstm",
        bidirectional: bool = False,
        dropout: float = 0.0,
        get_next_state: bool = False,
        forget_bias: float = 1.0,
        prefix: str | None = None,
        params: RNNParams | None = None,
    ):
        if mode not in _GATES:
            raise ValueError(f"FusedRNNCell: mode must be one of {', '.join(_GATES)}, received {mode!r}")
        super().__init__(prefix=f"{mode}_" if prefix is None else prefix, params=params)
        self._num_hidden, self._num_layers = num_hidden, num_layers
        self._mode, self._bidirectional = mode, bidirectional
        self._dropout, self._get_next_state = dropout, get_next_state
        self._packing = FusedRNN(None, num_hidden, num_layers, mode, bidirectional, forget_bias)
        self._parameter = self.params.get("parameters", init=self._packing)

    @property
    def state_info(self) -> list[dict]:
        """One state for all layers and directions; two for an LSTM."""
        layers = self._num_layers * (1 + self._bidirectional)
        info = {"shape": (layers, 0, self._num_hidden), "__layout__": "LNC"}
        return [dict(info) for _ in range(1 + (self._mode == "lstm"))]

    @property
    def _gate_names(self) -> Any:  # type: ignore[override]
        return _GATES[self._mode]

    def __call__(self, inputs: Symbol, states: list) -> tuple[Any, list]:
        """Raise NotImplementedError; use `unroll`."""
        raise NotImplementedError("FusedRNNCell cannot be stepped. Please use unroll")

    def unroll(
        self, length: int, inputs: Any, begin_state: Any = None, layout: str = "NTC", merge_outputs: bool | None = None
    ) -> tuple[Any, list]:
        """Run the whole sequence with one op. The outputs are one symbol unless `merge_outputs` is False."""
        self.reset()
        data = sequence.merged(sequence.checked(length, inputs, layout), layout)
        swapped = sequence.time_axis(layout) == 1  # the op expects the time axis first
        data = symbol.swapaxes(data, dim1=0, dim2=1) if swapped else data
        outputs, states = self._run(data, self.begin_state() if begin_state is None else begin_state)
        outputs = symbol.swapaxes(outputs, dim1=0, dim2=1) if swapped else outputs
        return sequence.formatted(length, outputs, layout, merge_outputs), states

    def _run(self, data: Symbol, states: list) -> tuple[Symbol, list]:
        self._next_step(states)
        kinds = ("state", "state_cell")[: len(self.state_info)]
        rnn = symbol.RNN(
            data=data,
            parameters=self._parameter,
            state_size=self._num_hidden,
            num_layers=self._num_layers,
            bidirectional=self._bidirectional,
            p=self._dropout,
            state_outputs=self._get_next_state,
            mode=self._mode,
            name=f"{self._prefix}rnn",
            **dict(zip(kinds, states, strict=False)),
        )
        if not self._get_next_state:
            return rnn, []
        after = [rnn[i + 1] for i in range(len(kinds))]
        for state in after:
            state._set_attr(__layout__="LNC")
        return rnn[0], after

    def unpack_weights(self, args: Arrays) -> Arrays:
        """Return the parameters with the packed ones split into those of the cells from `unfuse`, by gate."""
        args = dict(args)
        packed = take(args, f"{self.params._prefix}parameters")
        args.update({self._prefix + name: part.copy() for name, part in self._packing._parts(packed)})
        return args

    def pack_weights(self, args: Arrays) -> Arrays:
        """Reverse `unpack_weights`."""
        args = dict(args)
        name = f"{self._prefix}l0_i2h{self._gate_names[0]}_weight"
        first = take(dict(args), name)
        size = rnn_param_size(self._mode, first.shape[1], self._num_hidden, self._num_layers, self._bidirectional)
        packed = nd.zeros((size,), ctx=first.context, dtype=first.dtype)
        for name, part in self._packing._parts(packed):
            part[:] = take(args, self._prefix + name)
        args[f"{self.params._prefix}parameters"] = packed
        return args

    def unfuse(self) -> SequentialRNNCell:
        """Return an equivalent network of single cells. Their packed weights are those returned by `unpack_weights`."""
        stack = SequentialRNNCell()
        for layer in range(self._num_layers):
            cell: BaseRNNCell = self._single(f"{self._prefix}l{layer}_")
            if self._bidirectional:
                other = self._single(f"{self._prefix}r{layer}_")
                cell = BidirectionalCell(cell, other, output_prefix=f"{self._prefix}bi_l{layer}_")
            stack.add(cell)
            if self._dropout > 0 and layer != self._num_layers - 1:
                stack.add(DropoutCell(self._dropout, prefix=f"{self._prefix}_dropout{layer}_"))
        return stack

    def _single(self, prefix: str) -> BaseRNNCell:
        if self._mode == "lstm":
            return LSTMCell(self._num_hidden, prefix=prefix)
        if self._mode == "gru":
            return GRUCell(self._num_hidden, prefix=prefix)
        return RNNCell(self._num_hidden, activation=self._mode.removeprefix("rnn_"), prefix=prefix)
