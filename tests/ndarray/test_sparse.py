"""Sparse arrays, beyond the parity cases: memory, gradient objects, and bugs of MXNet."""

import pickle
import sys

import numpy as np
import pytest
import torch

import neomx as mx

HUGE = 1 << 40


def ones(shape):
    return mx.nd.array(np.ones(shape))


def csr(values=((0, 0.5, 0), (-0.7, 0, 0.2))):
    return mx.nd.sparse.csr_matrix(np.array(values, dtype="float32"))


def rsp(values=((0, 0, 0), (0.7, 0.8, -0.1))):
    return mx.nd.sparse.row_sparse_array(np.array(values, dtype="float32"))


def huge_rows(row, value):
    return mx.nd.sparse.row_sparse_array((np.full((1, 2), value, dtype="float32"), [row]), shape=(HUGE, 2))


def test_sparse_arrays_are_not_densified(tmp_path):
    a, b = huge_rows(5, 1), huge_rows(HUGE - 1, 2)
    total = mx.nd.sparse.add(a, b) * 2 - a
    assert total.indices.asnumpy().tolist() == [5, HUGE - 1]
    assert total.data.asnumpy().tolist() == [[1, 1], [4, 4]]
    mx.nd.save(str(tmp_path / "x"), {"a": total})
    assert mx.nd.load(str(tmp_path / "x"))["a"].shape == (HUGE, 2)
    assert pickle.loads(pickle.dumps(abs(-total))).retain(mx.nd.array([5])).data.asnumpy().tolist() == [[1, 1]]
    assert len(total) == HUGE
    assert total.astype("float64").copy().dtype == np.float64
    wide = mx.nd.sparse.csr_matrix((np.ones(2, dtype="float32"), [0, HUGE - 1], [0, 1, 2]), shape=(2, HUGE))
    assert (wide + wide).data.asnumpy().tolist() == [2, 2]
    wide.check_format()


def test_duplicate_unsorted_coordinates_are_summed():
    x = mx.nd.sparse.csr_matrix(([1, 2, 3, 4], ([1, 0, 1, 0], [0, 2, 0, 1])), shape=(2, 4))
    assert x.asnumpy().tolist() == [[0, 4, 2, 0], [4, 0, 0, 0]]
    x.check_format()
    assert mx.nd.sparse.csr_matrix(([1.0], ([1], [2]))).shape == (2, 3)


def test_iteration_over_rows_terminates():
    assert [len(row) for row in csr([[0, 1], [2, 0], [0, 0]])] == [1, 1, 1]
    with pytest.raises(IndexError):
        csr()[2]


def test_retain_is_a_method():
    assert rsp().retain(mx.nd.array([1])).asnumpy().tolist() == rsp().asnumpy().tolist()


def test_row_sparse_gradient_is_sparse_in_torch():
    weight = ones((1000, 3))
    weight.attach_grad(stype="row_sparse")
    for rows in ([7, 7, 2], [9]):
        with mx.autograd.record():
            y = mx.nd.contrib.SparseEmbedding(mx.nd.array(rows), weight, input_dim=1000, output_dim=3) * 2
        y.backward()
        assert weight._data.grad.is_sparse
        assert weight.grad.indices.asnumpy().tolist() == sorted(set(rows))
    assert weight.grad.data.asnumpy().tolist() == [[2, 2, 2]]
    weight.grad[:] = 0
    assert not weight.grad.asnumpy().any()


def test_gradient_of_dot_has_only_the_used_rows():
    weight = ones((1000, 2))
    weight.attach_grad(stype="row_sparse")
    data = mx.nd.sparse.csr_matrix((np.array([1, 2], dtype="float32"), [7, 900], [0, 1, 2]), shape=(2, 1000))
    with mx.autograd.record():
        y = mx.nd.sparse.dot(data, weight)
    y.backward()
    assert weight._data.grad.is_sparse
    assert weight.grad.indices.asnumpy().tolist() == [7, 900]
    assert weight.grad.data.asnumpy().tolist() == [[1, 1], [2, 2]]


