"""The layers of gluon.nn, contrib.nn and contrib.cnn: what they compute and learn, print, and call their parameters."""

import json
import warnings

import numpy as np

from parity.spec import family, outcome

case, program = family(__name__)


def batch(mx, *shape, seed=0):
    return mx.nd.array(np.random.RandomState(seed).uniform(-1, 1, shape), dtype="float32")


def fill(mx, block, seed=1):
    """Give every parameter known values: positive, as variances must be, and unlike each other."""
    rng = np.random.RandomState(seed)
    for parameter in block.collect_params().values():
        low = 0.5 if parameter.name.endswith("var") else -1
        parameter.set_data(mx.nd.array(rng.uniform(low, 1, parameter.shape), dtype=parameter.dtype))


def train(mx, block, inputs):
    """The output of a training step, the gradients of inputs and parameters, and the parameters without gradients."""
    for x in inputs:
        x.attach_grad()
    with mx.autograd.record():
        out = block(*inputs)
    out.backward(batch(mx, *out.shape, seed=2))
    parameters = block.collect_params().values()
    grads = [p.grad() for p in parameters if p.grad_req != "null"]
    return [out] + [x.grad for x in inputs] + grads + [p.data() for p in parameters if p.grad_req == "null"]


def describe(block):
    """What a user sees of a layer: its print, and its parameters' names and settings."""
    words = [repr(block)]
    for p in block.collect_params().values():
        words.append("%s %s %s %s %s" % (p.name, tuple(p.shape), np.dtype(p.dtype).name, p.grad_req, p._grad_stype))
    return ["; ".join(words)]


def graph_of(symbol):
    """The ops of a symbol with their names and attributes, as a file would have them."""
    nodes = [node for node in json.loads(symbol.tojson())["nodes"] if node["op"] != "null"]
    return "; ".join("%s %s %s" % (n["op"], n["name"], sorted(n.get("attrs", {}).items())) for n in nodes)


def layer(name, make, *shapes, **options):
    """Programs for a layer: as built, deferred; run for prediction and training, imperatively and hybridized."""
    seeds = range(len(shapes))
    trains, same_graph = options.pop("trains", True), options.pop("same_graph", True)
    assert not options

    def run(mx):
        block = make(mx.gluon)
        results = describe(block)
        block.initialize()
        inputs = [batch(mx, *shape, seed=seed) for shape, seed in zip(shapes, seeds)]
        block(*inputs)
        results += describe(block)
        for hybrid in (False, True):
            if hybrid:
                block.hybridize()
            fill(mx, block)
            results.append(block(*inputs))
            if trains:
                results += train(mx, block, inputs)
        return results

    def symbolic(mx):
        block = make(mx.gluon)
        out = block(*[mx.sym.var("data%d" % i) for i in seeds])
        names = "%s %s %s" % (out.list_arguments(), out.list_outputs(), out.list_auxiliary_states())
        return [names, graph_of(out)]

    run.__name__, symbolic.__name__ = name, name + "_symbolic"
    program(run)
    if same_graph:
        program(symbolic)


image, series, volume = (2, 4, 6, 7), (2, 4, 9), (2, 4, 4, 5, 5)

