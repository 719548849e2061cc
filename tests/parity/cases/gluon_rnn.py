"""Recurrent layers and cells of gluon: outputs, states, gradients, names, files."""

import json
import os
import tempfile

import numpy as np

from parity.spec import family, outcome

case, program = family(__name__)


def array(mx, rng, *shape):
    return mx.nd.array(rng.uniform(-1, 1, shape))


def filled(mx, block, seed=0, scale=0.7):
    """The block with parameters from a seed, whose shapes must be known."""
    block.initialize()
    rng = np.random.RandomState(seed)
    for param in block.collect_params().values():
        param.set_data(array(mx, rng, *param.shape) * scale)
    return block


def flat(value):
    if isinstance(value, (list, tuple)):
        return [item for each in value for item in flat(each)]
    return [value]


def nesting(value):
    return [nesting(each) for each in value] if isinstance(value, (list, tuple)) else "x"


def run(mx, block, arrays, call, *args, **kwargs):
    """What a call gives, how it is nested, and the gradients of arrays and parameters."""
    for each in arrays:
        each.attach_grad()
    with mx.autograd.record():
        result = call(*args, **kwargs)
    outputs = list({id(o): o for o in flat(result)}.values())  # an output may be a state too
    rng = np.random.RandomState(1)
    mx.autograd.backward(outputs, [array(mx, rng, *o.shape).astype(o.dtype) for o in outputs])
    params = [p for p in block.collect_params().values() if p.grad_req != "null"]
    return [str(nesting(result)), *outputs, *(each.grad for each in arrays), *(p.grad() for p in params)]


def layer_results(mx, kind, seed=0, states=True, hybridize=False, lengths=None, size=(4, 2, 3), **kwargs):
    """A layer over a batch: time, batch and channels are `size`."""
    rng = np.random.RandomState(seed)
    time, batch, channels = size
    layer = filled(mx, getattr(mx.gluon.rnn, kind)(5, input_size=channels, prefix="net_", **kwargs), seed)
    if hybridize:
        layer.hybridize()
    shape = (time, batch, channels) if kwargs.get("layout", "TNC") == "TNC" else (batch, time, channels)
    x = array(mx, rng, *shape)
    begin = [array(mx, rng, *info["shape"]) for info in layer.state_info(batch)] if states else None
    arguments = [x] if begin is None and lengths is None else [x, begin]
    arguments += [] if lengths is None else [mx.nd.array(lengths)]
    return run(mx, layer, [x, *(begin or [])], layer, *arguments)


@program
def layers(mx):
    results = []
    for kind in ("RNN", "LSTM", "GRU"):
        results += layer_results(mx, kind)
        results += layer_results(mx, kind, states=False)
        results += layer_results(mx, kind, layout="NTC", num_layers=2)
        results += layer_results(mx, kind, bidirectional=True, num_layers=2)
    return results + layer_results(mx, "RNN", activation="tanh", layout="NTC", bidirectional=True, states=False)


@program
def layers_hybridized(mx):
    results = []
    for kind in ("RNN", "LSTM", "GRU"):
        results += layer_results(mx, kind, hybridize=True)
        results += layer_results(mx, kind, hybridize=True, states=False, layout="NTC")
        results += layer_results(mx, kind, hybridize=True, num_layers=2, bidirectional=True)
    return results


@program
def lstm_with_projection(mx):
    """MXNet computes it, and does not train it, on a CPU."""
    rng, results = np.random.RandomState(0), []
    for kwargs in ({}, {"num_layers": 2, "bidirectional": True}, {"layout": "NTC"}):
        for hybridize in (False, True):
            layer = filled(mx, mx.gluon.rnn.LSTM(5, input_size=3, projection_size=2, prefix="net_", **kwargs))
            if hybridize:
                layer.hybridize()
            x = array(mx, rng, 4, 4, 3)
            results += flat(layer(x, [array(mx, rng, *info["shape"]) for info in layer.state_info(4)]))
    return results


@program
def lstm_with_sequence_length(mx):
    """Of full length: MXNet's kernel for CPUs takes others and does not look at them."""
    options = {"use_sequence_length": True, "lengths": [4, 4, 4], "size": (4, 3, 2)}
    return [
        *layer_results(mx, "LSTM", **options),
        *layer_results(mx, "LSTM", bidirectional=True, num_layers=2, **options),
        *layer_results(mx, "LSTM", layout="NTC", hybridize=True, **options),
        *layer_results(mx, "LSTM", states=False, **options),
    ]


