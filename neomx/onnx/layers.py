"""Translators for ONNX layers: convolution, pooling, normalization, activations, recurrent layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import symbol as sym
from ..symbol import Symbol
from .reader import Call, translates
from .tensors import GEMM2, padded

_BILINEAR: Any = sym.contrib.BilinearResize2D  # type: ignore[attr-defined]  # made from the table

# ---- windows ----


def _kernel(call: Call) -> tuple[int, ...]:
    """Return the kernel shape, from the attribute or from the weight."""
    if "kernel_shape" in call.attrs:
        return tuple(call.attrs["kernel_shape"])
    shape = call.dims(call.node.input[1])
    if shape is None or not all(isinstance(n, int) for n in shape[2:]):
        raise call.fail("the shape of the kernel is unknown")
    return tuple(int(n) for n in shape[2:])  # type: ignore[arg-type]


def _window(call: Call, kernel: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...], list[int]]:
    """Return stride, dilation and pads (before each axis, then after each)."""
    rank = len(kernel)
    stride = tuple(call.attrs.get("strides", (1,) * rank))
    dilation = tuple(call.attrs.get("dilations", (1,) * rank))
    auto = call.attrs.get("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        return stride, dilation, _same_pads(call, kernel, stride, dilation, auto)
    pads = list(call.attrs.get("pads", (0,) * 2 * rank)) if auto == "NOTSET" else [0] * 2 * rank
    return stride, dilation, pads


def _same_pads(call: Call, kernel: Any, stride: Any, dilation: Any, auto: str) -> list[int]:
    shape = call.dims(call.node.input[0])
    sizes = None if shape is None else shape[2:]
    if sizes is None or not all(isinstance(n, int) for n in sizes):
        raise call.fail(f"auto_pad={auto} requires a known image size")
    total = []
    for size, k, s, d in zip(sizes, kernel, stride, dilation, strict=True):
        total.append(max(0, (math.ceil(size / s) - 1) * s + d * (k - 1) + 1 - size))  # type: ignore[operator]
    less, more = [n // 2 for n in total], [n - n // 2 for n in total]
    return [*less, *more] if auto == "SAME_UPPER" else [*more, *less]


def _even(call: Call, data: Symbol, pads: list[int], value: float = 0.0) -> tuple[Symbol, tuple[int, ...]]:
    """Return data and symmetric pads; if the pads are asymmetric, the data is padded by a separate op."""
    rank = len(pads) // 2
    if pads[:rank] == pads[rank:]:
        return data, tuple(pads[:rank])
    return padded(call, data, [0, 0, *pads[:rank], 0, 0, *pads[rank:]], value=value), (0,) * rank


@translates("Conv")
def _conv(call: Call) -> Symbol:
    kernel = _kernel(call)
    stride, dilation, pads = _window(call, kernel)
    data, pad = _even(call, call[0], pads)
    shape = call.dims(call.node.input[1])
    if shape is None or not isinstance(shape[0], int):
        raise call.fail("the shape of the weight is unknown")
    how = {"kernel": kernel, "stride": stride, "dilate": dilation, "pad": pad, "num_filter": shape[0]}
    rest = call.all()[1:] if call.has(2) else [call[1]]
    group = call.attrs.get("group", 1)
    return call.make(sym.Convolution, data, *rest, num_group=group, no_bias=not call.has(2), **how)


@translates("ConvTranspose")
def _conv_transpose(call: Call) -> Symbol:
    kernel = _kernel(call)
    if call.attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or "output_shape" in call.attrs:
        raise call.fail("auto_pad and output_shape are not supported")
    stride, dilation, pads = _window(call, kernel)
    rank, group = len(kernel), call.attrs.get("group", 1)
    if pads[:rank] != pads[rank:]:
        raise call.fail(f"asymmetric pads {pads} are not supported")
    adj = tuple(call.attrs.get("output_padding", (0,) * rank))
    shape = call.dims(call.node.input[1])
    if shape is None or not isinstance(shape[1], int):
        raise call.fail("the shape of the weight is unknown")
    how = {"kernel": kernel, "stride": stride, "dilate": dilation, "pad": tuple(pads[:rank]), "adj": adj}
    rest = call.all()[1:] if call.has(2) else [call[1]]
    filters = shape[1] * group
    return call.make(
        sym.Deconvolution, call[0], *rest, num_filter=filters, num_group=group, no_bias=not call.has(2), **how
    )


@translates("MaxPool", "AveragePool")
def _pool(call: Call) -> Symbol:
    if len([name for name in call.node.output if name]) > 1:
        raise call.fail("the second output, the indices of the maxima, is not supported")
    kernel = tuple(call.attrs["kernel_shape"])
    stride, dilation, pads = _window(call, kernel)
    if any(d != 1 for d in dilation):
        raise call.fail(f"dilations {dilation} are not supported")
    rank, includes = len(kernel), bool(call.attrs.get("count_include_pad", 0))
    kind = "max" if call.op == "MaxPool" else "avg"
    if kind == "avg" and pads[:rank] != pads[rank:] and not includes:
        raise call.fail(f"average pooling with asymmetric pads {pads} is not supported")
    data, pad = _even(call, call[0], pads, -np.finfo(np.float32).max if kind == "max" else 0.0)
    how: dict[str, Any] = {"kernel": kernel, "stride": stride, "pad": pad, "pool_type": kind}
    if call.attrs.get("ceil_mode"):
        how["pooling_convention"] = "full"
    return call.make(sym.Pooling, data, **how, **({"count_include_pad": includes} if kind == "avg" else {}))


@translates("GlobalAveragePool", "GlobalMaxPool")
def _pool_all(call: Call) -> Symbol:
    kind = "avg" if call.op == "GlobalAveragePool" else "max"
    if call.rank(0) == 4:
        return call.make(sym.Pooling, call[0], kernel=(1, 1), global_pool=True, pool_type=kind)
    axes = tuple(range(2, call.rank(0)))
    return call.make(sym.mean if kind == "avg" else sym.max, call[0], axis=axes, keepdims=True)


@translates("Upsample", "Resize")
def _resize(call: Call) -> Symbol:
    mode, (height, width) = call.attrs.get("mode", "nearest"), _picture(call)
    new_height, new_width = _new_size(call, height, width)
    if mode == "nearest":
        scale = new_height // height
        if (new_height, new_width) != (height * scale, width * scale):
            raise call.fail(f"{new_height}x{new_width} is not an integer multiple of {height}x{width}")
        return call.make(sym.UpSampling, call[0], scale=scale, sample_type="nearest", num_args=1)
    where = call.attrs.get("coordinate_transformation_mode", "asymmetric" if call.opset < 11 else "half_pixel")
    if mode != "linear" or where not in ("align_corners", "half_pixel", "pytorch_half_pixel"):
        raise call.fail(f"resizing by mode {mode!r} with {where!r} is not supported")
    corners = where == "align_corners"
    return call.make(_BILINEAR, call[0], height=new_height, width=new_width, align_corners=corners)


def _picture(call: Call) -> tuple[int, int]:
    """Return height and width."""
    dims = call.dims(call.node.input[0]) or ()
    height, width = dims[2:] if len(dims) == 4 else (None, None)
    if not isinstance(height, int) or not isinstance(width, int):
        raise call.fail(f"resizing requires a known image size, received shape {dims}")
    return height, width


def _new_size(call: Call, height: int, width: int) -> tuple[int, int]:
    if call.has(3):
        sizes = call.known(3, "sizes")
        return int(sizes[2]), int(sizes[3])
    last = 1 if call.op == "Upsample" or call.opset < 11 else 2
    scales = call.attrs["scales"] if "scales" in call.attrs else call.known(last, "scales")
    return math.floor(height * scales[2]), math.floor(width * scales[3])


# ---- products and normalization ----


@translates("Gemm")
def _gemm(call: Call) -> Symbol:
    alpha, beta = call.attrs.get("alpha", 1.0), call.attrs.get("beta", 1.0)
    weight, bias = call.constant(1), call.constant(2)
    plain = alpha == 1.0 and not call.attrs.get("transA") and weight is not None
    if plain and (not call.has(2) or bias is not None and beta == 1.0 and bias.size == _units(call, weight)):
        return _dense(call, weight, bias)
    turned = {"transpose_a": bool(call.attrs.get("transA")), "transpose_b": bool(call.attrs.get("transB"))}
    product = GEMM2(call[0], call[1], alpha=alpha, **turned)
    return sym.broadcast_add(product, call[2] * beta if beta != 1.0 else call[2]) if call.has(2) else product


def _units(call: Call, weight: Any) -> int:
    return weight.shape[0 if call.attrs.get("transB") else 1]


def _dense(call: Call, weight: Any, bias: np.ndarray | None) -> Symbol:
    turned = call[1] if call.attrs.get("transB") else call.parameter("weight", np.ascontiguousarray(weight.T))
    rest: list[Symbol] = []
    if bias is not None:
        rest = [call[2] if bias.ndim == 1 else call.parameter("bias", bias.reshape(-1))]
    units = _units(call, weight)
    return call.make(sym.FullyConnected, call[0], turned, *rest, num_hidden=units, no_bias=bias is None, flatten=False)


@translates("BatchNormalization")
def _batch_norm(call: Call) -> Symbol:
    if call.attrs.get("training_mode") or call.attrs.get("spatial", 1) != 1:
        raise call.fail("only batch normalization with moving averages, over channels, is supported")
    how = {"eps": call.attrs.get("epsilon", 1e-5), "momentum": call.attrs.get("momentum", 0.9), "fix_gamma": False}
    return call.make(sym.BatchNorm, *call.all()[:5], **how)


@translates("InstanceNormalization")
def _instance_norm(call: Call) -> Symbol:
    return call.make(sym.InstanceNorm, *call.all(), eps=call.attrs.get("epsilon", 1e-5))


@translates("LayerNormalization")
def _layer_norm(call: Call) -> Symbol:
    rank = call.rank(0)
    axis, eps = call.attrs.get("axis", -1) % rank, call.attrs.get("epsilon", 1e-5)
    if axis != rank - 1:
        raise call.fail("normalization over several axes is not supported")
    gamma = call.dims(call.node.input[1])
    beta = call[2] if call.has(2) else call.parameter("beta", np.zeros(gamma, np.float32))  # type: ignore[arg-type]
    return call.make(sym.LayerNorm, call[0], call[1], beta, axis=-1, eps=eps)


@translates("GroupNormalization")
def _group_norm(call: Call) -> Symbol:
    if call.opset < 21:
        raise call.fail("before opset 21 it scales by group, which is not supported")
    return call.make(
        sym.GroupNorm, *call.all(), num_groups=call.attrs["num_groups"], eps=call.attrs.get("epsilon", 1e-5)
    )


@translates("LRN")
def _lrn(call: Call) -> Symbol:
    how = {"alpha": call.attrs.get("alpha", 1e-4), "beta": call.attrs.get("beta", 0.75)}
    return call.make(sym.LRN, call[0], nsize=call.attrs["size"], knorm=call.attrs.get("bias", 1.0), **how)


@translates("LpNormalization")
def _lp_norm(call: Call) -> Symbol:
    axis, p = call.attrs.get("axis", -1), call.attrs.get("p", 2)
    return call.make(sym.broadcast_div, call[0], sym.norm(call[0], ord=p, axis=axis, keepdims=True))


@translates("Softmax", "LogSoftmax")
def _softmax(call: Call) -> Symbol:
    op = sym.softmax if call.op == "Softmax" else sym.log_softmax
    axis = call.attrs.get("axis", -1 if call.opset >= 13 else 1)
    if call.opset < 13:  # over this axis and all following ones
        rank = call.rank(0)
        if axis % rank != rank - 1:
            flat = sym.Reshape(call[0], shape=(*[0] * (axis % rank), -1))
            return call.make(sym.reshape_like, op(flat, axis=-1), call[0])
    return call.make(op, call[0], axis=axis)


# ---- activations ----


@translates("LeakyRelu")
def _leaky(call: Call) -> Symbol:
    return call.make(sym.LeakyReLU, call[0], act_type="leaky", slope=call.attrs.get("alpha", 0.01))


@translates("Elu")
def _elu(call: Call) -> Symbol:
    return call.make(sym.LeakyReLU, call[0], act_type="elu", slope=call.attrs.get("alpha", 1.0))


@translates("Selu")
def _selu(call: Call) -> Symbol:
    return call.make(sym.LeakyReLU, call[0], act_type="selu")


@translates("PRelu")
def _prelu(call: Call) -> Symbol:
    slope = call.constant(1)
    if slope is not None and slope.size == max(slope.shape, default=1):
        return call.make(sym.LeakyReLU, call[0], call.parameter("gamma", slope.reshape(-1)), act_type="prelu")
    negative = sym.broadcast_mul(call[1], call[0] - sym.relu(call[0]))
    return sym.relu(call[0]) + negative


@translates("HardSigmoid")
def _hard_sigmoid(call: Call) -> Symbol:
    how = {"alpha": call.attrs.get("alpha", 0.2), "beta": call.attrs.get("beta", 0.5)}
    return call.make(sym.hard_sigmoid, call[0], **how)


@translates("HardSwish")
def _hard_swish(call: Call) -> Symbol:
    return call[0] * sym.hard_sigmoid(call[0], alpha=1 / 6, beta=0.5)


@translates("Swish")
def _swish(call: Call) -> Symbol:
    return call[0] * sym.sigmoid(call[0] * call.attrs.get("alpha", 1.0))


@translates("Gelu")
def _gelu(call: Call) -> Symbol:
    x = call[0]
    if call.attrs.get("approximate", "none") == "tanh":
        return x * 0.5 * (sym.tanh((x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)) + 1)
    return call.make(sym.LeakyReLU, x, act_type="gelu")


@translates("ThresholdedRelu")
def _thresholded(call: Call) -> Symbol:
    return call[0] * (call[0] > call.attrs.get("alpha", 1.0))


# ---- recurrent layers ----

_GATES = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}  # the positions of MXNet's gates in ONNX's order


@translates("LSTM", "GRU", "RNN")
def _recurrent(call: Call) -> list[Symbol]:
    size, gates = call.attrs["hidden_size"], _GATES[call.op]
    both = call.attrs.get("direction", "forward") == "bidirectional"
    _check_recurrent(call)
    mode = _mode(call)
    weights, hidden = call.known(1, "W"), call.known(2, "R")
    directions = 2 if both else 1
    bias = call.known(3, "B") if call.has(3) else np.zeros((directions, 2 * len(gates) * size), weights.dtype)
    flat = np.concatenate(
        [_gates(each[d], gates, size) for d in range(directions) for each in (weights, hidden)]
        + [_gates(part, gates, size) for d in range(directions) for part in np.split(bias[d], 2)]
    )
    states = [
        call[5 + i] if call.has(5 + i) else sym.zeros(shape=(directions, 0, size))
        for i in range(2 if call.op == "LSTM" else 1)
    ]
    parameters = call.parameter("parameters", flat)
    how = {"state_size": size, "num_layers": 1, "bidirectional": both, "mode": mode, "state_outputs": True}
    made = call.make(sym.RNN, call[0], parameters, *states, **how)
    split = sym.Reshape(made[0], shape=(0, 0, -4, directions, size))
    return [sym.transpose(split, axes=(0, 2, 1, 3)), *(made[i] for i in range(1, len(made)))]


def _gates(array: np.ndarray, order: Sequence[int], size: int) -> np.ndarray:
    """Return the gates of an array in MXNet's order, flattened."""
    return array.reshape(len(order), size, -1)[list(order)].reshape(-1)


def _check_recurrent(call: Call) -> None:
    if call.attrs.get("direction", "forward") == "reverse" or call.attrs.get("layout", 0):
        raise call.fail("direction='reverse' and layout=1 are not supported")
    if call.has(4) or call.has(7) or "clip" in call.attrs or call.attrs.get("input_forget"):
        raise call.fail("sequence_lens, peepholes, clip and input_forget are not supported")
    if call.op == "GRU" and not call.attrs.get("linear_before_reset"):
        raise call.fail("a GRU with linear_before_reset=0 is not supported")


def _mode(call: Call) -> str:
    usual = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}[call.op]
    found = [each if isinstance(each, str) else each.decode() for each in call.attrs.get("activations", usual)]
    if call.op == "RNN" and set(found) <= {"Relu"}:
        return "rnn_relu"
    if set(found) != set(usual) or found[: len(usual)] != usual:
        raise call.fail(f"activations {found} are not supported, expected {usual}")
    return {"LSTM": "lstm", "GRU": "gru", "RNN": "rnn_tanh"}[call.op]
