"""Fully connected layers, convolutions, deconvolutions, deformable convolutions and correlation."""

import numpy as np

from parity.spec import f, family, ints, outcome

case, program = family(__name__)

# ---- FullyConnected ----
case("FullyConnected", f(3, 4), f(5, 4), f(5), num_hidden=5)
case("FullyConnected", f(3, 4), f(5, 4), num_hidden=5, no_bias=True)
case("FullyConnected", f(2, 3, 2, 2), f(5, 12), f(5), num_hidden=5)
case("FullyConnected", f(2, 3, 4), f(5, 4), f(5), num_hidden=5, flatten=False)
case("FullyConnected", f(2, 3, 2, 4), f(5, 4), num_hidden=5, flatten=False, no_bias=True)
case("FullyConnected", f(4), f(5, 1), f(5), num_hidden=5)
case("FullyConnected", f(4), f(5, 4), f(5), num_hidden=5, flatten=False)
case("FullyConnected", f(3, 4, dtype="float64"), f(5, 4, dtype="float64"), f(5, dtype="float64"), num_hidden=5)
case("FullyConnected", f(3, 4), f(1, 4), f(1), num_hidden="1", flatten="True")

# ---- Convolution ----
case("Convolution", f(2, 3, 7), f(4, 3, 3), f(4), kernel=(3,), num_filter=4)
case(
    "Convolution",
    f(2, 3, 9),
    f(4, 3, 3),
    kernel=(3,),
    num_filter=4,
    stride=(2,),
    pad=(1,),
    no_bias=True,
    layout="NCW",
)
case("Convolution", f(2, 4, 9), f(6, 2, 2), f(6), kernel=(2,), num_filter=6, num_group=2, dilate=(3,))
case("Convolution", f(2, 3, 7, 6), f(4, 3, 3, 2), f(4), kernel=(3, 2), num_filter=4)
case("Convolution", f(2, 3, 7, 6), f(4, 3, 3, 2), kernel=(3, 2), num_filter=4, no_bias=True, layout="NCHW")
case("Convolution", f(2, 3, 7, 6), f(4, 3, 3, 3), f(4), kernel=(3, 3), num_filter=4, stride=(2, 1), pad=(1, 2))
case(
    "Convolution",
    f(2, 4, 9, 8),
    f(6, 2, 3, 2),
    f(6),
    kernel=(3, 2),
    num_filter=6,
    num_group=2,
    dilate=(2, 3),
    pad=(2, 0),
)
case("Convolution", f(2, 4, 5, 5), f(4, 1, 3, 3), f(4), kernel=(3, 3), num_filter=4, num_group=4, pad=(1, 1))
case("Convolution", f(2, 4, 5, 5), f(8, 1, 3, 3), f(8), kernel=(3, 3), num_filter=8, num_group=4, pad=(1, 1))
case("Convolution", f(2, 5, 4, 4), f(3, 5, 1, 1), f(3), kernel=(1, 1), num_filter=3)
case("Convolution", f(3, 1, 8, 8), f(4, 1, 5, 5), f(4), kernel=(5, 5), num_filter=4)
case(
    "Convolution",
    f(3, 1, 8, 8),
    f(4, 1, 3, 3),
    kernel=(3, 3),
    num_filter=4,
    stride=(2, 2),
    pad=(1, 1),
    no_bias=True,
)
case("Convolution", f(3, 1, 8, 8), f(4, 1, 3, 3), f(4), kernel=(3, 3), num_filter=4, dilate=(2, 2))
case("Convolution", f(1, 2, 4, 5, 4), f(3, 2, 2, 3, 2), f(3), kernel=(2, 3, 2), num_filter=3)
case(
    "Convolution",
    f(1, 4, 5, 5, 4),
    f(2, 2, 2, 3, 2),
    f(2),
    kernel=(2, 3, 2),
    num_filter=2,
    num_group=2,
    stride=(2, 1, 2),
    pad=(1, 0, 1),
    dilate=(1, 2, 1),
    layout="NCDHW",
)
case(
    "Convolution",
    f(2, 3, 5, 5, dtype="float64"),
    f(4, 3, 3, 3, dtype="float64"),
    f(4, dtype="float64"),
    kernel=(3, 3),
    num_filter=4,
)
case(
    "Convolution",
    f(2, 1, 5, 5, dtype="float64"),
    f(4, 1, 3, 3, dtype="float64"),
    f(4, dtype="float64"),
    kernel=(3, 3),
    num_filter=4,
)
case(
    "Convolution",
    f(2, 3, 5, 5),
    f(4, 3, 3, 3),
    f(4),
    kernel="(3, 3)",
    num_filter="4",
    workspace=256,
    cudnn_tune="off",
    cudnn_off=True,
)
case("Convolution_v1", f(2, 3, 7, 6), f(4, 3, 3, 2), f(4), kernel=(3, 2), num_filter=4)
case(
    "Convolution_v1",
    f(2, 4, 9, 8),
    f(6, 2, 3, 2),
    kernel=(3, 2),
    num_filter=6,
    num_group=2,
    pad=(1, 1),
    stride=(1, 2),
    no_bias=True,
)
# MXNet's gradient of a dilated and strided Convolution_v1 is wrong.
case("Convolution_v1", f(2, 4, 9, 8), f(6, 4, 3, 2), f(6), kernel=(3, 2), num_filter=6, dilate=(2, 2))

