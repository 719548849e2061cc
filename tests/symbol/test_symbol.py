"""Lowering to functions on tensors, errors that name nodes, and broken symbol files."""

import copy
import json
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import neomx as mx
from neomx.base import modes


def network():
    s = mx.sym
    net = s.Convolution(s.var("data"), kernel=(3, 3), num_filter=4, pad=(1, 1), name="conv")
    net = s.BatchNorm(net, fix_gamma=False, name="bn")
    net = s.Pooling(s.Activation(net, act_type="relu"), kernel=(2, 2), stride=(2, 2), pool_type="max")
    left, right = s.split(net, num_outputs=2)
    net = s.Dropout(s.concat(left, right, left), p=0.5)
    return s.log_softmax(s.FullyConnected(net, num_hidden=5, name="fc") * 2 + 1)


def tensors_for(symbol, **shapes):
    torch.manual_seed(0)
    arguments, _, states = symbol.infer_shape(**shapes)
    by_name = dict(zip(symbol.list_arguments(), arguments, strict=True))
    by_name.update(zip(symbol.list_auxiliary_states(), states, strict=True))
    return [torch.rand(by_name[name]) for name in symbol.list_inputs()]


def test_lowered_symbol_is_straight_line_code():
    x = mx.sym.var("x")
    run = mx.sym.lower(mx.sym.relu(x + 1) * x, ["x"])
    lines = [line.strip() for line in run.source.splitlines()[2:-2]]
    assert lines == [
        "x0, = tensors",
        "t1 = op0(x0, scalar=1.0)",
        "t2 = op1(t1)",
        "del t1",
        "t3 = op2(t2, x0)",
        "del t2, x0",
        "return [t3]",
    ]
    assert run(mx.cpu(), [torch.tensor([1.0, -3.0])])[0].tolist() == [2.0, 0.0]


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # from torch's tracer
def test_lowered_symbol_traces_as_one_graph():
    net = network()
    run, tensors = mx.sym.lower(net, net.list_inputs()), tensors_for(net, data=(2, 3, 8, 8))
    compiled = torch.compile(lambda *given: run(mx.cpu(), given), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*tensors), run(mx.cpu(), tensors))
    average = tensors[net.list_inputs().index("bn_moving_mean")]
    before = average.clone()
    tensors[1].requires_grad_()
    modes.training = True
    try:
        compiled(*tensors)[0].sum().backward()
    finally:
        modes.training = False
    assert tensors[1].grad.abs().sum() > 0
    assert not torch.equal(average, before)


def test_errors_name_the_node():
    net = network()
    run, tensors = mx.sym.lower(net, net.list_inputs()), tensors_for(net, data=(2, 3, 8, 8))
    tensors[0] = torch.rand(2, 5, 8, 8)
    with pytest.raises(mx.MXNetError, match=r"Convolution 'conv': .*data: float32\[2, 5, 8, 8\]"):
        run(mx.cpu(), tensors)
    with pytest.raises(mx.MXNetError, match="FullyConnected 'fc': expected weight of shape"):
        net.infer_shape(data=(2, 3, 8, 8), fc_weight=(5, 7))
    with pytest.raises(mx.MXNetError, match="_plus|elemwise_add .*expected"):
        (mx.sym.var("a") + mx.sym.var("b")).infer_shape(a=(2, 3), b=(3, 2))
    with pytest.raises(mx.MXNetError, match="missing inputs: bn_gamma"):
        mx.sym.lower(net, ["data", "conv_weight", "conv_bias"])


def test_unknown_shape_warns():
    with pytest.warns(UserWarning, match=r"cannot infer the shape of these arguments.*fc_weight: \(3, 0\)"):
        net = mx.sym.FullyConnected(mx.sym.var("x"), num_hidden=3, flatten=False, name="fc")
        assert net.infer_shape(x=(2, 4, 0)) == (None, None, None)


def test_inference_draws_no_random_numbers():
    net = mx.sym.image.random_brightness(mx.sym.var("x"), min_factor=0.5, max_factor=1.5)
    mx.random.seed(1)
    expected = mx.nd.random.uniform(shape=(3,)).asnumpy()
    mx.random.seed(1)
    net.infer_shape(x=(4, 4, 3))
    assert mx.nd.random.uniform(shape=(3,)).asnumpy().tolist() == expected.tolist()


