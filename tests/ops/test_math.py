"""Elementwise, reduction and creation ops that cannot be compared with MXNet; see parity/ for the others."""

import math

import numpy as np
import pytest
import torch

import neomx as mx
from neomx import nd
from neomx.ops import OPS, elementwise


@pytest.mark.parametrize(
    ("dtypes", "narrow", "expected"),
    [
        (("float16", "float32"), False, ("float32", "float32")),
        (("float16", "float32"), True, ("float16", "float16")),
        (("float16", "float16"), False, ("float16", "float16")),
        (("float16", "float64", "float32"), False, ("float32", "float64", "float32")),
        (("float16", "int32", "float32"), True, ("float16", "int32", "float16")),
        (("int32", "float32"), True, ("int32", "float32")),
    ],
)
def test_amp_multicast_casts_to_common_dtype(dtypes, narrow, expected):
    """MXNet's CPU build rejects mixed dtypes. The expected values are from MXNet with MKLDNN disabled."""
    results = nd.amp_multicast(*[nd.ones((2,), dtype=d) for d in dtypes], num_outputs=len(dtypes), cast_narrow=narrow)
    assert tuple(r.dtype.__name__ for r in results) == expected


def test_amp_multicast_gradients_have_input_dtypes():
    a, b = nd.array([1.5, 2], dtype="float16"), nd.array([3, 4])
    a.attach_grad()
    b.attach_grad()
    with mx.autograd.record():
        wide_a, wide_b = nd.amp_multicast(a, b, num_outputs=2)
        product = wide_a * wide_b
    product.backward()
    assert a.grad.dtype is np.float16 and a.grad.asnumpy().tolist() == [3, 4]
    assert b.grad.asnumpy().tolist() == [1.5, 2]


def test_amp_cast_keeps_integers_and_truncates_floats():
    assert nd.amp_cast(nd.array([1], dtype="int8"), dtype="float64").dtype is np.int8
    assert nd.amp_cast(nd.array([1.7, -1.7]), dtype="int64").asnumpy().tolist() == [1, -1]


def test_cast_to_same_dtype_copies_and_keeps_graph():
    x = nd.array([1, 2])
    assert not np.shares_memory(nd.cast(x, dtype="float32").handle.numpy(), x.handle.numpy())
    x.attach_grad()
    with mx.autograd.record():
        y = nd.cast(x, dtype="float32") * 3
    y.backward()
    assert x.grad.asnumpy().tolist() == [3, 3]


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "prod", "nansum", "nanprod"])
def test_reducing_no_axis_returns_copy(name):
    x = nd.array([[1, 2]])
    y = getattr(nd, name)(x, axis=(0, 1), exclude=True)
    y[:] = 0
    assert x.asnumpy().tolist() == [[1, 2]]


def test_gradients_at_zero_are_not_nan():
    """MXNet returns NaN for all of these."""
    for compute, expected in [
        (lambda x: nd.prod(x), [0, 0, 0]),
        (lambda x: nd.norm(x * 0), [0, 0, 0]),
        (lambda x: x**0, [0, 0, 0]),
    ]:
        x = nd.array([0, 2, 0])
        x.attach_grad()
        with mx.autograd.record():
            y = compute(x)
        y.backward()
        assert x.grad.asnumpy().tolist() == expected


def test_norm_of_integers_and_in_another_dtype():
    """MXNet computes a wrong sum of integer squares, and rejects dtypes other than that of the data."""
    assert nd.norm(nd.array([3, 4], dtype="int32")).asnumpy().tolist() == [5]
    assert nd.norm(nd.array([3, 4], dtype="float16"), out_dtype="float64").dtype is np.float64


def test_opposite_infinities_are_not_close():
    assert nd.contrib.allclose(nd.array([math.inf]), nd.array([-math.inf])).asscalar() == 0


def test_square_sum_of_dense_array():
    assert nd._internal._square_sum(nd.array([[1, 2], [3, 4]]), axis=1, keepdims=True).asnumpy().tolist() == [[5], [25]]


def test_zeros_by_type_code():
    assert nd._internal._zeros_without_dtype(shape=(2,)).dtype is np.float32
    assert nd._internal._zeros_without_dtype(shape=(2,), dtype=6).dtype is np.int64


def test_cumsum_counts_axes_from_the_end():
    assert nd.cumsum(nd.array([[1, 2], [3, 4]]), axis=-1).asnumpy().tolist() == [[1, 3], [3, 7]]


def test_zipfian_draws_follow_the_expected_counts():
    mx.random.seed(3)
    sampled, _, _ = nd.contrib.rand_zipfian(nd.array([0]), 200000, 8)
    _, expected, _ = nd.contrib.rand_zipfian(nd.arange(8), 200000, 8)
    counts = np.bincount(sampled.asnumpy(), minlength=8)
    assert len(counts) == 8
    np.testing.assert_allclose(counts, expected.asnumpy(), rtol=0.03)
    np.testing.assert_allclose(expected.asnumpy().sum(), 200000)
    mx.random.seed(3)
    assert np.array_equal(sampled.asnumpy(), nd.contrib.rand_zipfian(nd.array([0]), 200000, 8)[0].asnumpy())


def test_scalar_cache_is_bounded():
    x = nd.ones((2,))
    for i in range(3000):
        assert (x * (i / 7)).asnumpy()[0] == np.float32(i / 7)
    assert len(elementwise._numbers) <= 1024


def test_scalar_cached_in_inference_mode_works_in_training():
    x = nd.array([1, 2])
    with torch.inference_mode():
        OPS["_mul_scalar"].fn(torch.ones(2), scalar=12.34)
    x.attach_grad()
    with mx.autograd.record():
        y = x * 12.34
    y.backward()
    np.testing.assert_allclose(x.grad.asnumpy(), 12.34, rtol=1e-6)


def test_scalar_ops_work_on_meta_tensors_and_when_compiled():
    row = OPS["_plus_scalar"].fn
    assert row(torch.ones(2, device="meta"), scalar=2.0).shape == (2,)
    compiled = torch.compile(lambda x: row(x, scalar=2.5) * OPS["_greater_scalar"].fn(x, scalar=0.5), backend="eager")
    assert compiled(torch.tensor([0.0, 1.0])).tolist() == [0, 3.5]


def test_scalar_zeros_keep_their_sign():
    x = nd.array([1.0, 2.0])
    assert np.signbit((x * 0.0).asnumpy()).tolist() == [False, False]
    assert np.signbit((x * -0.0).asnumpy()).tolist() == [True, True]
