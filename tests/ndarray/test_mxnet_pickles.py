"""Pickles of arrays that MXNet itself wrote (tests/parity/record_params.py)."""

import copy
import importlib
import pathlib
import pickle

import numpy as np
import pytest

import neomx as mx
from neomx.ndarray import serialize

PICKLE = pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "params" / "arrays.pkl"


class AsMxnet(pickle.Unpickler):
    """Finds classes of mxnet in neomx, as under the name mxnet."""

    def find_class(self, module, name):
        kind, _, rest = module.partition(".")
        return (
            getattr(importlib.import_module("neomx." + rest), name)
            if kind == "mxnet"
            else super().find_class(module, name)
        )


@pytest.fixture
def loaded():
    with PICKLE.open("rb") as file:
        return AsMxnet(file).load()


def test_arrays_of_an_mxnet_pickle_come_back(loaded):
    assert loaded["weight"].asnumpy().tolist() == [[1, 2, 3]] and loaded["weight"].dtype == np.float32
    assert loaded["ids"].asnumpy().tolist() == [7, 8] and loaded["ids"].dtype == np.int32
    loaded["weight"][:] = 5
    assert loaded["weight"].context == mx.cpu() and loaded["weight"].grad is None


def test_an_mx_np_array_comes_back_as_one(loaded):
    assert type(loaded["np"]) is mx.np.ndarray
    assert loaded["np"].asnumpy().tolist() == [3.5]


@pytest.mark.parametrize("stype", ["csr", "row_sparse"])
def test_sparse_arrays_come_back_with_their_storage(loaded, stype):
    x = loaded[stype]
    assert type(x) is type(mx.nd.sparse.zeros(stype, (1, 1))) and x.stype == stype and x.context == mx.cpu()
    assert x.asnumpy().tolist() == [[0, 1, 0], [2, 0, 3], [0, 0, 0]] and x.dtype == np.float32
    x.check_format()
    x[:] = mx.nd.ones((3, 3))
    assert (x * 2).asnumpy().tolist() == [[2] * 3] * 3


def test_a_sparse_array_without_elements_comes_back(loaded):
    assert loaded["empty"].stype == "row_sparse" and loaded["empty"].asnumpy().tolist() == [[0] * 3] * 2


def test_bytes_of_another_storage_are_refused(loaded):
    array = mx.nd.sparse.CSRNDArray(None)
    with pytest.raises(mx.MXNetError, match="expected the bytes of a csr array in the pickle, received a row_sparse"):
        array.__setstate__({"handle": serialize.array_tobuffer(loaded["row_sparse"])})


def test_indices_outside_of_the_array_are_refused(loaded):
    """The bytes are data: whatever they say, nothing is read or written outside of the array."""
    x = loaded["csr"]
    parts = [np.asarray(each.asnumpy()) for each in (x.data, x.indices, x.indptr)]
    parts[1][0] = 99
    hostile = serialize.array_tobuffer(mx.nd.sparse.csr_matrix(tuple(parts), shape=(3, 3)))
    with pytest.raises(mx.MXNetError, match="an index is outside 0 .. 2"):
        mx.nd.sparse.CSRNDArray(None).__setstate__({"handle": hostile})


@pytest.mark.parametrize("stype", ["csr", "row_sparse"])
@pytest.mark.parametrize("copied", [lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy, copy.copy])
def test_sparse_arrays_are_pickled_and_copied(stype, copied):
    x = mx.nd.array([[0, 1], [2, 0]]).tostype(stype)
    y = copied(x)
    assert y.stype == stype and y.shape == (2, 2) and y.asnumpy().tolist() == [[0, 1], [2, 0]]
    y[:] = mx.nd.ones((2, 2))
    assert x.asnumpy().tolist() == [[0, 1], [2, 0]]
