"""Property tests of reshape codes. tests/parity/cases/shape.py compares them with MXNet."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neomx as mx
from neomx.ops.shape import infer_reshape

shapes = st.lists(st.integers(1, 6), min_size=1, max_size=5).map(tuple)


def divisors(n):
    return [d for d in range(1, n + 1) if n % d == 0]


@st.composite
def coded(draw):
    """Draw (shape, codes, result), where result is the shape that the codes must produce."""
    shape = draw(shapes)
    codes, result = [], []
    axis = 0
    unknown = draw(st.booleans())
    while axis < len(shape):
        kind = draw(st.sampled_from(["keep", "say", "join", "split", "rest", "unknown"]))
        length = shape[axis]
        if kind == "join" and axis + 1 < len(shape):
            codes.append(-3)
            result.append(length * shape[axis + 1])
            axis += 2
        elif kind == "split":
            first = draw(st.sampled_from(divisors(length)))
            halves = draw(st.sampled_from([(first, length // first), (-1, length // first), (first, -1)]))
            codes += [-4, *halves]
            result += [first, length // first]
            axis += 1
        elif kind == "rest":
            codes.append(-2)
            result += shape[axis:]
            axis = len(shape)
        elif kind == "unknown" and unknown:
            unknown = False
            codes.append(-1)
            result.append(length)
            axis += 1
        else:
            codes.append(0 if kind == "keep" else length)
            result.append(length)
            axis += 1
    return shape, tuple(codes), tuple(result)


@settings(max_examples=500, deadline=None)
@given(coded())
def test_codes_produce_the_expected_shape(example):
    shape, codes, result = example
    assert infer_reshape(shape, codes) == result


@settings(max_examples=500, deadline=None)
@given(coded())
def test_reverse_reads_from_the_right(example):
    shape, codes, result = example
    assert infer_reshape(shape[::-1], codes[::-1], reverse=True) == result[::-1]


@settings(max_examples=500, deadline=None)
@given(shapes, st.lists(st.integers(-6, 12), min_size=1, max_size=5).map(tuple), st.booleans())
def test_arbitrary_codes_keep_the_elements_or_raise(shape, codes, reverse):
    try:
        result = infer_reshape(shape, codes, reverse)
    except mx.MXNetError:
        return
    assert math.prod(result) == math.prod(shape)
    assert all(n > 0 for n in result)


@settings(max_examples=100, deadline=None)
@given(coded())
def test_op_and_method_keep_the_order_of_elements(example):
    shape, codes, result = example
    values = np.arange(math.prod(shape), dtype="float32").reshape(shape)
    for array in (mx.nd.reshape(mx.nd.array(values), shape=codes), mx.nd.array(values).reshape(codes)):
        np.testing.assert_array_equal(array.asnumpy(), values.reshape(result))


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        ((5, 5), "24 elements"),
        ((-1, -1), "more than one -1"),
        ((-1, 5), "are not divisible by 5"),
        ((0, 0, 0, 0), "dimension 3"),
        ((0, 0, -3), "dimension 3"),
        ((-4, 2), "followed by two"),
        ((-4, -1, -1, -2), "followed by two"),
        ((-4, 2, 2, -2), "split a dimension of 2"),
        ((-4, 0, -1, -2), "followed by two"),
        ((-4, -2, -1, -2), "followed by two"),
        ((-7,), "not a reshape code"),
    ],
)
def test_invalid_codes_raise(codes, message):
    with pytest.raises(mx.MXNetError, match=message):
        infer_reshape((2, 3, 4), codes)
