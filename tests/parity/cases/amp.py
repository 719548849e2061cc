"""Graphs and parameters brought to mixed precision. What `amp.init` does to a process is in amp_programs.py."""

import importlib
import json

from parity.spec import family, outcome

_, program = family(__name__)


def amp_of(mx):
    """mx.contrib.amp, which MXNet imports only when asked."""
    return importlib.import_module(mx.__name__ + ".contrib.amp")


def nodes(symbol):
    """Each node with what matters of it: op, name, inputs, the dtypes that it tells."""
    listed = json.loads(symbol.tojson(remove_amp_cast=False))["nodes"]
    return [
        "%s %s %s %s"
        % (
            n["op"],
            n["name"],
            [i[:2] for i in n["inputs"]],
            [n.get("attrs", {}).get(k) for k in ("dtype", "num_outputs", "__dtype__")],
        )
        for n in listed
    ]


def fc(mx, data, name, **more):
    return mx.sym.FullyConnected(data, num_hidden=3, no_bias=True, name=name, **more)


def graphs(mx):
    s, a, b = mx.sym, mx.sym.var("a"), mx.sym.var("b")

    def exp(x):
        return s.exp(x, name="e")

    f = fc(mx, a, "f")
    relu = s.Activation(s.FullyConnected(a, num_hidden=3, name="g"), act_type="relu", name="r")
    x = s.abs(a, name="x")
    added = s.elemwise_add(s.FullyConnected(relu, num_hidden=3, name="h"), relu, name="p")
    return {
        "network": s.softmax(added, name="sm"),
        "slice_like": s.slice_like(f, exp(b), name="s"),
        "of a variable": s.Activation(b, act_type="relu", name="s"),
        "softrelu": s.Activation(f, act_type="softrelu", name="s"),
        "unknown and low": s.elemwise_add(s.Activation(b, act_type="relu", name="s"), f, name="p"),
        "single and unknown": s.elemwise_add(exp(b), a, name="p"),
        "single and single": s.elemwise_add(exp(b), s.log(a, name="l"), name="p"),
        "low and low": s.concat(f, fc(mx, b, "g"), name="w"),
        "low, unknown, single": s.concat(f, a, exp(b), name="w"),
        "unknown, low, single": s.concat(a, f, exp(b), name="w"),
        "where": s.where(exp(b), f, fc(mx, a, "g"), name="w"),
        "one unknown": s.concat(a, name="w"),
        "two variables": s.elemwise_add(s.elemwise_add(a, b, name="p"), a, name="q"),
        "cast": s.elemwise_add(s.Cast(f, dtype="float32", name="c"), exp(a), name="p"),
        "outputs": s.Group(list(s.split(f, num_outputs=2, name="sp"))),
        "second output": exp(s.split(f, num_outputs=2, name="sp")[1]),
        "a variable as output": s.Group([a, f]),
        "one cast for two": s.Group([f, exp(f), s.log(f, name="l")]),
        "widened, then low": fc(mx, s.concat(f, b, name="c"), "g"),
        "widened, then single": exp(s.concat(f, b, name="c")),
        "rnn": s.RNN(a, state_size=2, num_layers=1, mode="lstm", state_outputs=True, name="r"),
        "embedding": fc(mx, s.Embedding(a, input_dim=3, output_dim=2, name="em"), "f"),
        "batch norm": s.BatchNorm(f, name="bn"),
        "batch norm of single": s.BatchNorm(exp(a), name="bn"),
        "layer norm": s.LayerNorm(f, name="ln"),
        "loss": s.SoftmaxOutput(f, name="so"),
        "dropout": s.Dropout(f, name="d"),
        "broadcast": s.broadcast_mul(f, b, name="p"),
        "added to what was cast low": s.elemwise_add(fc(mx, x, "f"), x, name="p"),
        "a variable that was cast low": s.elemwise_add(a, f, name="p"),
        "what was cast low, and single": s.Group([fc(mx, x, "f"), s.elemwise_add(x, exp(b), name="p")]),
        "low, and what was cast to single": s.Group([exp(x), s.elemwise_add(x, f, name="p")]),
        "what was cast to both": s.Group([fc(mx, x, "f"), exp(x), s.elemwise_add(x, x, name="p")]),
        "what was cast low, and unknown": s.Group([fc(mx, x, "f"), s.elemwise_add(x, b, name="p")]),
    }


def converted(mx, without=(), **options):
    """All graphs, but those without the variable "a" and some others."""
    convert = amp_of(mx).convert_symbol
    chosen = {key: graph for key, graph in graphs(mx).items() if key not in without and "a" in graph.list_inputs()}
    return {key: nodes(convert(graph, **options)) for key, graph in sorted(chosen.items())}


@program
def symbols_to_float16(mx):
    return converted(mx)


