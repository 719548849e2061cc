"""NT-Xent agrees with its definition in numpy, and its gradient with central differences."""

import numpy as np
import pytest

import neomx as mx
from neomx import autograd, nd
from neomx.learn import NTXentLoss, Views, gather


def by_definition(first, second, temperature):
    """Return the loss of each sample, written as loops."""
    rows = np.concatenate([first, second]).astype("float64")
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    scores = np.exp(rows @ rows.T / temperature)
    n = len(first)
    losses = []
    for i in range(2 * n):
        others = [scores[i, k] for k in range(2 * n) if k != i]
        losses.append(-np.log(scores[i, (i + n) % (2 * n)] / sum(others)))
    return (np.array(losses[:n]) + np.array(losses[n:])) / 2


def views(dtype="float32"):
    random = np.random.default_rng(0)
    return random.standard_normal((2, 6, 4)).astype(dtype)


@pytest.mark.parametrize("hybridize", [False, True])
def test_loss_equals_its_definition(hybridize):
    loss = NTXentLoss(temperature=0.3)
    if hybridize:
        loss.hybridize()
    found = loss(*map(nd.array, views()))
    assert found.shape == (6,)
    np.testing.assert_allclose(found.asnumpy(), by_definition(*views(), 0.3), rtol=1e-5)  # float32


def test_gradient_equals_central_differences():
    first, second = (nd.array(each, dtype="float64") for each in views("float64"))
    first.attach_grad()
    second.attach_grad()
    with autograd.record():
        loss = NTXentLoss(0.3, weight=2.0)(first, second)
    loss.backward()
    step = 1e-5
    for at in [(0, 0), (3, 2)]:
        for which, array in enumerate((first, second)):
            sides = []
            for sign in (1, -1):
                moved = views("float64")
                moved[which][at] += sign * step
                sides.append(2 * by_definition(*moved, 0.3).sum())
            expected = (sides[0] - sides[1]) / (2 * step)
            np.testing.assert_allclose(array.grad.asnumpy()[at], expected, rtol=1e-7, atol=1e-9)


def test_half_precision_computes_in_single():
    found = NTXentLoss(0.1)(*(nd.array(each, dtype="float16") for each in views()))
    assert found.dtype == np.float16
    halved = views().astype("float16").astype("float32")
    np.testing.assert_allclose(found.asnumpy(), by_definition(*halved, 0.1), rtol=2e-3)  # of the result: 2 ** -10


def test_numpy_arrays_are_accepted():
    found = NTXentLoss()(*(mx.np.array(each) for each in views()))
    assert isinstance(found, mx.np.ndarray)
    np.testing.assert_allclose(found.asnumpy(), by_definition(*views(), 0.5), rtol=1e-5)


def test_wrong_input_is_rejected():
    one, other = map(nd.array, views())
    with pytest.raises(mx.MXNetError, match=r"one shape \(samples, features\), received \(6, 4\) and \(5, 4\)"):
        NTXentLoss()(one, other[:5])
    with pytest.raises(mx.MXNetError, match="at least two samples over all workers"):
        NTXentLoss()(one[:1], other[:1])
    with pytest.raises(ValueError, match="temperature must be positive, received 0"):
        NTXentLoss(0)


def test_gather_of_one_worker_returns_the_rows_and_their_gradients():
    x = nd.array(views()[0])
    x.attach_grad()
    with autograd.record():
        y = (gather(x) * 3).sum()
    y.backward()
    np.testing.assert_array_equal(x.grad.asnumpy(), np.full((6, 4), 3))
    assert gather(mx.sym.var("x")).list_arguments() == ["x"]
    with pytest.raises(TypeError, match="gather expects an array or a symbol, received 3"):
        gather(3)


def test_views_apply_each_function_and_keep_the_label():
    both = Views(lambda x: x + 1, lambda x: x * 2)
    assert both(3) == (4, 6)
    assert both(3, "label") == (4, 6, "label")
    with pytest.raises(TypeError, match="one or more functions of a sample"):
        Views()
    dataset = mx.gluon.data.ArrayDataset(np.arange(4), np.arange(4)).transform(both)
    assert dataset[3] == (4, 6, 3)
