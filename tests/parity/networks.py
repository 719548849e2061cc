"""Graphs of `mx.sym`'s networks, for real MXNet to load: `.venv/bin/python tests/parity/networks.py` writes them.

`check_networks.py` runs the graphs in real MXNet and keeps what it computes. This module itself needs numpy alone.
"""

import json
import lzma
import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
GRAPHS = HERE / "recorded" / "networks.json.xz"
RESULTS = HERE / "recorded" / "networks.npz"
sys.path.insert(0, str(HERE.parent))

from parity.zoo_spec import random, value  # noqa: E402

WORDS = 11  # tokens are smaller
SMALL = {"vocab_size": WORDS, "num_layers": 2, "num_heads": 2, "max_length": 8}
ATTENTION = {"num_heads": 2, "key_dim": 4}


def _attention_to_others(sym):
    memory = sym.Variable("memory")
    return sym.MultiHeadAttention(sym.Variable("data"), memory, memory, **ATTENTION, units=6, name="net")


def _bert(sym, **options):
    given = {"token_types": sym.Variable("types"), "valid_length": sym.Variable("lengths")}
    return sym.Bert(sym.Variable("data"), num_hidden=12, **SMALL, **given, pooler=True, name="net", **options)


def _up(sym):
    return sym.DeConvolution(sym.Variable("data"), kernel=(3, 3), num_filter=2, stride=(2, 2), no_bias=True, name="net")


# By network: its graph, and the shapes of its inputs.
SEQUENCE, PICTURE, TEXT = {"data": (3, 5, 6)}, {"data": (2, 3, 32, 32)}, {"data": (3, 5)}
SOUND, LENGTHS = {"data": (2, 21)}, {"lengths": (3,)}
NETS = {
    "lstm": (lambda sym: sym.LSTM(sym.Variable("data"), 4, 2, bidirectional=True, name="net"), SEQUENCE),
    "lstm_states": (
        lambda sym: sym.LSTM(sym.Variable("data"), 4, layout="TNC", state_outputs=True, name="net"),
        SEQUENCE,
    ),
    "self_attention": (lambda sym: sym.SelfAttention(sym.Variable("data"), **ATTENTION, name="net"), SEQUENCE),
    "causal_attention": (
        lambda sym: sym.SelfAttention(
            sym.Variable("data"), **ATTENTION, causal=True, valid_length=sym.Variable("lengths"), name="net"
        ),
        {**SEQUENCE, **LENGTHS},
    ),
    "multi_head_attention": (_attention_to_others, {**SEQUENCE, "memory": (3, 4, 7)}),
    "bert": (_bert, {**TEXT, "types": (3, 5), **LENGTHS}),
    "bert_without_dropout": (lambda sym: _bert(sym, dropout=0), {**TEXT, "types": (3, 5), **LENGTHS}),
    "gpt2": (lambda sym: sym.GPT2(sym.Variable("data"), hidden_size=12, **SMALL, name="net"), TEXT),
    "gpt2_without_dropout": (
        lambda sym: sym.GPT2(sym.Variable("data"), hidden_size=12, **SMALL, dropout=0, name="net"),
        TEXT,
    ),
    "resnet": (lambda sym: sym.Resnet(sym.Variable("data"), depth=18, num_classes=5, name="net"), PICTURE),
    "resnet_v2": (
        lambda sym: sym.Resnet(sym.Variable("data"), 50, 5, version=2, thumbnail=True, name="net"),
        {"data": (2, 3, 16, 16)},
    ),
    "vgg": (lambda sym: sym.VGG(sym.Variable("data"), version=11, num_classes=5, name="net"), PICTURE),
    "quantize": (lambda sym: sym.quantize(sym.Variable("data"), bit=4, name="net"), {"data": (3, 4)}),
    "dequantize": (
        lambda sym: sym.dequantize(sym.quantize(sym.Variable("data"), bit=3, dtype="float32", name="q"), name="net"),
        {"data": (3, 4)},
    ),
    "hamming_window": (lambda sym: sym.HammingWindow(sym.Variable("data"), length=6, hop=4, name="net"), SOUND),
    "deconvolution": (_up, {"data": (2, 3, 4, 4)}),
}
# Those whose results are random in training. There is a weight, because MXNet only draws for graphs with a gradient.
RANDOM = {
    "random_flip": (lambda sym: sym.RandomFlip(sym.Variable("data"), prob=0.5, name="net"), {"data": (8, 2, 3, 4)}),
    "surely_flip": (lambda sym: sym.RandomFlip(sym.Variable("data"), 1, axis=2, name="net"), {"data": (4, 2, 3, 4)}),
    "random_rotation": (
        lambda sym: sym.RandomRotation(sym.Variable("data"), angle=60, name="net"),
        {"data": (4, 2, 5, 7)},
    ),
    "mixup": (
        lambda sym: sym.Mixup(sym.Variable("data"), sym.Variable("label"), alpha=1.0, num_classes=4, name="net"),
        {"data": (6, 2, 3), "label": (6,)},
    ),
}
# Those that MXNet loads, but does not run on a CPU.
NOT_ON_A_CPU = {
    "fft": (lambda sym: sym.Fft(sym.Variable("data"), name="net"), {"data": (2, 8)}),
    "ifft": (lambda sym: sym.Ifft(sym.Variable("data"), name="net"), {"data": (2, 8)}),
}
ALL = {**NETS, **RANDOM, **NOT_ON_A_CPU}
# Those whose gradients are compared: the small ones without Dropout. MXNet has none for integers.
WITH_GRADIENTS = {
    *("lstm", "lstm_states", "self_attention", "causal_attention", "multi_head_attention"),
    *("bert_without_dropout", "gpt2_without_dropout", "dequantize", "hamming_window", "deconvolution"),
}


