"""Gradients of shape and search functions that are wrong or missing in MXNet, and values compared with NumPy."""

import numpy as onp
import pytest

import neomx as mx
from neomx import np

FUNCTIONS = {
    "rot90": lambda x: np.rot90(x, 1),
    "rot90 back": lambda x: np.rot90(x, -1),
    "atleast_3d": np.atleast_3d,
    "where rscalar": lambda x: np.where(np.array([[1, 0, 1], [0, 1, 1]]), x, 2),
    "where lscalar": lambda x: np.where(np.array([[1, 0, 1], [0, 1, 1]]), 2, x),
    "insert": lambda x: np.insert(x, 1, 9, axis=1),
    "insert positions": lambda x: np.insert(x, np.array([0, 2], dtype="int64"), 9, axis=1),
    "delete": lambda x: np.delete(x, 1, axis=1),
    "resize": lambda x: np.resize(x, (3, 3)),
    "pad edge": lambda x: np.pad(x, ((1, 1), (2, 2)), mode="edge"),
    "pad reflect": lambda x: np.pad(x, ((1, 1), (2, 2)), mode="reflect"),
    "pad symmetric": lambda x: np.pad(x, ((1, 1), (2, 2)), mode="symmetric"),
    "pad maximum": lambda x: np.pad(x, ((1, 1), (2, 2)), mode="maximum"),
}


@pytest.fixture(autouse=True)
def np_mode():
    mx.npx.set_np()
    yield
    mx.npx.reset_np()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name):
    function = FUNCTIONS[name]
    start = onp.array([[1.0, 5.0, 3.0], [4.0, 2.0, 9.0]])
    x = np.array(start, dtype="float64")
    x.attach_grad()
    with mx.autograd.record():
        y = function(x)
    head = onp.arange(1.0, y.size + 1).reshape(y.shape)
    y.backward(np.array(head, dtype="float64"))

    def total(values):
        return (function(np.array(values, dtype="float64")).asnumpy() * head).sum()

    expected = onp.zeros_like(start)
    for place in onp.ndindex(*start.shape):
        step = onp.zeros_like(start)
        step[place] = 1e-3
        expected[place] = (total(start + step) - total(start - step)) / 2e-3
    onp.testing.assert_allclose(x.grad.asnumpy(), expected, atol=1e-6)


def test_reshape_in_fortran_order():
    data = onp.arange(24.0).reshape(2, 3, 4)
    for shape in ((6, 4), (4, -1), (24,), (2, 2, 6)):
        found = np.reshape(np.array(data), shape, order="F")
        assert onp.array_equal(found.asnumpy(), data.reshape(shape, order="F"))


def test_pad_accepts_numpys_short_forms():
    data = onp.arange(6.0).reshape(2, 3)
    for width in (1, (1, 2), ((1, 2),), ((1,), (2,)), ((0, 1), (2, 0))):
        found = np.pad(np.array(data), width, constant_values=5)
        assert onp.array_equal(found.asnumpy(), onp.pad(data, width, constant_values=5))
    for mode in ("edge", "reflect", "symmetric", "maximum", "minimum"):
        for size in (1, 2, 5):
            data = onp.arange(2.0 * size).reshape(2, size) * 3 % 7
            found = np.pad(np.array(data), ((3, 1), (4, 6)), mode=mode)
            assert onp.array_equal(found.asnumpy(), onp.pad(data, ((3, 1), (4, 6)), mode=mode)), (mode, size)


def test_insert_and_delete_match_numpy():
    rng = onp.random.RandomState(0)
    for _ in range(200):
        data = rng.rand(*rng.randint(1, 5, size=rng.randint(1, 4))).astype("float32")
        axis = [None, *range(-data.ndim, data.ndim)][rng.randint(2 * data.ndim + 1)]
        length = data.size if axis is None else data.shape[axis]
        places = rng.randint(-length, length, size=rng.randint(0, 4))
        obj = [int(rng.randint(-length, length)), slice(*rng.randint(-length, length, size=2)), places][rng.randint(3)]
        ours = np.array(obj, dtype="int64") if isinstance(obj, onp.ndarray) else obj
        found = np.insert(np.array(data), ours, 9, axis=axis).asnumpy()
        assert onp.array_equal(found, onp.insert(data, obj, 9, axis=axis)), (data.shape, obj, axis)
        found = np.delete(np.array(data), ours, axis=axis).asnumpy()
        assert onp.array_equal(found, onp.delete(data, obj, axis=axis)), (data.shape, obj, axis)


@pytest.mark.parametrize("subscripts", ["ij->", "ij->i", "ij->ji", "ij,kj->ik"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_einsum_keeps_the_dtype_of_integers(subscripts, dtype):
    x = np.arange(6).reshape(2, 3).astype(dtype)
    arrays = [x] * (subscripts.count(",") + 1)
    expected = onp.einsum(subscripts, *(each.asnumpy() for each in arrays))
    assert np.einsum(subscripts, *arrays).dtype == dtype
    assert (np.einsum(subscripts, *arrays).asnumpy() == expected).all()
