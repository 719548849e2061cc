"""Augmentation inside a graph: random for each sample in training, exactly the identity otherwise."""

import numpy as np
import pytest

import neomx as mx
from neomx import autograd, nd
from neomx import symbol as sym

IMAGES = np.random.default_rng(0).normal(size=(400, 1, 3, 5)).astype("float32")
LABELS = np.random.default_rng(1).integers(0, 3, 400).astype("float32")
BUILDERS = {
    "flip": lambda data, label: sym.RandomFlip(data, prob=0.3),
    "rotation": lambda data, label: sym.RandomRotation(data, angle=30),
    "mixup": lambda data, label: sym.Mixup(data, label, num_classes=3),
}


def run(graph, is_train, data=IMAGES):
    given = {"data": nd.array(data), "label": nd.array(LABELS[: len(data)])}
    graph = graph if isinstance(graph, sym.Symbol) else BUILDERS[graph](sym.Variable("data"), sym.Variable("label"))
    given = {name: given[name] for name in graph.list_arguments()}
    return [each.asnumpy() for each in graph.bind(mx.cpu(), given).forward(is_train=is_train)]


@pytest.mark.parametrize("name", BUILDERS)
def test_nothing_changes_when_predicting(name):
    found = run(name, is_train=False)
    np.testing.assert_array_equal(found[0], IMAGES)
    if name == "mixup":
        np.testing.assert_array_equal(found[1], np.eye(3)[LABELS.astype(int)])


@pytest.mark.parametrize("name", BUILDERS)
def test_seed_repeats_the_result(name):
    results = []
    for seed in (4, 4, 5):
        mx.random.seed(seed)
        results.append(run(name, is_train=True)[0])
    np.testing.assert_array_equal(results[0], results[1])
    assert (results[0] != results[2]).any() and (results[0] != IMAGES).any()


@pytest.mark.parametrize("name", BUILDERS)
def test_block_augments_while_recording(name):
    given = sym.Variable("data"), sym.Variable("label")
    graph = BUILDERS[name](*given)
    names = graph.list_arguments()
    block = mx.gluon.SymbolBlock(graph, [each for each in given if each.name in names])
    arrays = [nd.array(IMAGES), nd.array(LABELS)][: len(names)]
    first = block(*arrays)
    np.testing.assert_array_equal((first[0] if name == "mixup" else first).asnumpy(), IMAGES)
    with autograd.record():
        first = block(*arrays)
    assert ((first[0] if name == "mixup" else first).asnumpy() != IMAGES).any()


def test_flip_has_the_given_probability():
    """The bounds are five standard deviations of the share of 400 samples."""
    (found,) = run("flip", is_train=True)
    flipped = (found == IMAGES[..., ::-1]).all(axis=(1, 2, 3))
    np.testing.assert_array_equal(found[~flipped], IMAGES[~flipped])
    assert abs(flipped.mean() - 0.3) < 5 * np.sqrt(0.3 * 0.7 / 400)
    never, ever = (sym.RandomFlip(sym.Variable("data"), prob=prob, axis=2) for prob in (0, 1))
    np.testing.assert_array_equal(run(never, is_train=True)[0], IMAGES)
    np.testing.assert_array_equal(run(ever, is_train=True)[0], IMAGES[:, :, ::-1])


def test_rotation_is_uniform_and_keeps_the_center():
    graph = sym.RandomRotation(sym.Variable("data"), angle=30, name="net")
    inner = graph.get_internals()
    angle = inner[next(name for name in inner.list_outputs() if "uniform_like" in name)]
    found, angles = run(sym.Group([graph, angle]), is_train=True)
    np.testing.assert_allclose(found[:, :, 1, 2], IMAGES[:, :, 1, 2], atol=1e-6)
    angles = np.degrees(angles)
    assert -30 <= angles.min() < -28 and 28 < angles.max() <= 30
    assert abs(angles.mean()) < 5 * 30 / np.sqrt(3 * 400)
    np.testing.assert_allclose(run(sym.RandomRotation(sym.Variable("data"), 0), True)[0], IMAGES, atol=1e-5)


def test_rotation_of_images_with_one_row():
    row = IMAGES[:, :, :1]
    assert np.isfinite(run(sym.RandomRotation(sym.Variable("data"), 180), True, row)[0]).all()


def test_mixup_shares_have_a_beta_distribution():
    """Beta(a, a) has the variance 1 / (4 (2 a + 1)). The bounds are about five standard errors of 400 samples."""
    whole = np.arange(400, dtype="float32").reshape(400, 1, 1, 1) * np.ones((1, 1, 1, 2), "float32")
    for alpha in (0.4, 2.0):
        graph = sym.Mixup(sym.Variable("data"), sym.Variable("label"), alpha=alpha, num_classes=3)
        _, soft = run(graph, True, whole)
        own = soft[np.arange(400), LABELS.astype(int)]
        np.testing.assert_allclose(soft.sum(1), 1, rtol=1e-5)
        share = own[own < 1]  # of samples that were mixed with another class
        assert len(share) > 200
        assert abs(share.mean() - 0.5) < 0.12
        assert abs(share.var() - 1 / (4 * (2 * alpha + 1))) < 0.04


def test_mixup_mixes_other_labels_as_they_are():
    graph = sym.Mixup(sym.Variable("data"), sym.Variable("label"), alpha=1.0)
    _, mixed = run(graph, True)
    assert mixed.shape == LABELS.shape and mixed.min() >= 0 and mixed.max() <= 2
    assert not np.isin(mixed, [0, 1, 2]).all()
    np.testing.assert_array_equal(run(graph, False)[1], LABELS)