# ---- Deconvolution ----
case("Deconvolution", f(2, 3, 5), f(3, 4, 3), kernel=(3,), num_filter=4, stride=(2,))
case(
    "Deconvolution",
    f(2, 3, 5, dtype="float64"),
    f(3, 4, 4, dtype="float64"),
    kernel=(4,),
    num_filter=4,
    stride=(2,),
    target_shape=(9,),
)
case("Deconvolution", f(2, 3, 4, 5), f(3, 4, 3, 2), kernel=(3, 2), num_filter=4)
case(
    "Deconvolution",
    f(2, 3, 4, 5),
    f(3, 4, 3, 2),
    f(4),
    kernel=(3, 2),
    num_filter=4,
    no_bias=False,
    stride=(2, 3),
    pad=(1, 0),
)
case("Deconvolution", f(2, 4, 4, 3), f(4, 3, 3, 3), kernel=(3, 3), num_filter=6, num_group=2, dilate=(2, 2))
case(
    "Deconvolution",
    f(2, 4, 4, 3),
    f(4, 3, 4, 4),
    kernel=(4, 4),
    num_filter=6,
    num_group=2,
    stride=(2, 2),
    pad=(1, 1),
)
# MXNet's float32 kernel refuses adj and odd target shapes together with pad; its float64 one takes them.
case(
    "Deconvolution",
    f(2, 3, 4, 5, dtype="float64"),
    f(3, 2, 3, 3, dtype="float64"),
    kernel=(3, 3),
    num_filter=2,
    stride=(2, 2),
    pad=(1, 1),
    adj=(1, 1),
)
case(
    "Deconvolution",
    f(2, 3, 4, 5, dtype="float64"),
    f(3, 2, 3, 3, dtype="float64"),
    kernel=(3, 3),
    num_filter=2,
    stride=(3, 3),
    adj=(2, 1),
)
for target in ((9, 11), (8, 10), (7, 8), (6, 7), (5, 9)):
    case(
        "Deconvolution",
        f(1, 2, 4, 5, dtype="float64"),
        f(2, 2, 3, 3, dtype="float64"),
        kernel=(3, 3),
        num_filter=2,
        stride=(2, 2),
        pad=(1, 1),
        adj=(1, 1),
        target_shape=target,
    )
case(
    "Deconvolution",
    f(1, 2, 4, 5),
    f(2, 2, 4, 4),
    kernel=(4, 4),
    num_filter=2,
    stride=(2, 2),
    target_shape=(0, 0),
)
case("Deconvolution", f(1, 2, 3, 4, 3), f(2, 3, 2, 3, 2), kernel=(2, 3, 2), num_filter=3, stride=(1, 2, 2))
case(
    "Deconvolution",
    f(1, 2, 3, 4, 3),
    f(2, 3, 3, 3, 3),
    f(3),
    kernel=(3, 3, 3),
    num_filter=3,
    no_bias=False,
    pad=(1, 1, 1),
    layout="NCDHW",
)

# ---- deformable ----
POINTS = dict(kernel=(3, 3), num_filter=4)
case(
    "_contrib_DeformableConvolution",
    f(2, 3, 6, 5),
    f(2, 18, 4, 3, lo=-2, hi=2),
    f(4, 3, 3, 3),
    f(4),
    **dict(POINTS),
)
case(
    "_contrib_DeformableConvolution",
    f(2, 4, 6, 5),
    f(2, 36, 3, 5, lo=-2, hi=2),
    f(4, 2, 3, 3),
    num_group=2,
    num_deformable_group=2,
    stride=(2, 1),
    pad=(1, 1),
    no_bias=True,
    **dict(POINTS),
)
case(
    "_contrib_DeformableConvolution",
    f(1, 2, 7, 8),
    f(1, 8, 7, 6, lo=-1, hi=1),
    f(3, 2, 2, 2),
    f(3),
    kernel=(2, 2),
    num_filter=3,
    dilate=(2, 2),
    pad=(1, 0),
)
# Offsets of 0 and whole pixels, and points in the last pixel's outer half.
case(
    "_contrib_DeformableConvolution",
    f(1, 2, 4, 4),
    ints(1, 8, 3, 3, lo=-1, hi=2),
    f(3, 2, 2, 2),
    f(3),
    kernel=(2, 2),
    num_filter=3,
)
case(
    "_contrib_DeformableConvolution",
    f(1, 1, 3, 3),
    f(1, 2, 3, 3, lo=0.2, hi=0.9),
    f(1, 1, 1, 1),
    kernel=(1, 1),
    num_filter=1,
    no_bias=True,
)
# MXNet has ModulatedDeformableConvolution on GPUs alone; tests/ops/test_conv.py holds it to this one.