def inputs(name):
    """The numpy arrays that a network is run on: tokens, lengths of sequences, classes, or numbers."""
    found = {}
    for key, shape in ALL[name][1].items():
        low, high = {"lengths": (1, 6), "types": (0, 2), "label": (0, 4)}.get(key, (-1, 1))
        if key == "data" and name.startswith(("bert", "gpt2")):
            low, high = 0, WORDS
        numbers = random(key, shape, low, high)
        found[key] = numbers if (low, high) == (-1, 1) else np.floor(numbers)
    return found


def bound(mx, graph, name):
    """An executor of a graph with all its values."""
    given = inputs(name)
    train = name in WITH_GRADIENTS or name in RANDOM
    needs = {key: "write" if train and key not in given else "null" for key in graph.list_arguments()}
    if name in ("dequantize", "hamming_window"):  # they have no parameters
        needs["data"] = "write"
    executor = graph.simple_bind(mx.cpu(), grad_req=needs, **{key: array.shape for key, array in given.items()})
    for arrays in (executor.arg_dict, executor.aux_dict):
        for key, array in arrays.items():
            array[:] = mx.nd.array(given[key] if key in given else value(key, array.shape))
    return executor


def computed(mx, graph, name):
    """{what: array}: the outputs of a graph when predicting, and the gradients of its arguments."""
    executor = bound(mx, graph, name)
    results = {"out%d" % i: each.asnumpy() for i, each in enumerate(executor.forward(is_train=False))}
    if name in WITH_GRADIENTS:
        outputs = executor.forward(is_train=True)
        executor.backward([mx.nd.array(random("head", each.shape, -1, 1)) for each in outputs])
        gradients = {key: each for key, each in executor.grad_dict.items() if each is not None}
        results.update({"grad " + key: each.asnumpy() for key, each in gradients.items()})
    return results


def drawn(mx, graph, name):
    """{what: array}: the outputs of a random graph in training, when a weight follows it, and uniform numbers in it."""
    inner = graph.get_internals()
    found = {"drawn%d" % i: graph[i] for i in range(len(graph.list_outputs()))}
    for key in inner.list_outputs():
        if "uniform_like" in key:
            found["uniform"] = inner[key]
    after = mx.sym.FullyConnected(graph[0], num_hidden=1, name="after")
    executor = bound(mx, mx.sym.Group([after] + [mx.sym.BlockGrad(each) for each in found.values()]), name)
    return {key: each.asnumpy() for key, each in zip(found, executor.forward(is_train=True)[1:])}


def shapes(graph, name):
    """What a graph infers from the shapes of its inputs: {argument or state: shape}, and the shapes of its outputs."""
    arguments, outputs, states = graph.infer_shape(**ALL[name][1])
    names = graph.list_arguments() + graph.list_auxiliary_states()
    return dict(zip(names, map(list, list(arguments) + list(states)))), list(map(list, outputs))


def made(mx):
    """{network: its graph as JSON}."""
    return {name: build(mx.sym).tojson() for name, (build, _) in ALL.items()}


def read():
    """The graphs that MXNet has loaded."""
    return json.loads(lzma.decompress(GRAPHS.read_bytes()))


def main():
    import neomx as mx

    GRAPHS.write_bytes(lzma.compress(json.dumps(made(mx), sort_keys=True).encode(), preset=9))
    print("%d graphs, %d bytes" % (len(ALL), GRAPHS.stat().st_size))


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parents[1]))
    main()
