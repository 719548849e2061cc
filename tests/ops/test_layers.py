"""Layer features without MXNet recordings: randomness, layouts, torch's backward, ops that its nd cannot call."""

import numpy as np
import pytest
import torch

import neomx as mx

nd, autograd = mx.nd, mx.autograd


def array(*shape, lo=-1.0, seed=0):
    return nd.array(np.random.RandomState(seed).uniform(lo, 1, size=shape))


def ones(*shape, dtype="float32"):
    return nd.array(np.ones(shape), dtype=dtype)


# ---- dropout and rrelu ----


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_keeps_the_mean(p):
    mx.random.seed(1)
    x = ones(200, 500)
    x.attach_grad()
    with autograd.record():
        y = nd.Dropout(x, p=p)
    y.backward()
    values = y.asnumpy()
    np.testing.assert_allclose(np.unique(values), [0, 1 / (1 - p)], rtol=1e-6)
    assert abs((values == 0).mean() - p) < 0.01
    np.testing.assert_array_equal(x.grad.asnumpy(), values)


def test_dropout_repeats_with_same_seed():
    def draw():
        with autograd.train_mode():
            return nd.Dropout(ones(1000)).asnumpy()

    mx.random.seed(7)
    first, second = draw(), draw()
    mx.random.seed(7)
    np.testing.assert_array_equal(draw(), first)
    assert (first != second).any()


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 2)])
def test_dropout_along_axes_drops_elements_together(axes):
    y = nd.Dropout(ones(4, 50, 6), mode="always", axes=axes).asnumpy()
    np.testing.assert_array_equal(y, np.broadcast_to(y.max(axes, keepdims=True), y.shape))
    assert 0 < (y == 0).mean() < 1


def test_dropout_is_identity_in_prediction():
    np.testing.assert_array_equal(nd.Dropout(ones(100)).asnumpy(), 1)
    assert (nd.Dropout(ones(100), mode="always").asnumpy() == 0).any()
    assert (nd.Dropout(ones(100), p=1, mode="always").asnumpy() == 0).all()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_dropout_keeps_the_dtype(dtype):
    assert nd.Dropout(ones(10, dtype=dtype), mode="always").dtype == np.dtype(dtype)


def test_rrelu_draws_slopes_between_bounds():
    mx.random.seed(3)
    x = nd.array(np.concatenate([-np.ones(5000), np.ones(10)]))
    x.attach_grad()
    with autograd.record():
        y, slopes = nd.LeakyReLU(x, act_type="rrelu", lower_bound=0.2, upper_bound=0.4)
    y.backward()
    used = -y.asnumpy()[:5000]
    assert used.min() >= 0.2 and used.max() < 0.4 and abs(used.mean() - 0.3) < 0.005
    np.testing.assert_allclose(slopes.asnumpy()[:5000], used, rtol=1e-6)
    np.testing.assert_array_equal(y.asnumpy()[5000:], 1)
    np.testing.assert_allclose(x.grad.asnumpy(), slopes.asnumpy())


# ---- batch norm ----


def batch_norm_arrays(shape=(4, 3, 5, 2), channels=3):
    arrays = [array(*shape), *(array(channels, lo=0.5, seed=i) for i in range(1, 5))]
    for each in arrays[:3]:
        each.attach_grad()
    return arrays


def test_batch_norm_in_channels_last():
    results = []
    for layout in (torch.contiguous_format, torch.channels_last):
        arrays = batch_norm_arrays()
        data = arrays[0].to_torch().detach().to(memory_format=layout)
        arrays[0] = nd.from_torch(data)
        arrays[0].attach_grad()
        with autograd.record():
            y = nd.BatchNorm(*arrays, fix_gamma=False)
        assert y.to_torch().is_contiguous(memory_format=layout)
        y.backward(array(4, 3, 5, 2, seed=9))
        results.append([y, *arrays, *(a.grad for a in arrays[:3])])
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=1e-5, atol=1e-6)


