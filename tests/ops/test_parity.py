"""Comparison of every op and many small programs with results of MXNet 1.9.1 (tests/parity/recorded)."""

import numpy as np
import pytest

import neomx as mx
from neomx.symbol import control_flow
from parity import spec, tolerance
from parity.recordings import FAMILIES, recorded


@pytest.mark.parametrize(
    ("family", "name"), [pytest.param(f, n, id=f"{f}:{n}") for f in FAMILIES for n in spec.CASES[f]]
)
def test_same_as_mxnet(family, name):
    case = spec.CASES[family][name]
    expected = recorded(family).get(name)
    assert expected, f"no recording of {name}: run `make record`"
    mx.random.seed(0)
    np.random.seed(0)
    control_flow._made.clear()  # restart the numbering of names, regardless of earlier tests
    with mx.name.NameManager():
        received = case.run(mx)
    assert sorted(received) == sorted(expected)
    for key, value in expected.items():
        assert received[key].shape == value.shape, key
        if value.dtype.kind == "U":
            assert str(received[key]) == str(value), key
            continue
        assert received[key].dtype == value.dtype, key
        tolerance.check(received[key], value, key, **case.tolerance())
