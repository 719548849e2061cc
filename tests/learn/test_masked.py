"""Losses of masked tokens and patches agree with their definitions in numpy."""

import numpy as np
import pytest

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.learn import (
    MaskedPatchLoss,
    MaskedTokenLoss,
    count_masked,
    from_patches,
    hide_patches,
    patch_mask,
    to_patches,
)

RANDOM = np.random.default_rng(0)
LOGITS = RANDOM.standard_normal((3, 4, 5)).astype("float32")
LABELS = np.array([[1, 2, 9, 0], [3, 3, 3, 3], [4, 4, 1, -1]], "float32")  # those outside 0 to 4 are not masked
MASK = np.array([[0, 1, 0, 1], [0, 0, 0, 0], [1, 1, 1, 0]], "float32")


@pytest.mark.parametrize("hybridize", [False, True])
def test_token_loss_is_the_sum_over_masked_tokens(hybridize):
    loss = MaskedTokenLoss()
    if hybridize:
        loss.hybridize()
    pred = nd.array(LOGITS)
    pred.attach_grad()
    with autograd.record():
        found = loss(pred, nd.array(LABELS), nd.array(MASK))
    found.backward()
    log_p = LOGITS - np.log(np.exp(LOGITS.astype("float64")).sum(-1, keepdims=True))
    expected = [-sum(log_p[i, t, int(LABELS[i, t])] for t in range(4) if MASK[i, t]) for i in range(3)]
    np.testing.assert_allclose(found.asnumpy(), expected, rtol=1e-5)
    gradient = np.exp(log_p) - np.eye(5)[np.clip(LABELS, 0, 4).astype(int)]
    np.testing.assert_allclose(pred.grad.asnumpy(), gradient * MASK[..., None], atol=1e-6)


@pytest.mark.parametrize("array", [nd.array, mx.np.array])
def test_integer_labels_and_infinities_outside_the_mask_are_accepted(array):
    logits = LOGITS.copy()
    logits[1] = np.inf  # its loss would not be finite
    labels = array(np.clip(LABELS, 0, 4), dtype="int32")
    found = MaskedTokenLoss()(array(logits), labels, array(MASK)).asnumpy()
    assert found[1] == 0 and np.isfinite(found).all() and found[0] > 0


def test_masked_tokens_are_counted():
    assert count_masked(nd.array(MASK)) == count_masked(mx.np.array(MASK)) == 5
    assert count_masked(nd.zeros((2, 2))) == 1  # a divisor


def test_patches_and_back():
    x = RANDOM.standard_normal((2, 3, 4, 6)).astype("float32")
    cut = to_patches(nd.array(x), 2)
    assert cut.shape == (2, 6, 12)
    np.testing.assert_array_equal(cut.asnumpy()[1, 4], x[1, :, 2:4, 2:4].ravel())
    np.testing.assert_array_equal(from_patches(cut, (3, 4, 6)).asnumpy(), x)
    np.testing.assert_array_equal(from_patches(to_patches(mx.np.array(x), 2), (3, 4, 6)).asnumpy(), x)
    mask = nd.array([[1, 0, 0, 1, 0, 0], [0] * 6])
    hidden = hide_patches(cut, mask).asnumpy()
    assert not hidden[0, [0, 3]].any()
    np.testing.assert_array_equal(hidden[1], cut.asnumpy()[1])
    np.testing.assert_array_equal(hidden[0, [1, 2, 4, 5]], cut.asnumpy()[0, [1, 2, 4, 5]])


def test_masks_hide_the_given_share_and_follow_the_sample():
    mask = patch_mask(16, 0.75)
    assert mask.dtype == np.float32 and mask.sum() == 12 and set(mask) == {0, 1}
    dataset = gluon.data.SimpleDataset(list(range(8))).transform(lambda i: patch_mask(16))

    def epochs(workers):
        batches = gluon.data.DataLoader(mx.dist.shard(dataset), 4, num_workers=workers)
        return [np.concatenate([batch.asnumpy() for batch in batches]) for _ in range(2)]

    (first, second), other = epochs(0), epochs(2)
    assert (first != second).any() and (first[0] != first[1]).any()
    np.testing.assert_array_equal(first, other[0])  # the number of loader processes does not matter


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize("normalize", [False, True])
def test_patch_loss_is_the_error_of_hidden_patches(normalize, hybridize):
    pred, target = RANDOM.standard_normal((2, 3, 5, 8)).astype("float32")
    mask = np.stack([patch_mask(5, 0.4) for _ in range(3)])
    loss = MaskedPatchLoss(normalize)
    if hybridize:
        loss.hybridize()
    found = loss(nd.array(pred), nd.array(target), nd.array(mask)).asnumpy()
    wanted = target.astype("float64")
    if normalize:
        wanted = (wanted - wanted.mean(2, keepdims=True)) / np.sqrt(wanted.var(2, keepdims=True) + 1e-6)
    expected = [((pred[i] - wanted[i]) ** 2)[mask[i] > 0].mean() for i in range(3)]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_wrong_input_is_rejected():
    with pytest.raises(mx.MXNetError, match=r"multiples of 3, received the shape \(1, 1, 4, 4\)"):
        to_patches(nd.zeros((1, 1, 4, 4)), 3)
    with pytest.raises(mx.MXNetError, match=r"of pictures \(1, 4, 4\), received the shape \(1, 3, 4\)"):
        from_patches(nd.zeros((1, 3, 4)), (1, 4, 4))
    with pytest.raises(ValueError, match="at least one of 4 patches and leave at least one, received 0.01"):
        patch_mask(4, 0.01)
    with pytest.raises(mx.MXNetError, match=r"a mask of shape \(1, 3\)"):
        hide_patches(nd.zeros((1, 3, 4)), nd.zeros((1, 4)))
