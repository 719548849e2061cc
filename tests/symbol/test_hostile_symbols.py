"""Malicious symbol files: nothing in them is executed, and a small file uses few resources."""

import json

import pytest

import neomx as mx
from neomx.base import MXNetError
from neomx.symbol.graph import Node


@mx.operator.register("takes_any_attribute")
class TakesAny(mx.operator.CustomOpProp):
    """A custom op that stores the attributes it receives."""

    seen: dict = {}

    def __init__(self, **kwargs):
        super().__init__()
        TakesAny.seen = kwargs

    def create_operator(self, ctx, shapes, dtypes):
        class Copy(mx.operator.CustomOp):
            def forward(self, is_train, req, in_data, out_data, aux):
                self.assign(out_data[0], req[0], in_data[0])

        return Copy()


def graph(op, attrs, name="node", inputs=1, **more):
    """Return the JSON of a node preceded by its variables."""
    variables = [{"op": "null", "name": f"data{i}" if i else "data", "inputs": []} for i in range(inputs)]
    node = {"op": op, "name": name, "attrs": attrs, "inputs": [[i, 0, 0] for i in range(inputs)], **more}
    return json.dumps({"nodes": [*variables, node], "arg_nodes": list(range(inputs)), "heads": [[inputs, 0, 0]]})


def imported(folder, text):
    """Import the graph as a Block."""
    path = folder / "net-symbol.json"
    path.write_text(text)
    return mx.gluon.SymbolBlock.imports(str(path), ["data"])


@pytest.mark.parametrize(
    "name",
    [
        "x=0, y=__import__('builtins').exec('raise SystemExit'), z",
        "x=0)\n        raise SystemExit\n#",
        *("class", "None", "1a", "a b", "", "é", "data", "args", "t1", "op0", "tensors", "run", "\ud800"),
    ],
)
@pytest.mark.parametrize("hybrid", [False, True])
def test_attribute_names_are_not_executed(tmp_path, name, hybrid):
    value = "'+__import__('os').abort()+'\n"
    net = imported(tmp_path, graph("Custom", {"op_type": "takes_any_attribute", name: value}))
    if hybrid:
        net.hybridize()
    assert net(mx.nd.array([1, 2])).asnumpy().tolist() == [1, 2]
    assert TakesAny.seen == {name: value}


def test_source_contains_no_text_from_the_file():
    word = "'; import os; os.abort() #"
    text = graph("Custom", {"op_type": "takes_any_attribute", word: word}, name=word)
    source = mx.sym.lower(mx.sym.load_json(text), ["data"]).source
    assert "abort" not in source
    activation = graph("Activation", {"act_type": "relu", "__any__": word}, name=word)
    assert "relu" not in mx.sym.lower(mx.sym.load_json(activation), ["data"]).source


@pytest.mark.parametrize("name", ["self", "_memory", "ctx"])
def test_invalid_attribute_names_raise(tmp_path, name):
    with pytest.raises(MXNetError, match=r"net-symbol\.json: node 1, Custom 'node': "):
        imported(tmp_path, graph("Custom", {"op_type": "takes_any_attribute", name: "1"}))


@pytest.mark.parametrize("op", ["__class__", "os.system", "", "null\n", "_memory", "lambda: 0", "\ud800"])
def test_unknown_op_names_raise(tmp_path, op):
    with pytest.raises(MXNetError, match="no op is called"):
        imported(tmp_path, graph(op, {}))


@pytest.mark.parametrize("name", ["", "a\n", "x0, = tensors", "__import__('os').abort()", "\ud800"])
def test_node_names_are_not_executed(tmp_path, name):
    net = imported(tmp_path, graph("relu", {}, name=name))
    net.hybridize()
    assert net(mx.nd.array([-1, 2])).asnumpy().tolist() == [0, 2]


def variable(attrs, op="square"):
    """Return a graph of one op on one variable with these attributes."""
    nodes = [
        {"op": "null", "name": "data", "inputs": [], "attrs": attrs},
        {"op": op, "name": "node", "inputs": [[0, 0, 0]], "attrs": {}},
    ]
    return json.dumps({"nodes": nodes, "arg_nodes": [0], "heads": [[1, 0, 0]]})


def test_output_names_are_created_once_per_node(monkeypatch):
    symbol = mx.sym.load_json(graph("SliceChannel", {"num_outputs": "5000"}))
    made, names = [], Node.output_names
    monkeypatch.setattr(Node, "output_names", lambda node: made.append(node) or names(node))
    assert symbol.get_internals().list_outputs()[-1] == "node_output4999"
    assert len(made) == 2
    with pytest.raises(MXNetError, match="a file can have at most 65536 node outputs"):
        mx.sym.load_json(graph("SliceChannel", {"num_outputs": "70000"}))


@pytest.mark.parametrize("dtype", ["i4,(2,", "(None,1)", "f4,f4", "O" * 10000])
def test_invalid_dtypes_raise(dtype):
    with pytest.raises(MXNetError, match="unknown dtype"):
        mx.sym.load_json(variable({"__dtype__": dtype})).infer_type()


@pytest.mark.parametrize("shape", [",".join("1" * 100), "9223372036854775808", "(-2, 3)", "9" * 5000, "(1e400,)"])
def test_invalid_shapes_raise(shape):
    with pytest.raises(MXNetError, match="variable 'data': __shape__ is "):
        mx.sym.load_json(variable({"__shape__": shape})).simple_bind(mx.cpu())


def test_shapes_that_exceed_memory_raise():
    with pytest.raises(MXNetError, match="cannot allocate 'data' of shape"):
        mx.sym.load_json(variable({"__shape__": "(1048576, 4398046511104)"})).simple_bind(mx.cpu())


def test_dimension_of_minus_1_is_unknown():
    symbol = mx.sym.load_json(variable({"__shape__": "(-1, 4)"}))
    assert symbol.infer_shape(data=(2, 4))[1] == [(2, 4)]
    with pytest.raises(MXNetError, match="cannot infer the shapes of data"):
        symbol.simple_bind(mx.cpu())


def test_integers_of_more_than_64_bits_raise():
    with pytest.raises(MXNetError, match="node 1, FullyConnected 'node': .*64-bit integer"):
        mx.sym.load_json(graph("FullyConnected", {"num_hidden": "9" * 4000, "no_bias": "True"}))


INITS = [
    "{}",
    '[["a"]]',
    '["Load", {"param": 3}]',
    '["Constant"]',
    "[1, 2]",
    '["zero", 3]',
    '["uniform", {"x": 1}]',
    "[",
]


@pytest.mark.parametrize("init", INITS)
def test_invalid_initializers_raise(init):
    module = mx.mod.Module(mx.sym.load_json(variable({"__init__": init, "__shape__": "(2,)"})), (), ())
    module.bind([])
    with pytest.raises(MXNetError, match="variable 'data': __init__ is "):
        module.init_params()
