"""Ops that MXNet does not have are MXNet's ops in files, and are read again as one op."""

import json
import pickle

import numpy as np
import pytest

import neomx as mx
from neomx import autograd, nd
from neomx.symbol.spelling import expanded

OURS = {"_contrib_attention", "_contrib_gelu_tanh"}


def attention(dropout=0.0, **kwargs):
    query, key, value, lengths = map(mx.sym.Variable, ("query", "key", "value", "lengths"))
    options = {"head_size": 4, "causal": True, "use_valid_length": True, "dropout": dropout}
    return mx.sym.contrib.attention(query, key, value, lengths, **options, **kwargs)


def ops(graph):
    return {node["op"] for node in json.loads(graph.tojson())["nodes"]}


def kinds(graph):
    return {node.op.name for node in graph._nodes() if node.op is not None}


def arrays():
    drawn = (np.random.default_rng(i).normal(size=(2, 5, 8)) for i in range(3))
    return {**dict(zip(("query", "key", "value"), map(nd.array, drawn), strict=True)), "lengths": nd.array([2, 5])}


def test_file_has_mxnets_ops_and_is_read_as_the_same_graph():
    graph = mx.sym.contrib.gelu_tanh(attention(dropout=0.1, name="look"), name="bend")
    assert not ops(graph) & OURS and kinds(graph) == OURS
    read = mx.sym.load_json(graph.tojson())
    assert kinds(read) == OURS and read.list_arguments() == graph.list_arguments()
    assert [(node.name, node.attrs, node.values) for node in read._nodes()] == [
        (node.name, node.attrs, node.values) for node in graph._nodes()
    ]
    assert read.tojson() == graph.tojson()
    assert kinds(pickle.loads(pickle.dumps(graph))) == OURS


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [False, True])
def test_mxnets_ops_compute_the_same(causal, lengths):
    """Attention in one kernel sums in another order."""
    inputs = list(map(mx.sym.Variable, list(arrays())[: 3 + lengths]))
    whole = mx.sym.contrib.gelu_tanh(
        mx.sym.contrib.attention(*inputs, head_size=4, causal=causal, use_valid_length=lengths)
    )
    spelled = mx.sym.Symbol(expanded(whole._outputs))
    assert not kinds(spelled) & OURS
    given = {name: each for name, each in arrays().items() if name in whole.list_arguments()}
    found = []
    for graph in (whole, spelled):
        executor = graph.bind(mx.cpu(), given, {name: nd.zeros(each.shape) for name, each in given.items()})
        out = executor.forward(is_train=True)[0]
        executor.backward(nd.array(np.random.default_rng(7).normal(size=out.shape)))
        found.append({"out": out, **executor.grad_dict})
    for key, expected in found[0].items():
        np.testing.assert_allclose(found[1][key].asnumpy(), expected.asnumpy(), rtol=1e-4, atol=1e-5, err_msg=key)
    assert np.abs(found[0]["key"].asnumpy()).max() > 0.01


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "lengths",
    [
        nd.array([2.5, 0.5]),
        nd.array([4.99, -0.5]),
        nd.array([9, 1e30]),  # more than there are keys
        nd.array([0, -3]),
        nd.array([2, 50000], dtype="int32"),
        nd.array([2, 5], dtype="float16"),
        nd.array([2, 200], dtype="uint8"),
    ],
    ids=lambda each: f"{each.dtype.__name__}:{each.asnumpy().tolist()}",
)
def test_mxnets_ops_agree_about_unusual_lengths(causal, lengths):
    """MXNet's softmax rounds lengths toward zero and reads invalid memory if there are too few keys."""
    inputs = [*map(mx.sym.Variable, ("query", "key", "value", "lengths"))]
    whole = mx.sym.contrib.attention(*inputs, head_size=4, causal=causal, use_valid_length=True)
    spelled = mx.sym.Symbol(expanded(whole._outputs))
    given = {**arrays(), "lengths": lengths}
    found = [graph.eval(**given)[0].asnumpy() for graph in (whole, spelled)]
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4, atol=1e-5)
    kept = np.clip(np.trunc(lengths.asnumpy().astype("float64")), 0, 5)
    np.testing.assert_array_equal(found[0], whole.eval(**{**given, "lengths": nd.array(kept)})[0].asnumpy())
    # The lengths that MXNet's softmax receives are never more than the number of keys.
    softmax = next(node for node in spelled._nodes() if node.op is not None and node.op.name == "softmax")
    received = mx.sym.Symbol([softmax.inputs[1]]).eval(**{k: v for k, v in given.items() if k != "value"})[0].asnumpy()
    assert received.dtype == np.int32 and received.min() >= 0 and received.max() <= 5


