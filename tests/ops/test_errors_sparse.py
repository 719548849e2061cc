"""Error messages for invalid calls with sparse arrays."""

import numpy as np
import pytest

import neomx as mx

sp = mx.nd.sparse
DATA = np.array([1, 2, 3], dtype="float32")


def ones(shape):
    return mx.nd.array(np.ones(shape))


def csr():
    return sp.csr_matrix((DATA, [0, 2, 1], [0, 2, 3]), shape=(2, 4))


def rsp():
    return sp.row_sparse_array((np.ones((2, 4), dtype="float32"), [0, 2]), shape=(3, 4))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sp.csr_matrix((DATA, [0, 2, 9], [0, 2, 3]), shape=(2, 4)).check_format(), r"must be in 0 \.\. 3"),
        (lambda: sp.csr_matrix((DATA, [0, -1, 1], [0, 2, 3]), shape=(2, 4)).check_format(), r"must be in 0 \.\. 3"),
        (lambda: sp.csr_matrix((DATA, [0, 2, 1], [0, 5, 3]), shape=(2, 4)).check_format(), "must increase from 0 to 3"),
        (lambda: sp.csr_matrix((DATA, [0, 2, 1], [0, 2, 7]), shape=(2, 4)).check_format(), "must increase from 0 to 3"),
        (lambda: sp.csr_matrix((DATA, [0, 2], [0, 2, 3]), shape=(2, 4)), "one index for each value"),
        (lambda: sp.csr_matrix((DATA, [0, 2, 1], [0, 3]), shape=(2, 4)).check_format(), "3 entries in indptr"),
        (lambda: sp.row_sparse_array((np.ones((2, 4)), [0, 9]), shape=(3, 4)).check_format(), r"must be in 0 \.\. 2"),
        (lambda: sp.row_sparse_array((np.ones((2, 4)), [0]), shape=(3, 4)), "one index for each value"),
        (lambda: sp.row_sparse_array((np.ones((2, 4)), [0, 1]), shape=(3, 5)), "rows that match the array's shape"),
        (
            lambda: sp.elemwise_add(csr(), sp.zeros("csr", (3, 3))),
            r"elemwise_add: .*same shape, got \(2, 4\) and \(3, 3\)",
        ),
        (lambda: sp.elemwise_add(csr(), csr().astype("float64")), "one dtype"),
        (lambda: sp.retain(csr(), mx.nd.array([0])), "expected a row_sparse array"),
        (lambda: sp.retain(rsp(), mx.nd.array([7])), r"indices in 0 \.\. 2"),
        (lambda: sp.cast_storage(csr(), "row_sparse"), "from csr to row_sparse"),
        (lambda: sp.cast_storage(csr(), "dense"), "expected one of 'default', 'row_sparse', 'csr'"),
        (lambda: sp.cast_storage(5, "csr"), "must be an NDArray"),
        (lambda: csr().reshape((4, 2)), "reshape is not supported for a sparse array"),
        (lambda: rsp()[0], "indexing other than"),
        (
            lambda: sp.csr_matrix((DATA, [2, 0, 1], [0, 2, 3]), shape=(2, 4)).check_format(),
            "must be ascending in each row",
        ),
        (lambda: sp.row_sparse_array((np.ones((2, 4)), [2, 0]), shape=(3, 4)).check_format(), "must be ascending"),
        (lambda: mx.autograd.mark_variables(ones((3, 4)), rsp()), "cannot be a gradient buffer"),
        (
            lambda: mx.nd.contrib.SparseEmbedding(mx.nd.array([3]), ones((3, 2)), input_dim=3, output_dim=2),
            "indices from 0 to 2",
        ),
        (
            lambda: mx.nd.contrib.SparseEmbedding(mx.nd.array([1]), ones((3, 2)), input_dim=4, output_dim=2),
            r"weight of shape \(4, 2\)",
        ),
    ],
)
def test_error_states_what_was_expected(call, message):
    with pytest.raises(mx.MXNetError, match=message):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: sp.csr_matrix((DATA, ([0, 0, 5], [0, 1, 2])), shape=(2, 4)),  # as in scipy, which MXNet uses
        lambda: sp.csr_matrix((DATA, ([0, 0, 1], [0, 1, 9])), shape=(2, 4)),
        lambda: sp.csr_matrix(None),
        lambda: sp.csr_matrix(5),
        lambda: sp.csr_matrix(np.zeros((1, 2, 3))),
        lambda: sp.csr_matrix((2, 4), shape=(3, 3)),
        lambda: sp.row_sparse_array((1.5,)),
        lambda: sp.row_sparse_array(5),
        lambda: sp.zeros("csr", (2,)),
        lambda: sp.zeros("dense", (2, 3)),
        lambda: sp.empty("default", (2, 3)),
        lambda: sp.array([1, 2]),
        lambda: sp.array(ones((2, 2))),
        lambda: ones((2, 2)).attach_grad(stype="sparse"),
    ],
)
def test_invalid_values_raise_value_error(call):
    with pytest.raises(ValueError):
        call()
