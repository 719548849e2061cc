"""Interoperability of NDArray with torch, numpy and DLPack, missing devices, and error messages."""

import copy
import pickle

import numpy as np
import pytest
import torch

import neomx as mx
from neomx import nd


def test_torch_shares_memory_both_ways():
    tensor = torch.zeros(3)
    x = nd.from_torch(tensor)
    x[1] = 5
    assert tensor.tolist() == [0, 5, 0]
    x.to_torch()[2] = 7
    assert x.asnumpy().tolist() == [0, 5, 7]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "int64", "uint8", "int8"])
def test_dlpack_roundtrip(dtype):
    x = nd.array([[1, 2], [3, 4]], dtype=dtype)
    there = np.from_dlpack(x)
    assert there.dtype == np.dtype(dtype) and there.tolist() == [[1, 2], [3, 4]]
    back = nd.from_dlpack(np.arange(3, dtype=dtype))
    assert back.dtype == np.dtype(dtype).type and back.asnumpy().tolist() == [0, 1, 2]
    y = nd.from_dlpack(x.to_dlpack_for_write())
    y[0, 0] = 9
    assert x.asnumpy()[0, 0] == 9
    assert torch.from_dlpack(x).shape == (2, 2)


def test_numpy_accepts_arrays():
    x = nd.array([[1, 2], [3, 4]])
    assert np.asarray(x).dtype == np.float32
    assert np.array(x, dtype="int64").tolist() == [[1, 2], [3, 4]]
    assert float(np.mean(np.asarray(x))) == 2.5
    assert (np.float32(3) * nd.ones(2) + np.int64(1)).asnumpy().tolist() == [4, 4]
    assert isinstance(np.float32(3) * nd.ones(2), nd.NDArray)


def test_asnumpy_is_a_copy():
    x = nd.ones(2)
    x.asnumpy()[:] = 0
    assert x.asnumpy().tolist() == [1, 1]


def test_bfloat16_is_supported():
    x = nd.array([1.5, 2.5]).astype("bfloat16")
    assert x.dtype is torch.bfloat16 and (x * 2).asnumpy().tolist() == [3, 5]


def test_pickle_and_copy_keep_everything():
    x = nd.array([[1, 2]], dtype="int8", ctx=mx.cpu(1))
    for y in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert (y.dtype, y.context, y.asnumpy().tolist()) == (np.int8, mx.cpu(1), [[1, 2]])
        y[:] = 0
        assert x.asnumpy().tolist() == [[1, 2]]


def test_array_pickled_on_a_missing_gpu_loads_on_the_cpu():
    x = nd.NDArray(torch.ones(2), mx.gpu(5))
    assert pickle.loads(pickle.dumps(x)).context == mx.cpu()


@pytest.mark.skipif(mx.num_gpus() > 0, reason="only applies to machines without a GPU")
@pytest.mark.parametrize(
    "allocate",
    [
        lambda: nd.ones((2,), ctx=mx.gpu()),
        lambda: nd.array([1], ctx=mx.gpu(1)),
        lambda: nd.ones(2).as_in_context(mx.gpu()),
        lambda: nd.ones(2).copyto(mx.gpu()),
        lambda: nd.random.uniform(shape=2, ctx=mx.gpu()),
        lambda: under(mx.gpu(), lambda: nd.zeros(3)),
    ],
)
def test_allocating_on_a_missing_gpu_raises(allocate):
    with pytest.raises(mx.MXNetError, match=r"cannot allocate on gpu\(\d\): this machine has 0 GPU"):
        allocate()


def under(ctx, call):
    with ctx:
        return call()


def test_context_stack_is_restored_after_an_error():
    with pytest.raises(KeyError), mx.cpu(3):
        raise KeyError
    assert mx.current_context() == mx.cpu(0)


