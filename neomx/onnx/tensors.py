"""Translators for ONNX operators on values and shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import symbol as sym
from ..symbol import Symbol
from .reader import Call, translates

_END = np.iinfo(np.int64).max // 2  # larger bounds of Slice mean the end

GEMM2: Any = sym.linalg.gemm2  # type: ignore[attr-defined]  # made from the table

# ---- unary ----

_UNARY = {
    "Abs": sym.abs, "Acos": sym.arccos, "Acosh": sym.arccosh, "Asin": sym.arcsin, "Asinh": sym.arcsinh,
    "Atan": sym.arctan, "Atanh": sym.arctanh, "Ceil": sym.ceil, "Cos": sym.cos, "Cosh": sym.cosh, "Erf": sym.erf,
    "Exp": sym.exp, "Floor": sym.floor, "Identity": sym.identity, "Log": sym.log, "Neg": sym.negative,
    "Not": sym.logical_not, "Reciprocal": sym.reciprocal, "Relu": sym.relu, "Round": sym.rint, "Sigmoid": sym.sigmoid,
    "Sign": sym.sign, "Sin": sym.sin, "Sinh": sym.sinh, "Softsign": sym.softsign, "Sqrt": sym.sqrt, "Tan": sym.tan,
    "Tanh": sym.tanh, "Dropout": sym.identity,
}  # fmt: skip


@translates(*_UNARY)
def _unary(call: Call) -> Symbol:
    return call.make(_UNARY[call.op], call[0])


@translates("Softplus")
def _softplus(call: Call) -> Symbol:
    return call.make(sym.Activation, call[0], act_type="softrelu")


@translates("Mish")
def _mish(call: Call) -> Symbol:
    return call[0] * sym.tanh(sym.Activation(call[0], act_type="softrelu"))


@translates("IsNaN")
def _is_nan(call: Call) -> Symbol:
    return call.make(sym.broadcast_not_equal, call[0], call[0])


@translates("Cast")
def _cast(call: Call) -> Symbol:
    from ..convert.onnx_file import onnx_package

    kind = np.dtype(onnx_package().helper.tensor_dtype_to_np_dtype(call.attrs["to"])).name
    return call.make(sym.cast, call[0], dtype=kind)


@translates("CastLike")
def _cast_like(call: Call) -> Symbol:
    return call.make(sym.cast, call[0], dtype=call.known(1, "the value that gives the type").dtype.name)


@translates("Clip")
def _clip(call: Call) -> Symbol:
    if call.opset < 11:
        low, high = call.attrs.get("min", -np.inf), call.attrs.get("max", np.inf)
    else:
        low = call.known(1, "min").item() if call.has(1) else -np.inf
        high = call.known(2, "max").item() if call.has(2) else np.inf
    return call.make(sym.clip, call[0], a_min=float(low), a_max=float(high))


# ---- binary ----

_BINARY: dict[str, tuple[Any, Any, Any]] = {  # for two symbols; a symbol and a number; a number and a symbol
    "Add": (sym.broadcast_add, lambda x, n: x + n, lambda n, x: x + n),
    "Sub": (sym.broadcast_sub, lambda x, n: x - n, lambda n, x: n - x),
    "Mul": (sym.broadcast_mul, lambda x, n: x * n, lambda n, x: x * n),
    "Div": (sym.broadcast_div, lambda x, n: x / n, lambda n, x: n / x),
    "Pow": (sym.broadcast_power, lambda x, n: x**n, lambda n, x: n**x),
    "Mod": (sym.broadcast_mod, lambda x, n: x % n, lambda n, x: n % x),
    "Equal": (sym.broadcast_equal, lambda x, n: x == n, lambda n, x: x == n),
    "Greater": (sym.broadcast_greater, lambda x, n: x > n, lambda n, x: x < n),
    "GreaterOrEqual": (sym.broadcast_greater_equal, lambda x, n: x >= n, lambda n, x: x <= n),
    "Less": (sym.broadcast_lesser, lambda x, n: x < n, lambda n, x: x > n),
    "LessOrEqual": (sym.broadcast_lesser_equal, lambda x, n: x <= n, lambda n, x: x >= n),
}
_LOGICAL = {"And": sym.broadcast_logical_and, "Or": sym.broadcast_logical_or, "Xor": sym.broadcast_logical_xor}


@translates(*_BINARY)
def _binary(call: Call) -> Symbol:
    if call.attrs.get("broadcast") and call.attrs.get("axis") is not None and call.opset < 7:
        raise call.fail("broadcasting along an axis, from opsets before 7, is not supported")
    of_symbols, right, left = _BINARY[call.op]
    first, second = _number(call.constant(0)), _number(call.constant(1))
    if second is not None:
        return right(call[0], second)
    if first is not None:
        return left(first, call[1])
    return call.make(of_symbols, call[0], call[1])


def _number(constant: np.ndarray | None) -> float | int | None:
    """Return a 0-dimensional constant as a number, else None."""
    return constant.item() if constant is not None and constant.ndim == 0 else None


@translates(*_LOGICAL)
def _logical(call: Call) -> Symbol:
    return call.make(_LOGICAL[call.op], call[0], call[1])


@translates("Sum", "Mean", "Max", "Min")
def _many(call: Call) -> Symbol:
    join = {"Max": sym.broadcast_maximum, "Min": sym.broadcast_minimum}.get(call.op, sym.broadcast_add)
    result = call[0]
    for each in call.all()[1:]:
        result = join(result, each)
    return result / call.count if call.op == "Mean" else result


@translates("Where")
def _where(call: Call) -> Symbol:
    """Broadcast the inputs first: MXNet's `where` requires equal shapes."""
    condition, x, y = call.all()
    shapes = [call.dims(name) for name in call.node.input]
    if None in shapes or shapes[0] != shapes[1] or shapes[1] != shapes[2]:
        ranks = [max(call.rank(i), 1) for i in range(3)]
        condition, x, y = (_behind_ones(call[i], max(ranks) - rank) for i, rank in enumerate(ranks))
        whole = sym.broadcast_add(sym.broadcast_add(x, y), sym.cast(condition, dtype="float32"))  # for its shape only
        condition, x, y = (sym.broadcast_like(each, whole) for each in (condition, x, y))
    return call.make(sym.where, condition, x, y)


