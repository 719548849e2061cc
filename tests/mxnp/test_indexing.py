"""x[key] and x[key] = value of mx.np arrays: random keys compared with numpy, views, errors and symbols."""

import json

import numpy as onp
import pytest

import neomx as mx
from neomx import np


@pytest.fixture(autouse=True)
def np_mode():
    mx.npx.set_np()
    yield
    mx.npx.reset_np()


def numbers(*shape, dtype="float32"):
    return onp.arange(onp.prod(shape, dtype=int)).reshape(shape).astype(dtype)


def random_slice(rng, length):
    bounds = [None, *range(-length - 1, length + 2)]
    start, stop = (bounds[i] for i in rng.randint(len(bounds), size=2))
    return slice(start, stop, [None, 1, 2, 3, -1, -2][rng.randint(6)])


def random_item(rng, length, advanced, count):
    """Return a random item of a key. Index arrays have `count` elements, or 1, along their last axis, to broadcast."""
    kind = rng.randint(8 if advanced else 4)
    if kind < 2 or not length:
        return random_slice(rng, length)
    if kind < 4:
        return int(rng.randint(-length, length))
    if kind == 4 and count <= length:
        return onp.isin(onp.arange(length), rng.permutation(length)[:count])
    index = rng.randint(-length, length, size=[(count,), (1,), (2, count), (2, 1)][rng.randint(4)])
    return [index, index.tolist(), index.astype("int32")][rng.randint(3)]


def random_key(rng, shape, advanced):
    """Return a random key for an array of that shape."""
    count, items = rng.randint(1, 4), []
    # An Ellipsis that covers no axis separates index arrays in numpy but not in MXNet, so here it covers some.
    skipped = sorted(rng.randint(len(shape) + 1, size=2)) if rng.rand() < 0.4 else (0, 0)
    for axis in range(len(shape) if skipped[1] else rng.randint(len(shape) + 1)):
        if rng.rand() < 0.15:
            items.append(None)
        if axis == skipped[0] and skipped[0] < skipped[1]:
            items.append(Ellipsis)
        if not skipped[0] <= axis < skipped[1]:
            items.append(random_item(rng, shape[axis], advanced, count))
    return tuple(items) if len(items) != 1 or rng.rand() < 0.5 else items[0]


def as_ours(rng, key):
    """Return the same key, with some of numpy's arrays replaced by mx.np arrays."""
    if isinstance(key, tuple):
        return tuple(as_ours(rng, item) for item in key)
    return np.array(key, dtype=key.dtype) if isinstance(key, onp.ndarray) and rng.rand() < 0.6 else key


SHAPES = [(5,), (4, 3), (2, 3, 4), (1, 4, 2, 3), (0, 3), (3, 0, 2), ()]


@pytest.mark.parametrize("advanced", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_reading_and_writing_match_numpy(shape, advanced):
    rng = onp.random.RandomState(len(shape) + 10 * advanced)
    for _ in range(300):
        key = random_key(rng, shape, advanced)
        ours, theirs = np.array(numbers(*shape)), numbers(*shape)
        expected = theirs[key]
        found = ours[as_ours(rng, key)]
        assert found.shape == expected.shape, key
        assert onp.array_equal(found.asnumpy(), expected), key
        # Values at repeated positions are equal, because only numpy defines which one is kept.
        cut = rng.randint(expected.ndim + 1)
        value = onp.full([n if rng.rand() < 0.7 else 1 for n in expected.shape[cut:]], rng.randint(100, 200), "int64")
        theirs[key] = value
        ours[as_ours(rng, key)] = [value, np.array(value, dtype="int64"), int(value.flat[0]) if value.size else 7][
            rng.randint(3)
        ]
        assert onp.array_equal(ours.asnumpy(), theirs), (key, value)


def test_distinct_values_are_written_as_in_numpy():
    rng = onp.random.RandomState(5)
    for _ in range(300):
        shape = SHAPES[rng.randint(4)]
        key = random_key(rng, shape, advanced=True)
        positions = numbers(*shape)[key].ravel()
        if len(set(positions)) < positions.size:
            continue
        ours, theirs = np.array(numbers(*shape)), numbers(*shape)
        value = onp.float32(rng.uniform(size=theirs[key].shape))
        theirs[key] = value
        ours[as_ours(rng, key)] = np.array(value)
        assert onp.array_equal(ours.asnumpy(), theirs), key


def test_gradients_of_random_reads():
    rng = onp.random.RandomState(3)
    for _ in range(150):
        shape = SHAPES[rng.randint(4)]
        key = random_key(rng, shape, advanced=True)
        x = np.array(numbers(*shape))
        x.attach_grad()
        with mx.autograd.record():
            y = x[as_ours(rng, key)]
        head = onp.float32(rng.uniform(size=y.shape))
        y.backward(np.array(head))
        expected = onp.zeros(shape, "float32")
        onp.add.at(expected, key, head)
        onp.testing.assert_allclose(x.grad.asnumpy(), expected, rtol=1e-6, err_msg=repr(key))


@pytest.mark.parametrize(
    ("key", "shares"),
    [
        (0, True),
        ((1, 2), True),
        (slice(1, 3), True),
        (slice(None), True),
        ((), True),
        (..., True),
        (None, True),
        ((slice(0, 1), slice(1, 3)), True),
        ((slice(None), 1), False),
        (slice(None, None, 2), False),
        (slice(None, None, -1), False),
        ([0], False),
        (True, False),
        (onp.array([True, False, False, True]), False),
    ],
    ids=str,
)
def test_which_keys_share_memory(key, shares):
    x = np.array(numbers(4, 3))
    x[key][()] = 77
    assert (77 in x.asnumpy()) is shares


def test_key_of_the_whole_array_returns_the_array_itself():
    x = np.array(numbers(2, 3))
    assert x[:] is x and x[()] is x


@pytest.mark.parametrize(
    ("shape", "key", "error"),
    [
        ((2, 3), 2, IndexError),
        ((2, 3), -3, IndexError),
        ((2, 3), (0, 3), IndexError),
        ((2, 3), (0, 0, 0), IndexError),
        ((2, 3), (..., ...), IndexError),
        ((2, 3), [0, 2], IndexError),
        ((2, 3), ([0, 1], [0, 1, 2]), IndexError),
        ((2, 3), onp.array([True, False, True]), IndexError),
        ((2, 3), 1.0, ValueError),
        ((2, 3), "a", ValueError),
        ((2, 3), slice(1.5, 2), TypeError),
        ((2, 3), slice(None, None, 0), ValueError),
        ((0, 3), 0, IndexError),
        ((0, 3), [0], IndexError),
        ((), 0, IndexError),
        ((), slice(None), IndexError),
    ],
    ids=str,
)
def test_invalid_keys_raise(shape, key, error):
    x = np.array(numbers(*shape))
    with pytest.raises(error):
        x[key]
    with pytest.raises(error):
        x[key] = 1


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (np.ones((2, 2)), mx.base.MXNetError),
        (np.ones((2, 2)), ValueError),
        ("a", TypeError),
        (1j, TypeError),
        (mx.nd.ones(3), TypeError),
    ],
    ids=["shape", "shape as numpy", "text", "complex", "mx.nd"],
)
def test_invalid_values_raise(value, error):
    x = np.array(numbers(2, 3))
    with pytest.raises(error):
        x[0] = value