@program
def lstm_with_dropout_of_nothing(mx):
    """Dropout does nothing while predicting."""
    rng = np.random.RandomState(0)
    layer = filled(mx, mx.gluon.rnn.LSTM(4, 2, dropout=0.5, input_size=3))
    return [layer(array(mx, rng, 3, 2, 3))]


@program
def layer_of_float64(mx):
    layer = mx.gluon.rnn.LSTM(4, 2, input_size=3, dtype="float64")
    layer.initialize(mx.init.One())
    x = mx.nd.array(np.random.RandomState(0).uniform(-1, 1, (3, 2, 3)), dtype="float64")
    out, states = layer(x, layer.begin_state(2))
    cast = mx.gluon.rnn.GRU(4, input_size=3)
    cast.initialize(mx.init.One())
    cast.cast("float64")
    names = [str(np.dtype(a.dtype)) for a in (out, *states, cast(x), cast.begin_state(2)[0])]
    return [out, *states, cast(x), names, str(cast.state_info(2)), outcome(lambda: layer(x.astype("float32")))]


@program
def deferred_input_size(mx):
    rng = np.random.RandomState(0)
    results = []
    for hybridize in (False, True):
        for kind in ("RNN", "LSTM", "GRU"):
            layer = getattr(mx.gluon.rnn, kind)(4, 2, bidirectional=True, prefix="net_")
            layer.initialize(mx.init.Constant(0.1))
            if hybridize:
                layer.hybridize()
            results += [repr(layer), layer(array(mx, rng, 3, 2, 6)), repr(layer)]
            results += [str([(name, p.shape) for name, p in layer.collect_params().items()])]
    for kind in ("RNNCell", "LSTMCell", "GRUCell"):
        cell = getattr(mx.gluon.rnn, kind)(4, prefix="net_")
        cell.initialize(mx.init.Constant(0.1))
        results += [repr(cell), *flat(cell.unroll(3, array(mx, rng, 2, 3, 6))), repr(cell)]
    return results


@program
def language_model(mx):
    """An embedding, two LSTM layers and a decoder, trained; the whole net hybridized; deferred input size."""
    gluon, results = mx.gluon, []
    for hybridize in (False, True):
        net = gluon.nn.HybridSequential(prefix="lm_")
        with net.name_scope():
            net.add(gluon.nn.Embedding(7, 4))
            net.add(gluon.rnn.LSTM(5, num_layers=2))
            net.add(gluon.nn.Dense(7, flatten=False))
        net.initialize(mx.init.Constant(0.1))
        tokens = mx.nd.array(np.random.RandomState(2).randint(0, 7, (4, 3)))
        net(tokens)
        for i, p in enumerate(net.collect_params().values()):
            p.set_data(array(mx, np.random.RandomState(i), *p.shape))
        if hybridize:
            net.hybridize()
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5})
        loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
        for _ in range(4):
            with mx.autograd.record():
                loss = loss_of(net(tokens[:-1]), tokens[1:]).mean()
            loss.backward()
            trainer.step(1)
            results.append(loss)
        results += [" ".join(net.collect_params().keys())]
    return results


@program
def state_arguments(mx):
    nd, rnn, rng = mx.nd, mx.gluon.rnn, np.random.RandomState(0)
    x = array(mx, rng, 3, 2, 4)

    def made(kind, **kwargs):
        return filled(mx, getattr(rnn, kind)(5, input_size=4, **kwargs))

    h = array(mx, rng, 1, 2, 5)
    return [
        *flat(made("RNN")(x, h)),
        *flat(made("GRU")(x, (h,))),
        *flat(made("LSTM")(x, (h, h))),
        made("LSTM")(x, None),
        str(nesting(made("RNN")(x, h))),
        outcome(lambda: made("LSTM")(x, h)),
        outcome(lambda: made("LSTM")(x, [])),
        outcome(lambda: made("LSTM", use_sequence_length=True)(x)),
        made("LSTM")(x, sequence_length=nd.array([1, 2])),
        made("LSTM", use_sequence_length=True)(x, sequence_length=nd.array([3, 3])),
        outcome(lambda: rnn.LSTM(3, layout="CTN")),
        outcome(lambda: rnn.RNN(3, activation="sigmoid")),
        outcome(lambda: rnn.GRU(3, projection_size=2)),
        outcome(lambda: rnn.GRU(3, wrong=2)),
        outcome(lambda: made("LSTM")(array(mx, rng, 3, 2, 3))),
        outcome(lambda: made("LSTM").begin_state()),
    ]