def test_copies_are_independent():
    net = network()
    for other in (copy.copy(net), copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        other.get_internals()["fc_output"]._set_attr(num_hidden="7")
        assert other.tojson() != net.tojson()
        assert net.infer_shape(data=(2, 3, 8, 8))[1] == [(2, 5)]


def test_save_and_load(tmp_path):
    net, path = network(), str(tmp_path / "net-symbol.json")
    net.save(path)
    assert mx.sym.load(path).tojson() == net.tojson()
    (tmp_path / "net-symbol.json").write_bytes(b"\xff\xfe")
    with pytest.raises(mx.MXNetError, match="net-symbol.json"):
        mx.sym.load(path)


def test_groups_on_other_contexts():
    with mx.AttrScope(ctx_group="first"):
        net = mx.sym.FullyConnected(mx.sym.var("x"), num_hidden=3, name="a")
    with mx.AttrScope(ctx_group="second"):
        net = mx.sym.FullyConnected(net, num_hidden=2, name="b")
    bound = net.simple_bind(mx.cpu(), x=(4, 5), group2ctx={"first": mx.cpu(1), "second": mx.cpu(2)})
    assert [bound.arg_dict[n].context for n in ("a_weight", "b_weight")] == [mx.cpu(1), mx.cpu(2)]
    bound.forward(is_train=True)
    bound.backward(mx.nd.ones((4, 2)))
    assert bound.grad_dict["b_bias"].asnumpy().tolist() == [4, 4]


GRAPH = json.loads(network().tojson())
JUNK = st.one_of(st.none(), st.integers(-3, 99), st.text(max_size=4), st.just([]), st.just({}), st.just([[0, 0, 0]]))


@given(st.integers(0, len(network().tojson())))
@settings(max_examples=30, deadline=None)
def test_truncated_json_raises(length):
    text = network().tojson()[:length]
    if text.strip() != network().tojson():
        with pytest.raises(mx.MXNetError):
            mx.sym.load_json(text)


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_damaged_json_loads_or_raises_mxnet_error(data):
    graph = copy.deepcopy(GRAPH)
    place = data.draw(
        st.sampled_from([graph, graph["attrs"], *graph["nodes"], *[n.get("attrs", {}) for n in graph["nodes"]]])
    )
    keys = [*place, "extra"]
    place[data.draw(st.sampled_from(keys))] = data.draw(JUNK)
    try:
        symbol = mx.sym.load_json(json.dumps(graph))
    except mx.MXNetError as error:
        assert str(error)
    else:
        assert mx.sym.load_json(symbol.tojson()).tojson() == symbol.tojson()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda g: g["nodes"][3].update(op="Convolutoin"), "node 3.*no op is called 'Convolutoin'.*Convolution"),
        (lambda g: g["nodes"][3]["inputs"].__setitem__(0, [3, 0, 0]), "node 3.*one of the 3 previous nodes"),
        (lambda g: g["nodes"][3]["inputs"].__setitem__(0, [0, 5, 0]), "node 3.*'data' has 1 output"),
        (lambda g: g["nodes"][3]["inputs"].pop(), "node 3.*expected the inputs data, weight, bias, received 2"),
        (lambda g: g["nodes"][3]["attrs"].update(kernel="wide"), "node 3.*kernel"),
        (lambda g: g["nodes"][3]["attrs"].pop("num_filter"), "node 3.*missing argument num_filter"),
        (lambda g: g.update(heads=[[99, 0, 0]]), "heads.*99"),
        (lambda g: g.pop("nodes"), "expected a dictionary with a list of nodes"),
    ],
)
def test_errors_describe_the_problem_in_a_file(change, message):
    graph = copy.deepcopy(GRAPH)
    change(graph)
    with pytest.raises(mx.MXNetError, match=message):
        mx.sym.load_json(json.dumps(graph))


def gradient_by_differences(executor, name, start, step=2e-3):
    """Return d(sum of the first output times start) / d(each element of an argument) by finite differences."""
    values, found = executor.arg_dict[name], []
    for i in range(values.size):
        sides = []
        for change in (step, -step):
            moved = values.asnumpy()
            moved.flat[i] += change
            kept = values.copy()
            values[:] = moved
            sides.append((executor.forward(is_train=True)[0].asnumpy().astype("float64") * start).sum())
            values[:] = kept
        found.append((sides[0] - sides[1]) / (2 * step))
    return np.array(found).reshape(values.shape)


@pytest.mark.parametrize(("reqs", "name"), [("write", "act_gamma"), ({"fc_bias": "write"}, "fc_bias")])
def test_gradients_that_are_wrong_in_mxnet_are_correct(reqs, name):
    net = mx.sym.Convolution(mx.sym.var("data"), kernel=(3, 3), num_filter=4, no_bias=True, name="conv")
    net = mx.sym.LeakyReLU(mx.sym.BatchNorm(net, fix_gamma=False, name="bn"), act_type="prelu", name="act")
    net = mx.sym.FullyConnected(mx.sym.Pooling(net, kernel=(2, 2), stride=(2, 2)), num_hidden=3, name="fc")
    executor = net.simple_bind(mx.cpu(), reqs, data=(2, 3, 8, 8), act_gamma=(4,))
    rng = np.random.RandomState(0)
    for array in executor.arg_arrays:
        array[:] = rng.uniform(-1, 1, size=array.shape)
    executor.forward(is_train=True)
    start = rng.uniform(-1, 1, size=(2, 3))
    executor.backward([mx.nd.array(start)])
    found = executor.grad_dict[name].asnumpy()
    np.testing.assert_allclose(found, gradient_by_differences(executor, name, start), rtol=1e-3, atol=1e-4)