# ---- shapes ----


@translates("Reshape")
def _reshape(call: Call) -> Symbol:
    given = call.constant(1)
    if given is None:
        shape = _varying_shape(call)
    elif call.attrs.get("allowzero") and 0 in list(given):
        raise call.fail("a dimension of 0 is not supported")
    else:
        shape = tuple(int(n) for n in given)
    if not shape:
        shape = (1,)
    return call.make(sym.Reshape, call[0], shape=shape)


def _varying_shape(call: Call) -> tuple[int, ...]:
    """Return a shape that the model computes; at most one dimension may differ from those of the data."""
    dims, source = (
        call.graph.partial.get(call.node.input[1], call.dims(call.node.output[0])),
        call.dims(call.node.input[0]),
    )
    if dims is None:
        raise call.fail("its shape is computed by the model and unknown")
    shape: list[int] = []
    for axis, dim in enumerate(dims):
        is_kept = isinstance(dim, str) and source is not None and axis < len(source) and source[axis] == dim
        shape.append(dim if isinstance(dim, int) else 0 if is_kept else -1)
    if shape.count(-1) > 1:
        raise call.fail(f"its shape is computed by the model and known only as {tuple(dims)}")
    return tuple(shape)


@translates("Flatten")
def _flatten(call: Call) -> Symbol:
    axis = call.attrs.get("axis", 1)
    if axis == 1:
        return call.make(sym.Flatten, call[0])
    if axis == 0:
        return call.make(sym.Reshape, call[0], shape=(1, -1))
    shape = call.shape(0)
    if shape is None:
        raise call.fail(f"flattening at axis {axis} requires a known shape")
    return call.make(sym.Reshape, call[0], shape=(int(np.prod(shape[:axis])), -1))


@translates("Transpose")
def _transpose(call: Call) -> Symbol:
    return call.make(sym.transpose, call[0], axes=tuple(call.attrs.get("perm", ())))


@translates("Squeeze")
def _squeeze(call: Call) -> Symbol:
    axes = call.numbers(1, "axes")
    return call.make(sym.squeeze, call[0], axis=None if axes is None else tuple(axes))


@translates("Unsqueeze")
def _unsqueeze(call: Call) -> Symbol:
    axes = call.numbers(1, "axes") or []
    if any(axis < 0 for axis in axes):
        axes = [axis % (call.rank(0) + len(axes)) for axis in axes]
    result = call[0]
    for axis in sorted(axes):
        result = sym.expand_dims(result, axis=axis)
    return result


