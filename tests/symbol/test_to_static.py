"""mx.sym.to_static: the graph of a Symbol, a HybridBlock or a function, with the values of the original."""

import numpy as np
import pytest

import neomx as mx
from neomx import gluon, nd, sym

X, Y = nd.array([[1.0, 2.0], [3.0, 4.0]]), nd.array([[2.0, 0.0], [1.0, 5.0]])


def check(graph, expected, **inputs):
    np.testing.assert_allclose(graph.eval(**inputs)[0].asnumpy(), expected.asnumpy(), rtol=1e-6)  # rounding


def test_symbol_is_returned():
    x = sym.exp(sym.var("x"))
    assert sym.to_static(x) is x


def test_block_with_one_input_and_its_parameters():
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(3, activation="tanh"), gluon.nn.Dense(2))
    net.initialize()
    expected = net(X)
    graph = sym.to_static(net)
    params = {name: param.data() for name, param in net.collect_params().items()}
    assert graph.list_arguments() == ["data", *params]
    check(graph, expected, data=X, **params)
    assert sym.to_static(net, "pixels").list_arguments()[0] == "pixels"
    assert sym.to_static(net, X).list_arguments() == graph.list_arguments()
    assert sym.to_static(net, sym.exp(sym.var("z"))).list_arguments()[0] == "z"


def test_block_with_several_inputs_and_outputs():
    class Two(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.scale = self.params.get("scale", shape=(2,))

        def hybrid_forward(self, F, a, b, scale, times=2):
            return F.broadcast_mul(a, scale) * times, [a - b]

    graph = sym.to_static(Two())
    assert graph.list_arguments()[0] == "data0" and "data1" in graph.list_arguments()
    assert len(graph.list_outputs()) == 2


def test_symbol_block_gives_its_graph():
    graph = sym.FullyConnected(sym.var("pixels"), num_hidden=2, name="fc")
    block = gluon.SymbolBlock(graph, sym.var("pixels"))
    assert sym.to_static(block).tojson() == graph.tojson()


def test_function_of_operators_and_methods():
    def function(a, b=3):
        return (a * b).sum(axis=1) + a.max(axis=1)

    check(sym.to_static(function), function(X), a=X)
    named = sym.to_static(function, "p", "q")
    assert named.list_arguments() == ["p", "q"]
    check(named, function(X, Y), p=X, q=Y)


def test_function_of_arrays_is_recorded_on_examples():
    def function(a, b, times=2):
        total = nd.zeros((2, 2))
        for _ in range(times):
            total = total + nd.dot(a, b)
        return total[1:], nd.relu(a - b)

    graph = sym.to_static(function, X, Y)
    assert set(graph.list_arguments()) - {"a", "b"} == {graph.list_arguments()[0]}  # the array of zeros
    assert graph.list_arguments()[0].startswith("null")
    other = {"a": X + 1, "b": Y * 2, graph.list_arguments()[0]: nd.zeros((2, 2))}
    for found, expected in zip(graph.eval(**other), function(X + 1, Y * 2), strict=True):
        np.testing.assert_allclose(found.asnumpy(), expected.asnumpy(), rtol=1e-6)
    assert X.grad is None  # the examples are copied


def test_function_of_integers_and_of_any_number_of_arrays():
    def rows(table, index):
        return nd.take(table, index)

    index = nd.array([1, 0, 1], dtype="int32")
    check(sym.to_static(rows, X, index), rows(X, index), table=X, index=index)
    assert sym.to_static(lambda *arrays: nd.dot(*arrays), X, Y).list_arguments() == ["data0", "data1"]


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: sym.to_static(nd.exp, "x"), mx.MXNetError, "exp cannot be traced with symbols.*Pass example arrays"),
        (lambda: sym.to_static(lambda a: 3), mx.MXNetError, "must return a Symbol or several, returned int"),
        (lambda: sym.to_static(3), TypeError, "a Symbol, a HybridBlock or a function, received int"),
        (lambda: sym.to_static(lambda a: a, 3), TypeError, "Symbols or names, or all arrays, received int"),
        (lambda: sym.to_static(lambda a: 3, X), mx.MXNetError, "must return a NDArray or several, returned int"),
    ],
)
def test_what_has_no_graph_is_rejected(call, kind, words):
    with pytest.raises(kind, match=words):
        call()