@program
def beginning_states(mx):
    nd, sym, rnn = mx.nd, mx.sym, mx.gluon.rnn
    layer = rnn.LSTM(5, 2, bidirectional=True, prefix="a_")
    stack = rnn.SequentialRNNCell(prefix="s_")
    stack.add(rnn.LSTMCell(3, prefix="b_"))
    stack.add(rnn.GRUCell(2, prefix="c_"))
    modifier = rnn.ResidualCell(rnn.LSTMCell(3, prefix="d_"))
    both = rnn.BidirectionalCell(rnn.RNNCell(3, prefix="e_"), rnn.RNNCell(4, prefix="f_"))
    cell = rnn.GRUCell(3, prefix="g_")
    symbols = [
        *layer.begin_state(func=sym.zeros, batch_size=2),
        *layer.begin_state(func=sym.var),
        *stack.begin_state(func=sym.ones, batch_size=3),
        *modifier.begin_state(batch_size=2),
        *cell.begin_state(func=sym.var),
        *cell.begin_state(func=sym.var),
    ]
    arrays = [
        *layer.begin_state(2),
        *layer.begin_state(batch_size=1, func=nd.ones, dtype="float64"),
        *cell.begin_state(2, nd.ones),
        *stack.begin_state(batch_size=2),
        *both.begin_state(batch_size=2, func=nd.ones),
        *modifier.begin_state(func=nd.ones, batch_size=2),
    ]
    return [
        " ".join(s.name for s in symbols),
        *(str(sorted(s.list_attr().items())) for s in symbols[4:5]),
        *arrays,
        " ".join(np.dtype(a.dtype).name for a in arrays),
        str(layer.begin_state(2, ctx=mx.cpu(1))[0].context),
        outcome(lambda: modifier.base_cell.begin_state(batch_size=2)),
        outcome(lambda: stack.begin_state(2)),
        outcome(lambda: rnn.RecurrentCell().state_info()),
        outcome(lambda: rnn.HybridRecurrentCell().begin_state(batch_size=2)),
        outcome(lambda: cell.begin_state()),
    ]


@program
def looks(mx):
    rnn, contrib = mx.gluon.rnn, mx.gluon.contrib.rnn
    stack = rnn.SequentialRNNCell(prefix="s_")
    stack.add(rnn.LSTMCell(3, prefix="a_"))
    stack.add(rnn.DropoutCell(0.3, prefix="d_"))
    hybrid = rnn.HybridSequentialRNNCell(prefix="h_")
    hybrid.add(rnn.ZoneoutCell(rnn.RNNCell(3, input_size=2, prefix="b_"), 0.1, 0.2))
    hybrid.add(rnn.ResidualCell(rnn.GRUCell(2, prefix="c_")))
    blocks = [
        rnn.LSTM(4, 2, bidirectional=True, projection_size=3, prefix="n_"),
        rnn.RNN(4, layout="NTC", dropout=0.3, input_size=5, activation="tanh", prefix="n_"),
        rnn.GRU(4, dtype="float64", bidirectional=True, input_size=2, prefix="n_"),
        rnn.LSTM(4, state_clip_min=-1, state_clip_max=1, use_sequence_length=True, prefix="n_"),
        rnn.RNNCell(4, activation="relu", prefix="n_"),
        rnn.LSTMCell(4, input_size=3, prefix="n_"),
        rnn.GRUCell(4, prefix="n_"),
        stack,
        hybrid,
        rnn.BidirectionalCell(rnn.LSTMCell(3, prefix="l_"), rnn.LSTMCell(2, prefix="r_")),
        rnn.ModifierCell(rnn.LSTMCell(3, prefix="n_")),
        rnn.DropoutCell(0.3, axes=(1,), prefix="n_"),
        contrib.LSTMPCell(4, 2, prefix="n_"),
        contrib.VariationalDropoutCell(rnn.LSTMCell(3, prefix="n_"), 0.1, 0.2, 0.3),
        contrib.Conv1DRNNCell((8, 3), 4, 3, 3, conv_layout="NWC", prefix="n_"),
        contrib.Conv2DLSTMCell((3, 8, 8), 4, 3, 3, i2h_pad=1, prefix="n_"),
        contrib.Conv3DGRUCell((3, 8, 8, 8), 4, (3, 2, 1), (3, 1, 5), prefix="n_", activation="relu"),
    ]
    results = [len(stack), repr(stack[0]), outcome(lambda: stack[5])]
    for block in blocks:
        results += [repr(block), f"{block.prefix} {block.name} {block.state_info(3)} {block.state_info()}"]
        params = [
            (p.name, p.shape, np.dtype(p.dtype).name, p.grad_req, p.init) for p in block.collect_params().values()
        ]
        results += [str(params)]
    return results


