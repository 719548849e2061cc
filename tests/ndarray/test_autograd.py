"""Autograd features that MXNet does not have, and the cost of recording."""

import gc
import math
import threading
import weakref

import numpy as np
import pytest
import torch
from launching import LIMIT

import neomx as mx
from neomx import autograd, nd


def variable(*values):
    x = nd.array(values)
    x.attach_grad()
    return x


def test_derivatives_of_any_order():
    x = variable(0.3, 1.1)
    with autograd.record():
        y = nd.sin(x) * x
        for _ in range(3):
            (y,) = autograd.grad(y, [x], create_graph=True)
    y.backward()
    at = x.asnumpy()
    np.testing.assert_allclose(y.asnumpy(), -3 * np.sin(at) - at * np.cos(at), rtol=1e-5)  # (x sin x)'''
    np.testing.assert_allclose(x.grad.asnumpy(), -4 * np.cos(at) + at * np.sin(at), rtol=1e-5)


def test_gradient_penalty():
    """A second-order program that MXNet rejects, because it cannot differentiate this gradient."""
    w = variable(0.5, -1.0)
    with autograd.record():
        (g,) = autograd.grad((w * w * w).sum(), [w], create_graph=True)
        penalty = (g * g).sum()
    penalty.backward()
    np.testing.assert_allclose(w.grad.asnumpy(), 36 * w.asnumpy() ** 3, rtol=1e-5)


def test_no_graph_is_built_outside_record():
    x = variable(1.0, 2.0)
    assert (x * 2)._data.grad_fn is None
    assert x.reshape((2, 1))._data.grad_fn is None
    assert x[0:1]._data.grad_fn is None
    with autograd.record(), autograd.pause():
        assert (x * 2)._data.grad_fn is None


def test_torch_grad_mode_does_not_change():
    x = variable(1.0)
    for mode in (True, False):
        with torch.set_grad_enabled(mode):
            x * 2
            with pytest.raises(mx.MXNetError):
                nd.dot(x, nd.ones((3, 3)))
            with autograd.record():
                x * 2
            assert torch.is_grad_enabled() is mode


def test_recording_is_thread_local():
    seen = []
    with autograd.record():
        thread = threading.Thread(target=lambda: seen.append(autograd.is_recording()))
        thread.start()
        thread.join(LIMIT)
    assert seen == [False]


def test_variables_are_freed():
    x = variable(1.0, 2.0)
    with autograd.record():
        y = (x * x).sum()
    y.backward()
    tensor = weakref.ref(x._data)
    del x, y
    gc.collect()
    assert tensor() is None


def test_backward_frees_the_graph():
    x = variable(1.0, 2.0)
    with autograd.record():
        middle = nd.exp(x)
        y = middle.sum()
    kept = weakref.ref(middle._data)
    del middle
    y.backward()
    assert kept() is None


def test_torch_and_neomx_share_one_graph():
    x = variable(2.0, 3.0)
    with autograd.record():
        y = nd.from_torch(torch.sin(x.to_torch() * 2)) * 3
    y.backward()
    np.testing.assert_allclose(x.grad.asnumpy(), 6 * np.cos(2 * x.asnumpy()), rtol=1e-5)


def test_grad_does_not_change_the_buffer():
    x = variable(2.0)
    with autograd.record():
        y = x * 5
    y.backward()
    with autograd.record():
        y = x * 7
    assert autograd.grad(y, x)[0].asscalar() == 7
    assert x.grad.asscalar() == 5


def test_function_errors_are_clear():
    class Wrong(autograd.Function):
        def forward(self, x, y):
            return x + y

        def backward(self, dy):
            return dy

    x = variable(1.0)
    with autograd.record():
        y = Wrong()(x, x)
    with pytest.raises(mx.MXNetError, match="must return 2 gradient"):
        y.backward()
    with pytest.raises(NotImplementedError, match="override forward"):
        autograd.Function()(x)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, y: nd.ones(2).backward(), "not in a computational graph"),
        (lambda x, y: y.backward(nd.ones(3)), r"shape \(2,\) of its head, received \(3,\)"),
        (lambda x, y: autograd.grad(y, [nd.ones(2)]), "attach_grad"),
        (lambda x, y: autograd.grad(y, [variable(1.0)]), "not reachable"),
    ],
)
def test_backward_errors_are_clear(call, message):
    x = variable(1.0, 2.0)
    with autograd.record():
        y = x * x
    with pytest.raises(mx.MXNetError, match=message):
        call(x, y)


def test_attach_grad_rejects_unknown_grad_req():
    with pytest.raises(ValueError, match="'write', 'add' or 'null'"):
        nd.ones(1).attach_grad("overwrite")


def test_large_gradients_are_not_copied():
    """'write' uses torch's gradient without copying it: the buffer's memory is new."""
    x = variable(*range(1000))
    with autograd.record():
        y = x * 2
    y.backward()
    first = x.grad._data
    with autograd.record():
        y = x * 3
    y.backward()
    assert x.grad._data is not first
    assert math.isclose(float(first[0]), 2) and x.grad[0].asscalar() == 3


def test_writing_to_recorded_views_does_not_change_other_arrays():
    x = variable(1.0, 2.0)
    with autograd.record():
        turned, stretched = nd.expand_dims(x, axis=0), nd.broadcast_to(x.reshape((1, 2)), shape=(3, 2))
        loss = (turned * stretched).sum()
    turned[:] = 7
    stretched[:] = 8
    assert x.asnumpy().tolist() == [1, 2] and stretched.asnumpy().tolist() == [[8, 8]] * 3
    loss.backward()  # reads the current contents of memory, as in MXNet
    assert x.grad.asnumpy().tolist() == [45, 45]
