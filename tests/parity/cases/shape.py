"""Reshape, transpose, slice, join, split, repeat, pad."""

import itertools

import numpy as np

from parity.spec import f, family, ints, outcome

case, program = family(__name__)


def zeros(mx, shape):
    return mx.nd.array(np.zeros(shape))


def ones(mx, shape):
    return mx.nd.array(np.ones(shape))


def arange(mx, n):
    return mx.nd.array(np.arange(n))


# ---- reshape ----

case("Reshape", f(2, 3, 4), shape=(4, 6))
case("Reshape", f(2, 3, 4), shape=(0, -1))
case("Reshape", f(2, 3, 4), shape=(-3, -4, 2, -1))
case("Reshape", f(2, 3, 4), shape=(-1, 0), reverse=True)
case("Reshape", f(2, 3, 4), target_shape=(0, 6))
case("Reshape", f(2, 3, 4), target_shape=(5, 0), keep_highest=True)
case("Reshape", ints(2, 3, dtype="int32"), shape=(-1,), _grad=False)


def op_reshape(mx, shape, codes, reverse):
    if mx.__name__ != "mxnet":
        return mx.nd.reshape(zeros(mx, shape), shape=codes, reverse=reverse).shape
    # MXNet's op does not compare the sizes and then writes over foreign memory; the inference of shapes is safe.
    (result,) = mx.sym.reshape(mx.sym.Variable("x"), shape=codes, reverse=reverse).infer_shape(x=shape)[1]
    if np.prod(result) != np.prod(shape):
        raise ValueError("not as many elements")
    return result


def method_reshape(mx, shape, codes, reverse):
    return zeros(mx, shape).reshape(codes, reverse=reverse).shape


def spoils_mxnet(codes):
    """It dies of -4 with 0, and after -2 or -4 puts what -1 stands for in the wrong place."""
    moved = False
    i = 0
    while i < len(codes):
        if codes[i] == -4:
            if 0 in codes[i + 1 : i + 3]:
                return True
            moved = True
            i += 2
        elif codes[i] == -2:
            moved = True
        elif codes[i] == -1 and moved:
            return True
        i += 1
    return False


def reshape_table(reshape, shape, reverse, values, lengths):
    """What all codes of some lengths make of a shape, one line each."""

    def run(mx):
        lines = []
        for length in lengths:
            for codes in itertools.product(values, repeat=length):
                if spoils_mxnet(codes[::-1] if reverse else codes):
                    continue
                result = outcome(lambda codes=codes: reshape(mx, shape, codes, reverse))
                lines.append("%s %s" % (codes, "raises" if "raises" in str(result) else result))
        return ["\n".join(lines)]

    run.__name__ = "%s_%s_%s%s" % (reshape.__name__, shape, lengths, "_reverse" if reverse else "")
    program(run)


for _reverse in (False, True):
    reshape_table(method_reshape, (2, 3, 4), _reverse, (0, -1, -2, -3, -4, 2, 12), (1, 2, 3))
    reshape_table(op_reshape, (2, 3, 4), _reverse, (0, -1, -2, -3, -4, 2, 12), (1, 2, 3))
    reshape_table(op_reshape, (2, 3, 4), _reverse, (0, -1, -2, -4, 2), (4,))
    reshape_table(op_reshape, (2, 6, 2, 1), _reverse, (0, -1, -3, -4, 2), (4,))
    reshape_table(op_reshape, (6,), _reverse, (0, -1, -2, -3, -4, -5, 2, 3, 6), (1, 2, 3))
    reshape_table(op_reshape, (2, 6), _reverse, (-4, -1, -2, 1, 2), (4, 5))


@program
def reshape_spellings(mx):
    x = arange(mx, 24)
    return [
        x.reshape(2, 3, 4),
        x.reshape((2, 3, 4)),
        x.reshape([2, 12]),
        x.reshape(shape=(2, -1)),
        x.reshape(-1),
        x.reshape((2, 12)).reshape(shape=(0, -4, 3, -1), reverse=False),
        mx.nd.reshape(x, (4, -1)),
        mx.nd.reshape(x, shape="(4, -1)"),
    ]


@program
def reshape_shares_memory(mx):
    x = zeros(mx, (2, 3))
    y = x.reshape((3, 2))
    y[0] = 1
    x[1] = 2
    z = mx.nd.reshape(x, shape=(3, 2))
    z[:] = 5
    return [x, y, z]