@program
def automatic_names(mx):
    rnn, contrib = mx.gluon.rnn, mx.gluon.contrib.rnn
    with mx.name.NameManager():
        blocks = [
            rnn.RNN(2),
            rnn.LSTM(2),
            rnn.GRU(2),
            rnn.RNNCell(2),
            rnn.LSTMCell(2),
            rnn.GRUCell(2),
            rnn.DropoutCell(0.1),
            rnn.SequentialRNNCell(),
            rnn.HybridSequentialRNNCell(),
            rnn.ZoneoutCell(rnn.ResidualCell(rnn.GRUCell(2))),
            rnn.BidirectionalCell(rnn.GRUCell(2), rnn.GRUCell(2)),
            rnn.RecurrentCell(),
            rnn.HybridRecurrentCell(),
            contrib.LSTMPCell(3, 2),
            contrib.VariationalDropoutCell(rnn.LSTMCell(3)),
            contrib.Conv1DRNNCell((3, 8), 4, 3, 3),
            contrib.Conv2DLSTMCell((3, 8, 8), 4, 3, 3),
            contrib.Conv1DGRUCell((3, 8), 4, 3, 3),
        ]
        return [" ".join(f"{block.prefix} {block.name}" for block in blocks)]


def graph(mx, result):
    """A graph's ops, names and edges."""
    nodes = json.loads(mx.sym.Group(flat(result)).tojson())["nodes"]
    lines = []
    for node in nodes:
        attrs = {k: v for k, v in node.get("attrs", {}).items() if not k.startswith("__")}
        inputs = [(nodes[i[0]]["name"], i[1]) for i in node["inputs"]]
        lines.append("%s %s %s %s" % (node["op"], node["name"], inputs, sorted(attrs)))
    return ["\n".join(lines)]


@program
def graphs_of_layers(mx):
    rnn, x, h, c = mx.gluon.rnn, mx.sym.var("data"), mx.sym.var("h"), mx.sym.var("c")
    made = {"prefix": "a_", "input_size": 5}
    return [
        *graph(mx, rnn.LSTM(3, 2, bidirectional=True, projection_size=2, **made)(x)),
        *graph(mx, rnn.LSTM(3, layout="NTC", **made)(x, [h, c])),
        *graph(mx, rnn.RNN(3, **made)(x, h)),
        *graph(mx, rnn.GRU(3, 2, **made)(x)),
        *graph(mx, rnn.LSTM(3, use_sequence_length=True, **made)(x, [h, c], mx.sym.var("lengths"))),
    ]


@program
def graphs_of_cells(mx):
    rnn, contrib = mx.gluon.rnn, mx.gluon.contrib.rnn
    x, h, c = mx.sym.var("data"), mx.sym.var("h"), mx.sym.var("c")
    made = {"prefix": "a_", "input_size": 3}
    cells = [
        rnn.RNNCell(3, **made),
        rnn.RNNCell(3, activation="softrelu", **made),
        rnn.RNNCell(3, activation=mx.gluon.nn.LeakyReLU(0.1), **made),
        rnn.LSTMCell(3, **made),
        rnn.LSTMCell(3, activation="softsign", recurrent_activation="relu", **made),
        rnn.GRUCell(3, **made),
        rnn.DropoutCell(0.3, prefix="d_"),
        rnn.ZoneoutCell(rnn.LSTMCell(3, **made), 0.1, 0.2),
        rnn.ResidualCell(rnn.RNNCell(3, **made)),
        contrib.LSTMPCell(3, 2, **made),
        contrib.VariationalDropoutCell(rnn.LSTMCell(3, **made), 0.1, 0.2, 0.3),
        contrib.Conv2DRNNCell((3, 8, 8), 4, 3, 3, prefix="a_"),
        contrib.Conv2DLSTMCell((3, 8, 8), 4, 3, 3, prefix="a_"),
        contrib.Conv2DGRUCell((3, 8, 8), 4, 3, 3, prefix="a_"),
    ]
    return [line for cell in cells for line in graph(mx, cell(x, [h, c][: len(cell.state_info())]))]


