"""Error messages of linear algebra, optimizer, quantization and contrib ops for invalid input."""

import numpy as np
import pytest

import neomx as mx


def ones(*shape, dtype="float32"):
    return mx.nd.array(np.ones(shape), dtype=dtype)


W, G, ONE = ones(3, 2), ones(3, 2), ones(1)
HAWKES = [ones(2, 3), ones(3), ones(3), ones(2, 3), ones(2, 4), ones(2, 4, dtype="int32"), ones(2), ones(2)]

CALLS = [
    (lambda: mx.nd.dot(ones(2, 3), ones(4, 5)), "2x3 and 4x5"),
    (lambda: mx.nd.dot(ones(2, 3, 4), ones(3, 4)), "equal sizes of dimension -1 of lhs and 0 of rhs, got 4 and 3"),
    (lambda: mx.nd.dot(ones(3), ones(3), transpose_b=True), "no transpose_a or transpose_b"),
    (lambda: mx.nd.dot(ones(2, 2, dtype="int32"), ones(2, 2, dtype="int32")), "arrays of floats"),
    (lambda: mx.nd.dot(ones(2, 2), ones(2, 2, dtype="float64")), "one dtype"),
    (lambda: mx.nd.dot(ones(2, 2), 3), "rhs must be an NDArray"),
    (lambda: mx.nd.dot(ones(2, 2), ones(2, 2), forward_stype="dense"), "expected one of"),
    (lambda: mx.nd.batch_dot(ones(2, 3), ones(2, 3)), "at least 3 dimensions"),
    (lambda: mx.nd.batch_dot(ones(2, 3, 4), ones(1, 4, 5)), "the same batch shape"),
    (lambda: mx.nd.batch_dot(ones(2, 3, 4), ones(4, 5)), "the same batch shape"),
    (lambda: mx.nd.linalg.gemm(ones(2, 3), ones(3, 2), ones(1, 2)), "C to have the product's shape"),
    (lambda: mx.nd.linalg.gemm2(ones(2, 2), ones(2, 2), axis=1), "dimensions, but not the last"),
    (lambda: mx.nd.linalg.gemm2(ones(2), ones(2)), "dimensions, but not the last"),
    (lambda: mx.nd.linalg.gemm2(ones(2, 3, 3), ones(3, 3)), "the same batch shape"),
    (lambda: mx.nd.linalg.trmm(ones(2, 3), ones(3, 3)), "square matrices, got shape (2, 3)"),
    (lambda: mx.nd.linalg.trsm(ones(3, 3), ones(2, 3, 3)), "the same batch shape"),
    (lambda: mx.nd.linalg.potrf(-ones(2, 2)), "positive definite"),
    (lambda: mx.nd.linalg.potrf(ones(3)), "square matrices"),
    (lambda: mx.nd.linalg.potri(ones(2, 2, dtype="int64")), "arrays of floats"),
    (lambda: mx.nd.linalg.inverse(ones(2, 2)), "singular"),
    (lambda: mx.nd.linalg.gelqf(ones(3, 2)), "no more rows than columns"),
    (lambda: mx.nd.linalg.syevd(ones(3, 2)), "square matrices"),
    (lambda: mx.nd.linalg.extractdiag(ones(3, 3), offset=-3), "offset between -2 and 2, got -3"),
    (lambda: mx.nd.linalg.extracttrian(ones(3, 3), offset=3), "offset between -2 and 2, got 3"),
    (lambda: mx.nd.linalg.maketrian(ones(5)), "1, 3, 6, 10"),
    (lambda: mx.nd.sgd_update(W, G), "missing argument lr"),
    (lambda: mx.nd.sgd_update(W, G, lr="fast"), "expected a number, received 'fast'"),
    (lambda: mx.nd.sgd_update(W, ones(1, 2), lr=0.1), "the weight's shape (3, 2), got (1, 2)"),
    (lambda: mx.nd.sgd_update(W, ones(3, 2, dtype="float16"), lr=0.1), "one dtype"),
    (lambda: mx.nd.sgd_mom_update(W, G, ones(2), lr=0.1), "the weight's shape (3, 2), got (2,)"),
    (lambda: mx.nd.adam_update(W, G, G, lr=0.1), "missing argument var"),
    (
        lambda: mx.nd.multi_sgd_update(W, G, W, lrs=(0.1,), wds=(0.0,)),
        "2 arrays for each of 1 weights, 2 in total, got 3",
    ),
    (lambda: mx.nd.multi_sgd_update(W, G, lrs=(0.1, 0.2), wds=(0.0,)), "1 lrs, one for each weight, got 2"),
    (lambda: mx.nd.multi_sgd_update(W, ones(2), lrs=(0.1,), wds=(0.0,)), "the weight's shape (3, 2), got (2,)"),
    (lambda: mx.nd.preloaded_multi_sgd_update(W), "the learning rates and the weight decays"),
    (lambda: mx.nd.preloaded_multi_sgd_update(W, G, ones(2), ONE), "1 lrs, one for each weight, got 2"),
    (
        lambda: mx.nd._internal._adamw_update(W, G, G, G, ones(2), lr=0.1, eta=1.0),
        "rescale_grad to be an array of one element",
    ),
    (
        lambda: mx.nd._internal._multi_adamw_update(lrs=(0.1,), wds=(0.0,), etas=(1.0,)),
        "4 arrays for each of 1 weights",
    ),
    (
        lambda: mx.nd._internal._multi_lamb_update(W, G, G, G, learning_rates=0.1, wds=0.0, step_count=(1, 2)),
        "1 step_count, one for each weight, got 2",
    ),
    (lambda: mx.nd.contrib.group_adagrad_update(W, G, W, lr=0.1), "of weight and one element for each row"),
    (lambda: mx.nd.multi_lars(ONE, ones(2), ONE, ONE, eta=1.0, eps=0.1), "(1,), got (2,)"),
    (lambda: mx.nd.contrib.quantize(W, ones(2), ONE), "min_range and max_range to have shape (1,)"),
    (lambda: mx.nd.contrib.quantize(ones(2, dtype="float64"), ONE, ONE), "float32 data"),
    (lambda: mx.nd.contrib.quantize(W, ONE, ONE, out_type="int4"), "expected one of"),
    (lambda: mx.nd.contrib.quantize_v2(ones(2, dtype="int32")), "float32 data"),
    (lambda: mx.nd.contrib.quantize_asym(ones(2, dtype="uint8")), "float32 data"),
    (lambda: mx.nd.contrib.dequantize(W, ONE, ONE), "uint8 or int8 data"),
    (lambda: mx.nd.contrib.requantize(W, ONE, ONE), "int32 data"),
    (lambda: mx.nd.contrib.calibrate_entropy(ones(10), ones(11)), "odd number of bins"),
    (lambda: mx.nd.contrib.calibrate_entropy(ones(11), ones(12)), "num_quantized_bins between 1 and 11"),
    (lambda: mx.nd.contrib.ifft(ones(2, 5)), "even size"),
    (lambda: mx.nd.contrib.count_sketch(W, ONE, ONE, out_dim=4), "h and s to have 2 elements"),
    (lambda: mx.nd.contrib.count_sketch(W, 9 * ones(2), ones(2), out_dim=4), "h to be within 0...3"),
    (lambda: mx.nd.contrib.hawkesll(ones(2), *HAWKES[1:]), "lda of shape (N, K)"),
    (lambda: mx.nd.contrib.hawkesll(HAWKES[0], ones(2), *HAWKES[2:]), "alpha and beta of shape (3,)"),
    (
        lambda: mx.nd.contrib.hawkesll(*HAWKES[:5], ones(2, 3, dtype="int32"), *HAWKES[6:]),
        "lags and marks of the same shape",
    ),
    (lambda: mx.nd.contrib.hawkesll(*HAWKES[:7], ones(3)), "valid_length and max_time of shape (2,)"),
    (lambda: mx.nd.contrib.hawkesll(*HAWKES[:5], 3 * HAWKES[5], *HAWKES[6:]), "marks to be within 0...2"),
]


@pytest.mark.parametrize("i", range(len(CALLS)))
def test_error_states_what_was_expected(i):
    call, message = CALLS[i]
    with pytest.raises(mx.MXNetError) as error:
        call()
    assert message in str(error.value)
