"""Rotated pictures equal numpy's rot90."""

import numpy as np
import pytest

import neomx as mx
from neomx import nd
from neomx.learn import rotations


@pytest.mark.parametrize("axes", [(2, 3), (1, 2)])
@pytest.mark.parametrize("array", [nd.array, mx.np.array])
def test_pictures_are_turned_by_quarter_turns(array, axes):
    shape = (3, 2, 4, 4) if axes == (2, 3) else (3, 4, 4, 2)
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    pictures, turns = rotations(array(x), axes)
    assert type(pictures) is type(turns) is type(array(x))
    np.testing.assert_array_equal(turns.asnumpy(), np.repeat([0, 1, 2, 3], 3))
    np.testing.assert_array_equal(pictures.asnumpy(), np.concatenate([np.rot90(x, k, axes) for k in range(4)]))


def test_wrong_pictures_are_rejected():
    with pytest.raises(mx.MXNetError, match=r"square pictures, received the shape \(2, 1, 4, 5\)"):
        rotations(nd.zeros((2, 1, 4, 5)))
    with pytest.raises(ValueError, match=r"two different axes from 1 to 2, received \(2, 3\)"):
        rotations(nd.zeros((2, 4, 4)))
    with pytest.raises(TypeError, match="expects an array, received ndarray"):
        rotations(np.zeros((2, 1, 4, 4)))