@program
def graphs_of_unrolled_cells(mx):
    rnn, x, y, lengths = mx.gluon.rnn, mx.sym.var("data"), mx.sym.var("y"), mx.sym.var("lengths")

    def cell(prefix="a_"):
        return rnn.RNNCell(3, prefix=prefix, input_size=3)

    def both():
        return rnn.BidirectionalCell(cell("l_"), cell("r_"))

    def stack():
        made = rnn.HybridSequentialRNNCell(prefix="s_")
        for each in (cell("l_"), rnn.DropoutCell(0.3, prefix="d_"), cell("r_")):
            made.add(each)
        return made

    with mx.name.NameManager():
        unrolled = [
            cell().unroll(2, x),
            cell().unroll(2, x, merge_outputs=True, layout="TNC"),
            cell().unroll(2, x, merge_outputs=False, valid_length=lengths),
            cell().unroll(2, [x, y]),
            rnn.DropoutCell(0.3, prefix="d_").unroll(3, x),
            rnn.ResidualCell(cell()).unroll(2, x),
            both().unroll(2, x),
            both().unroll(2, x, merge_outputs=True),
            stack().unroll(2, x),
            stack()(x, [y, y]),
        ]
    return [line for each in unrolled for line in graph(mx, each)] + [str(nesting(each)) for each in unrolled]


def cell_results(mx, cell, x, scale=0.7, **kwargs):
    """A cell unrolled from given states."""
    filled(mx, cell, 0, scale)
    layout = kwargs.get("layout", "NTC")
    steps = x if isinstance(x, list) else [x]
    batch = x[0].shape[0] if isinstance(x, list) else x.shape[layout.index("N")]
    length = len(x) if isinstance(x, list) else x.shape[layout.index("T")]
    rng = np.random.RandomState(5)
    states = [array(mx, rng, *info["shape"]) for info in cell.state_info(batch)]
    return run(mx, cell, [*steps, *states], cell.unroll, length, x, begin_state=states, **kwargs)


CELLS = {
    "rnn": lambda rnn, size, p: rnn.RNNCell(size, activation="relu", input_size=3, prefix=p),
    "lstm": lambda rnn, size, p: rnn.LSTMCell(size, input_size=3, prefix=p),
    "gru": lambda rnn, size, p: rnn.GRUCell(size, input_size=3, prefix=p),
}


@program
def cells_unrolled(mx):
    rng, results = np.random.RandomState(0), []
    x = array(mx, rng, 2, 4, 3)
    lengths = mx.nd.array([3, 1])
    for make in CELLS.values():
        for kwargs in (
            {},
            {"merge_outputs": True},
            {"merge_outputs": False, "valid_length": lengths},
            {"valid_length": lengths},
        ):
            results += cell_results(mx, make(mx.gluon.rnn, 5, "a_"), x, **kwargs)
        results += cell_results(mx, make(mx.gluon.rnn, 5, "a_"), x, layout="TNC", merge_outputs=True)
        steps = [array(mx, rng, 2, 3) for _ in range(3)]
        results += cell_results(mx, make(mx.gluon.rnn, 5, "a_"), steps)
        results += cell_results(mx, make(mx.gluon.rnn, 5, "a_"), steps, layout="TNC", merge_outputs=True)
        results += cell_results(mx, make(mx.gluon.rnn, 5, "a_"), steps[:1])
        results += flat(filled(mx, make(mx.gluon.rnn, 5, "a_")).unroll(4, x))
    return results


def two_steps(cell, x, states):
    return cell(x, cell(x, states)[1])


@program
def cells_stepped(mx):
    rng, results = np.random.RandomState(0), []
    for make in CELLS.values():
        for hybridize in (False, True):
            cell = filled(mx, make(mx.gluon.rnn, 5, "a_"))
            if hybridize:
                cell.hybridize()
            states = [array(mx, rng, 2, 5) for _ in cell.state_info()]
            x = array(mx, rng, 2, 3)
            results += run(mx, cell, [x, *states], cell, x, states)
            results += run(mx, cell, [x, *states], two_steps, cell, x, states)
    return results


@program
def cells_with_other_activations(mx):
    rnn, rng, results = mx.gluon.rnn, np.random.RandomState(0), []
    x, h = array(mx, rng, 2, 3), array(mx, rng, 2, 4)
    for activation in ("tanh", "relu", "sigmoid", "softsign", "softrelu", mx.gluon.nn.LeakyReLU(0.1), mx.nd.sin):
        cell = filled(mx, rnn.RNNCell(4, activation=activation, input_size=3))
        results += run(mx, cell, [x, h], cell, x, [h])
    for activation in ("relu", "sigmoid", "softrelu"):
        cell = filled(mx, rnn.LSTMCell(4, activation=activation, recurrent_activation="softsign", input_size=3))
        results += run(mx, cell, [x], cell, x, [h, h])
    return results + [outcome(lambda: filled(mx, rnn.RNNCell(4, activation="leaky", input_size=3))(x, [h]))]


