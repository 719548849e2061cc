"""The fused recurrent layers: RNN with relu or tanh, LSTM and GRU, over whole sequences.

All weights are packed into one vector. For each layer and direction it has the input and hidden matrices (and with a
projection its matrix), then for each layer and direction the two biases. Gates are in the order of torch and cuDNN:
i, f, g, o for LSTM and r, z, n for GRU.

torch's kernels are used where possible. LSTM and GRU are also implemented below, as one large matrix product for all
inputs of a layer, then one small product and a few fused operations per step. This GRU trains faster on a CPU. This
LSTM supports features that torch's kernel lacks (a length for each sequence, clipped cells) and is faster in float64.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import Any, Literal

import torch
from torch.autograd.function import once_differentiable

from ..base import MXNetError, modes
from .random import generator
from .shapes import UNKNOWN, is_known
from .table import FILLED_IN, Ctx, Op, Shapes, by_data, op

Tensor = torch.Tensor

_GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}
_MOST_LAYERS = 1000  # a file could request more than fit into memory


def _part_shapes(
    mode: str, input_size: int, state_size: int, num_layers: int, directions: int, projection: int | None
) -> tuple[list[tuple[int, int]], int]:
    """Return the shapes of the packed matrices in order, and the size of each packed bias."""
    if not 1 <= num_layers <= _MOST_LAYERS:
        raise MXNetError(f"num_layers must be between 1 and {_MOST_LAYERS}, received {num_layers}")
    if state_size < 1 or (projection or 0) < 0:
        raise MXNetError(f"state_size must be positive, received {state_size} and projection_size={projection}")
    rows, out = _GATES[mode] * state_size, projection or state_size
    shapes = []
    for layer in range(num_layers):
        columns = directions * out if layer else input_size
        one = [(rows, columns), (rows, out)] + ([(projection, state_size)] if projection else [])
        shapes += one * directions
    return shapes, rows


def rnn_param_size(
    mode: str,
    input_size: int,
    state_size: int,
    num_layers: int,
    bidirectional: bool = False,
    projection_size: int | None = None,
) -> int:
    """Return the number of elements of the packed parameter vector of RNN."""
    directions = 1 + bidirectional
    shapes, rows = _part_shapes(mode, input_size, state_size, num_layers, directions, projection_size)
    return sum(a * b for a, b in shapes) + 2 * num_layers * directions * rows


def _output_names(attrs: dict[str, Any]) -> tuple[str, ...]:
    states = ("state_output", "statecell_output") if attrs["mode"] == "lstm" else ("state_output",)
    return ("output", *states) if attrs["state_outputs"] else ("output",)


@by_data
def _parameter_shapes(data: tuple[int, ...], attrs: dict[str, Any]) -> list[tuple[int, ...]]:
    _, batch, channels = data
    directions = 1 + attrs["bidirectional"]
    known = [attrs[key] for key in ("state_size", "num_layers", "bidirectional", "projection_size")]
    size = UNKNOWN if channels == UNKNOWN else rnn_param_size(attrs["mode"], channels, *known)
    state = (attrs["num_layers"] * directions, batch, attrs["projection_size"] or attrs["state_size"])
    cell = [(*state[:2], attrs["state_size"])] if attrs["mode"] == "lstm" else []
    return [(size,), state, *cell, (batch,)]


def _shapes(shapes: Shapes, outputs: Shapes, attrs: dict[str, Any]) -> Shapes | tuple[Shapes, Shapes]:
    """Infer the output shapes without running the op if possible: running it would import much of torch."""
    found = _parameter_shapes(shapes, outputs, attrs)
    known = [shape for shape in found if is_known(shape)]
    if len(known) < len(found) or any(is_known(old) and old != new for old, new in zip(shapes, found, strict=True)):
        return found
    time, batch, _ = known[0]
    _, _, length = known[2]
    made = [(time, batch, length * (1 + attrs["bidirectional"])), *known[2:]]
    return found, made[: len(_output_names(attrs))]


@op(
    "RNN",
    "_npx_rnn",
    same_dtype=False,
    takes={"state_cell": lambda a: a["mode"] == "lstm", "sequence_length": lambda a: a["use_sequence_length"]},
    outputs=_output_names,
    infer=_shapes,
)
def rnn(
    data: Tensor,
    parameters: Tensor,
    state: Tensor,
    state_cell: Tensor | None = None,
    sequence_length: Tensor | None = None,
    *,
    state_size: int,
    num_layers: int,
    bidirectional: bool = False,
    mode: Literal["gru", "lstm", "rnn_relu", "rnn_tanh"],
    p: float = 0.0,
    state_outputs: bool = False,
    projection_size: int | None = None,
    lstm_state_clip_min: float | None = None,
    lstm_state_clip_max: float | None = None,
    lstm_state_clip_nan: bool = False,
    use_sequence_length: bool = False,
    ctx: Ctx = FILLED_IN,
) -> Tensor | list[Tensor]:
    """Recurrent layers over data of (time, batch, channel). With `state_outputs`, also returns the final states.

    With `use_sequence_length`, each sequence ends at its own length: later outputs are 0, the final state is the one at
    that step, and the backward direction starts there. In training, dropout with probability `p` is applied between
    layers.
    """
    if use_sequence_length and mode != "lstm" and sequence_length is None:
        state_cell, sequence_length = None, state_cell  # gluon passes them by position, without a cell
    directions = 1 + bidirectional
    _check(data, mode, state_size, num_layers, projection_size, p)
    if (state_cell is not None) is not (mode == "lstm"):
        raise MXNetError("state_cell must be given if and only if mode='lstm'")
    if use_sequence_length and sequence_length is None:
        raise MXNetError(f"use_sequence_length=True requires sequence_length of shape ({data.shape[1]},)")
    expected = rnn_param_size(mode, data.shape[2], state_size, num_layers, bidirectional, projection_size)
    if parameters.shape != (expected,) or parameters.dtype is not data.dtype:
        raise MXNetError(f"parameters must have shape ({expected},) and the dtype of data")
    shapes, rows = _part_shapes(mode, data.shape[2], state_size, num_layers, directions, projection_size)
    # A single split has a single concatenation as its gradient.
    parts = parameters.split([a * b for a, b in shapes] + [rows] * (2 * num_layers * directions))
    matrices = [part.view(shape) for part, shape in zip(parts, shapes, strict=False)]
    others = (state_cell, sequence_length if use_sequence_length else None)
    return rnn_of_parts(
        *(array for array in (data, state, *others, *matrices, *parts[len(shapes) :]) if array is not None),
        state_size=state_size,
        num_layers=num_layers,
        bidirectional=bidirectional,
        mode=mode,
        p=p,
        state_outputs=state_outputs,
        projection_size=projection_size,
        lstm_state_clip_min=lstm_state_clip_min,
        lstm_state_clip_max=lstm_state_clip_max,
        lstm_state_clip_nan=lstm_state_clip_nan,
        use_sequence_length=use_sequence_length,
        ctx=ctx,
    )


def rnn_of_parts(
    *arrays: Tensor,
    state_size: int,
    num_layers: int,
    bidirectional: bool = False,
    mode: Literal["gru", "lstm", "rnn_relu", "rnn_tanh"],
    p: float = 0.0,
    state_outputs: bool = False,
    projection_size: int | None = None,
    lstm_state_clip_min: float | None = None,
    lstm_state_clip_max: float | None = None,
    lstm_state_clip_nan: bool = False,
    use_sequence_length: bool = False,
    ctx: Ctx = FILLED_IN,
) -> Tensor | list[Tensor]:
    """RNN with separate parameters, in the order of the packed vector, after data, states and lengths.

    Packing would copy all weights in each call, and unpacking would copy all of their gradients.
    """
    _check(arrays[0], mode, state_size, num_layers, projection_size, p)
    directions = 1 + bidirectional
    shapes, rows = _part_shapes(mode, arrays[0].shape[-1], state_size, num_layers, directions, projection_size)
    expected = [*shapes, *[(rows,)] * (2 * num_layers * directions)]
    count = len(arrays) - len(expected)
    if count != 2 + (mode == "lstm") + use_sequence_length:
        raise MXNetError(f"{2 + (mode == 'lstm') + use_sequence_length} arrays are expected before the parameters")
    data, state, *others = arrays[:count]
    parts = arrays[count:]
    lengths = _lengths(others.pop(), data) if use_sequence_length else None
    state = _first_state(state, "state", data, num_layers * directions, projection_size or state_size)
    state_cell = _first_state(others[0], "state_cell", data, num_layers * directions, state_size) if others else None
    for i, (part, shape) in enumerate(zip(parts, expected, strict=True)):
        if part.shape != shape or part.dtype is not data.dtype:
            raise MXNetError(f"parameter {i} must have shape {shape} and the dtype of data")
    clip = _clipping(mode, projection_size, lstm_state_clip_min, lstm_state_clip_max, lstm_state_clip_nan)
    weights = _by_direction(parts, num_layers * directions)
    drops = p > 0 and modes.training
    if data.is_cuda and not drops and lengths is None and clip is None and projection_size != state_size:
        flat = [w for one in weights for w in one]
        states = (state, state_cell) if mode == "lstm" else state
        outputs = _torch_function(mode)(
            data, states, flat, True, num_layers, 0.0, torch.is_grad_enabled(), bidirectional, False
        )
        return list(outputs) if state_outputs else outputs[0]

    out = data
    last_h, last_c = [], []
    for layer in range(num_layers):
        if layer and drops:
            out = _dropout(out, p, ctx)
        both = []
        for backward in range(directions):
            k = layer * directions + backward
            x = _reversed(out, lengths) if backward else out
            h, c = _one_direction(
                mode, x, state[k], None if state_cell is None else state_cell[k], weights[k], lengths, clip
            )
            both.append(_reversed(h, lengths) if backward else h)
            if state_outputs:
                last_h.append(_last(h, lengths))
                if c is not None:
                    last_c.append(c)
        out = torch.cat(both, 2) if bidirectional else both[0]
    if lengths is not None:
        ended = torch.arange(len(data), device=data.device).unsqueeze(1) >= lengths
        out = out.masked_fill(ended.unsqueeze(2), 0)
    if not state_outputs:
        return out
    return [out, torch.stack(last_h)] + ([torch.stack(last_c)] if mode == "lstm" else [])


# Not an op of MXNet, so not in the table. gluon's layers call it, and so do graphs in which an op packs the parts.
RNN_OF_PARTS = Op(rnn_of_parts, ("RNN",), same_dtype=False, may_alias=False, mutates=(), outputs=_output_names)


def _clipping(
    mode: str, projection: int | None, lowest: float | None, highest: float | None, mends_nan: bool
) -> tuple | None:
    """Return how to clip the cells, or None."""
    if mode != "lstm" or lowest is highest is None:
        return None
    if projection:
        raise MXNetError("lstm_state_clip_min and lstm_state_clip_max cannot be used with projection_size")
    return lowest, highest, mends_nan


def _check(data: Tensor, mode: str, state_size: int, num_layers: int, projection: int | None, p: float) -> None:
    if data.dim() != 3:
        raise MXNetError("data must have 3 dimensions, (time, batch, channel)")
    if not data.is_floating_point():
        raise MXNetError("data must have a floating-point dtype")
    if state_size < 1 or num_layers < 1:
        raise MXNetError("state_size and num_layers must be at least 1")
    if not 0 <= p <= 1:
        raise MXNetError("p must be between 0 and 1")
    if projection is not None and (mode != "lstm" or projection < 1):
        raise MXNetError("projection_size requires mode='lstm' and must be at least 1")


def _first_state(state: Tensor, name: str, data: Tensor, layers: int, size: int) -> Tensor:
    """Return the checked state. Batch size 0 means zeros: `zeros` in a graph does not know the batch size."""
    if state.shape == (layers, 0, size):
        return data.new_zeros(layers, data.shape[1], size)
    if state.shape != (layers, data.shape[1], size):
        raise MXNetError(f"{name} must have shape {(layers, data.shape[1], size)}")
    if state.dtype is not data.dtype:
        raise MXNetError(f"{name} must have the dtype of data")
    return state


def _lengths(sequence_length: Tensor, data: Tensor) -> Tensor:
    if sequence_length.shape != data.shape[1:2]:
        raise MXNetError(f"use_sequence_length=True requires sequence_length of shape ({data.shape[1]},)")
    lengths = sequence_length.long()
    if not lengths.is_meta and lengths.numel() and not 1 <= lengths.min() <= lengths.max() <= len(data):
        raise MXNetError(f"sequence_length must be between 1 and {len(data)}, the length of data")
    return lengths


def _by_direction(parts: Sequence[Tensor], count: int) -> list[list[Tensor]]:
    """Return the matrices wih, whh, the biases bih, bhh (and whr) of each layer and direction."""
    matrices, biases = parts[: -2 * count], parts[-2 * count :]
    each = len(matrices) // count
    return [
        [*matrices[each * k : each * k + 2], *biases[2 * k : 2 * k + 2], *matrices[each * k + 2 : each * (k + 1)]]
        for k in range(count)
    ]


def _torch_function(mode: str):
    return getattr(torch._VF, mode)


def _dropout(x: Tensor, p: float, ctx: Ctx) -> Tensor:
    if p == 1:
        return x * 0
    return x * torch.empty_like(x).bernoulli_(1 - p, generator=generator(ctx)).div_(1 - p)


def _reversed(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Reverse each sequence within its length. Elements after its end are unchanged."""
    if lengths is None:
        return x.flip(0)
    time = torch.arange(len(x), device=x.device).unsqueeze(1)
    index = torch.where(time < lengths, lengths - 1 - time, time)
    return x.gather(0, index.unsqueeze(2).expand_as(x))


