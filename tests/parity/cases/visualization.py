"""mx.viz: graphviz's text and the table, letter by letter."""

import contextlib
import io

from parity.spec import family, outcome

case, program = family(__name__)


def plot(mx, *args, **kwargs):
    dot = mx.viz.plot_network(*args, **kwargs)
    return "\n".join([dot.source.rstrip(), dot.name, dot.format, dot.filename])  # versions end lines differently


def summary(mx, *args, **kwargs):
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        mx.viz.print_summary(*args, **kwargs)
    return text.getvalue()


def mlp(s):
    net = s.FullyConnected(s.var("data"), num_hidden=128, name="fc1")
    net = s.Activation(net, act_type="relu", name="relu1")
    net = s.FullyConnected(net, num_hidden=10, no_bias=True, name="fc2")
    return s.SoftmaxOutput(net, name="softmax")


def lenet(s):
    net = s.var("data")
    for number, filters in enumerate((20, 50)):
        net = s.Convolution(net, kernel=(5, 5), num_filter=filters, name="conv%d" % number)
        net = s.Activation(net, act_type="tanh", name="tanh%d" % number)
        net = s.Pooling(net, pool_type="max", kernel=(2, 2), stride=(2, 2), name="pool%d" % number)
    net = s.FullyConnected(s.Flatten(net, name="flat"), num_hidden=500, name="fc1")
    net = s.FullyConnected(s.Dropout(net, name="drop"), num_hidden=10, name="fc2")
    return s.SoftmaxOutput(net, s.var("softmax_label"), name="softmax")


def mixture(s):
    """Layers of all the kinds that look different."""
    net = s.Convolution(s.var("data"), num_filter=6, kernel=(3, 3), stride=(2, 2), pad=(1, 1), num_group=3, name="conv")
    net = s.BatchNorm(net, name="bn", fix_gamma=False)
    net = s.LeakyReLU(net, act_type="leaky", name="leaky")
    side = s.Convolution(net, num_filter=4, kernel=(1, 1), no_bias=True, name="side")
    net = s.Concat(side, net, name="cat") + 1
    net = s.Pooling(net, global_pool=True, pool_type="avg", name="pool")
    net = s.broadcast_mul(s.Reshape(net, shape=(0, -1), name="flat"), s.var("scale", shape=(1, 10)), name="scaled")
    parts = s.SliceChannel(net, num_outputs=2, name="parts")
    net = s.LayerNorm(parts[0] + parts[1], name="norm")
    return s.LinearRegressionOutput(s.FullyConnected(net, num_hidden=3, name="fc"), name="out")


@program
def pictures(mx):
    with mx.name.NameManager():
        s, results = mx.sym, []
        for net, shape in ((mlp(s), (2, 784)), (lenet(s), (2, 1, 28, 28)), (mixture(s), (2, 3, 16, 16))):
            results += [plot(mx, net), plot(mx, net, shape={"data": shape})]
            results += [plot(mx, net, "my title", "png", {"data": shape}, hide_weights=False)]
        return results


@program
def pictures_with_types_and_styles(mx):
    with mx.name.NameManager():
        s = mx.sym
        net = mlp(s)
        results = [plot(mx, net, dtype={"data": "float16"})]
        results += [plot(mx, net, shape={"data": (2, 5)}, dtype={"data": "float64"}, hide_weights=False)]
        results += [plot(mx, net, node_attrs={"shape": "diamond", "fixedsize": "false", "color": "red"})]
        embedded = s.Embedding(s.var("words"), input_dim=9, output_dim=4, name="embed")
        recurrent = s.RNN(embedded, state_size=3, num_layers=1, mode="lstm", state_outputs=True, name="rnn")
        results += [plot(mx, recurrent), plot(mx, s.Group([s.relu(s.var("a b")), s.var("y") * 3]))]
        names = "_weight _bias _beta _gamma _moving_var _moving_mean _running_mean _running_var _label _state weight"
        variables = [s.var("a" + end) for end in names.split()]
        return results + [plot(mx, s.Concat(*variables)), plot(mx, s.Concat(*variables), hide_weights=False)]


@program
def picture_of_a_zoo_network(mx):
    with mx.name.NameManager():
        net = mx.gluon.model_zoo.vision.resnet18_v1(prefix="net_")
        symbol = net(mx.sym.var("data"))
        shape = {"data": (1, 3, 32, 32)}
        return [plot(mx, symbol, shape=shape), summary(mx, symbol, shape)]


@program
def tables(mx):
    with mx.name.NameManager():
        s, results = mx.sym, []
        for net, shape in ((mlp(s), (2, 784)), (lenet(s), (2, 1, 28, 28)), (mixture(s), (2, 3, 16, 16))):
            results += [summary(mx, net), summary(mx, net, {"data": shape})]
            results += [summary(mx, net, {"data": shape}, 98, [0.3, 0.5, 0.7, 1.0])]
            results += [summary(mx, net, {"data": shape}, 60, [15, 35, 45, 60])]
        return results


@program
def what_tables_count(mx):
    with mx.name.NameManager():
        s = mx.sym
        x, picture = s.var("data"), {"data": (2, 6, 8, 8)}
        layers = [
            s.FullyConnected(x, num_hidden=4, name="fc"),
            s.FullyConnected(x, num_hidden=4, flatten=False, no_bias=True, name="fc"),
            s.Deconvolution(x, num_filter=4, kernel=(3, 3), name="up"),
            s.BatchNorm(x, axis=3, name="bn"),
            s.InstanceNorm(x, name="norm"),
            s.LeakyReLU(x, act_type="prelu", name="prelu"),
            s.FullyConnected(s.FullyConnected(x, s.var("w"), num_hidden=384, name="a"), s.var("v"), num_hidden=6),
            s.zeros((2, 6, 8, 8)) + x,
            s.var("scale") * x,
        ]
        results = [summary(mx, layer, picture) for layer in layers]
        results += [summary(mx, s.Embedding(x, input_dim=10, output_dim=4, name="embed"), {"data": (2, 3)})]
        results += [summary(mx, s.Convolution(x, num_filter=4, kernel=(3,), name="conv"), {"data": (2, 6, 8)})]
        joined = s.FullyConnected(s.Concat(x, s.var("y")), num_hidden=2, name="fc")
        return results + [summary(mx, joined, {"data": (2, 3), "y": (2, 4)})]


@program
def refusals(mx):
    x, viz = mx.sym.var("data"), mx.viz
    unknown = mx.sym.dot(x, mx.sym.var("y"))
    calls = [lambda: viz.plot_network(3), lambda: viz.print_summary(3)]
    calls += [lambda: viz.plot_network(x * 2, shape={"none": (1,)}), lambda: viz.print_summary(x * 2, {"none": (1,)})]
    calls += [lambda: viz.plot_network(unknown, shape={"data": (2, 3)})]
    calls += [lambda: viz.print_summary(unknown, {"data": (2, 3)})]
    return [outcome(call) for call in calls]