def made_stack(mx, kind, dropout=True):
    rnn = mx.gluon.rnn
    stack = getattr(rnn, kind)(prefix="s_")
    stack.add(rnn.LSTMCell(4, input_size=3, prefix="a_"))
    if dropout:
        stack.add(rnn.DropoutCell(0.0, prefix="d_"))
    stack.add(rnn.ResidualCell(rnn.GRUCell(4, input_size=4, prefix="b_")))
    return stack


@program
def stacks_of_cells(mx):
    rng, results = np.random.RandomState(0), []
    x, lengths = array(mx, rng, 2, 3, 3), mx.nd.array([2, 3])
    for kind in ("SequentialRNNCell", "HybridSequentialRNNCell"):
        results += cell_results(mx, made_stack(mx, kind), x)
        results += cell_results(mx, made_stack(mx, kind), x, merge_outputs=True, valid_length=lengths)
        results += cell_results(mx, made_stack(mx, kind), x, layout="TNC", merge_outputs=False)
        # MXNet loses the gradient of a hybridized cell that does nothing.
        stack = filled(mx, made_stack(mx, kind, dropout=False))
        stack.hybridize()
        states = [array(mx, rng, 2, 4) for _ in range(3)]
        step = array(mx, rng, 2, 3)
        results += run(mx, stack, [step, *states], stack, step, states)
        results += run(mx, stack, [x], stack.unroll, 3, x)
    empty = mx.gluon.rnn.SequentialRNNCell()
    return results + flat(empty.unroll(3, x)) + flat(empty(x, []))


def made_bidirectional(mx):
    rnn = mx.gluon.rnn
    return rnn.BidirectionalCell(
        rnn.LSTMCell(4, input_size=3, prefix="l_"), rnn.GRUCell(2, input_size=3, prefix="r_"), output_prefix="both_"
    )


@program
def bidirectional_cells(mx):
    rng, results = np.random.RandomState(0), []
    x, lengths = array(mx, rng, 2, 4, 3), mx.nd.array([3, 1])
    results += cell_results(mx, made_bidirectional(mx), x)
    results += cell_results(mx, made_bidirectional(mx), x, merge_outputs=True)
    results += cell_results(mx, made_bidirectional(mx), x, merge_outputs=False, valid_length=lengths)
    results += cell_results(mx, made_bidirectional(mx), x, merge_outputs=True, valid_length=lengths)
    results += cell_results(mx, made_bidirectional(mx), [array(mx, rng, 2, 3) for _ in range(3)])
    x = array(mx, rng, 4, 2, 3)
    results += cell_results(mx, made_bidirectional(mx), x, layout="TNC", merge_outputs=True)
    results += cell_results(mx, made_bidirectional(mx), x, layout="TNC", merge_outputs=True, valid_length=lengths)
    results += flat(filled(mx, made_bidirectional(mx)).unroll(4, x, layout="TNC"))
    stack = mx.gluon.rnn.SequentialRNNCell()
    stack.add(made_bidirectional(mx))
    stack.add(mx.gluon.rnn.RNNCell(2, input_size=6))
    results += cell_results(mx, stack, x, layout="TNC")
    return results + [
        outcome(lambda: made_bidirectional(mx)(x, [])),
        outcome(lambda: stack(x, stack.begin_state(batch_size=2))),
    ]


@program
def residual_cells(mx):
    rnn, rng, results = mx.gluon.rnn, np.random.RandomState(0), []
    x, lengths = array(mx, rng, 2, 4, 3), mx.nd.array([3, 1])

    def made():
        return rnn.ResidualCell(rnn.LSTMCell(3, input_size=3, prefix="a_"))

    for kwargs in (
        {},
        {"merge_outputs": True},
        {"merge_outputs": False, "valid_length": lengths},
        {"valid_length": lengths},
    ):
        results += cell_results(mx, made(), x, **kwargs)
    cell = filled(mx, made())
    step, h, c = (array(mx, rng, 2, 3) for _ in range(3))
    return results + run(mx, cell, [step, h, c], cell, step, [h, c])