def test_unsorted_columns_and_sums_of_huge_arrays():
    x = mx.nd.sparse.csr_matrix((np.array([1, 2, 3], dtype="float32"), [2, 0, 1], [0, 2, 3]), shape=(2, 3))
    assert mx.nd.sparse.dot(x, mx.nd.array([[1], [10], [100]])).asnumpy().tolist() == [[102], [30]]
    assert huge_rows(3, 2).sum().asscalar() == 4
    assert huge_rows(3, 3).norm().asscalar() == pytest.approx(18**0.5)
    wide = mx.nd.sparse.csr_matrix((np.ones(2, dtype="float32"), [0, HUGE - 1], [0, 1, 2]), shape=(2, HUGE))
    assert wide.sum(axis=1).asnumpy().tolist() == [1, 1]


def test_grad_req_add_accumulates():
    weight = ones((5, 2))
    weight.attach_grad("add", stype="row_sparse")
    for row in (1, 3, 1):
        with mx.autograd.record():
            y = mx.nd.contrib.SparseEmbedding(mx.nd.array([row]), weight, input_dim=5, output_dim=2)
        y.backward()
    assert weight.grad.indices.asnumpy().tolist() == [1, 3]
    assert weight.grad.data.asnumpy().tolist() == [[2, 2], [1, 1]]


def test_dense_gradient_of_a_sparse_op():
    weight = ones((4, 2))
    weight.attach_grad()
    with mx.autograd.record():
        y = mx.nd.contrib.SparseEmbedding(mx.nd.array([1]), weight, input_dim=4, output_dim=2)
    y.backward()
    assert weight.grad.stype == "default"
    assert weight.grad.asnumpy().tolist() == [[0, 0], [1, 1], [0, 0], [0, 0]]


def test_writing_to_a_variable():
    x = rsp()
    x.attach_grad()
    x[:] = 3
    with mx.autograd.record():
        y = x * x
    y.backward()
    assert x.grad.asnumpy().tolist() == [[6, 6, 6], [6, 6, 6]]
    x *= 2
    assert x.asnumpy().tolist() == [[6, 6, 6], [6, 6, 6]]


def test_out_accepts_any_storage_type():
    for target in (mx.nd.array(np.zeros((2, 3))), csr(np.zeros((2, 3)))):
        mx.nd.elemwise_add(csr(), csr(), out=target)
        np.testing.assert_array_equal(target.asnumpy(), 2 * csr().asnumpy())
    target = rsp(np.zeros((2, 3)))
    mx.nd.elemwise_add(ones((2, 3)), ones((2, 3)), out=target)
    assert target.data.shape == (2, 3)


def test_scipy_roundtrip():
    x = csr()
    there = x.asscipy()
    np.testing.assert_array_equal(there.toarray(), x.asnumpy())
    back = mx.nd.sparse.array(there)
    assert back.stype == "csr"
    np.testing.assert_array_equal(back.asnumpy(), x.asnumpy())


def test_missing_scipy_error_names_the_extra(monkeypatch):
    for name in ("scipy", "scipy.sparse"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r'pip install "neomx\[scipy\]"'):
        csr().asscipy()


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", "int64", "uint8", "int8"])
def test_all_dtypes(dtype):
    values = np.array([[0, 1, 0], [2, 0, 3]], dtype=dtype)
    for make in (mx.nd.sparse.csr_matrix, mx.nd.sparse.row_sparse_array):
        x = make(values)
        assert x.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(x.asnumpy(), values)
        np.testing.assert_array_equal((x + x).asnumpy(), values + values)
        np.testing.assert_array_equal((x * x).asnumpy(), values * values)
        assert (x * 2).dtype == np.dtype(dtype)


def test_torch_sees_the_dense_tensor():
    assert torch.equal(csr().to_torch(), torch.tensor([[0, 0.5, 0], [-0.7, 0, 0.2]]))


def test_autograd_grad_returns_a_dense_array():
    weight = ones((4, 2))
    weight.attach_grad(stype="row_sparse")
    with mx.autograd.record():
        y = mx.nd.contrib.SparseEmbedding(mx.nd.array([1]), weight, input_dim=4, output_dim=2)
    (gradient,) = mx.autograd.grad(y, [weight])
    assert gradient.asnumpy().tolist() == [[0, 0], [1, 1], [0, 0], [0, 0]]


def test_cast_storage_of_a_dense_tensor_is_a_copy():
    x = mx.nd.array([[1, 0], [0, 2]])
    y = mx.nd.op.cast_storage(x, "default")
    y[:] = 9
    assert x.asnumpy().tolist() == [[1, 0], [0, 2]] and y.stype == "default"
