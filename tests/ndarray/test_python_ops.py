"""The deprecated op classes of mx.operator, beyond the recordings: warnings and errors."""

import pytest

import neomx as mx
from neomx.base import MXNetError

DATA = mx.sym.Variable("data")


def test_deprecated_ops_warn():
    with pytest.warns(UserWarning, match="NumpyOp has been deprecated. Please use CustomOp"):
        op = mx.operator.NumpyOp()
    with pytest.warns(UserWarning, match="PythonOp has been deprecated"):
        plain = mx.operator.PythonOp()
    with pytest.raises(NotImplementedError, match="PythonOp must derive from NumpyOp or NDArrayOp"):
        plain(DATA)
    with pytest.raises(MXNetError, match="has no input 3.* Expected data"):
        op(DATA, DATA, DATA).simple_bind(mx.cpu(), data=(2,))


def test_error_in_a_numpy_op_is_reported():
    class Broken(mx.operator.NumpyOp):
        def forward(self, in_data, out_data):
            raise ValueError("no such thing")

    with pytest.warns(UserWarning, match="deprecated"):
        net = Broken()(DATA, name="mine")
    with pytest.raises((MXNetError, ValueError), match="no such thing"):
        net.bind(mx.cpu(), {"data": mx.nd.ones((2,))}).forward()