@program
def symbols_to_bfloat16(mx):
    # By MXNet's own list concat takes what it gets, and then refuses two dtypes.
    concat = [key for key, graph in graphs(mx).items() if "Concat" in graph.tojson()]
    return converted(mx, concat, target_dtype="bfloat16")


@program
def symbols_whose_data_is_known(mx):
    return converted(mx, data_names=["a"])


@program
def data_that_the_symbol_does_not_have(mx):
    try:
        converted(mx, data_names=["a", "nothing"])
    except mx.base.MXNetError as error:
        return ["refused", "nothing" in str(error)]
    return ["taken", False]


@program
def symbols_with_cast_parameters(mx):
    # Of two variables that are added MXNet makes the parameter float16, though nothing asks for it.
    return converted(mx, ["two variables"], data_names=["a"], cast_optional_params=True)


@program
def symbols_without_some_nodes(mx):
    # Here both are known to be float32; MXNet does not know it and casts them once more.
    return converted(mx, ["embedding", "slice_like"], excluded_sym_names=["f", "g"])


@program
def symbols_by_other_lists(mx):
    amp, network = amp_of(mx), graphs(mx)["network"]
    convert = amp.convert_symbol
    return [
        nodes(convert(network, target_dtype_ops=["FullyConnected"], fp32_ops=["relu"])),
        nodes(convert(network, conditional_fp32_ops=[("Activation", "act_type", ["relu"])])),
        nodes(convert(network, conditional_fp32_ops=[])),
        nodes(convert(network, excluded_sym_names=["nobody"])),
        convert(network).list_outputs(),
        convert(network).list_arguments(),
        convert(graphs(mx)["batch norm"]).list_outputs(),
    ]


@program
def refused(mx):
    amp, network = amp_of(mx), graphs(mx)["network"]
    convert = amp.convert_symbol
    both = {"target_dtype_ops": ["FullyConnected"], "fp32_ops": ["FullyConnected"]}
    return [
        outcome(lambda: convert(network, target_dtype_ops=["elemwise_add"])),
        outcome(lambda: convert(network, fp32_ops=["nothing"])),
        outcome(lambda: convert(network, fp32_ops="x")),
        outcome(lambda: convert(network, target_dtype_ops=["Activation"])),
        outcome(lambda: convert(network, **both)),
        outcome(lambda: convert(network, target_dtype="float64")),
        outcome(lambda: convert(3)),
        outcome(lambda: amp.convert_model(network, 3, {})),
        outcome(lambda: amp.convert_hybrid_block(3)),
        outcome(lambda: amp.convert_hybrid_block(mx.gluon.nn.Dense(2))),
        outcome(lambda: amp.list_fp32_ops("float64")),
        outcome(lambda: amp.init("float64")),
        outcome(lambda: amp.init_trainer(3)),
    ]


def model(mx):
    data = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=3, name="f")
    graph = mx.sym.FullyConnected(mx.sym.BatchNorm(data, name="bn"), num_hidden=3, name="g")
    arguments = {n: mx.nd.ones((3, 3) if "weight" in n else 3) for n in graph.list_arguments() if n != "data"}
    return graph, arguments, {n: mx.nd.ones(3) for n in graph.list_auxiliary_states()}


@program
def models(mx):
    results = {}
    for name, options in (
        ("plain", {}),
        ("cast", {"cast_optional_params": True}),
        ("excluded", {"cast_optional_params": True, "excluded_sym_names": ["f"]}),
    ):
        graph, arguments, states = amp_of(mx).convert_model(*model(mx), **options)
        results[name + " graph"] = nodes(graph)
        results[name + " arguments"] = sorted(
            (n, v.dtype.__name__, float(v.sum().asscalar())) for n, v in arguments.items()
        )
        results[name + " states"] = sorted((n, v.dtype.__name__) for n, v in states.items())
    return results


@program
def blocks(mx):
    nn = mx.gluon.nn
    net = nn.HybridSequential(prefix="n_")
    with net.name_scope():
        net.add(nn.Dense(4, activation="relu", in_units=3), nn.BatchNorm(in_channels=4), nn.Dense(2, in_units=4))
    net.initialize(mx.init.One())
    net.hybridize()
    net(mx.nd.ones((2, 3)))
    results = {}
    for name, options in (
        ("plain", {}),
        ("cast", {"cast_optional_params": True}),
        ("excluded", {"excluded_sym_names": ["n_dense0_fwd"]}),
    ):
        made = amp_of(mx).convert_hybrid_block(net, ctx=mx.cpu(), **options)
        results[name + " type"] = type(made).__name__
        results[name + " graph"] = [line.rpartition(" [")[0] for line in nodes(made(mx.sym.var("data")))]
        results[name + " dtypes"] = sorted((n, p.data().dtype.__name__) for n, p in made.collect_params().items())
    results["untouched"] = sorted((n, p.data().dtype.__name__) for n, p in net.collect_params().items())
    return results
