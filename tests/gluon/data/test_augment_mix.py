"""MixUp and CutMix: batches and datasets, with soft labels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neomx as mx
from neomx.gluon.data.vision import transforms as T

KINDS = {"mixup": T.MixUp, "cutmix": T.CutMix}


def batch(n=8, classes=5, shape=(3, 12, 10), dtype="float32"):
    """Images whose pixels are all equal to the number of the image."""
    numbers = np.arange(n, dtype=dtype).reshape(-1, 1, 1, 1)
    return mx.nd.array(numbers * np.ones((1, *shape), dtype), dtype=dtype), mx.nd.array(np.arange(n) % classes)


@pytest.mark.parametrize("per_sample", [False, True])
def test_mixup_mixes_images_and_labels_by_the_same_share(per_sample):
    x, y = batch()
    mix = T.MixUp(1.0, 8, per_sample)
    shares = []
    for _ in range(20):
        mixed, soft = mix(x, mx.nd.arange(8))
        soft = soft.asnumpy()
        assert mixed.shape == x.shape and soft.shape == (8, 8) and soft.dtype == np.float32
        np.testing.assert_allclose(soft.sum(1), 1, rtol=1e-6)
        # The value of a pixel is the mean of the numbers of its two images, weighted as their labels are.
        np.testing.assert_allclose(mixed.asnumpy()[:, 1, 2, 3], soft @ np.arange(8), rtol=1e-5)
        own = soft[np.arange(8), np.arange(8)]
        shares.append(own[own < 1])
        assert (len({*own[own < 1].round(5)}) > 1) == per_sample
    assert (y.asnumpy() == np.arange(8) % 5).all()


@pytest.mark.parametrize("layout", ["CHW", "HWC"])
@pytest.mark.parametrize("per_sample", [False, True])
def test_cutmix_labels_are_the_share_of_pixels(per_sample, layout):
    x, _ = batch(shape=(3, 12, 10) if layout == "CHW" else (12, 10, 3))
    mix = T.CutMix(1.0, 8, per_sample, layout)
    rectangles = set()
    for _ in range(20):
        mixed, soft = (each.asnumpy() for each in mix(x, mx.nd.arange(8)))
        planes = mixed if layout == "CHW" else mixed.transpose(0, 3, 1, 2)
        for i, plane in enumerate(planes):
            assert (plane[0] == plane[2]).all()
            cut = plane[0] != i
            rows, columns = np.flatnonzero(cut.any(1)), np.flatnonzero(cut.any(0))
            assert cut.sum() == rows.size * columns.size and len(np.unique(plane)) <= 2
            np.testing.assert_allclose(soft[i], np.bincount(plane[0].astype(int).ravel(), minlength=8) / 120, atol=1e-6)
            if cut.any():
                rectangles.add((rows[0], rows[-1], columns[0], columns[-1]))
    assert len(rectangles) > (60 if per_sample else 10)


@pytest.mark.parametrize("alpha", [0.2, 1.0, 4.0])
def test_share_follows_the_beta_distribution(alpha):
    shares = []
    for _ in range(60):
        soft = T.MixUp(alpha, 50, per_sample=True)(mx.nd.zeros((50, 1)), mx.nd.arange(50))[1].asnumpy()
        shares += [row[i] for i, row in enumerate(soft) if np.count_nonzero(row) == 2]
    variance = 1 / (4 * (2 * alpha + 1))
    assert len(shares) > 2500
    assert abs(np.mean(shares) - 0.5) < 5 * np.sqrt(variance / len(shares))
    assert abs(np.var(shares) / variance - 1) < 0.15


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(sorted(KINDS)),
    st.integers(1, 6),
    st.integers(1, 4),
    st.booleans(),
    st.booleans(),
    st.integers(0, 99),
)
def test_soft_labels_sum_to_one(kind, n, classes, per_sample, soft_input, seed):
    mx.random.seed(seed)
    x, y = batch(n, classes)
    if soft_input:
        y = mx.nd.softmax(mx.nd.random.normal(shape=(n, classes)))
    mixed, soft = KINDS[kind](0.7, None if soft_input else classes, per_sample)(x, y)
    assert soft.shape == (n, classes) and mixed.shape == x.shape
    np.testing.assert_allclose(soft.asnumpy().sum(1), 1, rtol=1e-5)
    assert (soft.asnumpy() >= 0).all()


def test_dtypes_and_modes():
    x, y = batch(dtype="uint8")
    assert T.MixUp(1.0, 5)(x, y)[0].dtype is np.float32
    assert T.CutMix(1.0, 5)(x, y)[0].dtype is np.uint8
    assert T.MixUp(1.0, 5)(x.astype("float16"), y.astype("int32"))[0].dtype is np.float16
    with mx.util.np_shape(True), mx.util.np_array(True):
        mixed, soft = T.MixUp(1.0, 5)(x.as_np_ndarray(), y.as_np_ndarray())
        assert isinstance(mixed, mx.np.ndarray) and isinstance(soft, mx.np.ndarray)


def test_seed_decides():
    def run(seed):
        mx.random.seed(seed)
        return T.MixUp(1.0, 5)(*batch())[0].asnumpy()

    np.testing.assert_array_equal(run(4), run(4))
    assert (run(4) != run(5)).any()


def test_loss_of_mixed_labels_is_the_mixed_loss():
    mixed, soft = T.MixUp(1.0, 5)(*batch())
    scores = mx.nd.random.normal(shape=(8, 5))
    loss = mx.gluon.loss.SoftmaxCrossEntropyLoss(sparse_label=False)(scores, soft).asnumpy()
    hard = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    each = np.stack([hard(scores, mx.nd.full((8,), c)).asnumpy() for c in range(5)], 1)
    np.testing.assert_allclose(loss, (each * soft.asnumpy()).sum(1), rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("soft_input", [False, True])
def test_items_of_a_dataset_are_mixed_with_any_other(kind, soft_input):
    x, _ = batch(6)
    labels = np.eye(6, dtype="float32") if soft_input else np.arange(6)
    dataset = T.MixedDataset(mx.gluon.data.ArrayDataset(x, labels), KINDS[kind](1.0, None if soft_input else 6))
    assert len(dataset) == 6
    partners = set()
    for _ in range(60):
        mixed, soft = dataset[2]
        assert mixed.shape == (3, 12, 10) and soft.shape == (6,)
        np.testing.assert_allclose(mixed.mean().asscalar(), soft.asnumpy() @ np.arange(6), rtol=1e-5)
        assert soft.asnumpy().sum() == pytest.approx(1)
        partners |= set(np.flatnonzero(soft.asnumpy()).tolist())
    assert partners == set(range(6))


def test_wrong_arguments():
    x, y = batch()
    for make, message in [
        (lambda: T.MixUp(0), "alpha=0: expected a number greater than 0"),
        (lambda: T.CutMix(-1), "alpha=-1"),
        (lambda: T.MixUp(1.0, 0), "num_classes=0: expected a whole number of at least 1"),
        (lambda: T.CutMix(layout="NCHW"), "layout='NCHW': expected 'CHW' or 'HWC'"),
        (lambda: T.MixUp()(x, y), "num_classes must be specified for labels that are the indices of classes"),
        (lambda: T.MixUp(1.0, 4)(x, y), r"expected labels from 0 to 3, received \[0.0, 1.0"),
        (lambda: T.MixUp(1.0, 5)(x, y - 1), "expected labels from 0 to 4"),
        (lambda: T.MixUp(1.0, 5)(x, y / 2), "expected labels from 0 to 4"),
        (lambda: T.MixUp(1.0, 5)(x, mx.nd.ones((8, 4))), "expected soft labels of 5 classes, received 4"),
        (lambda: T.MixUp(1.0, 5)(x, mx.nd.ones((8, 5), dtype="int32")), "as floats .n, classes., received int32"),
        (lambda: T.MixUp(1.0, 5)(x, y[:4]), r"expected a batch \(n, ...\) and its n labels, received shapes"),
        (lambda: T.CutMix(1.0, 5)(x[:, 0], y), r"CutMix expects images \(c, h, w\), received \(12, 10\)"),
    ]:
        with pytest.raises(ValueError, match=message):
            make()
    with pytest.raises(TypeError, match="expected an mx.nd or mx.np array, received ndarray"):
        T.MixUp(1.0, 5)(x.asnumpy(), y)
    with pytest.raises(TypeError, match="mix: expected a MixUp or a CutMix, received CutOut"):
        T.MixedDataset([1], T.CutOut(3))
    with pytest.raises(ValueError, match=r"expected a dataset of items \(x, y\), received an item of type NDArray"):
        T.MixedDataset(mx.gluon.data.ArrayDataset(x), T.MixUp(1.0, 5))[0]
    sizes = T.MixedDataset([(mx.nd.ones((2, 2)), 0), (mx.nd.ones((3, 3)), 1)], T.MixUp(1.0, 2))
    with pytest.raises(ValueError, match="cannot mix samples of different shapes"):
        [sizes[i % 2] for i in range(40)]