def test_values_are_cast_to_the_dtype_of_the_array():
    x = np.array(numbers(2, 3), dtype="uint8")
    x[0], x[1, 0], x[1, 1] = 300, -1, 2.9
    assert x.asnumpy().tolist() == [[44, 44, 44], [255, 2, 5]]
    flags = np.array([False, False, True], dtype="bool")
    flags[0], flags[2] = 0.5, 0
    assert flags.asnumpy().tolist() == [True, False, False]
    y = np.array(numbers(2))
    y[0] = None
    assert onp.isnan(y.asnumpy()[0])


def test_value_that_overlaps_its_target_is_copied_first():
    x = np.array(numbers(5))
    x[1:] = x[:-1]
    assert x.asnumpy().tolist() == [0, 0, 1, 2, 3]
    x[::-1] = x
    assert x.asnumpy().tolist() == [3, 2, 1, 0, 0]


@pytest.mark.parametrize("write", ["x[0] = 1", "y[0] = 1", "z[0] = y[0]", "z[[0, 1]] = y[0]", "x[mask] = 1"])
def test_writing_to_or_from_the_graph_raises_while_recording(write):
    x, z, mask = np.array(numbers(2, 3)), np.array(numbers(2, 3)), np.array(numbers(2, 3) > 2, dtype="bool")
    x.attach_grad()
    names = {"x": x, "z": z, "mask": mask}
    with mx.autograd.record():
        names["y"] = x * 2
        z[0] = 5
        with pytest.raises(mx.base.MXNetError, match="while recording"):
            exec(write, names)


@pytest.mark.parametrize(
    "key",
    [0, -1, slice(1, 3), slice(None), (slice(None), 1), (1, -1), (), (slice(0, 1), slice(1, 3)), slice(None, None, -1)],
)
def test_symbols_select_the_same_elements(key):
    x = np.array(numbers(4, 3))
    symbol = mx.sym.var("x").as_np_ndarray()[key]
    assert symbol.infer_shape(x=(4, 3))[1] == [x[key].shape]
    (result,) = symbol.bind(mx.cpu(), {"x": x}).forward()
    assert onp.array_equal(result.asnumpy(), x[key].asnumpy())


def test_indexing_a_symbol_creates_the_nodes_of_mxnet():
    x = mx.sym.var("x").as_np_ndarray()
    with mx.name.NameManager():
        nodes = json.loads(x[:, 1].tojson())["nodes"][1:]
    assert [(node["op"], node["name"], node["attrs"]) for node in nodes] == [
        ("slice", "slice0", {"begin": "[None, 1]", "end": "[None, 2]", "step": "[None, 1]"}),
        ("_npx_reshape", "reshape0", {"newshape": "(-2, -3, -4)"}),
    ]
    for key in (None, ..., [0], "a", 1.5, (0, None)):
        with pytest.raises(IndexError, match="an int, a slice"):
            x[key]