layer("dense", lambda g: g.nn.Dense(3, prefix="q_"), (2, 5))
layer("dense_flattens", lambda g: g.nn.Dense(3, prefix="q_"), (2, 5, 2))
layer("dense_keeps_axes", lambda g: g.nn.Dense(3, flatten=False, activation="tanh", prefix="q_"), (2, 3, 5))
layer("dense_no_bias", lambda g: g.nn.Dense(3, activation="relu", use_bias=False, in_units=5, prefix="q_"), (2, 5))
layer(
    "dense_initializers",
    lambda g: g.nn.Dense(3, "sigmoid", weight_initializer="ones", bias_initializer="ones", prefix="q_"),
    (2, 5),
)
layer("dropout_none", lambda g: g.nn.Dropout(0, prefix="q_"), (2, 5))
layer("dropout_predicts", lambda g: g.nn.Dropout(0.5, prefix="q_"), (2, 5), trains=False)
layer("dropout_axes_predicts", lambda g: g.nn.Dropout(0.5, axes=(1,), prefix="q_"), (2, 5), trains=False)
layer("batchnorm", lambda g: g.nn.BatchNorm(prefix="q_"), image)
layer("batchnorm_last_axis", lambda g: g.nn.BatchNorm(axis=-1, momentum=0.7, epsilon=1e-3, prefix="q_"), (2, 5, 3))
layer("batchnorm_of_rows", lambda g: g.nn.BatchNorm(prefix="q_"), (6, 3))
layer("batchnorm_plain", lambda g: g.nn.BatchNorm(center=False, scale=False, in_channels=4, prefix="q_"), image)
layer("batchnorm_global", lambda g: g.nn.BatchNorm(use_global_stats=True, prefix="q_"), image)
layer("batchnormrelu", lambda g: g.nn.BatchNormReLU(in_channels=4, prefix="q_"), image)
layer("syncbatchnorm", lambda g: g.contrib.nn.SyncBatchNorm(num_devices=1, prefix="q_"), image)
layer("instancenorm", lambda g: g.nn.InstanceNorm(prefix="q_"), image)
layer("instancenorm_axis", lambda g: g.nn.InstanceNorm(axis=2, scale=True, epsilon=1e-3, prefix="q_"), image)
layer("instancenorm_plain", lambda g: g.nn.InstanceNorm(center=False, in_channels=4, prefix="q_"), series)
layer("layernorm", lambda g: g.nn.LayerNorm(prefix="q_"), (2, 3, 5))
layer("layernorm_axis", lambda g: g.nn.LayerNorm(axis=1, epsilon=1e-3, prefix="q_"), (2, 3, 5))
layer("layernorm_plain", lambda g: g.nn.LayerNorm(center=False, scale=False, in_channels=5, prefix="q_"), (2, 5))
layer("groupnorm", lambda g: g.nn.GroupNorm(2, prefix="q_"), image)
layer("groupnorm_plain", lambda g: g.nn.GroupNorm(center=False, scale=False, epsilon=1e-3, prefix="q_"), image)
layer("flatten", lambda g: g.nn.Flatten(prefix="q_"), image)
layer("hybridlambda_name", lambda g: g.nn.HybridLambda("tanh", prefix="q_"), (2, 3))
layer("hybridlambda_two", lambda g: g.nn.HybridLambda(lambda F, x, y: F.dot(x, y), prefix="q_"), (2, 3), (3, 2))

for act in ("relu", "sigmoid", "tanh", "softrelu", "softsign"):
    layer("activation_" + act, lambda g, act=act: g.nn.Activation(act, prefix="q_"), (2, 5))
layer("leakyrelu", lambda g: g.nn.LeakyReLU(0.2, prefix="q_"), (2, 5))
layer("prelu", lambda g: g.nn.PReLU(prefix="q_"), (2, 5))
layer("prelu_channels", lambda g: g.nn.PReLU(alpha_initializer="ones", in_channels=4, prefix="q_"), image)
layer("elu", lambda g: g.nn.ELU(prefix="q_"), (2, 5))
layer("elu_alpha", lambda g: g.nn.ELU(0.3, prefix="q_"), (2, 5))
layer("selu", lambda g: g.nn.SELU(prefix="q_"), (2, 5))
layer("gelu", lambda g: g.nn.GELU(prefix="q_"), (2, 5))
layer("swish", lambda g: g.nn.Swish(prefix="q_"), (2, 5))
layer("swish_beta", lambda g: g.nn.Swish(beta=2, prefix="q_"), (2, 5))

