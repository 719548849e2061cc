"""Pseudo-labels and FixMatch agree with their definitions in numpy."""

import numpy as np
import pytest

import neomx as mx
from neomx import autograd, nd
from neomx.learn import FixMatchLoss, PseudoLabelLoss, confident

RANDOM = np.random.default_rng(0)
WEAK, STRONG = RANDOM.standard_normal((2, 12, 4)).astype("float32") * 2
PRED, LABEL = RANDOM.standard_normal((3, 4)).astype("float32"), np.array([0, 3, 1], "float32")


def log_softmax(x):
    return x - np.log(np.exp(x.astype("float64")).sum(1, keepdims=True))


def expected(pred, guide, threshold):
    log_p = log_softmax(guide)
    labels, counts = log_p.argmax(1), np.exp(log_p.max(1)) >= threshold
    assert 0 < counts.sum() < len(counts)
    return -log_softmax(pred)[np.arange(len(pred)), labels] * counts, labels, counts


@pytest.mark.parametrize("array", [nd.array, mx.np.array])
def test_confident_classes(array):
    labels, counts = confident(array(WEAK), 0.8)
    _, wanted, sure = expected(WEAK, WEAK, 0.8)
    np.testing.assert_array_equal(labels.asnumpy(), wanted)
    np.testing.assert_array_equal(counts.asnumpy(), sure)


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize("guided", [False, True])
def test_pseudo_label_loss_and_its_gradient(guided, hybridize):
    loss = PseudoLabelLoss(0.8)
    if hybridize:
        loss.hybridize()
    strong, weak = nd.array(STRONG), nd.array(WEAK)
    strong.attach_grad()
    weak.attach_grad()
    with autograd.record():
        found = loss(strong, weak) if guided else loss(strong)
    found.backward()
    value, labels, counts = expected(STRONG, WEAK if guided else STRONG, 0.8)
    np.testing.assert_allclose(found.asnumpy(), value, rtol=1e-5)
    gradient = (np.exp(log_softmax(STRONG)) - np.eye(4)[labels]) * counts[:, None]
    np.testing.assert_allclose(strong.grad.asnumpy(), gradient, atol=1e-6)
    assert not weak.grad.asnumpy().any()


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize("array", [nd.array, mx.np.array])
def test_fixmatch_weighs_unlabeled_samples_by_their_ratio(array, hybridize):
    loss = FixMatchLoss(0.8, unlabeled_weight=0.5, ratio=4)
    if hybridize:
        loss.hybridize()
    found = loss(*map(array, (PRED, LABEL, WEAK, STRONG))).asnumpy()
    assert found.shape == (15,)
    labeled = -log_softmax(PRED)[np.arange(3), LABEL.astype(int)]
    unlabeled = expected(STRONG, WEAK, 0.8)[0]
    np.testing.assert_allclose(found, np.concatenate([labeled, unlabeled * 0.5 / 4]), rtol=1e-5)
    np.testing.assert_allclose(found.sum() / 3, labeled.mean() + 0.5 * unlabeled.mean(), rtol=1e-5)


def test_wrong_arguments_are_rejected():
    for make in (PseudoLabelLoss, FixMatchLoss, lambda threshold: confident(nd.array(WEAK), threshold)):
        with pytest.raises(ValueError, match=r"threshold must be a probability from 0 to 1, received 1\.5"):
            make(1.5)
    with pytest.raises(ValueError, match="ratio must be the number of unlabeled samples for each labeled one"):
        FixMatchLoss(ratio=0)
    with pytest.raises(ValueError, match=r"logits of shape \(samples, classes\), received \(4,\)"):
        confident(nd.zeros(4))
