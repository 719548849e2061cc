"""Error messages of RNN, CTCLoss, attention and random ops for invalid arguments."""

import numpy as np
import pytest

import neomx as mx

R, C = mx.nd.random, mx.nd.contrib


def a(*shape, dtype="float32"):
    return mx.nd.array(np.full(shape, 0.5), dtype=dtype)


def rnn(mode="gru", data=(3, 2, 3), size=None, state=(1, 2, 4), cell=None, dtype="float32", **attrs):
    size = size or {"gru": 108, "lstm": 144, "rnn_tanh": 36}.get(mode, 1)
    arrays = [a(*shape, dtype=dtype) for shape in (data, (size,), state, *([cell] if cell else []))]
    return mx.nd.RNN(*arrays, **{"state_size": 4, "num_layers": 1, "mode": mode, **attrs})


WRONG = [
    (lambda: rnn(data=(3, 2)), "3 dimensions"),
    (lambda: rnn(size=10), r"parameters must have shape \(108,\)"),
    (lambda: rnn(state=(1, 1, 4)), r"state must have shape \(1, 2, 4\)"),
    (lambda: rnn(mode="lstm"), "state_cell must be given"),
    (lambda: rnn(cell=(1, 2, 4)), "state_cell must be given if and only if mode='lstm'"),
    (lambda: rnn(mode="elman"), "expected one of 'gru', 'lstm', 'rnn_relu', 'rnn_tanh'"),
    (lambda: rnn(p=1.5), "p must be between 0 and 1"),
    (lambda: rnn(dtype="int32"), "floating-point"),
    (lambda: rnn(num_layers=0), "at least 1"),
    (lambda: rnn(projection_size=2), "projection_size requires mode='lstm'"),
    (lambda: rnn(use_sequence_length=True), r"requires sequence_length of shape \(2,\)"),
    (lambda: rnn(use_sequence_length=True, sequence_length=mx.nd.array([1, 4])), "between 1 and 3"),
    (lambda: rnn(use_sequence_length=True, sequence_length=mx.nd.array([0, 3])), "between 1 and 3"),
    (
        lambda: rnn("lstm", size=126, state=(1, 2, 2), cell=(1, 2, 4), projection_size=2, lstm_state_clip_min=0),
        "parameters must have shape",
    ),
    (lambda: mx.nd.RNN(a(3, 2, 3), a(108), a(1, 2, 4), num_layers=1, mode="gru"), "missing argument state_size"),
    (lambda: mx.nd.CTCLoss(a(5, 4), a(2, 3)), r"data of \(time, batch, classes\)"),
    (lambda: mx.nd.CTCLoss(a(5, 2, 4), a(3, 3)), r"data of \(time, batch, classes\)"),
    (lambda: mx.nd.CTCLoss(a(2, 2, 4), a(2, 3)), "at most 2 labels"),
    (lambda: mx.nd.CTCLoss(a(5, 2, 4), mx.nd.array([[1, 4], [1, 0]])), "labels between 0 and 3"),
    (lambda: mx.nd.CTCLoss(a(5, 2, 4), mx.nd.array([[1, -1], [1, 0]])), "labels between 0 and 3"),
    (lambda: mx.nd.CTCLoss(a(5, 2, 4), a(2, 3), mx.nd.array([1, 6]), use_data_lengths=True), "between 0 and 5"),
    (lambda: mx.nd.CTCLoss(a(5, 2, 4), a(2, 3), mx.nd.array([1, 6]), use_label_lengths=True), "between 0 and 3"),
    (lambda: mx.nd.CTCLoss(a(5, 2, 4), a(2, 3), mx.nd.array([1, 2])), "if and only if use_data_lengths=True"),
    (lambda: mx.nd.CTCLoss(a(5, 2, 4), a(2, 3), use_data_lengths=True), "data_lengths must be given"),
    (lambda: C.interleaved_matmul_selfatt_qk(a(3, 24), heads=2), "3 dimensions"),
    (lambda: C.interleaved_matmul_selfatt_qk(a(3, 2, 24), heads=5), "must be divisible by 3"),
    (lambda: C.interleaved_matmul_selfatt_qk(a(3, 2, 24), heads=0), "must be divisible by 3"),
    (lambda: C.interleaved_matmul_selfatt_valatt(a(3, 2, 24), a(3, 3, 3), heads=2), r"shape \(4, queries, 3\)"),
    (lambda: C.interleaved_matmul_encdec_qk(a(3, 2, 6), a(3, 2, 16), heads=2), "twice the size of their last"),
    (lambda: C.interleaved_matmul_encdec_valatt(a(3, 2, 16), a(4, 5, 2), heads=2), r"shape \(4, queries, 3\)"),
    (lambda: R.uniform(3, 1, shape=2), "low must be less than or equal to high"),
    (lambda: R.normal(0, 0, shape=2), "scale must be positive"),
    (lambda: R.gamma(-1, 1, shape=2), "alpha must be positive"),
    (lambda: R.gamma(mx.nd.array([-1]), mx.nd.array([1])), "alpha must be positive"),
    (lambda: R.exponential(-1, shape=2), "scale must be positive"),
    (lambda: R.poisson(-1, shape=2), "lam must be nonnegative"),
    (lambda: R.negative_binomial(3, 1.4, shape=2), "at most 1"),
    (lambda: R.generalized_negative_binomial(-3, 0, shape=2), "must be nonnegative"),
    (lambda: R.uniform(shape=()), "shape must be"),
    (lambda: R.uniform(shape=(2, -1)), "shape must be"),
    (lambda: R.uniform(shape=3, dtype="int32"), "dtype must be float16, float32 or float64"),
    (lambda: R.uniform(mx.nd.array([1]), 2.0), "all numbers or all NDArrays"),
    (lambda: R.uniform("a"), "all numbers or all NDArrays, received str"),
    (lambda: R.uniform(a(2), a(3)), "low and high of the same shape"),
    (lambda: R.uniform(shape=3, out=a(2)), r"out= has shape \(2,\)"),
    (lambda: R.uniform(shape=3, ctx=mx.gpu(99)), "cannot allocate on gpu"),
    (lambda: R.uniform_like(a(2, dtype="int32")), "dtype must be float16"),
    (lambda: R.randint(5, 5, shape=2), "low must be less than high"),
    (lambda: R.randint(0.5, 5, shape=2), "expected an int"),
    (lambda: R.randint(0, 5, shape=2, dtype="float32"), "expected one of 'int32', 'int64'"),
    (lambda: R.multinomial(mx.nd.array([0, 0]), 2), "sum of"),
    (lambda: R.multinomial(mx.nd.array([-1, 2]), 2), "probability entry < 0"),
    (lambda: R.multinomial(a(2), 2, dtype="int64"), "expected one of"),
    (lambda: R.multinomial([0.5, 0.5]), "must be an NDArray"),
    (lambda: mx.nd._internal._sample_unique_zipfian(3, shape=(1, 5)), "from 1 to range_max"),
    (lambda: mx.nd._internal._sample_unique_zipfian(3, shape=(1,)), "2 dimensions"),
    (lambda: mx.nd.random_pdf_normal(a(2, 3), a(3), a(3)), r"of the parameters, \(3,\), got \(2, 3\)"),
    (lambda: mx.nd.random_pdf_normal(a(2, 3), a(2, dtype="float64"), a(2)), "one dtype"),
]


@pytest.mark.parametrize(("call", "message"), WRONG, ids=[f"{i}:{m}" for i, (_, m) in enumerate(WRONG)])
def test_error_states_what_was_expected(call, message):
    with pytest.raises(mx.MXNetError, match=message):
        call()