def test_batch_norm_with_backward_of_torch():
    arrays = batch_norm_arrays()
    moving = arrays[3].asnumpy()
    with autograd.record():
        y = nd.BatchNorm(*arrays, fix_gamma=False)
    y.to_torch().sum().backward()
    assert abs(arrays[0].to_torch().grad).max() < 1e-4  # the sum over the batch is constant
    assert (arrays[3].asnumpy() != moving).all()


def test_batch_norm_second_derivative():
    def first_gradient(x, gamma, beta, mean, var):
        with autograd.record():
            y = nd.BatchNorm(x, gamma, beta, mean, var, fix_gamma=False)
            return autograd.grad(y * y * y, x, create_graph=True)[0]

    arrays = batch_norm_arrays((6, 3))
    first_gradient(*arrays).backward(head := array(6, 3, seed=5))
    step, direction = 1e-2, np.random.RandomState(1).uniform(-1, 1, size=(6, 3))
    there, back = (
        float(
            (
                first_gradient(_variable(arrays[0].asnumpy() + s * direction), *arrays[1:]).asnumpy() * head.asnumpy()
            ).sum()
        )
        for s in (step, -step)
    )
    slope = (arrays[0].grad.asnumpy() * direction).sum()
    np.testing.assert_allclose((there - back) / (2 * step), slope, rtol=2e-2)


def _variable(values):
    x = nd.array(values)
    x.attach_grad()
    return x


def test_batch_norm_v1_equals_batch_norm():
    results = []
    for name in ("BatchNorm", "BatchNorm_v1"):
        arrays = batch_norm_arrays()
        with autograd.record():
            y, mean, spread = getattr(nd, name)(*arrays, fix_gamma=False, output_mean_var=True)
        y.backward(array(4, 3, 5, 2, seed=9))
        results.append([y, mean, *arrays, *(a.grad for a in arrays[:3])])
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one.asnumpy(), other.asnumpy())
    np.testing.assert_allclose(spread.asnumpy(), arrays[0].asnumpy().var((0, 2, 3)), rtol=1e-4)


# ---- losses ----


def test_kl_sparseness_penalty():
    """The expected values are from a symbol in MXNet 1.9.1. Its nd cannot call the op."""
    x = nd.array([[0.159137, 0.41996, 0.171677], [0.572334, 0.360924, 0.307331],
                  [0.232278, 0.487117, 0.328075], [0.384217, 0.109395, 0.408818]])  # fmt: skip
    average = nd.array([0.3, 0.3, 0.3])
    x.attach_grad()
    with autograd.record():
        y = nd.IdentityAttachKLSparseReg(x, average, penalty=0.1, sparseness_target=0.2, momentum=0.7)
    np.testing.assert_array_equal(average.asnumpy(), np.float32(0.3))
    y.backward()
    np.testing.assert_allclose(average.asnumpy(), [0.311098, 0.313305, 0.301193], rtol=1e-5)
    np.testing.assert_allclose(x.grad.asnumpy(), [[1.051838, 1.052664, 1.048078]] * 4, rtol=1e-6)


def test_softmax_length_beyond_the_axis():
    x = array(2, 4)
    y = nd.softmax(x, nd.array([9, -2], dtype="int32"), use_length=True).asnumpy()
    np.testing.assert_allclose(y[0], nd.softmax(x).asnumpy()[0], rtol=1e-6)
    np.testing.assert_array_equal(y[1], 0)


def test_cross_entropy_of_labels_out_of_range():
    x = array(3, 5)
    x.attach_grad()
    with autograd.record():
        loss = nd.softmax_cross_entropy(x, nd.array([-1, 7, 2]))
    loss.backward()
    probability = nd.softmax(x).asnumpy()
    np.testing.assert_allclose(loss.asnumpy(), [-2 * np.log(1e-8) - np.log(probability[2, 2])], rtol=1e-6)
    probability[2, 2] -= 1
    np.testing.assert_allclose(x.grad.asnumpy(), probability, rtol=1e-5, atol=1e-7)