def test_dropout_of_attention_is_kept():
    spelled = mx.sym.Symbol(expanded(attention(dropout=0.5)._outputs))
    executor = spelled.bind(mx.cpu(), {**arrays(), "value": nd.ones((2, 5, 8))})
    assert len(set(executor.forward(is_train=True)[0].asnumpy().ravel().round(3))) > 2
    np.testing.assert_allclose(executor.forward(is_train=False)[0].asnumpy(), 1, atol=1e-6)


def test_annotations_apply_to_all_nodes():
    with mx.AttrScope(ctx_group="first"):
        graph = attention(name="look")
    nodes = json.loads(graph.tojson())["nodes"]
    assert all(node["attrs"]["__ctx_group__"] == "first" for node in nodes if node["op"] != "null")
    assert kinds(mx.sym.load_json(graph.tojson())) == {"_contrib_attention"}


def test_recorded_graph_has_mxnets_ops():
    given = arrays()
    given["query"].attach_grad()
    with autograd.record():
        result = nd.contrib.gelu_tanh(nd.contrib.attention(*list(given.values())[:3], head_size=4))
    assert not kinds(autograd.get_symbol(result)) & OURS


def test_graph_inside_a_loop_has_mxnets_ops():
    def step(x, states):
        return mx.sym.contrib.gelu_tanh(x), states

    graph, _ = mx.sym.contrib.foreach(step, mx.sym.Variable("data"), [mx.sym.Variable("state")])
    assert "gelu_tanh" not in json.dumps([node["op"] for node in _all_nodes(json.loads(graph.tojson()))])
    read = mx.sym.load_json(graph.tojson())
    data = nd.array([[-1.0, 2.0]])
    found = read.eval(data=data, state=nd.zeros(1))[0].asnumpy()
    np.testing.assert_allclose(found, nd.contrib.gelu_tanh(data).asnumpy(), atol=1e-6)


def _all_nodes(graph):
    for node in graph["nodes"]:
        yield node
        for inner in node.get("subgraphs", ()):
            yield from _all_nodes(inner)


# ---- files that another program has changed ----


def changed(change):
    """Return the graph of a file after a change of its nodes, by name."""
    text = json.loads(attention(name="look").tojson())
    change({node["name"]: node for node in text["nodes"]}, text)
    return mx.sym.load_json(json.dumps(text))


def scale_of(value):
    def change(nodes, _):
        (scale,) = (node for node in nodes.values() if node["op"] == "_mul_scalar")
        scale["attrs"]["scalar"] = value

    return change


def test_changed_nodes_stay_as_they_are():
    same = changed(lambda nodes, text: None)
    assert kinds(same) == {"_contrib_attention"}
    other = changed(scale_of("2.0"))
    assert "_contrib_attention" not in kinds(other)
    one, two = (graph.eval(**arrays())[0].asnumpy() for graph in (same, other))
    assert np.abs(one - two).max() > 0.01
    renamed = changed(lambda nodes, _: nodes["look_transpose1"].update(name="heads"))
    assert "_contrib_attention" not in kinds(renamed)


def test_inner_values_that_a_program_uses_stay():
    def add_head(nodes, text):
        at = next(i for i, node in enumerate(text["nodes"]) if node["op"] == "softmax")
        text["heads"].append([at, 0, 0])

    graph = changed(add_head)
    assert "_contrib_attention" not in kinds(graph) and len(graph) == 2
    np.testing.assert_allclose(graph.eval(**arrays())[1].asnumpy().sum(-1), 1, rtol=1e-5)


@pytest.mark.parametrize(
    "annotation",
    [
        *("", "{", "3", "[]", "null", '["_contrib_attention"]', '["_contrib_attention", 3]'),
        *('["Dropout", {"p": "1"}]', '["nothing", {}]', '[["_contrib_attention"], {}]', "[" * 100_000),
        '["_contrib_attention", {"head_size": "0"}]',
        '["_contrib_attention", {"head_size": "4", "causal": "maybe"}]',
        '["_contrib_attention", {"head_size": "1' + "0" * 400 + '"}]',
        '["_contrib_gelu_tanh", {}]',
        '["_contrib_attention", {"head_size": "4", "own": "1"}]',
    ],
)
def test_invalid_annotations_are_ignored(annotation):
    graph = changed(lambda nodes, _: nodes["look"]["attrs"].update(__spelled__=annotation))
    assert "_contrib_attention" not in kinds(graph)
    expected = attention().eval(**arrays())[0].asnumpy()
    np.testing.assert_allclose(graph.eval(**arrays())[0].asnumpy(), expected, atol=1e-5)
