"""Random programs of Gluon in NumPy mode, for race.py: networks, losses, metrics, trainings and files."""

import os
import random
import re
import tempfile

import numpy as onp
from race_np import EXPRESSIONS, HELPERS, data

# ---- what both engines run ----


def network(mx, layers, shape, dtype="float32", hybrid=False, lo=-2, hi=2):
    """A network of layers, with known parameters."""
    net = mx.gluon.nn.HybridSequential()
    for text in layers:
        net.add(eval(text, {"mx": mx, "nn": mx.gluon.nn, "rnn": mx.gluon.rnn, "own": lambda text: own(mx, text)}))
    net.initialize()
    if hybrid:
        net.hybridize()
    net(data(mx, 0, *shape, lo=lo, hi=hi, dtype=dtype))
    rng = onp.random.RandomState(1)
    for name, parameter in net.collect_params().items():
        low = 0.5 if name.endswith("var") else -1
        parameter.set_data(mx.np.array(rng.uniform(low, 1, parameter.shape), dtype="float32"))
    return net


def own(mx, expression):
    """A Block of one's own, written with F.np and F.npx."""
    space = {"mx": mx, "Base": mx.gluon.HybridBlock}
    exec(
        "@mx.util.use_np\n"
        "class Own(Base):\n"
        "    def __init__(self, **kwargs):\n"
        "        super().__init__(**kwargs)\n"
        "        self.scale = self.params.get('scale', shape=(1,), init='ones')\n"
        "    def hybrid_forward(self, F, x, scale):\n"
        "        return (%s) * scale\n" % expression,
        space,
    )
    return space["Own"]()


def gradients(mx, net, *inputs):
    """A network's output while training, and the gradients of its inputs and parameters."""
    inputs = [each.copy() for each in inputs]
    for each in inputs:
        if each.dtype.kind == "f":
            each.attach_grad()
    with mx.autograd.record():
        output = net(*inputs)
    head = onp.random.RandomState(3).uniform(-1, 1, size=output.shape)
    output.backward(mx.np.array(head, dtype="float32"))
    parameters = [p for p in net.collect_params().values()]
    grads = [p.data() if p.grad_req == "null" else p.grad() for p in parameters]
    return [output] + [each.grad for each in inputs if each.dtype.kind == "f"] + grads


def trained(mx, net, loss, inputs, label, optimizer, settings, steps=3):
    """Losses of some steps of training, and the parameters after them where their gradients were not just rounding.

    Adam and its kin make a full step of a gradient that is 0 but for rounding.
    """
    loss = eval(loss, {"loss": mx.gluon.loss})
    trainer = mx.gluon.Trainer(net.collect_params(), optimizer, settings)
    losses, parameters, clear = [], list(net.collect_params().values()), {}
    for step in range(steps):
        with mx.autograd.record():
            cost = loss(net(inputs), label)
        cost.backward()
        for p in parameters:
            if p.grad_req != "null":
                seen = onp.abs(p.grad().asnumpy()) > 1e-4
                clear[p.name] = seen & clear[p.name] if step else seen
        trainer.step(inputs.shape[0])
        losses.append(cost)
    return losses + [onp.where(clear[p.name], p.data().asnumpy(), 0) for p in parameters if p.name in clear]


def exported(mx, net, inputs):
    """What a network gives when it is written and read as symbol and parameters."""
    net.hybridize()
    expected = net(inputs)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "net")
        net.export(path)
        read = mx.gluon.SymbolBlock.imports(path + "-symbol.json", ["data"], path + "-0000.params")
    return [expected, read(inputs)]


def saved(mx, net, layers, shape, inputs, dtype="float32"):
    """What another network of the same layers gives with the parameters of this one, from a file."""
    other = mx.gluon.nn.HybridSequential()
    for text in layers:
        other.add(eval(text, {"mx": mx, "nn": mx.gluon.nn, "rnn": mx.gluon.rnn, "own": lambda text: own(mx, text)}))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "net.params")
        net.save_parameters(path)
        other.load_parameters(path)
    return other(inputs)


