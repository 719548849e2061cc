"""Functions of mx.sym.np, bound and run, compared with arrays. Shapes and dtypes are inferred."""

import numpy as np
import pytest

import neomx as mx

rng = np.random.RandomState(0)
SQUARE = (rng.uniform(-1, 1, (3, 3)) + 2 * np.eye(3)).astype("float32")
OBLONG = rng.uniform(-1, 1, (2, 3)).astype("float32")
VECTOR = rng.uniform(0.5, 1, 3).astype("float32")

CALLS = [
    (lambda np, a: np.sum(a, axis=1), OBLONG),
    (lambda np, a: np.sum(a, axis=0, dtype="float64", keepdims=True), OBLONG),
    (lambda np, a: np.prod(a), OBLONG),
    (lambda np, a: np.max(a, axis=(0, 1)), OBLONG),
    (lambda np, a: np.min(a, axis=-1, keepdims=True), OBLONG),
    (lambda np, a: np.mean(a), OBLONG),
    (lambda np, a: np.std(a, axis=0), OBLONG),
    (lambda np, a: np.var(a, ddof=1), OBLONG),
    (lambda np, a: np.average(a, axis=1), OBLONG),
    (lambda np, a, w: np.average(a, axis=1, weights=w), OBLONG, VECTOR),
    (lambda np, a: np.any(a, axis=0), OBLONG),
    (lambda np, a: np.cumsum(a, axis=1), OBLONG),
    (lambda np, a, b: np.dot(a, b), OBLONG, SQUARE),
    (lambda np, a, b: np.dot(a, b), VECTOR, VECTOR),
    (lambda np, a, b: np.matmul(a, b), OBLONG, SQUARE),
    (lambda np, a, b: np.inner(a, b), OBLONG, SQUARE),
    (lambda np, a, b: np.outer(a, b), OBLONG, VECTOR),
    (lambda np, a, b: np.vdot(a, b), SQUARE, SQUARE),
    (lambda np, a, b: np.tensordot(a, b, axes=([1], [1])), OBLONG, SQUARE),
    (lambda np, a, b: np.einsum("ij,kj->ki", a, b), OBLONG, SQUARE),
    (lambda np, a: np.trace(a, offset=1), SQUARE),
    (lambda np, a: np.percentile(a, 30, axis=1), OBLONG),
    (lambda np, a, q: np.quantile(a, q, axis=1), OBLONG, VECTOR),
    (lambda np, a: np.diff(a, n=2), SQUARE),
    (lambda np, a, b: np.ediff1d(a, to_end=b), OBLONG, VECTOR),
    (lambda np, a, b: np.polyval(a, b), VECTOR, OBLONG),
    (lambda np, a: np.linalg.norm(a), OBLONG),
    (lambda np, a: np.linalg.norm(a, ord=2, axis=(0, 1)), OBLONG),
    (lambda np, a: np.linalg.norm(a, ord=3, axis=1), OBLONG),
    (lambda np, a: np.linalg.inv(a), SQUARE),
    (lambda np, a: np.linalg.det(a), SQUARE),
    (lambda np, a: np.linalg.slogdet(a)[1], SQUARE),
    (lambda np, a: np.linalg.cholesky(a), SQUARE @ SQUARE.T),
    (lambda np, a, b: np.linalg.solve(a, b), SQUARE, VECTOR),
    (lambda np, a: np.linalg.tensorinv(a, ind=1), SQUARE),
    (lambda np, a, b: np.linalg.tensorsolve(a, b), SQUARE, VECTOR),
    (lambda np, a: np.linalg.svd(a)[1], OBLONG),
    (lambda np, a: np.linalg.eigvalsh(a), SQUARE),
    (lambda np, a: np.linalg.eigh(a, UPLO="U")[0], SQUARE),
    (lambda np, a: np.linalg.pinv(a), OBLONG),
    (lambda np, a, r: np.linalg.pinv(a, rcond=r), OBLONG[None], np.array([0.1])),
]


@pytest.mark.parametrize(("call", "arrays"), [(call, arrays) for call, *arrays in CALLS])
def test_symbols_match_arrays(call, arrays):
    mx.npx.set_np()
    try:
        given = {f"x{i}": mx.np.array(array, dtype="float32") for i, array in enumerate(arrays)}
        symbol = call(mx.sym.np, *(mx.sym.var(name).as_np_ndarray() for name in given))
        expected = call(mx.np, *given.values())
        _, shapes, _ = symbol.infer_shape(**{name: array.shape for name, array in given.items()})
        _, types, _ = symbol.infer_type(**{name: "float32" for name in given})
        (output,) = symbol.bind(mx.cpu(), given).forward()
        assert shapes == [expected.shape] and [np.dtype(t) for t in types] == [expected.dtype]
        assert output.shape == expected.shape and output.dtype == expected.dtype
        np.testing.assert_array_equal(output.asnumpy(), expected.asnumpy())
    finally:
        mx.npx.reset_np()


RANDOM = [
    lambda random: random.normal(0, 1, size=(2, 3)),
    lambda random: random.uniform(size=(2, 3)),
    lambda random: random.gamma(2.0, size=(2, 3)),
    lambda random: random.beta(2.0, 3.0, size=(2, 3)),
    lambda random: random.choice(5, size=(2, 3)),
    lambda random: random.randint(0, 5, size=(2, 3)),
    lambda random: random.weibull(2.0, size=(2, 3)),
]


@pytest.mark.parametrize("call", RANDOM)
def test_random_numbers(call):
    mx.npx.set_np()
    try:
        symbol = call(mx.sym.np.random)
        mx.random.seed(1)
        (drawn,) = symbol.bind(mx.cpu(), {}).forward()
        mx.random.seed(1)
        np.testing.assert_array_equal(drawn.asnumpy(), call(mx.np.random).asnumpy())
        assert drawn.shape == (2, 3) and len(np.unique(drawn.asnumpy())) > 1
    finally:
        mx.npx.reset_np()


def test_parameters_of_random_numbers_are_inputs():
    mx.npx.set_np()
    try:
        loc = mx.sym.var("loc").as_np_ndarray()
        symbol = mx.sym.np.random.normal(loc, 0.0, size=(2, 3))
        assert symbol.list_arguments() == ["loc"]
        (drawn,) = symbol.bind(mx.cpu(), {"loc": mx.np.array([1, 2, 3])}).forward()
        assert drawn.asnumpy().tolist() == [[1, 2, 3]] * 2
    finally:
        mx.npx.reset_np()
