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
    assert graph.list_arguments() == ["constant0", "a", "b"]  # the array of zeros comes first
    other = {"a": X + 1, "b": Y * 2, "constant0": nd.zeros((2, 2))}
    for found, expected in zip(graph.eval(**other), function(X + 1, Y * 2), strict=True):
        np.testing.assert_allclose(found.asnumpy(), expected.asnumpy(), rtol=1e-6)
    assert X.grad is None  # the examples are copied


def test_function_of_integers_and_of_any_number_of_arrays():
    def rows(table, index):
        return nd.take(table, index)

    index = nd.array([1, 0, 1], dtype="int32")
    check(sym.to_static(rows, X, index), rows(X, index), table=X, index=index)
    check(sym.to_static(lambda index: index * 2 + 1, index), index * 2 + 1, index=index)
    assert sym.to_static(lambda *arrays: nd.dot(*arrays), X, Y).list_arguments() == ["data0", "data1"]


def test_other_arrays_have_the_names_of_variables_and_parameters():
    net, scale, constant0 = gluon.nn.Dense(2, prefix="fc_"), nd.array([2.0, 3.0]), nd.ones(2)
    net.initialize()

    def function(a):
        return net(a) * scale + (constant0 + nd.array([5.0, 6.0])) + nd.array([7.0, 8.0])

    for _ in range(2):  # the second trace has the same names
        graph = sym.to_static(function, X)
        assert graph.list_arguments() == [
            "a",
            "fc_weight",
            "fc_bias",
            "scale",
            "constant0",  # the sum of constant0 and the array is a constant itself
            "constant1",
        ]
    values = {"fc_weight": net.weight.data(), "fc_bias": net.bias.data(), "scale": scale}
    values |= {"constant0": nd.array([6.0, 7.0]), "constant1": nd.array([7.0, 8.0])}
    check(graph, function(Y), a=Y, **values)
    graph = sym.to_static(lambda constant0: constant0 + nd.ones(2), X)
    assert graph.list_arguments() == ["constant0", "constant1"]


class Branch(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return x + 1 if x.sum() > 3 else x


class Plain(gluon.Block):
    def __init__(self):
        super().__init__(prefix="plain_")
        with self.name_scope():
            self.scale = self.params.get("scale", shape=(2,))

    def forward(self, x):
        return x * self.scale.data()


def test_parameters_of_a_block_that_is_not_hybrid_have_their_names():
    block = Plain()
    block.initialize()
    assert sym.to_static(block, X).list_arguments() == ["data0", "plain_scale"]
    assert sym.to_static(block.forward, X).list_arguments() == ["x", "plain_scale"]


READS = [
    lambda a: a + 1 if a.sum() > 3 else a - 1,
    lambda a: a * float(a.sum()),
    lambda a: a[: int(a.sum())],
    lambda a: a * a.sum().asscalar(),
    lambda a: a * nd.array(a.asnumpy(), dtype=a.dtype),
    lambda a: nd.contrib.cond(a.sum() > 3, lambda: a + 1, lambda: a - 1),
    lambda a: nd.contrib.while_loop(lambda b: b.sum() < 9, lambda b: (b, b + 1), a, 5)[1],
    lambda a: a * a.as_np_ndarray().sum().item(),
    lambda a: a + 1 if a.as_np_ndarray().sum() > 3 else a,
    lambda a: nd.from_dlpack(a.to_dlpack_for_read()),
]


@pytest.mark.parametrize("function", READS)
@pytest.mark.parametrize("example", [X, X.astype("int32")], ids=["floats", "integers"])
def test_values_of_traced_arrays_are_not_fixed_silently(function, example):
    with pytest.raises(mx.MXNetError, match=r"uses a traced array .* as a Python .* value.*nd.where.*contrib.cond"):
        sym.to_static(function, example)
    function(example)  # outside a trace, as before


@pytest.mark.parametrize(
    "function",
    [
        lambda a: a[a.argmax(axis=1)],
        lambda a: Y[a[0] - 1],
        lambda a: a.as_np_ndarray()[a.as_np_ndarray() > 2],
        lambda a: a.as_np_ndarray()[0, a.as_np_ndarray()[0].astype("int64") - 1],
    ],
)
def test_traced_indices_are_not_fixed_silently(function):
    with pytest.raises(mx.MXNetError, match="uses a traced array .* as an index.*nd.take"):
        sym.to_static(function, X)
    function(X)


def test_values_that_do_not_depend_on_the_inputs_may_be_read(capsys):
    def function(a, times):
        print(a, a.as_np_ndarray(), f"{a.as_np_ndarray().sum():.1f}")
        factor = nd.array([2.0]).asscalar() if a.detach().sum() > 3 else 0
        return a[nd.array([1, 0])] * factor * (times if times > 1 else 1)

    graph = sym.to_static(function, X, 3)
    assert "[3. 4.]" in capsys.readouterr().out and graph.list_arguments()[0] == "a"
    assert sym.to_static(lambda a: nd.where(a > 2, a, -a), X).list_arguments() == ["a"]
    with pytest.raises(mx.MXNetError, match="as a Python"):
        sym.to_static(READS[0], X)
    assert bool(X.sum() > 3)  # the mode ends with the call


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: sym.to_static(nd.exp, "x"), mx.MXNetError, "exp cannot be traced with symbols.*Pass example arrays"),
        (lambda: sym.to_static(READS[0]), mx.MXNetError, "cannot be traced.*mx.sym.where, mx.sym.contrib.cond"),
        (lambda: sym.to_static(Branch()), mx.MXNetError, "Branch cannot be traced.*F.where, F.contrib.cond"),
        (lambda: sym.to_static(lambda a: 3), mx.MXNetError, "must return a Symbol or several, returned int"),
        (lambda: sym.to_static(3), TypeError, "a Symbol, a HybridBlock or a function, received int"),
        (lambda: sym.to_static(lambda a: a, 3), TypeError, "Symbols or names, or all arrays, received int"),
        (lambda: sym.to_static(lambda a: 3, X), mx.MXNetError, "must return a NDArray or several, returned int"),
    ],
)
def test_what_has_no_graph_is_rejected(call, kind, words):
    with pytest.raises(kind, match=words):
        call()