@translates("Concat")
def _concat(call: Call) -> Symbol:
    return call.make(sym.Concat, *call.all(), dim=call.attrs.get("axis", 1))


@translates("Split")
def _split(call: Call) -> list[Symbol]:
    axis, count = call.attrs.get("axis", 0), len(call.node.output)
    sizes = call.numbers(1, "split")
    shape = call.dims(call.node.input[0])
    if sizes is None and (shape is None or not isinstance(shape[axis], int) or shape[axis] % count):
        raise call.fail("a split without sizes requires a known dimension that is divisible")
    if sizes is None or len(set(sizes)) == 1:
        parts = sym.SliceChannel(call[0], num_outputs=count, axis=axis, name=call.unique_name())
    else:
        ends = np.cumsum(sizes)
        begins = [0, *ends[:-1]]
        return [sym.slice_axis(call[0], axis=axis, begin=int(a), end=int(b)) for a, b in zip(begins, ends, strict=True)]
    return [parts[i] for i in range(count)]


@translates("Slice")
def _slice(call: Call) -> Symbol:
    starts, ends = call.numbers(1, "starts") or [], call.numbers(2, "ends") or []
    axes = call.numbers(3, "axes") or list(range(len(starts)))
    steps = (call.numbers(4, "steps") if call.has(4) else None) or [1] * len(starts)
    if any(axis < 0 for axis in axes):
        axes = [axis % call.rank(0) for axis in axes]
    result = call[0]
    for axis, begin, end, step in zip(axes, starts, ends, steps, strict=True):
        if step == 1:
            result = sym.slice_axis(result, axis=axis, begin=begin, end=None if end >= _END else end)
        elif step < 1:
            result = _backwards(call, result, axis, begin, end, step)
        else:
            bounds = [(None, None, None)] * axis + [(begin, None if end >= _END else end, step)]
            first, last, by = zip(*bounds, strict=True)
            result = sym.slice(result, begin=first, end=last, step=by)
    return result


def _backwards(call: Call, data: Symbol, axis: int, begin: int, end: int, step: int) -> Symbol:
    if step != -1 or begin != -1 and begin < _END or end > -_END:
        raise call.fail(f"a slice of step {step} from {begin} to {end} is not supported")
    return sym.reverse(data, axis=axis)


@translates("Gather")
def _gather(call: Call) -> Symbol:
    axis, index = call.attrs.get("axis", 0), call.constant(1)
    if index is not None and index.ndim == 0:
        position = int(index)
        piece = sym.slice_axis(call[0], axis=axis, begin=position, end=position + 1 if position != -1 else None)
        return sym.squeeze(piece, axis=axis)
    return call.make(sym.take, call[0], call[1], axis=axis, mode="wrap")  # wrap also handles -1


@translates("GatherElements")
def _gather_elements(call: Call) -> Symbol:
    axis, shape = call.attrs.get("axis", 0), call.shape(1)
    if shape is None or shape[axis] != 1:
        raise call.fail("only one element along the axis is supported")
    index = sym.squeeze(call[1], axis=axis)
    return call.make(sym.pick, call[0], index, axis=axis, keepdims=True, mode="wrap")


@translates("GatherND")
def _gather_nd(call: Call) -> Symbol:
    if call.attrs.get("batch_dims"):
        raise call.fail("batch_dims is not supported")
    last = call.rank(1) - 1
    return call.make(sym.gather_nd, call[0], sym.transpose(call[1], axes=(last, *range(last))))


@translates("Expand")
def _expand(call: Call) -> Symbol:
    source, shape = call.dims(call.node.input[0]), call.dims(call.node.output[0])
    target = call.graph.partial.get(call.node.input[1], call.constant(1))
    if target is not None and source is not None and len(source) <= len(target):
        own = (*[1] * (len(target) - len(source)), *source)
        shape = tuple(s if n == 1 else n if isinstance(n, str) else int(n) for n, s in zip(target, own, strict=True))
    if shape is None or source is None:
        raise call.fail("the shape of the result is unknown")
    data = _behind_ones(call[0], len(shape) - max(len(source), 1))
    known = (*[1] * (len(shape) - len(source)), *source)
    if any(not isinstance(n, int) and n != s for n, s in zip(shape, known, strict=True)):
        raise call.fail(f"the shape of the result is known only as {shape}")
    return call.make(sym.broadcast_to, data, shape=tuple(n if isinstance(n, int) else 0 for n in shape))