layer("conv1d", lambda g: g.nn.Conv1D(3, 2, prefix="q_"), series)
layer("conv1d_all", lambda g: g.nn.Conv1D(4, 3, 2, 1, 2, 2, activation="relu", use_bias=False, prefix="q_"), series)
layer("conv2d", lambda g: g.nn.Conv2D(3, 3, prefix="q_"), image)
layer("conv2d_all", lambda g: g.nn.Conv2D(4, (3, 2), (2, 1), (1, 0), (1, 2), 2, activation="tanh", prefix="q_"), image)
layer("conv2d_depthwise", lambda g: g.nn.Conv2D(8, 3, padding=1, groups=4, in_channels=4, prefix="q_"), image)
layer("conv2d_pointwise", lambda g: g.nn.Conv2D(3, kernel_size=1, strides=2, use_bias=False, prefix="q_"), image)
layer("conv3d", lambda g: g.nn.Conv3D(3, (2, 3, 3), padding=1, prefix="q_"), volume)
layer("conv1dtranspose", lambda g: g.nn.Conv1DTranspose(3, 3, strides=2, output_padding=1, prefix="q_"), series)
layer("conv2dtranspose", lambda g: g.nn.Conv2DTranspose(3, 3, prefix="q_"), image)
layer(
    "conv2dtranspose_all",
    lambda g: g.nn.Conv2DTranspose(
        6, (3, 2), 2, (1, 0), (1, 0), groups=2, in_channels=4, activation="relu", prefix="q_"
    ),
    image,
)
layer("conv3dtranspose", lambda g: g.nn.Conv3DTranspose(2, 2, 2, use_bias=False, prefix="q_"), volume)

layer("maxpool1d", lambda g: g.nn.MaxPool1D(prefix="q_"), series)
layer("maxpool1d_last", lambda g: g.nn.MaxPool1D(3, 2, 1, layout="NWC", prefix="q_"), (2, 9, 4))
layer("maxpool2d", lambda g: g.nn.MaxPool2D(prefix="q_"), image)
layer("maxpool2d_ceil", lambda g: g.nn.MaxPool2D((3, 2), (2, 2), (1, 0), ceil_mode=True, prefix="q_"), image)
layer("maxpool2d_last", lambda g: g.nn.MaxPool2D(2, layout="NHWC", prefix="q_"), image)
layer("maxpool3d", lambda g: g.nn.MaxPool3D(2, prefix="q_"), volume)
layer("avgpool1d", lambda g: g.nn.AvgPool1D(padding=1, prefix="q_"), series)
layer("avgpool2d", lambda g: g.nn.AvgPool2D(3, 2, 1, prefix="q_"), image)
layer(
    "avgpool2d_inside", lambda g: g.nn.AvgPool2D(3, 2, 1, count_include_pad=False, ceil_mode=True, prefix="q_"), image
)
layer("avgpool2d_last", lambda g: g.nn.AvgPool2D(2, layout="NHWC", prefix="q_"), image)
layer("avgpool3d", lambda g: g.nn.AvgPool3D(2, 1, prefix="q_"), volume)
for rank, shape in ((1, series), (2, image), (3, volume)):
    for kind in ("Max", "Avg"):
        cls = "Global%sPool%dD" % (kind, rank)
        layer(cls.lower(), lambda g, cls=cls: getattr(g.nn, cls)(prefix="q_"), shape)
layer("globalavgpool2d_last", lambda g: g.nn.GlobalAvgPool2D(layout="NHWC", prefix="q_"), image)
layer("reflectionpad2d", lambda g: g.nn.ReflectionPad2D(2, prefix="q_"), image)
layer("reflectionpad2d_sides", lambda g: g.nn.ReflectionPad2D((0, 0, 0, 0, 1, 2, 3, 0), prefix="q_"), image)

layer("identity", lambda g: g.contrib.nn.Identity(prefix="q_"), (2, 3), trains=False)
# MXNet reshapes in other steps.
layer("pixelshuffle1d", lambda g: g.contrib.nn.PixelShuffle1D(2), (2, 4, 3), same_graph=False)
layer("pixelshuffle2d", lambda g: g.contrib.nn.PixelShuffle2D((2, 3)), (2, 12, 2, 3), same_graph=False)
layer("pixelshuffle3d", lambda g: g.contrib.nn.PixelShuffle3D((2, 3, 1)), (1, 12, 2, 3, 2), same_graph=False)
layer("pixelshuffle3d_same", lambda g: g.contrib.nn.PixelShuffle3D(2), (1, 16, 2, 1, 2), same_graph=False)
layer("deformable", lambda g: g.contrib.cnn.DeformableConvolution(2, 2, padding=1, prefix="q_"), (2, 2, 4, 5))
layer(
    "deformable_all",
    lambda g: g.contrib.cnn.DeformableConvolution(
        4,
        (3, 2),
        (2, 1),
        (1, 0),
        groups=2,
        num_deformable_group=2,
        use_bias=False,
        in_channels=4,
        activation="relu",
        offset_use_bias=False,
        prefix="q_",
    ),
    image,
)
# MXNet has its gradient on GPUs alone; tests/gluon/test_gluon_nn.py has it by differences.
layer(
    "modulated",
    lambda g: g.contrib.cnn.ModulatedDeformableConvolution(3, 3, padding=1, prefix="q_"),
    image,
    trains=False,
)
layer(
    "modulated_no_bias",
    lambda g: g.contrib.cnn.ModulatedDeformableConvolution(
        3, 2, in_channels=4, use_bias=False, offset_use_bias=False, activation="tanh", prefix="q_"
    ),
    image,
    trains=False,
)


