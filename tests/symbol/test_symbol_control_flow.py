"""Control flow in symbols, beyond the recordings of MXNet: files, copies, backends and damaged graphs."""

import copy
import json

import numpy as np
import pytest

import neomx as mx


class Loop(mx.gluon.HybridBlock):
    """Sums the outputs of a cell whose initial states are zeros created inside the loop."""

    def __init__(self):
        super().__init__(prefix="loop_")
        with self.name_scope():
            self.cell = mx.gluon.rnn.LSTMCell(4, input_size=3, prefix="lstm_")

    def hybrid_forward(self, F, x):
        states = self.cell.begin_state(func=F.zeros, batch_size=0) if F is mx.sym else self.cell.begin_state(x.shape[1])
        return F.contrib.foreach(lambda row, s: self.cell(row, s), x, states)[0]


def made(net):
    rng = np.random.RandomState(0)
    net.initialize()
    for param in net.collect_params().values():
        param.set_data(mx.nd.array(rng.uniform(-1, 1, size=param.shape)))
    return net


def given(batch):
    return mx.nd.array(np.random.RandomState(batch).uniform(-1, 1, size=(3, batch, 3)))


@pytest.mark.parametrize("backend", [None, "eager"])
def test_loop_with_created_states_runs_for_any_batch_size(backend):
    net = made(Loop())
    expected = {batch: net(given(batch)).asnumpy() for batch in (2, 5)}
    net.hybridize(**({} if backend is None else {"backend": backend}))
    for batch in (2, 5, 2):
        np.testing.assert_allclose(net(given(batch)).asnumpy(), expected[batch], rtol=1e-5)


def test_loop_can_be_saved_and_copied(tmp_path):
    net = made(Loop())
    net.hybridize()
    expected = net(given(2)).asnumpy()
    np.testing.assert_array_equal(copy.deepcopy(net)(given(2)).asnumpy(), expected)
    net.export(str(tmp_path / "loop"))
    loaded = mx.gluon.SymbolBlock.imports(
        str(tmp_path / "loop-symbol.json"), ["data"], str(tmp_path / "loop-0000.params")
    )
    np.testing.assert_array_equal(loaded(given(2)).asnumpy(), expected)
    assert loaded(given(5)).shape == (3, 5, 4)


def test_body_creates_arrays_of_the_batch_size():
    x, s = mx.sym.var("x"), mx.sym.var("s")
    out, _ = mx.sym.contrib.foreach(lambda d, st: (d + mx.sym.ones((0, 3)), st), x, s)
    for batch in (2, 4):
        found = out.bind(mx.cpu(), {"x": mx.nd.ones((2, batch, 3)), "s": mx.nd.ones(1)}).forward()[0]
        np.testing.assert_array_equal(found.asnumpy(), np.full((2, batch, 3), 2.0))


def test_loop_without_steps_returns_zeros():
    i, x = mx.sym.var("i"), mx.sym.var("x")
    outs, (_, last) = mx.sym.contrib.while_loop(lambda i, x: i < 0, lambda i, x: (x * 2, [i, x + 1]), [i, x], 3)
    executor = mx.sym.Group([outs, last]).bind(mx.cpu(), {"i": mx.nd.ones(1), "x": mx.nd.ones(2)})
    rows, x_after = executor.forward()
    np.testing.assert_array_equal(rows.asnumpy(), np.zeros((3, 2)))
    np.testing.assert_array_equal(x_after.asnumpy(), np.ones(2))


def test_shapes_of_loops_and_branches_are_inferred():
    i, x, w = map(mx.sym.var, "ixw")
    outs, last = mx.sym.contrib.while_loop(
        lambda i, h: i < 3,
        lambda i, h: (mx.sym.FullyConnected(h, w, no_bias=True, num_hidden=4), [i + 1, h]),
        [i, x],
        5,
    )
    assert outs.infer_shape(i=(1,), x=(2, 3)) == ([(1,), (2, 3), (4, 3)], [(5, 2, 4)], [])
    both = mx.sym.contrib.cond(i, lambda: x * w, lambda: x - w)
    assert both.infer_shape(i=(1,), x=(2, 3)) == ([(1,), (2, 3), (2, 3)], [(2, 3)], [])
    assert both.infer_type(i="float32", x="float64", w="float64")[1] == [np.float64]
    rows, state = mx.sym.contrib.foreach(lambda d, s: (d + s, s), x, w)
    assert rows.infer_shape(x=(4, 2, 3)) == ([(4, 2, 3), (2, 3)], [(4, 2, 3)], [])


def test_error_inside_a_loop_names_the_nodes():
    x, w = mx.sym.var("x"), mx.sym.var("w")
    rows, _ = mx.sym.contrib.foreach(lambda d, s: (mx.sym.elemwise_add(d, w, name="sum"), s), x, mx.sym.var("s"))
    with pytest.raises(mx.MXNetError, match="'sum'"):
        rows.infer_shape(x=(4, 2, 3), w=(5, 5), s=(1,))
    lengths, _ = mx.sym.contrib.foreach(lambda d, s: (d[0] + d[1], s), [x, w], mx.sym.var("s"))
    arrays = {"x": mx.nd.ones((2, 3)), "w": mx.nd.ones((4, 3)), "s": mx.nd.ones(1)}
    with pytest.raises(mx.MXNetError, match="data1 of shape"):
        lengths.bind(mx.cpu(), arrays)
    with pytest.raises(mx.MXNetError, match="the same size along axis 0"):
        mx.sym.lower(lengths, list(arrays))(mx.cpu(), [a.to_torch() for a in arrays.values()])


def test_attributes_of_a_loop_can_be_set():
    rows, _ = mx.sym.contrib.foreach(lambda d, s: (d * 2, s), mx.sym.var("x"), mx.sym.var("s"))
    rows._set_attr(__mood__="good")
    assert rows.attr("__mood__") == "good"
    assert rows.eval(x=mx.nd.ones((2, 1)), s=mx.nd.ones(1))[0].shape == (2, 1)


def loops():
    i, x, s = map(mx.sym.var, "ixs")
    yield mx.sym.contrib.foreach(lambda d, st: (d * 2, st + d), x, s)[0]
    yield mx.sym.contrib.while_loop(lambda i, x: i < 3, lambda i, x: (x, [i + 1, x * s]), [i, x], 5)[0]
    yield mx.sym.contrib.cond(i, lambda: x * s, lambda: x)


@pytest.mark.parametrize("symbol", list(loops()), ids=["foreach", "while_loop", "cond"])
def test_damaged_loops_raise(symbol):
    for key in next(n for n in json.loads(symbol.tojson())["nodes"] if "subgraphs" in n)["attrs"]:
        for text in ("[7]", "[-1]", "[]", "[0, 0, 0, 0]", "9", "-3", "x", None):
            graph = json.loads(symbol.tojson())
            node = next(n for n in graph["nodes"] if "subgraphs" in n)
            if key == "max_iterations" and text in ("9", "-3") or node["attrs"][key] == text:
                continue
            node["attrs"][key] = text
            if text is None:
                del node["attrs"][key]
            with pytest.raises(mx.MXNetError):
                mx.sym.load_json(json.dumps(graph))
    for graphs in (None, [], {}, [3], ["x"], [{"nodes": []}], [{"nodes": [], "heads": []}] * 3):
        graph = json.loads(symbol.tojson())
        next(n for n in graph["nodes"] if "subgraphs" in n)["subgraphs"] = graphs
        with pytest.raises(mx.MXNetError):
            mx.sym.load_json(json.dumps(graph))
