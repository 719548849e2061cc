"""Results of ops that are views in the autograd graph: once outside it, writing to them does not change the input."""

import pytest

import neomx as mx
from neomx import autograd, gluon, nd, np


class Transposing(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.transpose(x)


def block(hybridize):
    net = Transposing()
    net.initialize()
    if hybridize:
        net.hybridize()
    return net


OPS = {
    "transpose": nd.transpose,
    "split": lambda x: nd.split(x, 3, axis=1)[0],
    "slice_axis": lambda x: nd.slice_axis(x, axis=1, begin=0, end=2),
    "a piece of a transpose": lambda x: nd.transpose(x)[0],
    "expand_dims": lambda x: nd.expand_dims(x, 0),
    "reshape": lambda x: nd.reshape(x, shape=(6,)),
    "a Block": lambda x: block(False)(x),
    "a hybridized Block": lambda x: block(True)(x),
}
NP_OPS = {
    "T": lambda x: x.T,
    "reshape": lambda x: x.reshape(6),
    "squeeze": lambda x: np.squeeze(np.expand_dims(x, 0)),
    "einsum": lambda x: np.einsum("ij->ji", x),
    "a column": lambda x: x[:, 1],
}


def cases():
    yield from ((mx.nd, name, op) for name, op in OPS.items())
    yield from ((mx.np, name, op) for name, op in NP_OPS.items())


def write(array):
    array[:] = 0


def add(array):
    array += 5


@pytest.mark.parametrize("change", [write, add])
@pytest.mark.parametrize(("kind", "op"), [(k, op) for k, _, op in cases()], ids=[f"{n}" for _, n, _ in cases()])
def test_writing_to_a_result_outside_the_graph_does_not_change_the_input(kind, op, change):
    with mx.util.np_shape(kind is mx.np), mx.util.np_array(kind is mx.np):
        x = kind.ones((2, 3))
        x.attach_grad()
        with autograd.record():
            y = op(x)
            loss = (y * y).sum()
        change(y.detach())
        assert x.asnumpy().tolist() == [[1.0] * 3] * 2
        loss.backward()
        change(y)
        assert x.asnumpy().tolist() == [[1.0] * 3] * 2


@pytest.mark.parametrize("kind", [mx.nd, mx.np])
@pytest.mark.parametrize("dtype", [None, "float64"])
def test_array_of_a_recorded_array_has_a_gradient(kind, dtype):
    with mx.util.np_shape(kind is mx.np), mx.util.np_array(kind is mx.np):
        x = kind.array([3.0, 1.0, 2.0])
        x.attach_grad()
        with autograd.record():
            loss = (kind.array(x, dtype=dtype) * x.astype(dtype or "float32")).sum()
        loss.backward()
        assert x.grad.asnumpy().tolist() == [6.0, 2.0, 4.0]  # 2 x, as in MXNet