def _behind_ones(data: Symbol, count: int) -> Symbol:
    """Return `data` with `count` dimensions of size 1 inserted in front."""
    for _ in range(count):
        data = sym.expand_dims(data, axis=0)
    return data


@translates("Tile")
def _tile(call: Call) -> Symbol:
    return call.make(sym.tile, call[0], reps=tuple(int(n) for n in call.known(1, "repeats")))


@translates("Pad")
def _pad(call: Call) -> Symbol:
    pads = call.numbers(1, "pads") or []
    value = (
        call.attrs.get("value", 0.0) if call.opset < 11 else call.known(2, "the value").item() if call.has(2) else 0.0
    )
    mode = call.attrs.get("mode", "constant")
    if call.has(3):
        raise call.fail("axes are not supported")
    return padded(call, call[0], pads, mode, float(value))


def padded(call: Call, data: Symbol, pads: list[int], mode: str = "constant", value: float = 0.0) -> Symbol:
    """Pad `data` by `pads`: first the amounts before each axis, then those after each; negative amounts crop."""
    rank = len(pads) // 2
    before, after = pads[:rank], pads[rank:]
    for axis in range(rank):
        begin, end = max(0, -before[axis]), min(0, after[axis])
        if begin or end:
            data = sym.slice_axis(data, axis=axis, begin=begin, end=end or None)
    before, after = [max(0, n) for n in before], [max(0, n) for n in after]
    if not any(before) and not any(after):
        return data
    if any((*before[:2], *after[:2])) or rank not in (3, 4, 5):
        raise call.fail(f"padding {pads} of {rank} dimensions is not supported: only axes after the first two")
    if rank == 3:  # as an image of one row
        data, before, after = sym.expand_dims(data, axis=2), [*before[:2], 0, before[2]], [*after[:2], 0, after[2]]
    width = [n for pair in zip(before, after, strict=True) for n in pair]
    kind = {"constant": "constant", "edge": "edge", "reflect": "reflect"}.get(mode)
    if kind is None:
        raise call.fail(f"padding mode {mode!r} is not supported")
    result = sym.Pad(data, mode=kind, pad_width=tuple(width), constant_value=value)
    return sym.squeeze(result, axis=2) if rank == 3 else result


@translates("DepthToSpace", "SpaceToDepth")
def _blocks(call: Call) -> Symbol:
    size, mode = call.attrs["blocksize"], call.attrs.get("mode", "DCR")
    if mode == "DCR":
        op = sym.depth_to_space if call.op == "DepthToSpace" else sym.space_to_depth
        return call.make(op, call[0], block_size=size)
    split = sym.Reshape(call[0], shape=(0, -4, -1, size * size, 0, 0))  # channels, then the block's pixels
    split = sym.Reshape(split, shape=(0, 0, -4, size, size, 0, 0))
    moved = sym.transpose(split, axes=(0, 1, 4, 2, 5, 3))
    return call.make(sym.Reshape, moved, shape=(0, 0, -3, -3))


@translates("ConstantOfShape")
def _constant_of_shape(call: Call) -> Symbol:
    value = call.attrs.get("value", np.zeros(1, np.float32))
    shape = call.dims(call.node.output[0])
    if shape is None or not all(isinstance(n, int) for n in shape):
        raise call.fail("its shape is computed by the model and unknown")
    return sym.full(shape, float(value.item()), dtype=value.dtype.name)


@translates("OneHot")
def _one_hot(call: Call) -> Symbol:
    off, on = call.known(2, "values")
    depth = int(call.known(1, "depth").item())
    if call.attrs.get("axis", -1) not in (-1, call.rank(0)):
        raise call.fail("the new axis must be the last one")
    return call.make(sym.one_hot, call[0], depth=depth, on_value=float(on), off_value=float(off), dtype=off.dtype.name)


@translates("Shape")
def _shape(call: Call) -> Symbol:
    if "start" in call.attrs or "end" in call.attrs:
        piece = {"begin": call.attrs.get("start", 0), "end": call.attrs.get("end")}
        return sym.slice_axis(sym.shape_array(call[0]), axis=0, **piece)
    return call.make(sym.shape_array, call[0])


# ---- reductions ----