def _last(x: Tensor, lengths: Tensor | None) -> Tensor:
    if lengths is None:
        return x[-1]
    return x.gather(0, (lengths - 1).view(1, -1, 1).expand(1, *x.shape[1:])).squeeze(0)


def _one_direction(
    mode: str,
    x: Tensor,
    h: Tensor,
    c: Tensor | None,
    weights: list[Tensor],
    lengths: Tensor | None,
    clip: tuple | None,
) -> tuple[Tensor, Tensor | None]:
    """Return the hidden states (time, batch, size) of one layer in one direction, and the last cell of an LSTM."""
    if mode == "lstm" and len(weights) == 4:
        slow = x.dtype is not torch.float32 and not x.is_cuda
        if slow or lengths is not None or clip is not None:
            hidden, cells = _LSTM.apply(x, h, c, *weights, clip)
            return hidden, _last(cells, lengths)
    if mode == "gru" and not x.is_cuda and torch.is_grad_enabled():
        return _GRU.apply(x, h, *weights), None
    if mode == "lstm" and lengths is not None:
        raise MXNetError("use_sequence_length cannot be used with projection_size")
    size = weights[1].shape[0] // 4  # the size of the LSTM cell
    if len(weights) == 5 and c is not None and h.shape == c.shape:
        c, weights = _widened(c, weights)
    states = h.unsqueeze(0) if c is None else (h.unsqueeze(0), c.unsqueeze(0))
    # oneDNN does not support projections and would warn about them.
    with torch.backends.mkldnn.flags(enabled=False, allow_tf32=None) if len(weights) == 5 else nullcontext():
        result = _torch_function(mode)(x, states, weights, True, 1, 0.0, torch.is_grad_enabled(), False, False)
    return result[0], result[2][0, :, :size] if mode == "lstm" else None


