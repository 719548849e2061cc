"""Features that MXNet lacks on a CPU: channels-last layouts and modulated deformable convolution."""

import numpy as np
import pytest
import torch

import neomx as mx
from neomx.ops import OPS


def arrays(*shapes, seed=0):
    rng = np.random.RandomState(seed)
    result = [mx.nd.array(rng.uniform(-1, 1, shape)) for shape in shapes]
    for array in result:
        array.attach_grad()
    return result


def moved(array, source, target):
    result = mx.nd.array(np.moveaxis(array.asnumpy(), source, target))
    result.attach_grad()
    return result


def run(function, *inputs, **attrs):
    """Return the output of a call and the gradients of its inputs, for a head gradient independent of the layout."""
    with mx.autograd.record():
        out = function(*inputs, **attrs)
        loss = out * out
    loss.backward()
    return [out.asnumpy()] + [i.grad.asnumpy() for i in inputs]


@pytest.mark.parametrize("name", ["Convolution", "Deconvolution"])
@pytest.mark.parametrize(("first", "last"), [("NCW", "NWC"), ("NCHW", "NHWC"), ("NCDHW", "NDHWC")])
def test_channels_last_equals_transposed_channels_first(name, first, last):
    rank = len(first) - 2
    kernel = (3, 2, 2)[:rank]
    weight = (6, 2, *kernel) if name == "Convolution" else (4, 3, *kernel)
    inputs = arrays((2, 4, *(6, 5, 4)[:rank]), weight, (6,))
    attrs = dict(kernel=kernel, num_filter=6, num_group=2, stride=(2, 1, 1)[:rank], no_bias=False)
    function = getattr(mx.nd, name)
    expected = run(function, *inputs, layout=first, **attrs)
    received = run(function, moved(inputs[0], 1, -1), moved(inputs[1], 1, -1), inputs[2], layout=last, **attrs)
    for got, want, moves in zip(received, expected, (True, True, True, False), strict=True):
        assert got.shape == (np.moveaxis(want, 1, -1) if moves else want).shape
        np.testing.assert_allclose(np.moveaxis(got, -1, 1) if moves else got, want, rtol=1e-4, atol=1e-5)


def test_results_are_in_contiguous_order_for_any_memory_format():
    data, weight = arrays((2, 3, 5, 5), (8, 3, 3, 3))
    out = mx.nd.Convolution(data, weight, kernel=(3, 3), num_filter=8, no_bias=True)
    assert out.asnumpy().flags["C_CONTIGUOUS"]
    flat = mx.nd.FullyConnected(out, mx.nd.array(np.eye(72)), num_hidden=72, no_bias=True)
    np.testing.assert_allclose(flat.asnumpy(), out.asnumpy().reshape(2, 72), rtol=1e-6)


def test_one_channel_convolution_equals_convolution_without_im2col():
    """An image with one channel uses another kernel than an image with an empty second channel."""
    data, weight, bias = arrays((2, 1, 9, 8), (4, 1, 3, 3), (4,))
    attrs = dict(kernel=(3, 3), num_filter=4, stride=(2, 1), pad=(1, 0))
    wide = [mx.nd.array(np.concatenate([a.asnumpy(), 0 * a.asnumpy()], 1)) for a in (data, weight)]
    expected = mx.nd.Convolution(*wide, bias, **attrs)
    received = mx.nd.Convolution(data, weight, bias, **attrs)
    np.testing.assert_allclose(received.asnumpy(), expected.asnumpy(), rtol=1e-5, atol=1e-6)


