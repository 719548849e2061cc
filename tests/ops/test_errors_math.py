"""Error messages of elementwise, reduction and creation ops for invalid arguments."""

import pytest

import neomx as mx
from neomx import nd

ROW, MATRIX, INTS = nd.ones((3,)), nd.ones((2, 3)), nd.ones((3,), dtype="int32")

CALLS = [
    (lambda: ROW + INTS, "one dtype"),
    (lambda: nd.broadcast_add(MATRIX, nd.ones((2,))), "broadcast_add"),
    (lambda: nd.elemwise_add(MATRIX, ROW), "broadcast_add broadcasts"),
    (lambda: nd._internal._maximum(MATRIX, ROW), "the same shape, got (2, 3) and (3,)"),
    (lambda: INTS / nd.zeros((3,), dtype="int32"), "broadcast_div"),
    (lambda: INTS / 0, "_div_scalar"),
    (lambda: nd.clip(ROW, 0), "missing argument a_max"),
    (lambda: nd.clip(ROW, None, 1), "expected a number"),
    (lambda: nd.clip(ROW, "low", 1), "expected a number"),
    (lambda: nd.hard_sigmoid(INTS), "expected an array of floats"),
    (lambda: nd.add_n(), "at least one array"),
    (lambda: nd.add_n(ROW, MATRIX), "the same shape"),
    (lambda: nd.add_n(ROW, INTS), "one dtype"),
    (lambda: nd.khatri_rao(MATRIX, nd.ones((2, 2))), "same number of columns"),
    (lambda: nd.khatri_rao(ROW), "matrices"),
    (lambda: nd.contrib.allclose(ROW, MATRIX), "the same shape"),
    (lambda: nd.reset_arrays(ROW, num_arrays=2), "num_arrays=2"),
    (lambda: nd.Cast(ROW, dtype="float31"), "unknown dtype 'float31'"),
    (lambda: nd.Cast(ROW), "missing argument dtype"),
    (lambda: nd.amp_cast(ROW, dtype="bool"), "expected one of 'bfloat16'"),
    (lambda: nd.amp_multicast(ROW, ROW), "missing argument num_outputs"),
    (lambda: nd.amp_multicast(ROW, ROW, num_outputs=1), "num_outputs=1"),
    (lambda: nd.all_finite(INTS), "expected arrays of floats"),
    (lambda: nd.multi_all_finite(ROW, ROW), "num_arrays=1"),
    (lambda: nd._internal._identity_with_attr_like_rhs(ROW, MATRIX), "the same shape"),
    (lambda: nd.exp(1.0), "must be an NDArray"),
    (lambda: nd.sum(ROW, dim=1), "unknown argument 'dim'"),
    (lambda: nd.sum(MATRIX, axis=2), "axis 2 is out of range for an array with 2 dimension(s)"),
    (lambda: nd.mean(MATRIX, axis=-3), "axis -3 is out of range"),
    (lambda: nd.max(MATRIX, axis=(0, 0)), "twice"),
    (lambda: nd.prod(MATRIX, axis=5, exclude=True), "axis 5 is out of range"),
    (lambda: nd.sum(MATRIX, axis="rows"), "expected an int or a tuple of ints"),
    (lambda: nd.norm(MATRIX, ord=3), "ord to be 1 or 2"),
    (lambda: nd.argmax(MATRIX, axis=2), "axis 2 is out of range"),
    (lambda: nd.argmax(MATRIX, axis=(0, 1)), "expected an int"),
    (lambda: nd.argmax_channel(ROW), "axis 1 is out of range"),
    (lambda: nd.moments(MATRIX), "expected axes"),
    (lambda: nd.multi_sum_sq(ROW, num_arrays=3), "num_arrays=3"),
    (lambda: nd.multi_sum_sq(INTS, num_arrays=1), "expected arrays of floats"),
    (lambda: nd.cumsum(ROW, axis=1), "axis 1 is out of range"),
    (lambda: nd.zeros(-2), "negative"),
    (lambda: nd.zeros(2.5), "expected an int or a tuple of ints"),
    (lambda: nd.zeros((2,), dtype="uint16"), "unknown dtype"),
    (lambda: nd.zeros((2,), hape=1), "hape"),
    (lambda: nd.arange(5, 1), "expected a nonempty range"),
    (lambda: nd.arange(1, 5, 0), "expected a nonzero step"),
    (lambda: nd.arange(0, 5, repeat=0), "repeat"),
    (lambda: nd._internal._arange(start=0, infer_range=True), "expected stop"),
    (lambda: nd.linspace(0, 1, -1), "expected a nonnegative num"),
    (lambda: nd.linspace(0, 1, 2.5), "expected an int"),
    (lambda: nd.eye(-1), "negative"),
    (lambda: nd._internal._full(value=1), "missing argument shape"),
    (lambda: nd._internal._set_value(1), "out="),
    (lambda: nd.contrib.arange_like(MATRIX, axis=2), "axis 2 is out of range"),
    (lambda: nd._internal._histogram(ROW, bin_cnt=2), "bin_cnt and range"),
    (lambda: nd._internal._histogram(ROW), "bin_cnt and range"),
    (lambda: nd._internal._histogram(ROW, INTS), "dtype of data"),
    (lambda: nd.histogram(ROW, 2, (5, 0)), "(low, high)"),
    (lambda: nd.concatenate([]), "at least one array"),
    (lambda: nd.add(ROW, nd.ones((2,))), "broadcast_add"),
]


@pytest.mark.parametrize(("call", "piece"), CALLS, ids=[f"{i}: {piece}" for i, (_, piece) in enumerate(CALLS)])
def test_error_states_what_was_expected(call, piece):
    with pytest.raises(mx.MXNetError) as error:
        call()
    assert piece in str(error.value)
