"""The networks of the model zoo that are run under both, with weights from numpy. This file needs numpy alone."""

import json
import zlib

import numpy as np

CLASSES = 5

# By name: how to make it, and the shape of its input. Small pictures where the network takes them.
NETS = {
    "alexnet": (lambda zoo: zoo.alexnet(classes=CLASSES), (2, 3, 64, 64)),
    "vgg11": (lambda zoo: zoo.vgg11(classes=CLASSES), (2, 3, 32, 32)),
    "vgg_bn": (lambda zoo: zoo.VGG([1, 2], [8, 16], classes=CLASSES, batch_norm=True), (2, 3, 12, 12)),
    "squeezenet1.0": (lambda zoo: zoo.squeezenet1_0(classes=CLASSES), (1, 3, 224, 224)),
    "squeezenet1.1": (lambda zoo: zoo.squeezenet1_1(classes=CLASSES), (1, 3, 224, 224)),
    "mobilenet": (lambda zoo: zoo.mobilenet0_25(classes=CLASSES), (3, 3, 64, 64)),
    "mobilenet_v2": (lambda zoo: zoo.mobilenet_v2_0_25(classes=CLASSES), (3, 3, 64, 64)),
    "resnet18_v1": (lambda zoo: zoo.resnet18_v1(classes=CLASSES), (2, 3, 64, 64)),
    "resnet18_v2": (lambda zoo: zoo.resnet18_v2(classes=CLASSES), (2, 3, 64, 64)),
    "resnet_basic_v1": (
        lambda zoo: zoo.ResNetV1(zoo.BasicBlockV1, [1, 2], [8, 8, 16], classes=CLASSES, thumbnail=True),
        (2, 3, 12, 12),
    ),
    "resnet_basic_v2": (
        lambda zoo: zoo.ResNetV2(zoo.BasicBlockV2, [1, 2], [8, 8, 16], classes=CLASSES, thumbnail=True),
        (2, 3, 12, 12),
    ),
    "resnet_bottleneck_v1": (
        lambda zoo: zoo.ResNetV1(zoo.BottleneckV1, [2, 2], [8, 16, 32], classes=CLASSES),
        (2, 3, 48, 48),
    ),
    "resnet_bottleneck_v2": (
        lambda zoo: zoo.ResNetV2(zoo.BottleneckV2, [2, 2], [8, 16, 32], classes=CLASSES),
        (2, 3, 48, 48),
    ),
    "densenet": (lambda zoo: zoo.DenseNet(16, 16, [2, 3], bn_size=2, classes=CLASSES), (2, 3, 56, 56)),
    "densenet121": (lambda zoo: zoo.densenet121(classes=CLASSES), (1, 3, 224, 224)),
    "inception_mixed": (lambda zoo: zoo.inception_v3().features[7:18:3], (2, 16, 5, 5)),
    "inceptionv3": (lambda zoo: zoo.inception_v3(classes=CLASSES), (1, 3, 299, 299)),
}
NOT_TRAINED = ("vgg11", "squeezenet1.0", "densenet121", "inceptionv3")  # a smaller one of the family is

SAVED = (lambda zoo: zoo.MobileNet(0.125, classes=CLASSES), (2, 3, 32, 32))  # what the committed .params file is of


def random(text, shape, lo, hi):
    """Numbers between lo and hi that depend on the text alone. Very many of them repeat, for speed."""
    distinct = min(int(np.prod(shape)), 262139)  # a prime, so that rows of a matrix do not repeat
    numbers = np.random.RandomState(zlib.crc32(text.encode())).random_sample(distinct) * (hi - lo) + lo
    return np.resize(numbers.astype("float32"), shape)


def value(key, shape):
    """A parameter's value: of a size that keeps what goes through the network at about the same size."""
    if key.endswith("weight"):
        bound = np.sqrt(6 / np.prod(shape[1:]))
        return random(key, shape, -bound, bound)
    if key.endswith(("gamma", "running_var")):
        return random(key, shape, 0.8, 1.2)
    return random(key, shape, -0.1, 0.1)


def picture(mx, shape):
    return mx.nd.array(random("picture", shape, -1, 1))


def make(mx, recipe):
    """A network with these weights, and its input."""
    build, shape = recipe
    net, x = build(mx.gluon.model_zoo.vision), picture(mx, shape)
    net.infer_shape(x)
    net.initialize(mx.init.Zero())
    for key, param in net._collect_params_with_prefix().items():
        param.set_data(mx.nd.array(value(key, param.shape)))
    return net, x


def without_dropout(net):
    """The network, dropping nothing: what is dropped is another matter of chance in each library."""

    def keep_all(block):
        if type(block).__name__ == "Dropout":
            block._rate = 0

    return net.apply(keep_all)


def brief(key, array):
    """An array in two numbers: its size, and how it lies to a direction of its own."""
    flat = array.astype("float64").ravel()
    direction = random("direction of " + key, flat.shape, -1, 1)
    return np.array([np.linalg.norm(flat), flat @ direction / np.linalg.norm(direction)])


def train(mx, net, x):
    """(output, {key: brief}) of one training step: gradients, and for what has none the values that it leaves.

    In float64: the gradient of so many relus and maxima jumps where one of them is decided by rounding.
    """
    net.cast("float64")
    x = x.astype("float64")
    params = without_dropout(net)._collect_params_with_prefix()
    with mx.autograd.record():
        out = net(x)
        loss = (out * mx.nd.array(random("head", out.shape, -1, 1), dtype="float64")).sum()
    loss.backward()
    held = {key: p.data() if p.grad_req == "null" else p.grad() for key, p in params.items()}
    return out.asnumpy(), {key: brief(key, array.asnumpy()) for key, array in held.items()}


def describe(mx, name, size):
    """All there is to see of a network of the zoo without running it."""
    net = mx.gluon.model_zoo.vision.get_model(name, prefix="net_")
    graph = net(mx.sym.var("data"))
    names = graph.list_arguments() + graph.list_auxiliary_states()
    arguments, outputs, auxiliary = graph.infer_shape(data=(1, 3, size, size))
    return {
        "repr": repr(net).split("\n"),
        "nodes": [
            [node["op"], node["name"], node.get("attrs", {}), node["inputs"]]
            for node in json.loads(graph.tojson())["nodes"]
        ],
        "params": list(net.collect_params().keys()),
        "keys": list(net._collect_params_with_prefix()),
        "shapes": [[n, list(s)] for n, s in zip(names, list(arguments) + list(auxiliary))],
        "output": [list(shape) for shape in outputs],
    }
