"""mx.operator: errors of CustomOp, and warnings and errors of its deprecated op classes beyond the recordings."""

import pytest

import neomx as mx
from neomx import autograd, nd
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


@pytest.mark.parametrize(
    "raised", [ValueError("no such row"), KeyError("row"), ZeroDivisionError("by 0"), OSError("disk")]
)
def test_an_exception_in_a_custom_op_is_an_error_that_names_the_method(raised):
    @mx.operator.register("raising")
    class Prop(mx.operator.CustomOpProp):
        def __init__(self, when):
            super().__init__(need_top_grad=True)
            self.when = when

        def create_operator(self, ctx, shapes, dtypes):
            return Raising(self.when)

    class Raising(mx.operator.CustomOp):
        def __init__(self, when):
            self.when = when

        def forward(self, is_train, req, in_data, out_data, aux):
            if self.when == "forward":
                raise raised
            self.assign(out_data[0], req[0], in_data[0])

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            raise raised

    x = nd.ones((2,))
    x.attach_grad()
    expected = f"Raising.{{}} raised {type(raised).__name__}: {raised}"
    with pytest.raises(mx.MXNetError) as error:
        nd.Custom(x, op_type="raising", when="forward")
    assert expected.format("forward") in str(error.value)
    with autograd.record():
        y = nd.Custom(x, op_type="raising", when="backward")
    with pytest.raises(mx.MXNetError) as error:
        y.backward()
    assert expected.format("backward") in str(error.value)
    executor = mx.sym.Custom(mx.sym.var("x"), op_type="raising", when="forward").bind(mx.cpu(), {"x": x})
    with pytest.raises(mx.MXNetError) as error:
        executor.forward()
    assert expected.format("forward") in str(error.value)
    assert str(error.value).endswith("(received data: float32[2], op_type='raising', when='forward')")
