"""Error messages of normalization, activation, softmax and loss ops for invalid input."""

import numpy as np
import pytest

import neomx as mx

nd = mx.nd


def a(*shape, dtype="float32"):
    return nd.array(np.ones(shape), dtype=dtype)


BAD = [
    (lambda: nd.BatchNorm(a(2, 3), a(4), a(3), a(3), a(3)), r"gamma of shape \(3,\)"),
    (lambda: nd.BatchNorm(a(2, 3), a(3), a(3), a(3), a(1, 3)), r"moving_var of shape \(3,\)"),
    (lambda: nd.BatchNorm(a(2, 3), a(3), a(3), a(3), a(3), axis=2), "axis from -2 to 1, got 2"),
    (lambda: nd.BatchNorm(a(2, 3), a(3)), "missing argument beta"),
    (lambda: nd.BatchNorm(a(2, 3), a(3), a(3), a(3), a(3), epsilon=1e-3), "unknown argument 'epsilon'"),
    (lambda: nd.contrib.SyncBatchNorm(a(2, 3), a(3), a(3), a(3), a(3)), "missing argument key"),
    (lambda: nd.LayerNorm(a(2, 3), a(2), a(2)), r"normalized_shape = \[3\]"),
    (lambda: nd.LayerNorm(a(2, 3), a(3), a(3), axis=2), "out of range"),
    (lambda: nd.LayerNorm(a(2, 3, dtype="float64"), a(3), a(3)), "one dtype"),
    (lambda: nd.GroupNorm(a(2, 4), a(2), a(2), num_groups=2), "at least 3 dimensions"),
    (lambda: nd.GroupNorm(a(2, 4, 3), a(3), a(3), num_groups=3), "to divide the 4 channels"),
    (lambda: nd.GroupNorm(a(2, 4, 3), a(4), a(4), num_groups=2), r"shape \(2,\), one for each group"),
    (lambda: nd.InstanceNorm(a(2, 3), a(3), a(3)), "at least 3 dimensions"),
    (lambda: nd.InstanceNorm(a(2, 3, 4), a(2), a(2)), "Expected weight to be a vector of size"),
    (lambda: nd.L2Normalization(a(2, 3), mode="channel"), "at least 3 dimensions in mode 'channel'"),
    (lambda: nd.L2Normalization(a(2, 3), mode="rows"), "one of 'channel', 'instance', 'spatial'"),
    (lambda: nd.LRN(a(2, 3, 4, 4)), "missing argument nsize"),
    (lambda: nd.LRN(a(2, 3, 4, 4), nsize=0), "nsize to be at least 1"),
    (lambda: nd.Activation(a(2), act_type="swish"), "one of 'relu', 'sigmoid'"),
    (lambda: nd.Activation(a(2)), "missing argument act_type"),
    (lambda: nd.LeakyReLU(a(2, 3), act_type="prelu"), "expected gamma"),
    (lambda: nd.LeakyReLU(a(2, 3), a(2), act_type="prelu"), r"gamma of shape \(1,\) or \(3,\)"),
    (lambda: nd.LeakyReLU(a(2, 3, 4), a(3, 1), act_type="prelu"), r"gamma of shape \(1,\) or \(3,\)"),
    (lambda: nd.LeakyReLU(a(2, 3), a(3)), "does not accept gamma"),
    (lambda: nd.Dropout(a(2), p=1.5), "between 0 and 1"),
    (lambda: nd.Dropout(a(2), p="half"), "expected a number"),
    (lambda: nd.Dropout(a(2, 3), axes=(2,), mode="always"), "axes between 0 and 1"),
    (lambda: nd.Embedding(a(2), a(5, 4), input_dim=5, output_dim=3), r"weight of shape \(5, 3\)"),
    (lambda: nd.Embedding(a(2), a(5, 4)), "missing argument input_dim, output_dim"),
    (lambda: nd.softmax(a(2, 3), axis=2), "out of range"),
    (lambda: nd.softmax(a(2, 3), a(2)), "without use_length=True"),
    (lambda: nd.softmax(a(2, 3), use_length=True), "use_length=True requires length"),
    (lambda: nd.softmax(a(2, 3), a(3), use_length=True), r"length of shape \(2,\)"),
    (lambda: nd.log_softmax(a(2, 3), use_length=True), "only softmax supports a length"),
    (lambda: nd.SoftmaxActivation(a(2, 3), mode="channel"), "at least 3 dimensions"),
    (lambda: nd.softmax_cross_entropy(a(2, 3), a(3)), r"label of shape \(N,\)"),
    (lambda: nd.softmax_cross_entropy(a(2, 3, 4), a(2)), r"data of shape \(N, classes\)"),
    (lambda: nd.SoftmaxOutput(a(4, 3), a(3)), r"label of shape \(4,\) or \(4, 3\)"),
    (lambda: nd.SoftmaxOutput(a(2, 3, 4), a(2, 3), multi_output=True), r"label of shape \(2, 4\)"),
    (lambda: nd.SoftmaxOutput(a(4, 3), a(4), smooth_alpha=2), "between 0 and 1"),
    (lambda: nd.SoftmaxOutput(a(4, 3), a(4, dtype="float64")), "one dtype"),
    (lambda: nd.SoftmaxOutput(a(4, 3), a(4), normalization="mean"), "one of 'batch', 'null', 'valid'"),
    (lambda: nd.LinearRegressionOutput(a(3, 4), a(3)), r"label of shape \(3, 4\)"),
    (lambda: nd.MAERegressionOutput(a(3, 4), a(12)), r"label of shape \(3, 4\)"),
    (lambda: nd.SVMOutput(a(3, 4), a(4)), r"label of shape \(3,\)"),
    (lambda: nd.IdentityAttachKLSparseReg(a(3, 4), a(3)), r"moving_avg of shape \(units,\)"),
]


@pytest.mark.parametrize(("call", "expected"), BAD)
def test_error_states_what_was_expected(call, expected):
    with pytest.raises(mx.MXNetError, match=expected):
        call()