_REDUCE = {
    "ReduceSum": sym.sum, "ReduceMean": sym.mean, "ReduceMax": sym.max, "ReduceMin": sym.min, "ReduceProd": sym.prod,
}  # fmt: skip


@translates(*_REDUCE, "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp")
def _reduce(call: Call) -> Symbol:
    axes = call.numbers(1, "axes")
    if not axes and call.attrs.get("noop_with_empty_axes"):
        return call[0]
    how = {"axis": tuple(axes) if axes else None, "keepdims": bool(call.attrs.get("keepdims", 1))}
    data = call[0]
    if call.op in _REDUCE:
        return call.make(_REDUCE[call.op], data, **how)
    if call.op == "ReduceL1":
        return call.make(sym.sum, sym.abs(data), **how)
    if call.op == "ReduceL2":
        return call.make(sym.sqrt, sym.sum(sym.square(data), **how))
    if call.op == "ReduceSumSquare":
        return call.make(sym.sum, sym.square(data), **how)
    if call.op == "ReduceLogSum":
        return call.make(sym.log, sym.sum(data, **how))
    greatest = sym.max(data, axis=how["axis"], keepdims=True)
    total = sym.sum(sym.exp(sym.broadcast_sub(data, greatest)), axis=how["axis"], keepdims=True)
    result = sym.log(total) + greatest
    return result if how["keepdims"] else sym.squeeze(result, axis=how["axis"])


@translates("ArgMax", "ArgMin")
def _arg(call: Call) -> Symbol:
    op = sym.argmax if call.op == "ArgMax" else sym.argmin
    found = op(call[0], axis=call.attrs.get("axis", 0), keepdims=bool(call.attrs.get("keepdims", 1)))
    return call.make(sym.cast, found, dtype="int64")


@translates("TopK")
def _top_k(call: Call) -> list[Symbol]:
    k = call.attrs["k"] if "k" in call.attrs else int(call.known(1, "k").item())
    ascending = not call.attrs.get("largest", 1)
    found = sym.topk(call[0], axis=call.attrs.get("axis", -1), k=k, ret_typ="both", is_ascend=ascending, dtype="int64")
    return [found[0], found[1]]


@translates("CumSum")
def _cumsum(call: Call) -> Symbol:
    if call.attrs.get("exclusive") or call.attrs.get("reverse"):
        raise call.fail("exclusive and reverse sums are not supported")
    return call.make(sym.cumsum, call[0], axis=int(call.known(1, "axis").item()))


# ---- products ----


@translates("MatMul")
def _matmul(call: Call) -> Symbol:
    weight = call.constant(1)
    if weight is not None and weight.ndim == 2:
        name = call.node.input[1] + "_transposed"
        call.graph.constants[name] = np.ascontiguousarray(weight.T)
        return call.make(
            sym.FullyConnected,
            call[0],
            call.graph.symbol(name),
            num_hidden=weight.shape[1],
            no_bias=True,
            flatten=False,
        )
    left, right = call.dims(call.node.input[0]), call.dims(call.node.input[1])
    if left is None or right is None or len(left) < 2 or len(right) < 2:
        raise call.fail(f"a product of shapes {left} and {right} is not supported")
    a, b = call[0], call[1]
    if len(left) != len(right) or any(
        None not in (n, m) and n != m for n, m in zip(left[:-2], right[:-2], strict=True)
    ):
        a, b = _same_batch(call, a, left, right), _same_batch(call, b, right, left)
    return call.make(GEMM2, a, b)


def _same_batch(call: Call, data: Symbol, own: Any, other: Any) -> Symbol:
    """Broadcast the leading dimensions of `data` to those of both operands."""
    rank = max(len(own), len(other)) - 2
    own_lead, other_lead = (1,) * (rank + 2 - len(own)) + own[:-2], (1,) * (rank + 2 - len(other)) + other[:-2]
    if any(
        not isinstance(n, int) and n != m
        for n, m in zip((*own_lead, *other_lead), (*other_lead, *own_lead), strict=True)
    ):
        raise call.fail(f"a product of shapes {own} and {other} is not supported")
    data = _behind_ones(data, rank + 2 - len(own))
    target = tuple(
        m if n == 1 else 0 if not isinstance(n, int) else n for n, m in zip(own_lead, other_lead, strict=True)
    )
    return sym.broadcast_to(data, shape=(*target, 0, 0))