case("reshape_like", f(6), f(2, 3))
case("reshape_like", f(6, 7), f(3, 2, 4), lhs_begin=0, lhs_end=1, rhs_begin=0, rhs_end=2)
case("reshape_like", f(5, 6), f(4, 3, 2), lhs_begin=-1, rhs_begin=-2)
case("reshape_like", f(6, 7), f(3, 2, 4), lhs_end=-1, rhs_end=-1)
case("Flatten", f(2, 3, 4))
case("Flatten", f(3))
case("expand_dims", f(2, 3), axis=1)
case("expand_dims", f(2, 3), axis=-1)
case("expand_dims", f(2, 3), axis=-3)
case("squeeze", f(1, 2, 1))
case("squeeze", f(1, 2, 1), axis=0)
case("squeeze", f(1, 2, 1), axis=(0, -1))
case("squeeze", f(1, 1))
case("squeeze", f(1, 1), axis=(0, 1))
case("squeeze", f(1, 2), axis=())

# ---- order ----

case("transpose", f(2, 3, 4))
case("transpose", f(2, 3, 4), axes=(1, 2, 0))
case("transpose", f(4))
case("transpose", ints(2, 3, dtype="uint8"), _grad=False)
case("SwapAxis", f(2, 3, 4), dim1=0, dim2=2)
case("SwapAxis", f(2, 3, 4), dim1=-1, dim2=1)
case("SwapAxis", f(2, 3))
case("reverse", f(3, 4), axis=1)
case("reverse", f(3, 4), axis=(0, 1))
case("reverse", ints(3, 4, dtype="int64"), axis=0, _grad=False)
case("depth_to_space", f(2, 8, 2, 3), block_size=2)
case("space_to_depth", f(2, 2, 4, 6), block_size=2)
case("space_to_depth", f(1, 1, 3, 3, dtype="float64"), block_size=3)

# ---- slices ----

case("slice", f(3, 4), begin=(0, 1), end=(2, 3))
case("slice", f(3, 4), begin=(None, 1), end=(None, None), step=(None, 2))
case("slice", f(5, 4), begin=(4,), end=(0,), step=(-2,))
case("slice", f(5, 4), begin=(None, None), end=(None, None), step=(-1, -3))
case("slice", f(5, 4), begin=(-3,), end=(-1,))
case("slice", f(5, 4), begin=(1,), end=(9,))
case("slice", f(5, 4), begin=(), end=())
case("slice", ints(5, 4, dtype="int32"), begin=(1,), end=(3,), _grad=False)
case("slice_axis", f(3, 4), axis=1, begin=1, end=None)
case("slice_axis", f(3, 4), axis=-1, begin=-3, end=-1)
case("slice_axis", f(3, 4), axis=0, begin=0, end=2)
case("slice_like", f(3, 4), f(2, 3))
case("slice_like", f(3, 4), f(2, 3), axes=(1,))
case("slice_like", f(3, 4), f(2, 3), axes=(-1,))
case("slice_like", f(3, 4, 2), f(2), axes=(0,))
case("_slice_assign", f(3, 4), f(2, 2), begin=(0, 1), end=(2, 3), _grad=False)
case("_slice_assign", f(5), f(2), begin=(4,), end=(0,), step=(-2,), _grad=False)
case("_slice_assign", ints(3, 4, dtype="int32"), ints(1, 4, dtype="int32"), begin=(1,), end=(2,), _grad=False)
case("_slice_assign_scalar", f(3, 4), scalar=2.5, begin=(0, 1), end=(2, 3), _grad=False)
case("_slice_assign_scalar", f(3, 4), scalar=2.5, begin=(None, None), end=(None, None), step=(-2, 3), _grad=False)
case("_slice_assign_scalar", ints(3, 4, dtype="int32"), scalar=3.7, begin=(0,), end=(2,), _grad=False)
case("Crop", f(1, 2, 5, 5), h_w=(2, 3), offset=(1, 2), num_args=1)
case("Crop", f(1, 2, 5, 6), h_w=(2, 3), center_crop=True, num_args=1)
case("Crop", f(1, 2, 5, 5), f(1, 1, 3, 2), num_args=2)
case("Crop", f(1, 2, 5, 5), f(1, 1, 3, 2), offset=(2, 1), num_args=2)

# ---- split and join ----