def test_unknown_devices_raise():
    with pytest.raises(mx.MXNetError, match="unknown device type 'tpu'. Expected one of cpu, gpu"):
        mx.Context("tpu")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: x + x.astype("int32"), "broadcast_add: expected arrays of one dtype.*float32.*int32"),
        (lambda x: x + nd.ones((5, 3)), r"broadcast_add: .*\[2, 3\].*\[5, 3\]"),
        (
            lambda x: x + nd.NDArray(torch.ones(3, device="meta"), mx.gpu(0)),
            r"same device, received cpu\(0\) and gpu\(0\)",
        ),
        (lambda x: nd.sum(x, axis=7), "sum: .*axis"),
        (lambda x: nd.sum(x, axes=1), "sum: unknown argument 'axes'. Did you mean axis"),
        (lambda x: nd.sum(x, axis="one"), "sum: argument axis: expected an int or a tuple of ints, received 'one'"),
        (lambda x: nd.sum(5), "sum: argument data must be an NDArray, received int 5"),
        (lambda x: nd.sum(), "sum: missing argument data"),
        (lambda x: nd.sum(x, 1, True, False, 9), "sum: too many arguments"),
        (lambda x: nd.sum(x, data=x), "sum: argument data was given twice"),
        (lambda x: nd.dot(x), "dot: missing argument rhs"),
        (lambda x: nd.dot(x, x), r"dot: .*\[2, 3\].*\[2, 3\]"),
        (lambda x: nd.one_hot(x), "one_hot: missing argument depth"),
        (lambda x: nd.Activation(x, act_type="swish"), "Activation: argument act_type: expected one of 'relu'"),
        (lambda x: nd.cast(x, dtype="float13"), "unknown dtype 'float13'"),
        (lambda x: x.astype("complex64"), "unknown dtype 'complex64'. Expected one of float32"),
        (lambda x: nd.exp(x, out=nd.ones(3)), r"exp: out= has shape \(3,\), but the result has shape \(2, 3\)"),
        (lambda x: nd.exp(x, out=5), "exp: out= must be 1 array"),
        (lambda x: x.copyto(nd.ones(3)), r"expected a target of shape \(2, 3\), received \(3,\)"),
        (lambda x: nd.concatenate([]), "at least one array"),
        (lambda x: nd.Custom(x, op_type="nowhere"), "no custom op is registered as 'nowhere'"),
        (lambda x: nd.reshape(x, shape=(4, 4)), r"cannot reshape \(2, 3\) \(6 elements\) to \(4, 4\)"),
        (lambda x: nd.reshape(x, shape=(-7,)), "-7 is not a reshape code"),
    ],
)
def test_invalid_input_raises(call, message):
    with pytest.raises(mx.MXNetError, match=f"(?s){message}"):
        call(nd.ones((2, 3)))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: x[5], IndexError, "index 5 is out of bounds for axis 0 with size 2"),
        (lambda x: x[0, 0, 0], IndexError, "too many indices"),
        (lambda x: x[[0, 9]], IndexError, "out of bounds for axis 0 with size 2"),
        (lambda x: x[..., ...], IndexError, "only one Ellipsis"),
        (lambda x: x.__setitem__(0, nd.ones(7)), ValueError, r"cannot assign a value of shape \(7,\)"),
        (lambda x: x + "1", TypeError, "as operand of an NDArray, received str"),
        (lambda x: x.asscalar(), ValueError, "not a scalar"),
        (lambda x: bool(x), ValueError, "ambiguous"),
        (lambda x: nd.array([[1], [1, 2]]), TypeError, "source_array must be array like"),
        (lambda x: nd.array("text"), TypeError, "source_array must be array like"),
        (lambda x: nd.no_such_op(x), AttributeError, "module 'mx.nd' has no attribute 'no_such_op'"),
        (lambda x: nd.sigmod(x), AttributeError, "Did you mean sigmoid"),
        (lambda x: x.sofmax(), AttributeError, "sofmax"),
        (lambda x: x.reshape((6,), shap=1), TypeError, "unknown keywords in reshape: shap"),
    ],
)
def test_invalid_use_raises_builtin_errors(call, error, message):
    with pytest.raises(error, match=message):
        call(nd.ones((2, 3)))


def test_functions_have_docstrings():
    assert "max" in nd.Pooling.__doc__ and "kernel" in nd.Pooling.__doc__
    assert nd.Pooling.__name__ == "Pooling"


def test_rows_from_iteration_are_views():
    x = nd.zeros((3, 4))
    for i, row in enumerate(x):
        row[:] = i
    assert x.asnumpy()[:, 0].tolist() == [0, 1, 2]