# ---- Correlation ----
case("Correlation", f(2, 3, 6, 7), f(2, 3, 6, 7))
case("Correlation", f(2, 3, 6, 7), f(2, 3, 6, 7), is_multiply=False)
case("Correlation", f(1, 2, 8, 8), f(1, 2, 8, 8), kernel_size=3, max_displacement=2, pad_size=3)
case(
    "Correlation",
    f(1, 2, 8, 8),
    f(1, 2, 8, 8),
    kernel_size=3,
    max_displacement=2,
    pad_size=2,
    stride1=2,
    stride2=2,
)
case(
    "Correlation",
    f(1, 2, 9, 8),
    f(1, 2, 9, 8),
    kernel_size=1,
    max_displacement=3,
    pad_size=4,
    stride1=2,
    stride2=2,
)
case(
    "Correlation",
    f(1, 2, 8, 8),
    f(1, 2, 8, 8),
    kernel_size=3,
    max_displacement=2,
    pad_size=3,
    stride1=3,
    is_multiply=False,
)


def ones(mx, shape, dtype="float32"):
    return mx.nd.array(np.ones(shape), dtype=dtype)


@program
def what_is_refused(mx):
    x, w, b = ones(mx, (2, 4, 5, 5)), ones(mx, (6, 4, 3, 3)), ones(mx, 6)
    convolve = dict(kernel=(3, 3), num_filter=6)
    calls = [
        lambda: mx.nd.FullyConnected(x, ones(mx, (3, 100)), num_hidden=3),
        lambda: mx.nd.FullyConnected(x, ones(mx, (3, 100)), ones(mx, 3), num_hidden=3, no_bias=True),
        lambda: mx.nd.FullyConnected(x, ones(mx, (3, 99)), ones(mx, 3), num_hidden=3),
        lambda: mx.nd.FullyConnected(x, ones(mx, (3, 100)), ones(mx, 3), num_hidden=4),
        lambda: mx.nd.Convolution(x, w, **convolve),
        lambda: mx.nd.Convolution(x, w, b, no_bias=True, **convolve),
        lambda: mx.nd.Convolution(x, w, b, stride=(2,), **convolve),
        lambda: mx.nd.Convolution(x, w, b, num_group=3, **convolve),
        lambda: mx.nd.Convolution(x, w, b, kernel=(7, 7), num_filter=6),
        lambda: mx.nd.Convolution(x[0], w, b, **convolve),
        lambda: mx.nd.Deconvolution(x, w, b, **convolve),
        lambda: mx.nd.Deconvolution(x, ones(mx, (4, 6, 3, 3)), adj=(1, 1), **convolve),
        lambda: mx.nd.Deconvolution(x, ones(mx, (4, 6, 3, 3)), target_shape=(9, 9), **convolve),
        lambda: mx.nd.Deconvolution(x, ones(mx, (4, 6, 3, 3)), target_shape=(6, 6), **convolve),
    ]
    return [outcome(lambda call=call: call().asnumpy()) for call in calls]


@program
def a_small_network(mx):
    """Layers in a row, so that gradients pass from one to the next."""
    nd, rng = mx.nd, np.random.RandomState(0)
    shapes = (2, 3, 8, 8), (6, 3, 3, 3), (6,), (4, 6, 3, 3), (5, 16), (5,)
    x, *weights = [nd.array(rng.uniform(-1, 1, shape)) for shape in shapes]
    for array in [x] + weights:
        array.attach_grad()
    with mx.autograd.record():
        y = nd.Convolution(x, weights[0], weights[1], kernel=(3, 3), num_filter=6, pad=(1, 1))
        y = nd.Pooling(nd.relu(y), kernel=(2, 2), stride=(2, 2))
        y = nd.Convolution(y, weights[2], kernel=(3, 3), num_filter=4, no_bias=True)
        y = nd.FullyConnected(nd.tanh(y), weights[3], weights[4], num_hidden=5)
        z = y * y
    z.backward()
    return [y * 0.1] + [a.grad * 0.1 for a in [x] + weights]
