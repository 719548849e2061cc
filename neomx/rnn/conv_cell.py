"""ConvRNNCell, ConvLSTMCell and ConvGRUCell: recurrent cells for images."""

from __future__ import annotations

import functools
from typing import Any

from .. import symbol
from ..symbol import Symbol
from .base_cell import RNNParams
from .gates import Elman, GatedCell, GatedRecurrentUnit, LongShortTermMemory

Size = tuple[int, ...]
_LEAKY = functools.partial(symbol.LeakyReLU, act_type="leaky", slope=0.2)


class BaseConvRNNCell(GatedCell):
    """A cell whose products are convolutions. `input_shape` is the shape of one step, including the batch."""

    def __init__(
        self,
        input_shape: Size,
        num_hidden: int,
        h2h_kernel: Size,
        h2h_dilate: Size,
        i2h_kernel: Size,
        i2h_stride: Size,
        i2h_pad: Size,
        i2h_dilate: Size,
        i2h_weight_initializer: Any,
        h2h_weight_initializer: Any,
        i2h_bias_initializer: Any,
        h2h_bias_initializer: Any,
        activation: Any,
        prefix: str = "",
        params: RNNParams | None = None,
        conv_layout: str = "NCHW",
    ):
        super().__init__(prefix=prefix, params=params)
        if not all(size % 2 for size in h2h_kernel):
            raise AssertionError(f"Only support odd number, get h2h_kernel= {h2h_kernel}: the state must keep its size")
        self._num_hidden = num_hidden
        self._activation = activation
        self._conv_layout = conv_layout
        h2h_pad = tuple(d * (k - 1) // 2 for d, k in zip(h2h_dilate, h2h_kernel, strict=True))
        self._i2h = {"kernel": i2h_kernel, "stride": i2h_stride, "pad": i2h_pad, "dilate": i2h_dilate}
        self._h2h = {"kernel": h2h_kernel, "stride": (1,) * len(h2h_kernel), "pad": h2h_pad, "dilate": h2h_dilate}
        self._state_shape = self._infer_state(input_shape)
        self._iW = self.params.get("i2h_weight", init=i2h_weight_initializer)
        self._hW = self.params.get("h2h_weight", init=h2h_weight_initializer)
        self._iB = self.params.get("i2h_bias", init=i2h_bias_initializer)
        self._hB = self.params.get("h2h_bias", init=h2h_bias_initializer)

    def _infer_state(self, input_shape: Size) -> Size:
        """Return the shape of the convolved input for any batch size."""
        if not all(size > 0 for size in input_shape[1:]):
            raise ValueError(
                f"all dimensions of input_shape except the first (the batch) must be known, received {input_shape}"
            )
        data = symbol.Variable("data")
        convolved = symbol.Convolution(data, num_filter=self._num_hidden, layout=self._conv_layout, **self._i2h)
        return 0, *convolved.infer_shape(data=(1, *input_shape[1:]))[1][0][1:]

    def _state(self) -> dict:
        return {"shape": self._state_shape, "__layout__": self._conv_layout}

    def _products(self, inputs: Symbol, state: Symbol, name: str) -> tuple[Symbol, Symbol]:
        common = {"num_filter": self._num_hidden * len(self._gate_names), "layout": self._conv_layout}
        i2h = symbol.Convolution(data=inputs, weight=self._iW, bias=self._iB, name=f"{name}i2h", **common, **self._i2h)
        h2h = symbol.Convolution(data=state, weight=self._hW, bias=self._hB, name=f"{name}h2h", **common, **self._h2h)
        return i2h, h2h

    def _split(self, gates: Symbol, name: str) -> Any:
        axis = self._conv_layout.find("C")
        return symbol.SliceChannel(gates, num_outputs=len(self._gate_names), axis=axis, name=name)


class _ConvCell(BaseConvRNNCell):
    """The common defaults of the convolutional cells."""

    _name = ""

    def __init__(
        self,
        input_shape: Size,
        num_hidden: int,
        h2h_kernel: Size = (3, 3),
        h2h_dilate: Size = (1, 1),
        i2h_kernel: Size = (3, 3),
        i2h_stride: Size = (1, 1),
        i2h_pad: Size = (1, 1),
        i2h_dilate: Size = (1, 1),
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        activation: Any = _LEAKY,
        prefix: str | None = None,
        params: RNNParams | None = None,
        conv_layout: str = "NCHW",
    ):
        convolutions = h2h_kernel, h2h_dilate, i2h_kernel, i2h_stride, i2h_pad, i2h_dilate
        initializers = i2h_weight_initializer, h2h_weight_initializer, i2h_bias_initializer, h2h_bias_initializer
        prefix = self._name if prefix is None else prefix
        super().__init__(input_shape, num_hidden, *convolutions, *initializers, activation, prefix, params, conv_layout)


class ConvRNNCell(Elman, _ConvCell):
    """The convolutional Elman cell: h' = act(W * x + b + U * h + c)."""

    _name = "ConvRNN_"


class ConvLSTMCell(LongShortTermMemory, _ConvCell):
    """The convolutional LSTM cell."""

    _name = "ConvLSTM_"


class ConvGRUCell(GatedRecurrentUnit, _ConvCell):
    """The convolutional GRU cell."""

    _name = "ConvGRU_"

    def _split(self, gates: Symbol, name: str) -> Any:
        if self._conv_layout.find("C") == 1:  # MXNet's file does not contain the axis in this case
            return GatedCell._split(self, gates, name)
        return super()._split(gates, name)
