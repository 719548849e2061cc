"""Ops that MXNet's CPU build refuses, so there are no recordings: compared with numpy or MXNet's sparse kernels."""

import numpy as np
import pytest

import neomx as mx


def gradient(function, x, head):
    """Return the result of `function` and its gradient at x for this output gradient."""
    x = mx.nd.array(x)
    x.attach_grad()
    with mx.autograd.record():
        y = function(x)
    y.backward(mx.nd.array(head))
    return y.asnumpy(), x.grad.asnumpy()


def interleaved(z):
    return np.stack((z.real, z.imag), -1).reshape(*z.shape[:-1], -1)


@pytest.mark.parametrize("shape", [(3, 8), (2, 5), (2, 3, 2, 4)])
def test_fft_interleaves_real_and_imaginary_parts(shape):
    rng = np.random.RandomState(0)
    x, head = rng.rand(*shape), rng.rand(*shape[:-1], 2 * shape[-1])
    y, grad = gradient(mx.nd.contrib.fft, x, head)
    np.testing.assert_allclose(y, interleaved(np.fft.fft(x)), rtol=1e-5, atol=1e-6)
    expected = np.fft.ifft(head[..., ::2] + 1j * head[..., 1::2]).real * shape[-1]
    np.testing.assert_allclose(grad, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(3, 8), (2, 10), (2, 3, 2, 4)])
def test_ifft_is_not_divided_by_the_length(shape):
    rng = np.random.RandomState(0)
    d = shape[-1] // 2
    x, head = rng.rand(*shape), rng.rand(*shape[:-1], d)
    y, grad = gradient(mx.nd.contrib.ifft, x, head)
    np.testing.assert_allclose(y, np.fft.ifft(x[..., ::2] + 1j * x[..., 1::2]).real * d, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(grad, interleaved(np.fft.fft(head)), rtol=1e-5, atol=1e-6)


def test_ifft_undoes_fft():
    x = mx.nd.array(np.random.RandomState(0).rand(2, 6))
    np.testing.assert_allclose(mx.nd.contrib.ifft(mx.nd.contrib.fft(x)).asnumpy() / 6, x.asnumpy(), rtol=1e-5)


def test_count_sketch():
    rng = np.random.RandomState(0)
    x, head = rng.rand(3, 6), rng.rand(3, 4)
    place, sign = np.array([0, 3, 1, 3, 0, 2]), np.array([1, -1, 1, 1, -1, 1])
    h, s = mx.nd.array(place[None]), mx.nd.array(sign[None])
    y, grad = gradient(lambda a: mx.nd.contrib.count_sketch(a, h, s, out_dim=4), x, head)
    expected = np.zeros((3, 4))
    for i in range(6):
        expected[:, place[i]] += sign[i] * x[:, i]
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(grad, sign * head[:, place], rtol=1e-5, atol=1e-6)


# MXNet 1.9.1 only accepts row-sparse gradients here; these are its values for a gradient with every row.


def test_group_adagrad():
    w, g = mx.nd.array([[1.0, 2.0], [5.0, 6.0]]), mx.nd.array([[0.5, -0.25], [1.0, 2.0]])
    h = mx.nd.array([[1.0], [3.0]])
    mx.nd.contrib.group_adagrad_update(w, g, h, lr=0.1, epsilon=0.5, out=w)
    np.testing.assert_allclose(w.asnumpy(), [[0.96114856, 2.0194256], [4.959175, 5.91835]], rtol=1e-6)
    np.testing.assert_allclose(h.asnumpy(), [[1.15625], [5.5]], rtol=1e-6)


def test_adagrad():
    w, g = mx.nd.array([[1.0, 2.0], [5.0, 6.0]]), mx.nd.array([[0.5, -0.25], [1.0, 2.0]])
    h = mx.nd.array([[1.0, 2.0], [1.0, 2.0]])
    mx.nd.sparse.adagrad_update(w, g, h, lr=0.1, epsilon=0.5, out=w)
    np.testing.assert_allclose(w.asnumpy(), [[0.96220356, 2.0156174], [4.936754, 5.9215536]], rtol=1e-6)
    np.testing.assert_allclose(h.asnumpy(), [[1.25, 2.0625], [2.0, 6.0]], rtol=1e-6)


def test_lamb_updates_the_master_copy():
    w32, g = mx.nd.array([1.0, -2.0]), mx.nd.array([0.5, 0.25])
    w = mx.nd.array([1.0, -2.0], dtype="float16")
    mx.nd.mp_lamb_update_phase2(w, g, mx.nd.array([2.0]), mx.nd.array([0.5]), w32, lr=0.1, out=w)
    np.testing.assert_allclose(w32.asnumpy(), [0.8, -2.1], rtol=1e-6)


def test_multi_ops_return_new_weights_without_out():
    w, g, m = (mx.nd.array([1.0, 2.0]) for _ in range(3))
    results = mx.nd.multi_sgd_mom_update(w, g, m, lrs=(0.5,), wds=(0.0,), momentum=1.0)
    np.testing.assert_allclose(results[0].asnumpy(), [1.5, 3.0])
    np.testing.assert_allclose(w.asnumpy(), [1.0, 2.0])
    np.testing.assert_allclose(m.asnumpy(), [0.5, 1.0])


def test_dot_differentiates_twice():
    x = mx.nd.array([[1.0, 2.0], [3.0, 4.0]])
    x.attach_grad()
    with mx.autograd.record():
        y = mx.nd.dot(x, x)
        (first,) = mx.autograd.grad(y, [x], create_graph=True, retain_graph=True)
        z = first * first
    z.backward()
    s = np.array([[1.0, 2.0], [3.0, 4.0]])
    ones = np.ones((2, 2))
    first_expected = ones @ s.T + s.T @ ones
    head = 2 * first_expected
    np.testing.assert_allclose(x.grad.asnumpy(), head.T @ ones + ones @ head.T, rtol=1e-5)
