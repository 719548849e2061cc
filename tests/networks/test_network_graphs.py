"""The graphs of `mx.sym`'s networks: those that MXNet has loaded, with the values that MXNet computed from them."""

import ast
import re

import numpy as np
import pytest

import neomx as mx
from parity import networks


@pytest.fixture(scope="module")
def loaded():
    return networks.read()


@pytest.fixture(scope="module")
def recorded():
    with np.load(networks.RESULTS) as file:
        return dict(file)


@pytest.fixture(scope="module")
def made():
    return networks.made(mx)


@pytest.mark.parametrize("name", networks.ALL)
def test_graph_is_the_one_that_mxnet_loaded(name, made, loaded):
    assert made[name] == loaded[name]


@pytest.mark.parametrize("name", networks.ALL)
def test_shapes_match_mxnet(name, loaded, recorded):
    arguments, outputs = networks.shapes(mx.sym.load_json(loaded[name]), name)
    assert (sorted(arguments.items()), outputs) == ast.literal_eval(str(recorded[f"{name}:shapes"]))


@pytest.mark.parametrize("name", [*networks.NETS, *networks.RANDOM])
def test_mxnet_computes_the_same_values(name, loaded, recorded):
    """The numbers of both differ by rounding: of float32, in networks of up to 50 layers."""
    results = networks.computed(mx, mx.sym.load_json(loaded[name]), name)
    assert results and all(np.abs(each).max() > 0 for each in results.values())
    for what, found in results.items():
        expected = recorded[f"{name}:{what}"]
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * max(1, np.abs(expected).max()), err_msg=what)


@pytest.mark.parametrize("name", networks.NOT_ON_A_CPU)
def test_mxnet_runs_fourier_transforms_on_a_gpu_only(name, recorded):
    assert re.search("only available for GPU", str(recorded[f"{name}:error"]))


# ---- random graphs: what both libraries draw is a valid result ----


def drawn_by(library, name, loaded, recorded):
    """Return {what: array} of a training step in neomx or in MXNet."""
    if library == "neomx":
        return networks.drawn(mx, mx.sym.load_json(loaded[name]), name)
    return {key.partition(":")[2]: each for key, each in recorded.items() if key.startswith(f"{name}:")}


both = pytest.mark.parametrize("library", ["neomx", "mxnet"])


@both
def test_flip_reverses_some_samples_in_training(library, loaded, recorded):
    data = networks.inputs("random_flip")["data"]
    drawn = drawn_by(library, "random_flip", loaded, recorded)["drawn0"]
    kept = [np.array_equal(one, other) for one, other in zip(drawn, data, strict=True)]
    flipped = [np.array_equal(one, other) for one, other in zip(drawn, data[..., ::-1], strict=True)]
    assert 0 < sum(flipped) < len(data) and [not each for each in kept] == flipped
    data = networks.inputs("surely_flip")["data"]
    np.testing.assert_array_equal(drawn_by(library, "surely_flip", loaded, recorded)["drawn0"], data[:, :, ::-1])


def rotated(image, angle):
    """An image (height, width), rotated about its center, by bilinear interpolation."""
    height, width = image.shape
    padded = np.pad(image, 1)
    y, x = np.mgrid[:height, :width].astype(float)
    y, x = y - (height - 1) / 2, x - (width - 1) / 2
    down = np.sin(angle) * x + np.cos(angle) * y + (height - 1) / 2 + 1
    across = np.cos(angle) * x - np.sin(angle) * y + (width - 1) / 2 + 1
    top, left = np.floor(down).astype(int), np.floor(across).astype(int)
    result = 0
    for i, j in ((0, 0), (0, 1), (1, 0), (1, 1)):
        share = (1 - np.abs(down - top - i)) * (1 - np.abs(across - left - j))
        inside = (top + i >= 0) & (top + i < height + 2) & (left + j >= 0) & (left + j < width + 2)
        result += share * np.where(inside, padded[(top + i) % (height + 2), (left + j) % (width + 2)], 0)
    return result


@both
def test_rotation_interpolates_in_training(library, loaded, recorded):
    data = networks.inputs("random_rotation")["data"]
    found = drawn_by(library, "random_rotation", loaded, recorded)
    angles = found["uniform"].ravel()
    assert len(set(angles)) == len(data) and np.abs(angles).max() <= np.radians(60)
    expected = [[rotated(each, angle) for each in sample] for sample, angle in zip(data, angles, strict=True)]
    np.testing.assert_allclose(found["drawn0"], expected, atol=1e-5)  # positions are rounded to float32


@both
def test_mixup_mixes_samples_and_labels_in_the_same_proportion(library, loaded, recorded):
    given = networks.inputs("mixup")
    found = drawn_by(library, "mixup", loaded, recorded)
    data, labels = given["data"].reshape(6, -1), np.eye(4)[given["label"].astype(int)]
    mixed, soft = found["drawn0"].reshape(6, -1), found["drawn1"]
    partners, shares = [], []
    for own, label, got, got_label in zip(data, labels, mixed, soft, strict=True):
        # The share of the partner that fits best, for each possible partner.
        apart = data - own
        share = ((got - own) * apart).sum(1) / np.maximum((apart**2).sum(1), 1e-12)
        misses = np.abs(own + share[:, None] * apart - got).max(1)
        at = misses.argmin()
        assert misses[at] < 1e-6
        np.testing.assert_allclose(got_label, (1 - share[at]) * label + share[at] * labels[at], atol=1e-5)
        partners.append(at if share[at] > 1e-6 else None)
        shares.append(share[at])
    chosen = [each for each in partners if each is not None]
    assert len(set(chosen)) == len(chosen) > 1  # a permutation
    assert min(share for share, each in zip(shares, partners, strict=True) if each is not None) > 0 and max(shares) < 1
