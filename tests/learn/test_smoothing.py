"""Cross-entropy with smoothed labels."""

import numpy as np
import pytest

from neomx import autograd, gluon, learn, nd


def reference(scores, labels, smoothing):
    """Return the losses and gradients in numpy, in float64."""
    shifted = scores - scores.max(-1, keepdims=True)
    probabilities = np.exp(shifted) / np.exp(shifted).sum(-1, keepdims=True)
    wanted = (1 - smoothing) * np.eye(scores.shape[-1])[labels] + smoothing / scores.shape[-1]
    return -(wanted * np.log(probabilities)).sum(-1), probabilities - wanted


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize("sparse_label", [False, True])
def test_loss_and_gradient_match_numpy(hybridize, sparse_label):
    random = np.random.default_rng(0)
    scores, labels = random.standard_normal((6, 5)) * 3, random.integers(0, 5, 6)
    loss_of = learn.SmoothedCrossEntropyLoss(0.2, sparse_label=sparse_label)
    if hybridize:
        loss_of.hybridize()
    pred = nd.array(scores)
    pred.attach_grad()
    with autograd.record():
        loss = loss_of(pred, nd.array(labels if sparse_label else np.eye(5)[labels]))
    loss.backward()
    expected, gradient = reference(scores, labels, 0.2)
    np.testing.assert_allclose(loss.asnumpy(), expected, rtol=1e-5)  # float32
    np.testing.assert_allclose(pred.grad.asnumpy(), gradient, atol=1e-6)


def test_without_smoothing_it_is_the_cross_entropy():
    pred, label = nd.random.normal(shape=(2, 4, 3)), nd.array([[0, 1, 2, 0], [2, 2, 1, 0]])
    weight = nd.array([[[1], [2], [0], [1]], [[1], [1], [1], [0]]])
    expected = gluon.loss.SoftmaxCrossEntropyLoss(weight=2)(pred, label, weight)
    found = learn.SmoothedCrossEntropyLoss(0, weight=2)(pred, label, weight)
    np.testing.assert_allclose(found.asnumpy(), expected.asnumpy(), rtol=1e-6)


@pytest.mark.parametrize("smoothing", [-0.1, 1, "0.1", None])
def test_invalid_smoothing_is_rejected(smoothing):
    with pytest.raises(ValueError, match="smoothing must be a number of at least 0 and below 1"):
        learn.SmoothedCrossEntropyLoss(smoothing)