@program
def modifiers_that_drop_nothing(mx):
    """Zoneout and dropout at rate 0, and while predicting."""
    rnn, contrib, rng, results = mx.gluon.rnn, mx.gluon.contrib.rnn, np.random.RandomState(0), []
    x = array(mx, rng, 2, 4, 3)

    def base():
        return rnn.LSTMCell(3, input_size=3, prefix="a_")

    for make in (rnn.ZoneoutCell, contrib.VariationalDropoutCell):
        results += cell_results(mx, make(base()), x)
        results += cell_results(mx, make(base()), x, merge_outputs=True, valid_length=mx.nd.array([2, 4]))
    for cell in (
        rnn.ZoneoutCell(base(), 0.3, 0.4),
        contrib.VariationalDropoutCell(base(), 0.2, 0.3, 0.4),
        contrib.VariationalDropoutCell(base(), 0.2, 0.0, 0.4),
        rnn.DropoutCell(0.5),
    ):
        filled(mx, cell)
        for kwargs in ({}, {"merge_outputs": True}, {"merge_outputs": False}):
            result = cell.unroll(4, x, **kwargs)
            results += [str(nesting(result)), *flat(result)]
    return results


@program
def lstm_cell_with_projection(mx):
    rng, results = np.random.RandomState(0), []
    x = array(mx, rng, 2, 4, 3)
    for kwargs in ({}, {"merge_outputs": True, "valid_length": mx.nd.array([2, 4])}):
        cell = mx.gluon.contrib.rnn.LSTMPCell(5, 2, input_size=3, prefix="a_")
        results += cell_results(mx, cell, x, **kwargs)
    deferred = mx.gluon.contrib.rnn.LSTMPCell(5, 2)
    deferred.initialize(mx.init.Constant(0.1))
    return results + flat(deferred.unroll(4, x)) + [repr(deferred)]


@program
def convolutional_cells(mx):
    contrib, rng, results = mx.gluon.contrib.rnn, np.random.RandomState(0), []
    for dims, size in ((1, (7,)), (2, (5, 4)), (3, (4, 3, 3))):
        for kind in ("RNN", "LSTM", "GRU"):
            make = getattr(contrib, "Conv%dD%sCell" % (dims, kind))
            x = [array(mx, rng, 2, 2, *size) for _ in range(2)]
            layout = "NTC" + "DHW"[-dims:]
            cell = make((2, *size), 3, (3,) * dims, 3, i2h_pad=(1,) * dims, prefix="a_")
            results += cell_results(mx, cell, x, 0.2, layout=layout)
            cell = make((2, *size), 3, 2, 1, i2h_pad=1, i2h_dilate=2, h2h_dilate=(1,) * dims, activation="relu")
            results += cell_results(mx, cell, x, 0.2, layout=layout, merge_outputs=dims < 3)
            cell = filled(mx, make((2, *size), 3, 3, 3, i2h_pad=1, h2h_dilate=2), 0, 0.2)
            cell.hybridize()
            results += flat(cell(x[0], cell.begin_state(batch_size=2, func=mx.nd.ones)))
    return results + [
        outcome(lambda: contrib.Conv2DRNNCell((3, 8, 8), 4, 3, 2)),
        outcome(lambda: contrib.Conv2DRNNCell((3, 8, 8), 4, (3,), 3)),
        outcome(lambda: contrib.Conv2DRNNCell((3, 8, 8), 4, 3, (3, 2))),
    ]


@program
def unrolled_by_foreach(mx):
    rng, results = np.random.RandomState(0), []
    dynamic_unroll = mx.gluon.contrib.rnn.rnn_cell.dynamic_unroll
    for layout, batch in (("TNC", 2), ("NTC", 3)):
        for lengths in (None, mx.nd.array([1, 2, 2][:batch])):
            for make in CELLS.values():
                cell = filled(mx, make(mx.gluon.rnn, 5, "a_"))
                x = array(mx, rng, 3, 2, 3)
                states = [array(mx, rng, batch, 5) for _ in cell.state_info()]
                arguments = {"layout": layout, "valid_length": lengths}
                results += run(mx, cell, [x, *states], dynamic_unroll, cell, x, states, **arguments)
    return results


@program
def cells_of_ones_own(mx):
    class Mean(mx.gluon.rnn.HybridRecurrentCell):
        def __init__(self, size, **kwargs):
            super().__init__(**kwargs)
            self._size = size
            self.weight = self.params.get("weight", shape=(size, size))

        def state_info(self, batch_size=0):
            return [{"shape": (batch_size, self._size), "__layout__": "NC"}]

        def hybrid_forward(self, F, x, states, weight):
            output = (F.dot(x, weight) + states[0]) / 2
            return output, [output]

    class Plain(mx.gluon.rnn.RecurrentCell):
        def state_info(self, batch_size=0):
            return [{"shape": (batch_size, 3)}]

        def forward(self, inputs, states):
            output = inputs * 2 + states[0]
            return output, [output]

    rng = np.random.RandomState(0)
    x = array(mx, rng, 2, 4, 3)
    results = cell_results(mx, Mean(3, prefix="a_"), x)
    results += cell_results(mx, mx.gluon.rnn.ResidualCell(Mean(3, prefix="a_")), x, merge_outputs=True)
    results += cell_results(mx, Plain(prefix="b_"), x, valid_length=mx.nd.array([2, 4]))
    return results + flat(Plain().unroll(4, x))


