"""Reductions, products and linear algebra of mx.np compared with NumPy, including cases that are wrong in MXNet."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neomx as mx


@pytest.fixture(autouse=True)
def np_mode():
    mx.npx.set_np()
    yield
    mx.npx.reset_np()


def close(ours, expected):
    assert ours.shape == np.shape(expected)
    np.testing.assert_allclose(ours.asnumpy(), expected, rtol=1e-5, atol=1e-5)


@st.composite
def arrays_with_axes(draw):
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    axes = [None, ()] + (
        [draw(st.permutations(range(len(shape))))[: draw(st.integers(1, len(shape)))]] if shape else []
    )
    axis = draw(st.sampled_from(axes))
    if axis:
        axis = tuple(a - len(shape) if draw(st.booleans()) else a for a in axis)
    values = np.random.RandomState(draw(st.integers(0, 1000))).uniform(-2, 2, shape)
    return values, axis, draw(st.booleans())


@settings(max_examples=150, deadline=None)
@given(arrays_with_axes(), st.sampled_from(["sum", "prod", "max", "min", "mean", "var", "std", "any", "all"]))
def test_reductions(case, name):
    values, axis, keepdims = case
    ours, numpy_ = getattr(mx.np, name), getattr(np, name)
    with np.errstate(all="ignore"), pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *a, **k: None)
        try:
            expected = numpy_(values, axis=axis, keepdims=keepdims)
        except ValueError:
            with pytest.raises(mx.MXNetError):
                ours(mx.np.array(values, dtype="float64"), axis=axis, keepdims=keepdims)
            return
    close(ours(mx.np.array(values, dtype="float64"), axis=axis, keepdims=keepdims), expected)


@st.composite
def einsums(draw):
    lengths = {label: draw(st.integers(1, 3)) for label in "abcde"}
    terms = [draw(st.text("abcde", max_size=3)) for _ in range(draw(st.integers(1, 3)))]
    labels = sorted(set("".join(terms)))
    subscripts = ",".join(terms)
    if draw(st.booleans()):
        subscripts += "->" + "".join(draw(st.permutations(labels))[: draw(st.integers(0, len(labels)))])
    rng = np.random.RandomState(draw(st.integers(0, 1000)))
    return subscripts, [rng.uniform(-1, 1, [lengths[label] for label in term]) for term in terms]


@settings(max_examples=150, deadline=None)
@given(einsums(), st.booleans())
def test_einsum(case, optimize):
    subscripts, operands = case
    ours = mx.np.einsum(subscripts, *(mx.np.array(o, dtype="float64") for o in operands), optimize=optimize)
    close(ours, np.einsum(subscripts, *operands))


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.integers(1, 3), max_size=2),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(0, 1000),
)
def test_matmul_and_dot(batch, rows, inner, columns, seed):
    rng = np.random.RandomState(seed)
    a, b = rng.uniform(-1, 1, (*batch, rows, inner)), rng.uniform(-1, 1, (inner, columns))
    ours = [mx.np.array(x, dtype="float64") for x in (a, b)]
    close(mx.np.matmul(*ours), np.matmul(a, b))
    close(mx.np.dot(*ours), np.dot(a, b))
    close(mx.np.tensordot(*ours, axes=1), np.tensordot(a, b, axes=1))


@pytest.mark.parametrize("axis", [None, (0, 1), (2, 0), (-1, 1)])
@pytest.mark.parametrize("ord", ["fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf])
def test_matrix_norms_and_their_gradients(ord, axis):
    x = np.random.RandomState(0).uniform(-1, 1, (3, 4) if axis is None else (3, 4, 2))
    ours = mx.np.array(x, dtype="float64")
    ours.attach_grad()
    weights = np.random.RandomState(1).uniform(1, 2, np.shape(np.linalg.norm(x, ord, axis)))
    with mx.autograd.record():
        norm = mx.np.linalg.norm(ours, ord=ord, axis=axis)
    close(norm, np.linalg.norm(x, ord, axis))
    norm.backward(mx.np.array(weights, dtype="float64"))
    step = 1e-6
    for place in [(0, 0, 0), (1, 2, 1), (2, 3, 0)]:
        shifted = [x.copy(), x.copy()]
        for array, sign in zip(shifted, (1, -1), strict=True):
            array[place[: x.ndim]] += sign * step
        high, low = (np.sum(np.linalg.norm(array, ord, axis) * weights) for array in shifted)
        np.testing.assert_allclose(ours.grad.asnumpy()[place[: x.ndim]], (high - low) / (2 * step), atol=1e-5)


@pytest.mark.parametrize("ord", [np.inf, -np.inf])
def test_vector_norms_of_infinite_order(ord):
    x = np.random.RandomState(0).uniform(-1, 1, (3, 4))
    close(mx.np.linalg.norm(mx.np.array(x, dtype="float64"), ord=ord, axis=1), np.linalg.norm(x, ord, axis=1))


def test_gradient_of_a_broadcast_matrix_product_sums_over_batches():
    a, b = mx.np.ones((2, 1, 2, 3)), mx.np.array(np.arange(60).reshape(5, 3, 4), dtype="float32")
    a.attach_grad()
    with mx.autograd.record():
        product = mx.np.matmul(a, b)
    product.backward()
    close(a.grad, np.broadcast_to(b.asnumpy().sum((0, 2)), (2, 1, 2, 3)))


def test_products_of_integers():
    a, b = np.arange(6).reshape(2, 3), np.arange(12).reshape(3, 4)
    for name in ("dot", "matmul"):
        ours = getattr(mx.np, name)(mx.np.array(a, dtype="int32"), mx.np.array(b, dtype="int32"))
        assert ours.dtype == np.int32
        close(ours, a @ b)


@pytest.mark.parametrize(
    "call",
    [
        lambda: mx.np.linalg.inv(mx.np.zeros((2, 2))),
        lambda: mx.np.linalg.solve(mx.np.zeros((2, 2)), mx.np.ones(2)),
        lambda: mx.np.linalg.cholesky(-mx.np.ones((2, 2))),
        lambda: mx.np.linalg.eig(mx.np.array([[0, 1], [-1, 0]])),
        lambda: mx.np.linalg.norm(mx.np.ones((2, 3)), ord=3),
        lambda: mx.np.linalg.norm(mx.np.array(1.0), axis=1),
        lambda: mx.np.linalg.tensorinv(mx.np.ones((2, 3, 2))),
        lambda: mx.np.tensordot(mx.np.ones((2, 3)), mx.np.ones((1, 4)), axes=1),
        lambda: mx.np.tensordot(mx.np.ones((2, 3)), mx.np.ones((3, 4)), axes=3),
        lambda: mx.np.dot(mx.np.ones((2, 3)), mx.np.ones((3, 4), dtype="float64")),
        lambda: mx.np.sum(mx.np.ones((2, 3)), axis=2),
        lambda: mx.np.max(mx.np.ones((0, 3)), axis=0),
    ],
)
def test_invalid_input_raises(call):
    with pytest.raises(mx.MXNetError):
        call()


@pytest.mark.parametrize("seed", range(5))
def test_linear_algebra(seed):
    rng = np.random.RandomState(seed)
    x = rng.uniform(-1, 1, (2, 3, 3)) + 2 * np.eye(3)
    ours = mx.np.array(x, dtype="float64")
    linalg = mx.np.linalg
    close(linalg.inv(ours), np.linalg.inv(x))
    close(linalg.det(ours), np.linalg.det(x))
    close(linalg.pinv(ours), np.linalg.pinv(x))
    close(linalg.slogdet(ours)[1], np.linalg.slogdet(x)[1])
    symmetric = x @ x.transpose(0, 2, 1)
    given = mx.np.array(symmetric, dtype="float64")
    close(linalg.cholesky(given), np.linalg.cholesky(symmetric))
    close(linalg.eigvalsh(given), np.linalg.eigvalsh(symmetric))
    u, values, v = linalg.svd(ours)
    close(mx.np.einsum("bij,bj,bjk->bik", u, values, v), x)
    values, vectors = linalg.eigh(given)
    close(mx.np.einsum("bij,bj,bkj->bik", vectors, values, vectors), symmetric)
