"""Numbers that a dtype cannot represent, overlapping arrays in place, gradients through integers: as in MXNet."""

import math

import numpy as onp
import pytest

import neomx as mx
from neomx import autograd, gluon, nd, np, npx

LOWEST = {"int32": -(2**31), "int64": -(2**63)}


@pytest.fixture(autouse=True)
def numpy_mode():
    npx.set_np()
    yield
    npx.reset_np()


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        ("float16", 2**40, math.inf),
        ("int32", 2**40, LOWEST["int32"]),
        ("int32", -(2**40), LOWEST["int32"]),
        ("int32", math.nan, LOWEST["int32"]),
        ("int64", 2.0**70, LOWEST["int64"]),
        ("int64", math.inf, LOWEST["int64"]),
        ("int8", math.inf, 0),
        ("int8", 300, 44),
        ("uint8", -3, 253),
    ],
)
def test_fill_values_out_of_range(dtype, value, expected):
    assert np.full_like(np.zeros(1, dtype=dtype), value).tolist() == [expected]
    assert np.full((1,), value, dtype=dtype).tolist() == [expected]


@pytest.mark.parametrize(
    ("low", "high", "expected", "gradient"),
    [
        (math.nan, 0.5, [-2, 0.2, 0.5], [1, 1, 0]),
        (-1.0, math.nan, [-1, 0.2, 3], [0, 1, 1]),
        (math.nan, math.nan, [-2, 0.2, 3], [1, 1, 1]),
    ],
)
def test_nan_is_no_bound_of_clip(low, high, expected, gradient):
    x = np.array([-2, 0.2, 3])
    x.attach_grad()
    with autograd.record():
        y = np.clip(x, low, high)
    y.backward()
    onp.testing.assert_allclose(y.asnumpy(), expected, rtol=1e-6)
    assert x.grad.tolist() == gradient
    assert np.clip(np.array([-2, 0, 3], dtype="int32"), low, high).tolist() == [math.trunc(each) for each in expected]


@pytest.mark.parametrize("text", ["x + n", "x - n", "x * n", "x / n", "x % n", "x == n", "x < n", "n - x", "n / x"])
def test_integers_of_more_than_64_bits_are_floats(text):
    expected = eval(text, {"x": onp.array([1, 2], dtype="float32"), "n": float(2**70)})
    onp.testing.assert_allclose(eval(text, {"x": np.array([1, 2]), "n": 2**70}).asnumpy(), expected, rtol=1e-6)


def test_integers_modulo_a_number_that_wraps_to_zero_are_zero():
    assert (np.array([5, 7], dtype="int8") % 256).tolist() == [0, 0]
    assert (np.array([5, 7], dtype="int8") % 1e10).tolist() == [0, 0]


def test_half_precision_powers_overflow():
    assert (np.array([2, 0.5], dtype="float16") ** 1e10).tolist() == [math.inf, 0]


@pytest.mark.parametrize("array", [np.array, nd.array])
def test_in_place_operators_use_the_old_values_of_overlapping_arrays(array):
    x = array([0, 1, 2, 3])
    part = x[:-1]
    part += x[1:]
    assert x.asnumpy().tolist() == [1, 3, 5, 3]


@pytest.mark.parametrize("array", [np.array, nd.array])
def test_in_place_operators_with_unusual_numbers(array):
    x = array([1, 2])
    x -= True
    assert x.asnumpy().tolist() == [0, 1]
    x += 2**70
    assert x.asnumpy().tolist() == [2.0**70, 2.0**70]
    half = array([0, 1], dtype="float16")
    half *= 1e10
    onp.testing.assert_array_equal(half.asnumpy(), [math.nan, math.inf])


def test_zero_dimensional_numpy_arrays_are_axes_and_shapes():
    x = np.ones((2, 3))
    assert x.sum(onp.array(0)).shape == (3,) and x.max(onp.array(1)).shape == (2,)
    assert np.ones(onp.array(2)).shape == (2,)


def test_graphs_keep_the_default_dtype_of_zeros():
    assert '"dtype": "float32"' in mx.sym.np.zeros((2,)).tojson()


def test_cumulative_sum_of_recorded_floats_as_integers():
    x = np.array([1.5, 1.5, 0.7, -1.5])
    x.attach_grad()
    with autograd.record():
        y = np.cumsum(x, axis=0, dtype="int32")
    y.backward()
    assert y.tolist() == [1, 2, 2, 1] and x.grad.tolist() == [4, 3, 2, 1]


class ThroughIntegers(gluon.HybridBlock):
    """Computes with integers between two casts, or returns integers."""

    def __init__(self, back):
        super().__init__()
        self.back = back

    def hybrid_forward(self, F, x):
        y = F.np.multiply(x.astype("int32"), 2)
        return y.astype("float32") if self.back else y


@pytest.mark.parametrize("back", [True, False])
@pytest.mark.parametrize("hybrid", [True, False])
def test_gradients_pass_through_integers(hybrid, back):
    net = ThroughIntegers(back)
    net.hybridize(hybrid)
    x = np.array([0, 1.5, 3])
    x.attach_grad()
    with autograd.record():
        y = net(x)
        total = (y * y).sum()
    total.backward()
    assert y.tolist() == [0, 2, 6] and x.grad.tolist() == [0, 8, 24]


def test_gradients_pass_through_integers_in_an_executor():
    npx.reset_np()
    graph = mx.sym.cast(mx.sym.cast(mx.sym.Variable("x"), dtype="int32") * 2, dtype="float32")
    executor = graph.bind(mx.cpu(), {"x": nd.array([0, 1.5, 3])}, args_grad={"x": nd.zeros(3)})
    executor.forward(is_train=True)
    executor.backward(nd.ones(3))
    assert executor.grad_dict["x"].asnumpy().tolist() == [2, 2, 2]
