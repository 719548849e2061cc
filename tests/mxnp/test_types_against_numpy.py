"""Property tests of broadcasting and result dtypes, compared with NumPy on arrays cast by MXNet's rules."""

import numpy as onp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes

import neomx as mx
from neomx import np

FLOATS = ["float16", "float32", "float64"]
INTEGERS = ["int8", "uint8", "int32", "int64"]
DTYPES = st.sampled_from([*FLOATS, *INTEGERS, "bool"])
ARITHMETIC = ["add", "multiply"]
COMPARISONS = ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]
seeded = settings(max_examples=200, deadline=None, derandomize=True)


@pytest.fixture(autouse=True)
def np_mode():
    mx.npx.set_np()
    yield
    mx.npx.reset_np()


def met(a, b):
    """Return the common dtype of two dtypes: floats win, the wider float wins; MXNet has no int16."""
    floats = [dtype for dtype in (a, b) if dtype in FLOATS]
    if floats:
        return max(floats, key=FLOATS.index)
    return {"int16": "int32"}.get(onp.promote_types(a, b).name, onp.promote_types(a, b).name)


def numbers(seed, shape, dtype):
    return onp.random.RandomState(seed).randint(0, 5, shape).astype(dtype)


def same(ours, expected, dtype):
    assert ours.dtype == dtype and ours.shape == expected.shape
    onp.testing.assert_array_equal(ours.asnumpy(), expected.astype(dtype))


@st.composite
def pairs(draw):
    shapes = draw(mutually_broadcastable_shapes(num_shapes=2, max_dims=3, min_side=0, max_side=3)).input_shapes
    return [numbers(draw(st.integers(0, 99)), shape, draw(DTYPES)) for shape in shapes]


@seeded
@given(pairs(), st.sampled_from([*ARITHMETIC, *COMPARISONS, "true_divide"]))
def test_two_arrays(arrays, name):
    dtype = met(*(array.dtype.name for array in arrays))
    if name == "true_divide":
        dtype = dtype if dtype in FLOATS else "float32"
        arrays[1] += arrays[1] == 0
    expected = getattr(onp, name)(*(array.astype(dtype) for array in arrays))
    ours = getattr(np, name)(*(np.array(array) for array in arrays))
    same(ours, expected, "bool" if name in COMPARISONS else dtype)


@seeded
@given(pairs(), st.booleans(), st.integers(0, 99))
def test_where(arrays, truth, seed):
    dtype = met(*(array.dtype.name for array in arrays))
    condition = onp.random.RandomState(seed).rand(*onp.broadcast_shapes(*(a.shape for a in arrays))) < truth / 2
    expected = onp.where(condition, *(array.astype(dtype) for array in arrays))
    same(np.where(np.array(condition), *(np.array(array) for array in arrays)), expected, dtype)


@seeded
@given(
    DTYPES,
    st.sampled_from([*ARITHMETIC, "maximum", "minimum"]),
    st.sampled_from([0, 1, 3, 2.75, -1.5, True]),
    st.integers(0, 99),
)
def test_an_array_and_a_number(dtype, name, number, seed):
    array = numbers(seed, (2, 3), dtype)
    if dtype not in FLOATS:
        number = int(number)  # truncated as in C
    kept = "int64" if dtype == "bool" else dtype
    with onp.errstate(over="ignore"):
        expected = getattr(onp, name)(array.astype(kept), onp.array(number).astype(kept))
    for ours in (getattr(np, name)(np.array(array), number), getattr(np, name)(number, np.array(array))):
        same(ours, expected, kept)


@seeded
@given(DTYPES, st.sampled_from(COMPARISONS), st.sampled_from([0, 1, 2, 0.5, 1.5, True]), st.integers(0, 99))
def test_an_array_compared_with_a_number(dtype, name, number, seed):
    array = numbers(seed, (2, 3), dtype)
    expected = getattr(onp, name)(array, onp.array(number).astype(dtype))  # the number is cast to the array's dtype
    same(getattr(np, name)(np.array(array), number), expected, "bool")