@program
def wrong_use_of_cells(mx):
    rnn, contrib, rng = mx.gluon.rnn, mx.gluon.contrib.rnn, np.random.RandomState(0)
    x = array(mx, rng, 3, 2, 4)

    def cell():
        return filled(mx, rnn.LSTMCell(4, input_size=4))

    def both():
        return rnn.BidirectionalCell(rnn.LSTMCell(3), rnn.LSTMCell(3))

    base = cell()
    modifier = rnn.ResidualCell(base)
    return [
        modifier.prefix == base.prefix + "residualcell",
        outcome(lambda: rnn.ZoneoutCell(base)),
        outcome(lambda: len(base.unroll(3, x, layout="TNC"))),
        outcome(lambda: rnn.ZoneoutCell(both())),
        outcome(lambda: contrib.VariationalDropoutCell(both(), drop_states=0.1)),
        outcome(lambda: rnn.ResidualCell(rnn.SequentialRNNCell())),
        outcome(lambda: rnn.HybridSequentialRNNCell().add(rnn.SequentialRNNCell())),
        outcome(lambda: rnn.DropoutCell("a")),
        outcome(lambda: cell().unroll(3, x, merge_outputs=True)),
        outcome(lambda: cell().unroll(3, [x[0], x[1]])),
        outcome(lambda: cell().unroll(2, "abc")),
        outcome(lambda: cell().unroll(2, x, layout="CCC")),
        outcome(lambda: cell()(x[0])),
        outcome(lambda: rnn.RNN(3)(x)),
    ]


def names_in_file(mx, block):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "a.params")
        block.initialize()
        block.save_parameters(path)
        names = " ".join(mx.nd.load(path))
        block.load_parameters(path)
        return names


@program
def names_in_files(mx):
    rnn, results = mx.gluon.rnn, []
    net = mx.gluon.nn.HybridSequential()
    net.add(rnn.RNN(3, 1, input_size=2))
    stack = rnn.SequentialRNNCell()
    stack.add(rnn.ResidualCell(rnn.GRUCell(2, input_size=2)))
    for block in (
        rnn.LSTM(3, 2, bidirectional=True, dropout=0.3, input_size=2),
        rnn.GRU(3, 2, dropout=0.3, input_size=2),
        rnn.LSTM(3, 2, projection_size=2, input_size=2, bidirectional=True),
        net,
        stack,
        rnn.BidirectionalCell(rnn.LSTMCell(3, input_size=2), rnn.ZoneoutCell(rnn.LSTMCell(3, input_size=2))),
    ):
        results += [names_in_file(mx, block)]
    layer = filled(mx, rnn.RNN(3, input_size=2, prefix="a_"))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "a.params")
        layer.collect_params().save(path, strip_prefix="a_")
        other = rnn.RNN(3, input_size=2, prefix="b_")
        other.load_parameters(path)
        return results + [" ".join(mx.nd.load(path))] + [p.data() for p in other.collect_params().values()]


@program
def exported_layers(mx):
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for states in (False, True):
            layer = filled(mx, mx.gluon.rnn.LSTM(4, 2, input_size=3, prefix="net_"))
            layer.hybridize()
            x = array(mx, np.random.RandomState(0), 3, 2, 3)
            begin = layer.begin_state(2, func=mx.nd.ones)
            layer(x, begin) if states else layer(x)
            path = os.path.join(folder, "a%d" % states)
            layer.export(path)
            loaded = mx.gluon.SymbolBlock.imports(
                path + "-symbol.json", ["data0", "data1", "data2"], path + "-0000.params"
            )
            results += [*flat(loaded(x, *begin)), *mx.sym.load(path + "-symbol.json").list_outputs()]
    return results


@program
def layers_unfused(mx):
    """The stack of cells that a layer is."""
    rng, results = np.random.RandomState(0), []
    for kind in ("RNN", "LSTM", "GRU"):
        layer = filled(mx, getattr(mx.gluon.rnn, kind)(4, 2, bidirectional=True, input_size=3, prefix="net_"))
        stack = layer._unfuse()
        results += [repr(stack), " ".join(stack.collect_params().keys())]
        results += flat(stack.unroll(3, array(mx, rng, 3, 2, 3), layout="TNC", merge_outputs=True))
    return results