def concurrent(g, cls):
    block = getattr(g.contrib.nn, cls)(axis=1, prefix="q_")
    with block.name_scope():
        block.add(g.nn.Dense(3), g.nn.Dense(2, activation="relu"), g.contrib.nn.Identity())
    return block


layer("hybridconcurrent", lambda g: concurrent(g, "HybridConcurrent"), (2, 3))


def small_net(g, cls):
    net = cls(prefix="net_")
    with net.name_scope():
        net.add(g.nn.Conv2D(3, 3, activation="relu"), g.nn.BatchNorm(), g.nn.MaxPool2D())
        inner = g.nn.HybridSequential()
        with inner.name_scope():
            inner.add(g.nn.Dense(4, activation="tanh"), g.nn.Dense(3))
        own = g.nn.HybridSequential(prefix="own_")
        own.add(g.nn.Dense(2))
        net.add(g.nn.Flatten(), inner, own)
    return net


layer("hybridsequential", lambda g: small_net(g, g.nn.HybridSequential), image)


@program
def concurrent_of_blocks(mx):
    block = concurrent(mx.gluon, "Concurrent")
    block.initialize()
    x = batch(mx, 2, 3)
    block(x)
    fill(mx, block)
    return describe(block) + [block(x)] + train(mx, block, [x])


@program
def sequential_of_blocks(mx):
    g = mx.gluon
    net = small_net(g, g.nn.Sequential)
    net.add(g.nn.Lambda("tanh"), g.nn.Lambda(lambda x: 2 * x))
    net.initialize()
    x = batch(mx, *image)
    net(x)
    fill(mx, net)
    results = describe(net) + [net(x)] + train(mx, net, [x])
    net.hybridize()
    fill(mx, net)
    return results + train(mx, net, [x])


@program
def sequential_as_a_list(mx):
    nn = mx.gluon.nn
    results = []
    for cls in (nn.Sequential, nn.HybridSequential):
        net = cls(prefix="m_")
        net.add(nn.Dense(2, prefix="a_"))
        net.add(nn.Dense(3, prefix="b_"), nn.Flatten(prefix="c_"))
        results += [
            len(net),
            net[0],
            net[-1],
            [layer.name for layer in net],
            net[1:],
            net[1:].prefix,
            type(net[:1]).__name__,
        ]
        results += [list(net[1:].collect_params()), list(net.collect_params(".*weight")), list(net._children)]
        results += [outcome(lambda net=net: net[3]), outcome(lambda net=net: net["a"]), net.add(), net]
        net[0:2].initialize()
        results.append(net(batch(mx, 2, 3)).shape)
        results.append(cls()(batch(mx, 2, 3)))
    return results


@program
def sequential_advises_hybridsequential(mx):
    nn = mx.gluon.nn
    net = nn.Sequential()
    net.add(nn.Dense(2))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        net.hybridize()
        net.add(nn.Lambda("relu"))
        net.hybridize()
    return [len(caught)]