def measured(mx, metric, label, prediction):
    """The value of a metric after two updates."""
    metric = eval(metric, {"metric": mx.metric})
    for _ in range(2):
        metric.update([label], [prediction])
    name, value = metric.get()
    return name, float(value)


HELPERS.update(network=network, gradients=gradients, trained=trained, exported=exported, saved=saved, measured=measured)

# ---- how programs are made ----

SMALL = "sin cos tanh arctan arcsinh negative".split()  # whose results do not grow from layer to layer

ACTIVATIONS = ["nn.Activation('%s')" % each for each in ("relu", "sigmoid", "tanh", "softrelu", "softsign")]
ACTIVATIONS += ["nn.LeakyReLU(0.2)", "nn.ELU()", "nn.SELU()", "nn.GELU()", "nn.Swish()"]
NORMS = [
    "nn.BatchNorm()",
    "nn.BatchNorm(momentum=0.5, epsilon=1e-3, center=False)",
    "nn.LayerNorm()",
    "nn.Dropout(0.0)",
]
NORMS += ["nn.BatchNorm(scale=False)", "nn.BatchNorm(use_global_stats=True)", "nn.LayerNorm(epsilon=1e-2)"]
DENSE = [
    "nn.Dense(4)",
    "nn.Dense(3, activation='relu')",
    "nn.Dense(4, use_bias=False)",
    "nn.Dense(5, activation='tanh')",
]
PICTURES = [
    "nn.Conv2D(3, 3, padding=1)",
    "nn.Conv2D(4, (1, 2), strides=(2, 1), activation='relu')",
    "nn.Conv2D(2, 3, padding=2, dilation=2, use_bias=False)",
    "nn.Conv2DTranspose(2, 2, strides=2)",
    "nn.MaxPool2D(2, 1)",
    "nn.MaxPool2D((2, 1), 2, ceil_mode=True)",
    "nn.AvgPool2D(2, 2)",
    "nn.AvgPool2D(3, 1, padding=1, count_include_pad=False)",
    "nn.BatchNorm()",
    "nn.BatchNorm(axis=1, momentum=0.8)",
    "nn.Conv2D(4, 3, groups=2, padding=1)",
    "nn.GlobalAvgPool2D()",
]
SEQUENCES = ["nn.Dense(4, flatten=False)", "nn.Dense(3, flatten=False, activation='sigmoid')", "nn.LayerNorm()"]
RECURRENT = [  # which MXNet does not hybridize in NumPy mode
    "rnn.LSTM(3, layout='NTC')",
    "rnn.GRU(2, layout='NTC', bidirectional=True)",
    "rnn.RNN(3, layout='NTC', activation='tanh')",
    "rnn.LSTM(2, num_layers=2, layout='NTC')",
]
OPTIMIZERS = [
    ("sgd", {"learning_rate": 0.1}),
    ("sgd", {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01}),
    ("sgd", {"learning_rate": 0.05, "momentum": 0.5, "clip_gradient": 0.2}),
    ("nag", {"learning_rate": 0.1, "momentum": 0.9}),
    ("adam", {"learning_rate": 0.01}),
    ("adam", {"learning_rate": 0.01, "beta1": 0.5, "wd": 0.1}),
    ("rmsprop", {"learning_rate": 0.01}),
    ("rmsprop", {"learning_rate": 0.01, "centered": True}),
    ("adagrad", {"learning_rate": 0.1}),
    ("adadelta", {"rho": 0.8}),
    ("adamax", {"learning_rate": 0.01}),
    ("nadam", {"learning_rate": 0.01}),
    ("ftrl", {"learning_rate": 0.1}),
    ("ftml", {"learning_rate": 0.01}),
    ("signum", {"learning_rate": 0.01, "momentum": 0.9}),
    ("lamb", {"learning_rate": 0.01}),
    ("lars", {"learning_rate": 0.1, "momentum": 0.9}),
    ("dcasgd", {"learning_rate": 0.01}),
]
# The losses that MXNet has in NumPy mode, and their labels: numbers like the predictions, flags, chances or classes.
LOSSES = [
    ("loss.L2Loss()", "like"),
    ("loss.L1Loss()", "like"),
    ("loss.SigmoidBCELoss()", "flags"),
    ("loss.SigmoidBinaryCrossEntropyLoss(from_sigmoid=False)", "flags"),
    ("loss.SoftmaxCELoss()", "classes"),
    ("loss.SoftmaxCrossEntropyLoss(sparse_label=False)", "chances"),
]
LABELS = {
    "like": "data(5, *{y}.shape)",
    "flags": "(data(5, *{y}.shape) > 0).astype('float32')",
    "chances": "npx.softmax(data(5, *{y}.shape))",
    "classes": "np.array(onp.arange({y}.size // {y}.shape[-1]) % {y}.shape[-1]).reshape({y}.shape[:-1])",
}
METRICS = [
    ("metric.TopKAccuracy(2)", "classes"),
    ("metric.MAE()", "like"),
    ("metric.MSE()", "like"),
    ("metric.RMSE()", "like"),
    ("metric.CrossEntropy()", "classes"),
    ("metric.NegativeLogLikelihood()", "classes"),
    ("metric.PearsonCorrelation()", "like"),
    ("metric.Perplexity(None)", "classes"),
]


