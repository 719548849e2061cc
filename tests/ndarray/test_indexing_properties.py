"""Property tests: x[key] against numpy, for random shapes and keys."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import neomx as mx

shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


def slices(size):
    bound = st.none() | st.integers(-size - 2, size + 2)
    return st.builds(slice, bound, bound, st.none() | st.sampled_from([-3, -2, -1, 1, 2, 3]))


@st.composite
def basic_keys(draw, shape):
    used = draw(st.integers(0, len(shape)))
    items = [draw(st.integers(-n, n - 1) | slices(n)) for n in shape[:used]]
    if draw(st.booleans()):  # an Ellipsis, followed by trailing dimensions
        at = draw(st.integers(0, used))
        after = (
            [draw(st.integers(-n, n - 1) | slices(n)) for n in shape[len(shape) - (used - at) :]] if used > at else []
        )
        items = [*items[:at], Ellipsis, *after]
    for _ in range(draw(st.integers(0, 2))):
        items.insert(draw(st.integers(0, len(items))), None)
    return tuple(items) if len(items) != 1 or draw(st.booleans()) else items[0]


@st.composite
def array_keys(draw, shape):
    """Index arrays of the same shape for some dimensions, ints and slices for others."""
    kinds = draw(st.lists(st.sampled_from(["array", "int", "slice"]), min_size=1, max_size=len(shape)))
    kinds[draw(st.integers(0, len(kinds) - 1))] = "array"
    smallest = min(n for n, kind in zip(shape, kinds, strict=False) if kind == "array")
    index_shape = draw(st.sampled_from([(1,), (smallest,), (1, smallest), (smallest, 1)]))
    items = []
    for n, kind in zip(shape, kinds, strict=False):
        if kind == "array":
            order = draw(st.permutations(range(-n, 0) if draw(st.booleans()) else range(n)))
            items.append(np.array(order[: int(np.prod(index_shape))]).reshape(index_shape))
        else:
            items.append(draw(st.integers(-n, n - 1) if kind == "int" else slices(n)))
    return tuple(items)


def spelled(key, how):
    """Return the key with its index arrays as lists, numpy arrays or NDArrays."""
    make = {"list": lambda a: a.tolist(), "numpy": lambda a: a, "nd": lambda a: mx.nd.array(a, dtype="int64")}[how]
    return tuple(make(item) if isinstance(item, np.ndarray) else item for item in key)


def both(shape):
    values = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    return values, mx.nd.array(values)


def agree(array, expected):
    assert array.shape == (expected.shape or (1,))
    np.testing.assert_array_equal(array.asnumpy().reshape(expected.shape), expected)


@settings(max_examples=400, deadline=None)
@given(st.data(), shapes)
def test_basic_read(data, shape):
    key = data.draw(basic_keys(shape))
    values, array = both(shape)
    agree(array[key], values[key])


@settings(max_examples=400, deadline=None)
@given(st.data(), shapes)
def test_basic_write(data, shape):
    key = data.draw(basic_keys(shape))
    values, array = both(shape)
    target = values[key].shape
    value = data.draw(st.sampled_from(["number", "whole", "row"]))
    if value == "number":
        values[key], array[key] = -1, -1
    else:
        new = -1 - np.arange(np.prod(target), dtype="float32").reshape(target)
        new = new[:1] if value == "row" and target and target[0] else new
        values[key], array[key] = new, mx.nd.array(new) if new.shape else float(new)
    agree(array, values)


@settings(max_examples=400, deadline=None)
@given(st.data(), shapes, st.sampled_from(["list", "numpy", "nd"]))
def test_array_read_and_write(data, shape, how):
    key = data.draw(array_keys(shape))
    values, array = both(shape)
    agree(array[spelled(key, how)], values[key])
    new = -1 - np.arange(values[key].size, dtype="float32").reshape(values[key].shape)
    values[key], array[spelled(key, how)] = new, new
    agree(array, values)


@settings(max_examples=300, deadline=None)
@given(st.data(), shapes)
def test_a_part_shares_memory_if_it_is_contiguous(data, shape):
    key = data.draw(basic_keys(shape))
    values, array = both(shape)
    part = array[key]
    assume(part.size)
    part[:] = -1
    written = bool((array.asnumpy() == -1).any())
    assert written == np.asarray(values[key]).flags["C_CONTIGUOUS"]


@settings(max_examples=200, deadline=None)
@given(st.data(), shapes)
def test_gradient_of_a_part(data, shape):
    key = data.draw(st.one_of(basic_keys(shape), array_keys(shape)))
    values, array = both(shape)
    array.attach_grad()
    with mx.autograd.record():
        part = array[key]
        result = part * part
    assume(part.size)
    result.backward()
    expected = np.zeros_like(values)
    np.add.at(expected, key, 2 * values[key])
    np.testing.assert_array_equal(array.grad.asnumpy(), expected)


@settings(max_examples=100, deadline=None)
@given(st.data(), shapes)
def test_out_of_bounds_raises_index_error(data, shape):
    axis = data.draw(st.integers(0, len(shape) - 1))
    wrong = data.draw(st.sampled_from([shape[axis], -shape[axis] - 1]))
    wrong = data.draw(st.sampled_from([wrong, [wrong], np.array([0, wrong])]))
    _, array = both(shape)
    key = (slice(None),) * axis + (wrong,)
    with pytest.raises(IndexError, match="out of bounds"):
        array[key]
    with pytest.raises(IndexError, match="out of bounds"):
        array[key] = 1


def test_too_many_indices_raise():
    _, array = both((2, 3))
    with pytest.raises(IndexError, match="too many indices"):
        array[0, 0, 0]


def test_unsupported_keys_raise():
    _, array = both((2, 3))
    with pytest.raises(ValueError, match="received float"):
        array[1.5]
    with pytest.raises(ValueError, match="do not broadcast"):
        array[[0, 1], [0, 1, 2]]


def test_assigning_another_shape_raises():
    _, array = both((2, 3))
    with pytest.raises(ValueError, match=r"\(2,\).*\(2, 3\)"):
        array[0] = mx.nd.array([1, 2])