@program
def names_of_nested_layers(mx):
    nn = mx.gluon.nn

    class Branchy(mx.gluon.HybridBlock):
        def __init__(self, **kwargs):
            super(Branchy, self).__init__(**kwargs)
            with self.name_scope():
                self.body = nn.HybridSequential(prefix="body_")
                with self.body.name_scope():
                    self.body.add(nn.Conv2D(2, 3, activation="relu"), nn.Conv2D(2, 3), nn.BatchNorm())
                self.pools = nn.HybridSequential()
                self.pools.add(nn.GlobalAvgPool2D(), nn.Flatten())
                self.head = nn.Dense(2, activation="sigmoid")
                self.act = nn.Activation("relu")

        def hybrid_forward(self, F, x):
            return self.act(self.head(self.pools(self.body(x))))

    net = Branchy(prefix="branchy_")
    names = [block.name for block in (net, net.body, net.body[0], net.body[0].act, net.pools, net.head.act, net.act)]
    results = [names, list(net.collect_params()), net]
    net.initialize()
    x = batch(mx, *image)
    results += [net(x).shape, net]
    out = net(mx.sym.var("data"))
    return results + [out.list_arguments(), out.list_outputs(), out.list_auxiliary_states()]


@program
def names_count_up_by_kind(mx):
    nn = mx.gluon.nn
    net = nn.HybridSequential(prefix="x_")
    kinds = [nn.Dense(1), nn.Conv1D(1, 1), nn.Conv3DTranspose(1, 1), nn.MaxPool1D(), nn.GlobalAvgPool2D()]
    with net.name_scope():
        kinds += [nn.Dense(1), nn.Conv1D(1, 1), nn.Conv3DTranspose(1, 1), nn.MaxPool1D(), nn.GlobalAvgPool2D()]
        kinds += [nn.Activation("relu"), nn.Activation("tanh"), nn.Activation("relu"), nn.PReLU(), nn.Dropout(0.5)]
        kinds += [nn.LayerNorm(), nn.BatchNorm(), nn.BatchNorm(), nn.Embedding(2, 2), nn.Lambda("relu"), nn.Flatten()]
        kinds += [mx.gluon.contrib.cnn.DeformableConvolution(1), mx.gluon.contrib.nn.Identity()]
    return [block.name for block in kinds[5:]]


@program
def shared_parameters(mx):
    nn = mx.gluon.nn
    first = nn.Dense(3, in_units=3, prefix="a_")
    second = nn.Dense(3, in_units=3, prefix="b_", params=first.params)
    first.initialize()
    fill(mx, first)
    x = batch(mx, 2, 3)
    with mx.autograd.record():
        out = second(first(x))
    out.backward()
    return [out, first.weight.grad(), second.weight is first.weight, list(second.collect_params())]


@program
def embedding(mx):
    results = []
    for kwargs in ({}, {"sparse_grad": True}, {"dtype": "float64", "weight_initializer": "ones"}):
        block = mx.gluon.nn.Embedding(6, 3, prefix="q_", **kwargs)
        results += describe(block)
        block.initialize()
        fill(mx, block)
        x = mx.nd.array([[0, 3, 5], [3, 3, 1]])
        for hybrid in (False, True):
            if hybrid:
                block.hybridize()
            with mx.autograd.record():
                out = block(x)
            out.backward(mx.nd.array(np.random.RandomState(0).uniform(-1, 1, out.shape), dtype=out.dtype))
            results += [out, block.weight.grad(), block.weight.grad().stype]
    out = block(mx.sym.var("data"))
    return results + [out.list_arguments(), out.list_outputs()]


@program
def sparse_embedding_in_training(mx):
    block = mx.gluon.contrib.nn.SparseEmbedding(6, 3, prefix="q_")
    block.initialize()
    block.weight.set_data(batch(mx, 6, 3).tostype("row_sparse"))
    trainer = mx.gluon.Trainer(block.collect_params(), "sgd", {"learning_rate": 0.5})
    x = mx.nd.array([[0, 3, 5], [3, 3, 1]])
    with mx.autograd.record():
        out = block(x)
    out.backward(batch(mx, *out.shape, seed=2))
    trainer.step(2)
    everything = mx.nd.arange(6)
    return describe(block) + [
        out,
        block.weight.grad().stype,
        block.weight.grad(),
        block.weight.row_sparse_data(everything),
    ]


