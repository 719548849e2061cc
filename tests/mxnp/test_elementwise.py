"""Elementwise functions of mx.np, beyond the recordings: compared with NumPy, and where MXNet's are broken."""

import numpy
import pytest

import neomx as mx

np = mx.np
SHAPES = [((3,), (3,)), ((2, 1), (1, 3)), ((), (2,)), ((0, 2), (1, 2)), ((2, 3), (3,)), ((4, 1, 2), (3, 1))]
# The gradients of each binary function, in NumPy, with respect to the first and the second argument.
GRADIENTS = {
    "add": (lambda a, b: 1 + 0 * a, lambda a, b: 1 + 0 * b),
    "subtract": (lambda a, b: 1 + 0 * a, lambda a, b: 0 * b - 1),
    "multiply": (lambda a, b: b, lambda a, b: a),
    "true_divide": (lambda a, b: 1 / b, lambda a, b: -a / b**2),
    "power": (lambda a, b: b * a ** (b - 1), lambda a, b: a**b * numpy.log(a)),
    "arctan2": (lambda a, b: b / (a**2 + b**2), lambda a, b: -a / (a**2 + b**2)),
    "hypot": (lambda a, b: a / numpy.hypot(a, b), lambda a, b: b / numpy.hypot(a, b)),
    "ldexp": (lambda a, b: 2**b, lambda a, b: a * 2**b * numpy.log(2)),
    "copysign": (lambda a, b: numpy.copysign(1, a) * numpy.copysign(1, b), lambda a, b: 0 * b),
}
VALUES = {"ldexp": lambda a, b: a * 2**b}


def summed(gradient, shape, whole):
    """Sum a gradient of shape `whole` to the `shape` of an array that was broadcast."""
    gradient = numpy.broadcast_to(gradient, whole)
    gradient = gradient.sum(axis=tuple(range(len(whole) - len(shape))))
    return gradient.sum(axis=tuple(i for i, n in enumerate(shape) if n == 1), keepdims=True).reshape(shape)


@pytest.mark.parametrize("name", GRADIENTS)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_values_and_gradients_of_arrays(name, shapes):
    rng = numpy.random.RandomState(0)
    a, b = (rng.uniform(0.5, 2, size=shape) for shape in shapes)
    x, y = np.array(a, dtype="float64"), np.array(b, dtype="float64")
    for variable in (x, y):
        variable.attach_grad()
    with mx.autograd.record():
        result = getattr(np, name)(x, y)
    result.backward()
    expected = VALUES.get(name, getattr(numpy, name))(a, b)
    numpy.testing.assert_allclose(result.asnumpy(), expected, rtol=1e-6)
    for variable, value, gradient in zip((x, y), (a, b), GRADIENTS[name], strict=True):
        numpy.testing.assert_allclose(
            variable.grad.asnumpy(), summed(gradient(a, b), value.shape, expected.shape), rtol=1e-6
        )


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_with_a_number_on_either_side(name):
    """For arctan2 and copysign with a number, MXNet's gradients are wrong or fail."""
    values = numpy.array([0.5, 1.5, -0.7 if name in ("arctan2", "copysign") else 0.7])
    for first in (True, False):
        x = np.array(values, dtype="float64")
        x.attach_grad()
        with mx.autograd.record():
            y = getattr(np, name)(x, 2.5) if first else getattr(np, name)(2.5, x)
        y.backward()
        arguments = (values, numpy.float64(2.5)) if first else (numpy.float64(2.5), values)
        expected = GRADIENTS[name][0 if first else 1](*arguments)
        numpy.testing.assert_allclose(x.grad.asnumpy(), numpy.broadcast_to(expected, 3), rtol=1e-6)


def test_gradient_of_where_goes_to_the_selected_elements():
    condition = np.array([True, False], dtype="bool")
    for choose, expected in (
        (lambda x: np.where(condition, x, 2), [1.0, 0.0]),
        (lambda x: np.where(condition, 2, x), [0.0, 1.0]),
    ):
        x = np.ones(2)
        x.attach_grad()
        with mx.autograd.record():
            y = choose(x)
        y.backward()
        assert x.grad.tolist() == expected


def test_integers_round_to_tens():
    values = numpy.array([14, 15, 25, -36], dtype="int32")
    assert np.around(np.array(values), -1).tolist() == numpy.around(values, -1).tolist()


def test_copysign_of_nan_matches_numpy():
    assert np.copysign(np.array([-1.0, 2.0]), np.array([numpy.nan, numpy.nan])).tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("sin", ()), ("negative", ()), ("floor", ()), ("square", ()), ("around", ()), ("clip", (0, 1))],
)
def test_booleans_must_be_cast_to_numbers_first(name, arguments):
    with pytest.raises(mx.MXNetError, match="expected a numeric array, got bool. Convert it with astype"):
        getattr(np, name)(np.array([True], dtype="bool"), *arguments)


def test_mixed_dtypes_are_promoted_as_in_numpy():
    x, i = np.array([1.5, 2.0]), np.array([1, 2], dtype="int32")
    assert (x == i).tolist() == [False, True]
    assert (i - np.array([1, 1], dtype="int64")).dtype == numpy.int64
    assert np.where(np.array([True, False], dtype="bool"), x, i).tolist() == [1.5, 2.0]


def test_deg2rad_and_rad2deg():
    x = np.array([30.0, 90.0])
    numpy.testing.assert_allclose(np.deg2rad(x).asnumpy(), numpy.deg2rad(x.asnumpy()), rtol=1e-6)
    numpy.testing.assert_allclose(np.rad2deg(np.deg2rad(x)).asnumpy(), x.asnumpy(), rtol=1e-6)


def test_functions_that_run_in_numpy_raise_in_the_autograd_graph():
    x = np.array([1.0, 2.0])
    x.attach_grad()
    with mx.autograd.record():
        with pytest.raises(ValueError, match="nancumprod runs in NumPy, which autograd cannot record"):
            np.nancumprod(x)
        assert np.nancumprod(x.detach()).tolist() == [1.0, 2.0]


def test_numpy_accepts_arrays():
    x = np.array([[1.0, 2.0]])
    assert numpy.asarray(x).dtype == numpy.float32
    numpy.testing.assert_array_equal(numpy.asarray(x), [[1.0, 2.0]])
    numpy.testing.assert_allclose(x, numpy.array([[1.0, 2.0]]))


def test_out_of_another_dtype_raises():
    i = np.array([1, 2], dtype="int32")
    with pytest.raises(mx.MXNetError, match="out= must have the dtype of the result, float32, received int32"):
        i /= 2
