"""Files exported by neomx: identical to files that MXNet loaded, with the values that MXNet computed from them."""

import re

import numpy as np
import pytest

import neomx as mx
from parity import exports


@pytest.mark.parametrize("name", exports.NETS)
def test_mxnet_computes_the_same_values_from_an_export(name):
    results = exports.computed(mx, exports.imported(mx, name), name)
    with np.load(exports.EXPORTED / f"{name}.npz") as expected:
        assert sorted(results) == sorted(expected.files)
        for key in expected.files:
            np.testing.assert_allclose(results[key], expected[key], rtol=1e-4, atol=1e-5, err_msg=key)


@pytest.mark.parametrize("name", exports.NETS)
def test_exports_equal_the_files_that_mxnet_loaded(name, tmp_path):
    with mx.name.NameManager():
        exports.made(mx, name).export(str(tmp_path / name))
    for file in (f"{name}-symbol.json", f"{name}-0000.params"):
        ours, loaded = (tmp_path / file).read_bytes(), (exports.EXPORTED / file).read_bytes()
        # Loops are numbered per process.
        assert re.sub(rb"foreach\d+", b"foreach", ours) == re.sub(rb"foreach\d+", b"foreach", loaded), file