@program
def layers_in_half_and_double(mx):
    nn = mx.gluon.nn
    results = []
    for dtype in ("float16", "float64"):
        net = nn.HybridSequential(prefix="n_")
        net.add(nn.Dense(3, prefix="d_"), nn.BatchNorm(prefix="b_"), nn.LayerNorm(prefix="l_"))
        net.cast(dtype)
        results += describe(net)
    net.initialize()
    x = batch(mx, 4, 5).astype("float64")
    net(x)
    fill(mx, net)
    return results + [net(x)] + describe(net)


@program
def dense_of_double(mx):
    block = mx.gluon.nn.Dense(3, dtype="float64", prefix="q_")
    block.initialize()
    x = batch(mx, 2, 5).astype("float64")
    block(x)
    fill(mx, block)
    return describe(block) + [block(x), outcome(lambda: block(batch(mx, 2, 5)))]


@program
def channels_last_convolutions(mx):
    """What MXNet's CPU tells of layouts with channels last: it has the parameters' shapes, and few kernels."""
    nn = mx.gluon.nn
    results = []
    for block in (
        nn.Conv2D(3, (3, 2), layout="NHWC", in_channels=4, prefix="q_"),
        nn.Conv2D(4, 2, layout="NHWC", in_channels=4, groups=2, prefix="q_"),
        nn.Conv2D(3, 2, layout="NHWC", prefix="q_"),
        nn.Conv3D(3, 2, layout="NDHWC", in_channels=4, prefix="q_"),
        nn.Conv2DTranspose(3, (3, 2), layout="NHWC", in_channels=4, prefix="q_"),
        nn.Conv3DTranspose(3, 2, layout="NDHWC", prefix="q_"),
    ):
        results += describe(block)
    return results


@program
def refusals(mx):
    nn, contrib, x = mx.gluon.nn, mx.gluon.contrib, batch(mx, *image)

    def run(block):
        block.initialize()
        return block(x).shape

    return [
        outcome(call)
        for call in (
            lambda: run(nn.Dense(2, in_units=5)),
            lambda: run(nn.Activation("foo")),
            lambda: nn.Conv2D(2, 3, layout="NCWH"),
            lambda: nn.Conv1D(2, 3, layout="NWC"),
            lambda: nn.Conv3D(2, 3, layout="NCHW"),
            lambda: nn.Conv3DTranspose(2, 3, layout="x"),
            lambda: nn.Conv2D(2, (3, 3, 3)),
            lambda: nn.Conv2D(2, 3, groups=2, in_channels=3),
            lambda: nn.Conv2D(3, 3, groups=2, in_channels=4),
            lambda: run(nn.Conv2D(2, 3, in_channels=5)),
            lambda: nn.MaxPool2D(layout="NCWH"),
            lambda: nn.GlobalAvgPool3D(layout="NCHW"),
            lambda: nn.AvgPool2D(pool_size=(2, 2, 2)),
            lambda: nn.HybridSequential().add(nn.Lambda("relu")),
            lambda: nn.HybridSequential().add(3),
            lambda: nn.Lambda("nosuch"),
            lambda: nn.Lambda(3),
            lambda: nn.HybridLambda("nosuch"),
            lambda: nn.HybridLambda(3),
            lambda: nn.LeakyReLU(-1),
            lambda: run(nn.Dropout(2)),
            lambda: run(nn.GroupNorm(3)),
            lambda: run(nn.LayerNorm(in_channels=3)),
            lambda: nn.ReflectionPad2D("a"),
            lambda: nn.ReflectionPad2D((1, 1, 1, 1)),
            lambda: run(nn.ReflectionPad2D(9)),
            lambda: contrib.nn.PixelShuffle2D((1, 2, 3)),
            lambda: contrib.nn.PixelShuffle1D("a"),
            lambda: run(contrib.nn.PixelShuffle2D(3)),
            lambda: contrib.nn.HybridConcurrent()(x),
            lambda: contrib.cnn.DeformableConvolution(2, 3, adj=(1, 1)),
            lambda: nn.Dense(2, foo=1),
            lambda: nn.Dense(2, activation=nn.Activation("relu")),
            lambda: nn.Dense(2)(x),
            lambda: nn.Dense(2)("a"),
            lambda: nn.Sequential()(1, 2),
            lambda: contrib.nn.SparseEmbedding(3, 4)(mx.nd.array([1])),
        )
    ]