case("SliceChannel", f(2, 6, 3), num_outputs=3)
case("SliceChannel", f(2, 6), num_outputs=2, axis=0, squeeze_axis=True)
case("SliceChannel", f(2, 6), num_outputs=1)
case("SliceChannel", f(2, 6), num_outputs=3, axis=-1)
case("_split_v2", f(3, 4), indices=(0, 1, 3))
case("_split_v2", f(3, 4), indices=(0, 1, 2), axis=0, squeeze_axis=True)
case("_split_v2", f(3, 4), indices=(), sections=2)
case("_split_v2", f(3, 4), indices=(), sections=3)
case("_split_v2", f(3, 4), indices=(0,))
case("Concat", f(2, 3), f(2, 1), f(2, 2))
case("Concat", f(2, 3), f(1, 3), dim=0)
case("Concat", f(2, 3, 2), f(2, 3, 1), dim=-1)
case("Concat", f(2), dim=0)
case("Concat", ints(2, 3, dtype="int32"), ints(2, 1, dtype="int32"), _grad=False)
case("_rnn_param_concat", f(4), f(3), dim=0)
case("stack", f(2, 3), f(2, 3))
case("stack", f(2, 3), f(2, 3), axis=1)
case("stack", f(2, 3), f(2, 3), f(2, 3), axis=-1)


@program
def split_gives(mx):
    x = arange(mx, 12).reshape((3, 4))
    one = mx.nd.split(x, num_outputs=1)
    return [
        type(one).__name__,
        type(mx.nd.split(x, num_outputs=2)).__name__,
        type(mx.nd.split_v2(x, 1, axis=1)).__name__,
        *mx.nd.split_v2(x, 2, axis=1),
        *mx.nd.split_v2(x, (1, 2), axis=0),
        *mx.nd.split_v2(x, (1, 3), axis=-1),
        *x.split(num_outputs=2),
        *x.split(2, 1),
    ]


@program
def join_lists(mx):
    x, y = ones(mx, (2, 3)), zeros(mx, (2, 3))
    return [
        mx.nd.concat(*[x, y], dim=0),
        mx.nd.concat(x, y),
        mx.nd.stack(*[x, y, x], axis=2),
        mx.nd.concatenate([x, y], axis=1),
        mx.nd.concatenate([x, y]),
        mx.nd.Concat(x, y, dim=1, num_args=2),
    ]


# ---- repeated elements ----

case("tile", f(2), reps=(2, 2))
case("tile", f(2, 3), reps=(2,))
case("tile", f(2, 3), reps=(2, 1, 2))
case("tile", f(2, 1), reps=2)
case("tile", f(2), reps=())
case("repeat", f(2, 3), repeats=2)
case("repeat", f(2, 3), repeats=3, axis=0)
case("repeat", f(2, 3), repeats=2, axis=-1)
case("repeat", ints(2, 3, dtype="int32"), repeats=2, axis=1, _grad=False)
case("broadcast_axis", f(1, 2, 1), axis=(0, 2), size=(2, 3))
case("broadcast_axis", f(1, 2, 1), axis=2, size=3)
case("broadcast_to", f(1, 2, 1), shape=(2, 2, 3))
case("broadcast_to", f(1, 2, 1), shape=(3, 0, 0))
case("broadcast_to", ints(1, 2, dtype="int32"), shape=(3, 2), _grad=False)
case("broadcast_like", f(1, 2, 1), f(3, 2, 2))
case("broadcast_like", f(1, 2, 1), f(5, 3), lhs_axes=(2,), rhs_axes=(-1,))
case("broadcast_like", f(1, 2, 1), f(5, 3), lhs_axes=(-3, 2), rhs_axes=(1, 0))


@program
def broadcast_to_method(mx):
    x = arange(mx, 2).reshape((1, 2, 1))
    return [x.broadcast_to((2, 2, 2)), x.broadcast_to((2, 1, 2, 1)), x.broadcast_like(zeros(mx, (1, 2, 3)))]


# ---- diagonals, borders, patches ----

case("diag", f(3))
case("diag", f(3), k=1)
case("diag", f(3), k=-2)
case("diag", f(3, 4))
case("diag", f(3, 4), k=1)
case("diag", f(3, 4), k=-1)
case("diag", f(2, 3, 4))
case("diag", f(2, 3, 4), k=-1, axis1=-1, axis2=-2)
case("diag", f(2, 3, 4), k=1, axis1=2, axis2=0)
case("diag", ints(3, 3, dtype="int32"), _grad=False)
for _mode in ("constant", "edge", "reflect"):
    case("Pad", f(2, 1, 3, 3), mode=_mode, pad_width=(0, 0, 0, 0, 1, 2, 2, 0))
    case("Pad", f(1, 1, 2, 3, 3), mode=_mode, pad_width=(0, 0, 0, 0, 1, 0, 0, 1, 2, 2))
