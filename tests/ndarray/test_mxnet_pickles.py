"""Pickles of arrays that MXNet itself wrote (tests/parity/record_params.py)."""

import importlib
import pathlib
import pickle

import numpy as np

import neomx as mx

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


def test_arrays_of_an_mxnet_pickle_come_back():
    with PICKLE.open("rb") as file:
        loaded = AsMxnet(file).load()
    assert loaded["weight"].asnumpy().tolist() == [[1, 2, 3]] and loaded["weight"].dtype == np.float32
    assert loaded["ids"].asnumpy().tolist() == [7, 8] and loaded["ids"].dtype == np.int32
    loaded["weight"][:] = 5
    assert loaded["weight"].context == mx.cpu() and loaded["weight"].grad is None
