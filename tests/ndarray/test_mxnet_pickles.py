"""Pickles of arrays written by MXNet (tests/parity/record_params.py)."""

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
    """Finds classes of mxnet in neomx, as if it were imported under the name mxnet."""

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


def test_loads_arrays_of_an_mxnet_pickle(loaded):
    assert loaded["weight"].asnumpy().tolist() == [[1, 2, 3]] and loaded["weight"].dtype == np.float32
    assert loaded["ids"].asnumpy().tolist() == [7, 8] and loaded["ids"].dtype == np.int32
    loaded["weight"][:] = 5
    assert loaded["weight"].context == mx.cpu() and loaded["weight"].grad is None


def test_mx_np_array_keeps_its_class(loaded):
    assert type(loaded["np"]) is mx.np.ndarray
    assert loaded["np"].asnumpy().tolist() == [3.5]


@pytest.mark.parametrize("stype", ["csr", "row_sparse"])
def test_sparse_arrays_keep_their_storage_type(loaded, stype):
    x = loaded[stype]
    assert type(x) is type(mx.nd.sparse.zeros(stype, (1, 1))) and x.stype == stype and x.context == mx.cpu()
    assert x.asnumpy().tolist() == [[0, 1, 0], [2, 0, 3], [0, 0, 0]] and x.dtype == np.float32
    x.check_format()
    x[:] = mx.nd.ones((3, 3))
    assert (x * 2).asnumpy().tolist() == [[2] * 3] * 3


def test_loads_an_empty_sparse_array(loaded):
    assert loaded["empty"].stype == "row_sparse" and loaded["empty"].asnumpy().tolist() == [[0] * 3] * 2


def test_rejects_bytes_of_another_storage_type(loaded):
    array = mx.nd.sparse.CSRNDArray(None)
    with pytest.raises(mx.MXNetError, match="expected a csr array in the pickle, received a row_sparse"):
        array.__setstate__({"handle": serialize.array_tobuffer(loaded["row_sparse"])})


def test_rejects_indices_out_of_bounds(loaded):
    """The bytes are untrusted: nothing outside of the array may be read or written."""
    x = loaded["csr"]
    parts = [np.asarray(each.asnumpy()) for each in (x.data, x.indices, x.indptr)]
    parts[1][0] = 99
    hostile = serialize.array_tobuffer(mx.nd.sparse.csr_matrix(tuple(parts), shape=(3, 3)))
    with pytest.raises(mx.MXNetError, match="an index is outside 0 .. 2"):
        mx.nd.sparse.CSRNDArray(None).__setstate__({"handle": hostile})


@pytest.mark.parametrize("stype", ["csr", "row_sparse"])
@pytest.mark.parametrize("copied", [lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy, copy.copy])
def test_sparse_arrays_can_be_pickled_and_copied(stype, copied):
    x = mx.nd.array([[0, 1], [2, 0]]).tostype(stype)
    y = copied(x)
    assert y.stype == stype and y.shape == (2, 2) and y.asnumpy().tolist() == [[0, 1], [2, 0]]
    y[:] = mx.nd.ones((2, 2))
    assert x.asnumpy().tolist() == [[0, 1], [2, 0]]