case("Pad", f(1, 1, 2, 2), mode="constant", pad_width=(0, 0, 0, 0, 1, 1, 1, 1), constant_value=2.5)
case("Pad", f(1, 1, 3, 3, dtype="float64"), mode="edge", pad_width=(0, 0, 0, 0, 1, 1, 0, 0))
case("Pad", f(1, 1, 3, 3, dtype="float16"), mode="reflect", pad_width=(0, 0, 0, 0, 1, 1, 0, 0), _grad=False)
case("im2col", f(2, 3, 4, 5), kernel=(2, 2))
case("im2col", f(1, 2, 5, 5), kernel=(3, 2), stride=(2, 1), dilate=(1, 2), pad=(1, 1))
case("col2im", f(1, 8, 4), output_size=(3, 3), kernel=(2, 2))
case("col2im", f(2, 12, 9), output_size=(5, 5), kernel=(3, 2), stride=(2, 1), dilate=(1, 2), pad=(1, 0))


@program
def shape_refusals(mx):
    nd = mx.nd
    x = arange(mx, 12).reshape((3, 4))
    whole = nd.array(np.zeros((3, 4)), dtype="int32")
    image = zeros(mx, (1, 2, 4, 4))
    calls = [
        lambda: nd.reshape_like(zeros(mx, 6), zeros(mx, (2, 4))),
        lambda: nd.transpose(x, axes=(0,)),
        lambda: nd.swapaxes(x, dim1=0, dim2=2),
        lambda: nd.expand_dims(x, axis=3),
        lambda: nd.squeeze(x, axis=0),
        lambda: nd.squeeze(x, axis=7),
        lambda: nd.slice(x, begin=(0,), end=(1, 2)),
        lambda: nd.slice(x, begin=(0, 0, 0), end=(1, 1, 1)),
        lambda: nd.slice(x, begin=(0,), end=(2,), step=(0,)),
        lambda: nd.slice_axis(x, axis=0, begin=0, end=7),
        lambda: nd.slice_axis(x, axis=0, begin=1, end=1),
        lambda: nd.slice_axis(x, axis=2, begin=0, end=1),
        lambda: nd.slice_like(x, zeros(mx, (4, 4))),
        lambda: nd.slice_like(x, zeros(mx, (2, 2, 2))),
        lambda: nd.split(x, num_outputs=3),
        lambda: nd.split(x, num_outputs=2, squeeze_axis=True),
        lambda: nd.concat(x, zeros(mx, (2, 4))),
        lambda: nd.concat(x, whole),
        lambda: nd.concat(),
        lambda: nd.stack(x, whole),
        lambda: nd.stack(x, x, axis=4),
        lambda: nd.repeat(x, repeats=-1),
        lambda: nd.repeat(x, repeats=2, axis=5),
        lambda: nd.broadcast_axis(x, axis=1, size=3),
        lambda: nd.broadcast_to(x, shape=(3, 3)),
        lambda: nd.broadcast_to(x, shape=(12,)),
        lambda: nd.broadcast_like(x, zeros(mx, (3, 4, 1))),
        lambda: nd.diag(x, k=6),
        lambda: nd.diag(x, axis1=1, axis2=1),
        lambda: nd.pad(image, mode="constant", pad_width=(0, 0, 1, 0, 0, 0, 0, 0)),
        lambda: nd.pad(image, mode="reflect", pad_width=(0, 0, 0, 0, 4, 0, 0, 0)),
        lambda: nd.pad(image, mode="constant", pad_width=(0, 0, 0, 0)),
        lambda: nd.pad(image, mode="other", pad_width=(0, 0, 0, 0, 0, 0, 0, 0)),
        lambda: nd.Crop(image, h_w=(5, 5), num_args=1),
        lambda: nd.Crop(image, h_w=(3, 3), offset=(2, 2), num_args=1),
        lambda: nd.depth_to_space(image, block_size=2),
        lambda: nd.space_to_depth(image, block_size=3),
        lambda: nd.reverse(x, axis=2),
    ]
    return [str(outcome(lambda call=call: call().asnumpy().shape)) for call in calls]
