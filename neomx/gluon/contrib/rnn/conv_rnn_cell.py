"""Convolutional recurrent cells: RNN, LSTM and GRU over data with one, two or three spatial dimensions."""

from __future__ import annotations

from typing import Any

from ...rnn.rnn_cell import HybridRecurrentCell

__all__ = [
    "Conv1DGRUCell",
    "Conv1DLSTMCell",
    "Conv1DRNNCell",
    "Conv2DGRUCell",
    "Conv2DLSTMCell",
    "Conv2DRNNCell",
    "Conv3DGRUCell",
    "Conv3DLSTMCell",
    "Conv3DRNNCell",
]

Size = int | tuple[int, ...] | list[int]


class _ConvCell(HybridRecurrentCell):
    """Convolutions of the input and of the state, for a number of gates.

    `input_shape` excludes the batch. `conv_layout` is NCW, NCHW or NCDHW by default, or has the channels last.
    """

    i2h_weight: Any
    _dims, _gates = 2, 1

    def __init__(
        self,
        input_shape: tuple[int, ...],
        hidden_channels: int,
        i2h_kernel: Size,
        h2h_kernel: Size,
        i2h_pad: Size = 0,
        i2h_dilate: Size = 1,
        h2h_dilate: Size = 1,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        conv_layout: str | None = None,
        activation: Any = "tanh",
        prefix: str | None = None,
        params: Any = None,
    ):
        super().__init__(prefix=prefix, params=params)
        self._hidden_channels = hidden_channels
        self._input_shape = tuple(input_shape)
        self._conv_layout = conv_layout or {1: "NCW", 2: "NCHW", 3: "NCDHW"}[self._dims]
        self._activation = activation
        self._channel_axis = self._conv_layout.index("C")
        i2h_kernel, h2h_kernel = self._each(i2h_kernel), self._each(h2h_kernel)
        i2h_dilate, h2h_dilate = self._each(i2h_dilate), self._each(h2h_dilate)
        i2h_pad = self._each(i2h_pad)
        if not all(size % 2 for size in h2h_kernel):
            raise AssertionError(f"Only support odd number, get h2h_kernel= {h2h_kernel}: the size must not change")
        h2h_pad = tuple(d * (k - 1) // 2 for d, k in zip(h2h_dilate, h2h_kernel, strict=True))
        self._i2h = {"kernel": i2h_kernel, "dilate": i2h_dilate, "pad": i2h_pad}
        self._h2h = {"kernel": h2h_kernel, "dilate": h2h_dilate, "pad": h2h_pad}
        in_channels, sizes = self._apart(self._input_shape)
        spatial = tuple(
            size + 2 * pad - dilate * (kernel - 1)
            for size, pad, dilate, kernel in zip(sizes, i2h_pad, i2h_dilate, i2h_kernel, strict=True)
        )
        self._in_channels = in_channels
        self._state_shape = self._together(hidden_channels, spatial)
        rows = self._gates * hidden_channels
        for name, shape, init in (
            ("i2h_weight", (rows, *self._together(in_channels, i2h_kernel)), i2h_weight_initializer),
            ("h2h_weight", (rows, *self._together(hidden_channels, h2h_kernel)), h2h_weight_initializer),
            ("i2h_bias", (rows,), i2h_bias_initializer),
            ("h2h_bias", (rows,), h2h_bias_initializer),
        ):
            setattr(self, name, self.params.get(name, shape=shape, init=init, allow_deferred_init=True))

    def _each(self, value: Size) -> tuple[int, ...]:
        """Return a tuple with a number for each dimension."""
        sizes = (value,) * self._dims if isinstance(value, int) else tuple(value)
        if len(sizes) != self._dims:
            raise AssertionError(
                f"For {self._dims}D convolution, the convolution settings can only be either int or list/tuple of "
                f"length {self._dims}. Received: {value}"
            )
        return sizes

    def _together(self, channels: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Combine channels and spatial sizes in the order of the layout, without the batch."""
        return (channels, *sizes) if self._channel_axis == 1 else (*sizes, channels)

    def _apart(self, shape: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        at = self._channel_axis - 1
        return shape[at], shape[:at] + shape[at + 1 :]

    def state_info(self, batch_size: int = 0) -> list[dict]:
        """Return the shapes of the states: that of the convolved input, with the hidden channels."""
        return [{"shape": (batch_size, *self._state_shape), "__layout__": self._conv_layout}]

    def __repr__(self) -> str:
        rows = self.i2h_weight.shape[0]
        return f"{type(self).__name__}({self._in_channels} -> {rows}, {self._activation}, {self._conv_layout})"

    def _products(self, F: Any, inputs: Any, state: Any, weights: tuple, step: str) -> tuple[Any, Any]:
        """Apply the convolutions to the input and the state."""
        i2h_weight, h2h_weight, i2h_bias, h2h_bias = weights
        common = {
            "num_filter": self._gates * self._hidden_channels,
            "stride": (1,) * self._dims,
            "layout": self._conv_layout,
        }
        i2h = F.Convolution(data=inputs, weight=i2h_weight, bias=i2h_bias, name=step + "i2h", **common, **self._i2h)
        h2h = F.Convolution(data=state, weight=h2h_weight, bias=h2h_bias, name=step + "h2h", **common, **self._h2h)
        return i2h, h2h

    def _split(self, F: Any, gates: Any, name: str) -> Any:
        return F.SliceChannel(gates, num_outputs=self._gates, axis=self._channel_axis, name=name)


class _ConvRNNCell(_ConvCell):
    """h' = act(W * x + b + U * h + c)."""

    def _alias(self) -> str:
        return "conv_rnn"

    def hybrid_forward(
        self, F: Any, inputs: Any, states: Any, i2h_weight: Any, h2h_weight: Any, i2h_bias: Any, h2h_bias: Any
    ) -> tuple[Any, list]:
        """Compute one step."""
        step = f"t{self._counter}_"
        i2h, h2h = self._products(F, inputs, states[0], (i2h_weight, h2h_weight, i2h_bias, h2h_bias), step)
        output = self._get_activation(F, i2h + h2h, self._activation, name=step + "out")
        return output, [output]


class _ConvLSTMCell(_ConvCell):
    """A convolutional LSTM."""

    _gates = 4

    def state_info(self, batch_size: int = 0) -> list[dict]:
        """Return the shapes of the output and the memory cell."""
        return super().state_info(batch_size) + super().state_info(batch_size)

    def _alias(self) -> str:
        return "conv_lstm"

    def hybrid_forward(
        self, F: Any, inputs: Any, states: Any, i2h_weight: Any, h2h_weight: Any, i2h_bias: Any, h2h_bias: Any
    ) -> tuple[Any, list]:
        """Compute one step."""
        step = f"t{self._counter}_"
        i2h, h2h = self._products(F, inputs, states[0], (i2h_weight, h2h_weight, i2h_bias, h2h_bias), step)
        i, f, g, o = self._split(F, i2h + h2h, step + "slice")
        i = F.Activation(i, act_type="sigmoid", name=step + "i")
        f = F.Activation(f, act_type="sigmoid", name=step + "f")
        g = self._get_activation(F, g, self._activation, name=step + "c")
        o = F.Activation(o, act_type="sigmoid", name=step + "o")
        cell = F._internal._plus(f * states[1], i * g, name=step + "state")
        output = F._internal._mul(o, self._get_activation(F, cell, self._activation), name=step + "out")
        return output, [output, cell]


class _ConvGRUCell(_ConvCell):
    """A convolutional GRU."""

    _gates = 3

    def _alias(self) -> str:
        return "conv_gru"

    def hybrid_forward(
        self, F: Any, inputs: Any, states: Any, i2h_weight: Any, h2h_weight: Any, i2h_bias: Any, h2h_bias: Any
    ) -> tuple[Any, list]:
        """Compute one step."""
        step, before = f"t{self._counter}_", states[0]
        i2h, h2h = self._products(F, inputs, before, (i2h_weight, h2h_weight, i2h_bias, h2h_bias), step)
        i2h_r, i2h_z, i2h = self._split(F, i2h, step + "i2h_slice")
        h2h_r, h2h_z, h2h = self._split(F, h2h, step + "h2h_slice")
        r = F.Activation(i2h_r + h2h_r, act_type="sigmoid", name=step + "r_act")
        z = F.Activation(i2h_z + h2h_z, act_type="sigmoid", name=step + "z_act")
        new = self._get_activation(F, i2h + r * h2h, self._activation, name=step + "h_act")
        output = F._internal._plus((1.0 - z) * new, z * before, name=step + "out")
        return output, [output]


class Conv1DRNNCell(_ConvRNNCell):
    """An Elman cell with one-dimensional convolutions."""

    _dims = 1


class Conv1DLSTMCell(_ConvLSTMCell):
    """An LSTM cell with one-dimensional convolutions."""

    _dims = 1


class Conv1DGRUCell(_ConvGRUCell):
    """A GRU cell with one-dimensional convolutions."""

    _dims = 1


class Conv2DRNNCell(_ConvRNNCell):
    """An Elman cell with two-dimensional convolutions."""

    _dims = 2


class Conv2DLSTMCell(_ConvLSTMCell):
    """An LSTM cell with two-dimensional convolutions."""

    _dims = 2


class Conv2DGRUCell(_ConvGRUCell):
    """A GRU cell with two-dimensional convolutions."""

    _dims = 2


class Conv3DRNNCell(_ConvRNNCell):
    """An Elman cell with three-dimensional convolutions."""

    _dims = 3


class Conv3DLSTMCell(_ConvLSTMCell):
    """An LSTM cell with three-dimensional convolutions."""

    _dims = 3


class Conv3DGRUCell(_ConvGRUCell):
    """A GRU cell with three-dimensional convolutions."""

    _dims = 3
