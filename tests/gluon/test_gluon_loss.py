"""Losses beyond MXNet's features, and their errors."""

import numpy as np
import pytest

from neomx import autograd, nd
from neomx.gluon import loss


def values(*shape, seed=0, low=-1.0):
    return nd.array(np.random.RandomState(seed).uniform(low, 1, shape), dtype="float32")


def gradient(block, x, *others):
    x.attach_grad()
    with autograd.record():
        out = block(x, *others)
    out.backward()
    return out.asnumpy(), x.grad.asnumpy()


@pytest.mark.parametrize(
    ("make", "others"),
    [
        (lambda: loss.SDMLLoss(0.2), (values(4, 3, seed=1),)),
        (lambda: loss.PoissonNLLLoss(compute_full=True), (values(4, 3, seed=1, low=0.5) * 6,)),
    ],
)
def test_losses_hybridize_where_mxnet_cannot(make, others):
    x, block = values(4, 3), make()
    plain = gradient(block, x, *others)
    block.hybridize()
    for expected, received in zip(plain, gradient(block, x, *others), strict=True):
        np.testing.assert_allclose(received, expected, rtol=1e-6)
    assert np.abs(plain[1]).max() > 0


def test_cosine_embedding_in_float64():
    a, b = values(3, 4).astype("float64"), values(3, 4, seed=1).astype("float64")
    out = loss.CosineEmbeddingLoss()(a, b, nd.array([1, 1, 1], dtype="float64")).asnumpy()
    a, b = a.asnumpy(), b.asnumpy()
    cosine = (a * b).sum(1) / np.sqrt((a * a).sum(1) * (b * b).sum(1))
    np.testing.assert_allclose(out[:, 0], 1 - cosine, rtol=1e-12)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: loss.CTCLoss(layout="CTN"), AssertionError, "layout must be 'NTC' or 'TNC', received 'CTN'"),
        (lambda: loss.LogisticLoss(label_format="x"), ValueError, "must be 'signed' or 'binary', received 'x'"),
        (lambda: loss.L1Loss("a")(values(2), values(2)), AssertionError, "weight must be a number, received 'a'"),
        (lambda: loss.L2Loss(None)(values(2), values(2)), TypeError, "weight of L2Loss must be a number"),
        (lambda: loss.SDMLLoss()(values(2, 3), values(3, 3)), AssertionError, r"received \(2, 3\) and \(3, 3\)"),
        (lambda: loss.Loss(1, 0)(values(2)), NotImplementedError, "Loss must define hybrid_forward"),
    ],
)
def test_errors_name_expected_values(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("classes", [5, 300])
def test_out_of_range_labels_are_clipped(classes):
    """As `pick` clips them, however the cross-entropy is computed. This includes -100, which torch would ignore."""
    pred = nd.array(np.random.RandomState(0).normal(size=(4, classes)))
    pred.attach_grad()
    loss_of = loss.SoftmaxCrossEntropyLoss()
    found = []
    for label in ([-100, 1, classes, 2 * classes], [0, 1, classes - 1, classes - 1]):
        with autograd.record():
            value = loss_of(pred, nd.array(label))
        value.backward()
        found.append((value.asnumpy(), pred.grad.asnumpy().copy()))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
