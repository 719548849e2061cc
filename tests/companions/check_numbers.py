"""Libraries written for MXNet compute the same values under neomx as under MXNet 1.9.1."""

import os

import numpy as np
import pytest
from programs import FAMILIES, found_by

RECORDED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "recorded")

# Tolerances relative to the largest value of an array; the default is 1e-4. Gradients of deep networks are
# ill-conditioned in single precision: rounding decides on which side of zero an activation falls.
LOOSE = {
    "cv.resnet18.gradients": 1e-3,
    "cv.ssd_training.gradients": 5e-3,
    "cv.ssd_training.weights": 1e-3,
    "cv.ssd_transforms.validation_picture": 0.02,  # one gray level
    "cv.yolo_training.loss2": 1e-3,
    "d2l.lenet.scores": 1e-3,
}


def _cases():
    for family, programs in FAMILIES.items():
        for name, program in programs().items():
            yield pytest.param(family, name, program, id=f"{family}-{name}")


@pytest.mark.parametrize("family, name, program", _cases())
def test_numbers(family, name, program):
    found = found_by(program)
    with np.load(os.path.join(RECORDED, family + ".npz")) as file:
        wanted = {key.split(".", 1)[1]: file[key] for key in file.files if key.startswith(name + ".")}
    assert sorted(found) == sorted(wanted)
    for key, want in wanted.items():
        assert found[key].shape == want.shape, key
        off = LOOSE.get(f"{family}.{name}.{key}", 1e-4) * np.abs(want).max(initial=0)
        np.testing.assert_allclose(found[key], want, rtol=0, atol=off, err_msg=key)