def test_modulated_deformable_convolution_with_mask_of_ones_equals_plain_inside_image():
    data, weight, bias, offset = arrays((2, 4, 8, 7), (6, 2, 3, 3), (6,), (2, 36, 4, 3), seed=1)
    offset[:] = offset * 0.9
    attrs = dict(kernel=(3, 3), num_filter=6, num_group=2, num_deformable_group=2)
    # The window starts at 1, so offsets below 1 stay inside the image.
    inner = mx.nd.array(np.pad(data.asnumpy(), ((0, 0), (0, 0), (1, 1), (1, 1)), mode="edge"))
    offset = mx.nd.array(np.pad(offset.asnumpy(), ((0, 0), (0, 0), (2, 2), (2, 2))))
    inner.attach_grad()
    offset.attach_grad()
    plain = mx.nd.contrib.DeformableConvolution
    modulated = mx.nd.contrib.ModulatedDeformableConvolution
    expected = run(plain, inner, offset, weight, bias, **attrs)
    mask = mx.nd.array(np.ones((2, 18, 8, 7)))
    mask.attach_grad()
    out, d_inner, _, _, d_weight, d_bias = run(modulated, inner, offset, mask, weight, bias, **attrs)
    # The gradients of the offsets are not compared: on the border, the plain convolution has none.
    for got, want in zip((out, d_inner, d_weight, d_bias), np.array(expected, object)[[0, 1, 3, 4]], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_modulated_deformable_convolution_interpolates_border_with_zeros():
    data, offset = mx.nd.array([[[[2.0]]]]), mx.nd.array([[[[-0.25]], [[0.5]]]])
    weight, mask = mx.nd.array([[[[1.0]]]]), mx.nd.array([[[[0.5]]]])
    attrs = dict(kernel=(1, 1), num_filter=1, no_bias=True)
    out = mx.nd.contrib.ModulatedDeformableConvolution(data, offset, mask, weight, **attrs)
    assert out.asscalar() == pytest.approx(2 * 0.75 * 0.5 * 0.5)
    assert mx.nd.contrib.DeformableConvolution(data, offset, weight, **attrs).asscalar() == 0


def test_deformable_convolution_with_zero_offsets_equals_convolution():
    data, weight, bias = arrays((2, 3, 6, 5), (4, 3, 3, 3), (4,))
    attrs = dict(kernel=(3, 3), num_filter=4, pad=(1, 1), stride=(2, 1), dilate=(1, 2))
    expected = mx.nd.Convolution(data, weight, bias, **attrs)
    offset = mx.nd.array(np.zeros((2, 18, *expected.shape[2:])))
    received = mx.nd.contrib.DeformableConvolution(data, offset, weight, bias, **attrs)
    np.testing.assert_allclose(received.asnumpy(), expected.asnumpy(), rtol=1e-4, atol=1e-5)


def test_half_precision_and_empty_batches_work():
    data, weight, bias = (a.to_torch().detach() for a in arrays((2, 3, 6, 6), (4, 3, 3, 3), (4,)))
    halves = [mx.nd.NDArray(t.half()) for t in (data, weight, bias)]
    out = mx.nd.Convolution(*halves, kernel=(3, 3), num_filter=4)
    assert out.dtype == np.float16
    np.testing.assert_allclose(
        out.asnumpy(), torch.nn.functional.conv2d(data, weight, bias).numpy(), rtol=1e-2, atol=1e-2
    )
    empty = mx.nd.NDArray(data[:0])
    out = mx.nd.Convolution(empty, mx.nd.NDArray(weight), mx.nd.NDArray(bias), kernel=(3, 3), num_filter=4)
    assert out.shape == (0, 4, 4, 4)
    assert mx.nd.FullyConnected(empty, mx.nd.array(np.ones((5, 108))), num_hidden=5, no_bias=True).shape == (0, 5)


def test_deep_convolution_equals_torch_convolution():
    """Many channels and few pixels use another weight gradient; first and second derivatives must be equal."""
    torch.manual_seed(0)
    data = torch.randn(2, 130, 5, 6, requires_grad=True, dtype=torch.float32)
    weight = torch.randn(129, 130, 3, 2, requires_grad=True)
    bias = torch.randn(129, requires_grad=True)
    options = {"stride": (2, 1), "pad": (1, 0)}
    row = OPS["Convolution"]
    ours = row.fn(data, weight, bias, kernel=(3, 2), num_filter=129, **options)
    assert "DeepConvolution" in ours.grad_fn.name()
    theirs = torch.nn.functional.conv2d(data, weight, bias, (2, 1), (1, 0))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-3)
    head = torch.randn_like(ours)
    first = [torch.autograd.grad(out, (data, weight, bias), head, create_graph=True) for out in (ours, theirs)]
    second = [torch.autograd.grad((grads[1] ** 2).sum(), data) for grads in first]
    for one, other in zip((*first[0], *second[0]), (*first[1], *second[1]), strict=True):
        assert (one - other).norm() < 1e-5 * other.norm()  # float32 sums of thousands of products