def expression(rng):
    """Something of x that keeps its shape, as a Block writes it."""
    text = "x"
    for _ in range(rng.randint(1, 2)):
        outer = rng.choice([each for each in EXPRESSIONS if not re.search(r"flip|::-1|\.T|\*\*", each)])
        text = "(%s)" % outer.replace("{smooth}", rng.choice(SMALL)).replace("{}", text)
    return text.replace("np.", "F.np.").replace("npx.", "F.npx.")


def layers(rng, kind):
    found = []
    for _ in range(rng.randint(1, 4)):
        pool = {"vector": DENSE + NORMS, "picture": PICTURES}.get(kind, SEQUENCES + RECURRENT)
        chance = rng.random()
        if chance < 0.25:
            found.append(rng.choice(ACTIVATIONS))
        elif chance < 0.4:
            found.append("own(%r)" % expression(rng))
        else:
            found.append(rng.choice(pool))
    if kind == "ids":
        found.insert(0, "nn.Embedding(6, 4)")
    return [*found, "nn.Dense(3)"]


def program(seed):
    """The statements of one program: a network and what is done with it."""
    rng = random.Random(seed)
    kind = rng.choice(["vector", "vector", "picture", "sequence", "ids"])
    shape = {"vector": (3, 4), "picture": (2, 2, 5, 6), "sequence": (2, 3, 4), "ids": (2, 3)}[kind]
    chosen = layers(rng, kind)
    recurrent = any(each in RECURRENT for each in chosen)
    hybrid = rng.random() < 0.5 and not recurrent
    more = {"ids": ", lo=0, hi=6, dtype='int32'"}.get(kind, "")
    lines = [
        f"x = data(7, *{shape}{more})",
        f"net = network({chosen}, {shape}, hybrid={hybrid}{more})",
        "y = net(x)",
        "g = gradients(net, x)",
    ]
    if rng.random() < 0.4:
        metric, label = rng.choice(METRICS)
        lines.append(f"m = measured({metric!r}, {LABELS[label].format(y='y')}, npx.softmax(y))")
    if rng.random() < 0.5:
        lines.append(f"s = saved(net, {chosen}, {shape}, x)")
    if rng.random() < 0.5 and not recurrent:
        lines.append("e = exported(net, x)")
    if rng.random() < 0.7:  # at last: a training that MXNet refuses half way changes the network
        loss, label = rng.choice(LOSSES)
        lines.append(f"label = {LABELS[label].format(y='y')}")
        optimizer, settings = rng.choice(OPTIMIZERS)
        lines.append(f"t = trained(net, {loss!r}, x, label, {optimizer!r}, {settings})")
    return lines


def programs(count, seed):
    """Programs of Gluon in NumPy mode."""
    return [program(seed * 1_000_000 + i) for i in range(count)]