def _widened(c: Tensor, weights: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Add one unit of zeros: torch detects a projection only by its size, which must differ from the cell's."""
    *gated, whr = weights
    gates = [w.unflatten(0, (4, -1)) for w in gated]
    gated = [torch.cat((w, w.new_zeros(4, 1, *w.shape[2:])), 1).flatten(0, 1) for w in gates]
    return torch.nn.functional.pad(c, (0, 1)), [*gated, torch.nn.functional.pad(whr, (0, 1))]


def _transposed(matrix: Tensor) -> Tensor:
    """Return a copy, even for one column, where contiguous() would return the parameters themselves."""
    return matrix.t().clone(memory_format=torch.contiguous_format)


class _LSTM(torch.autograd.Function):
    """One LSTM layer. tanh(x) is 1 - 2 sigmoid(-2x), so all gates use sigmoid, which is cheaper in torch."""

    @staticmethod
    def forward(ctx, x, h0, c0, wih, whh, bih, bhh, clip):
        steps, batch, _ = x.shape
        size = h0.shape[1]
        gates = torch.addmm(bih + bhh, x.reshape(steps * batch, -1), wih.t()).view(steps, batch, 4, size)
        whh_t = _transposed(whh)
        gates[:, :, 2].mul_(-2)
        whh_t[:, 2 * size : 3 * size].mul_(-2)
        hidden, cell = x.new_empty(2, steps + 1, batch, size)
        squashed = x.new_empty(steps, batch, size)  # sigmoid(-2c)
        hidden[0], cell[0] = h0, c0
        h, c = hidden[0], cell[0]
        rows = (gates.view(steps, batch, -1), *gates.unbind(2), cell[1:], squashed, hidden[1:])
        for all_gates, i, f, g, o, c_next, r, h_next in zip(*(row.unbind(0) for row in rows), strict=True):
            all_gates.addmm_(h, whh_t).sigmoid_()
            c = torch.addcmul(i, f, c, out=c_next).addcmul_(i, g, value=-2)
            if clip is not None:
                _clip(c, *clip)
            torch.mul(c, -2, out=r).sigmoid_()
            h = torch.addcmul(o, o, r, value=-2, out=h_next)
        ctx.save_for_backward(x, wih, whh, gates, hidden, cell, squashed)
        ctx.set_materialize_grads(False)
        ctx.clip = clip
        return hidden[1:], cell[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_h, grad_c):
        x, wih, whh, gates, hidden, cell, squashed = ctx.saved_tensors
        steps, batch, _ = x.shape
        if grad_h is None:
            grad_h = torch.zeros_like(squashed)
        i, f, g, o = gates.unbind(2)
        # The derivatives that do not depend on the gradient, for all steps: d(gates) per dc (and per dh for o).
        slopes = torch.addcmul(gates, gates, gates, value=-1)
        slope_i, slope_f, slope_g, slope_o = slopes.unbind(2)
        slope_i.addcmul_(slope_i, g, value=-2)
        slope_f.mul_(cell[:-1])
        slope_g.mul_(i).mul_(4)
        slope_o.addcmul_(slope_o, squashed, value=-2)
        slope_c = torch.addcmul(squashed, squashed, squashed, value=-1).mul_(o).mul_(4)
        inside = _inside(cell[1:], *ctx.clip[:2]) if ctx.clip else None
        d_gates = slopes.view(steps, batch, -1)
        dh, dc = grad_h[-1], torch.zeros_like(hidden[0])
        rows = _backwards(d_gates, slopes[:, :, :3], slope_o, slope_c, f)
        for t, d_all, d_ifg, d_o, slope, forget, grad_before in zip(*rows, _grads_before(grad_h), strict=True):
            dc.addcmul_(dh, slope)
            if grad_c is not None:
                dc.add_(grad_c[t])
            if inside is not None:
                dc.mul_(inside[t])
            d_ifg.mul_(dc.unsqueeze(1))
            d_o.mul_(dh)
            dc.mul_(forget)
            dh = d_all.mm(whh) if grad_before is None else torch.addmm(grad_before, d_all, whh)
        return *_weight_gradients(ctx, d_gates, d_gates, x, hidden, wih, dh, dc), None


def _backwards(*arrays: Tensor) -> list[Iterable]:
    """Return the steps from last to first: their indices, and the rows of each array."""
    return [range(len(arrays[0]) - 1, -1, -1), *(array.unbind(0)[::-1] for array in arrays)]


def _grads_before(grad_h: Tensor) -> tuple[Tensor | None, ...]:
    """Return, from last to first step, the incoming gradient at the output of the previous step."""
    return (*grad_h.unbind(0)[-2::-1], None)


def _clip(c: Tensor, lowest: float | None, highest: float | None, mends_nan: bool) -> None:
    c.clamp_(lowest, highest)
    if mends_nan:
        torch.nan_to_num(c, nan=highest if lowest is None else lowest, out=c)


def _inside(c: Tensor, lowest: float | None, highest: float | None) -> Tensor:
    """Return 1 where clipping left a cell unchanged, else 0."""
    kept = torch.ones_like(c)
    if lowest is not None:
        kept.mul_(c > lowest)
    if highest is not None:
        kept.mul_(c < highest)
    return kept


class _GRU(torch.autograd.Function):
    """One GRU layer: n = tanh(x W + b + r (h U + c)), h = z h + (1 - z) n; tanh as in LSTM."""

    @staticmethod
    def forward(ctx, x, h0, wih, whh, bih, bhh):
        steps, batch, _ = x.shape
        size = h0.shape[1]
        gates = torch.addmm(bih, x.reshape(steps * batch, -1), wih.t()).view(steps, batch, 3, size)
        recurrent = bhh.expand(steps, batch, -1).clone()
        whh_t = _transposed(whh)
        for n_part in (gates[:, :, 2], recurrent[:, :, 2 * size :], whh_t[:, 2 * size :]):
            n_part.mul_(-2)
        hidden = x.new_empty(steps + 1, batch, size)
        hidden[0] = h0
        h, one = hidden[0], x.new_ones(1)
        by_gate = recurrent.view(steps, batch, 3, size)
        rows = (recurrent, by_gate[:, :, :2], by_gate[:, :, 2], gates[:, :, :2], *gates.unbind(2), hidden[1:])
        for product, product_rz, product_n, rz, r, z, n, h_next in zip(*(row.unbind(0) for row in rows), strict=True):
            product.addmm_(h, whh_t)
            rz.add_(product_rz).sigmoid_()
            torch.add(one, n.addcmul_(r, product_n).sigmoid_(), alpha=-2, out=n)
            h = torch.lerp(n, h, z, out=h_next)
        ctx.save_for_backward(x, wih, whh, gates, hidden, recurrent)
        return hidden[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_h):
        x, wih, whh, gates, hidden, recurrent = ctx.saved_tensors
        steps, batch, _ = x.shape
        r, z, n = gates.unbind(2)
        # All slopes for all steps together; each step only multiplies them by its dh.
        slopes = torch.empty_like(gates)
        slope_r, slope_z, slope_n = slopes.unbind(2)
        torch.addcmul(z, z, z, value=-1, out=slope_z).mul_(hidden[:-1] - n)
        torch.mul(1 - z, torch.addcmul(torch.ones_like(n), n, n, value=-1), out=slope_n)
        torch.addcmul(r, r, r, value=-1, out=slope_r).mul_(slope_n).mul_(recurrent[:, :, -len(whh) // 3 :])
        slope_r.mul_(-0.5)  # the product was stored multiplied by -2
        slopes_h = slopes.clone()
        slopes_h[:, :, 2].mul_(r)
        d_input, d_recurrent = slopes.view(steps, batch, -1), slopes_h.view(steps, batch, -1)
        dh = grad_h[-1]
        rows = _backwards(slopes, slopes_h, d_recurrent, z)
        for _, d_x, d_h, d_all, keep, grad_before in zip(*rows, _grads_before(grad_h), strict=True):
            column = dh.unsqueeze(1)
            d_x.mul_(column)
            d_h.mul_(column)
            dh = dh * keep if grad_before is None else torch.addcmul(grad_before, dh, keep)
            dh.addmm_(d_all, whh)
        dx, dh, _, dwih, dwhh, dbih, dbhh = _weight_gradients(ctx, d_input, d_recurrent, x, hidden, wih, dh, None)
        return dx, dh, dwih, dwhh, dbih, dbhh


def _weight_gradients(ctx, d_input, d_recurrent, x, hidden, wih, dh, dc):
    """Return (dx, dh, dc, dwih, dwhh, dbih, dbhh) from the gradients at the gates."""
    steps, batch, width = d_input.shape
    d_input, d_recurrent = d_input.view(-1, width), d_recurrent.view(-1, width)
    dx = d_input.mm(wih).view_as(x) if ctx.needs_input_grad[0] else None
    dbih = d_input.sum(0)
    dbhh = dbih if d_recurrent is d_input else d_recurrent.sum(0)
    dwih = d_input.t().mm(x.reshape(steps * batch, -1))
    dwhh = d_recurrent.t().mm(hidden[:-1].view(steps * batch, -1))
    return dx, dh, dc, dwih, dwhh, dbih, dbhh
