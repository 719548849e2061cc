"""Programs that write with mxboard and read the event file back. Each returns arrays by name."""

import glob
import struct
import tempfile

import mxnet as mx
import numpy as np
from mxboard import SummaryWriter
from mxboard.proto.event_pb2 import Event
from mxnet import nd
from mxnet.gluon import nn
from weights import fill, random


def _events(folder):
    """Iterate over the events of the files in a directory. Each record is length, checksum, event, checksum."""
    for path in sorted(glob.glob(folder + "/**/events*", recursive=True)):
        with open(path, "rb") as file:
            while True:
                head = file.read(12)
                if not head:
                    break
                event = Event()
                event.ParseFromString(file.read(struct.unpack("<Q", head[:8])[0]))
                file.read(4)
                yield event


def _written(write):
    """Return everything that `write` wrote: graphs as text, summaries by tag and step."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        with SummaryWriter(logdir=folder, flush_secs=1, verbose=False) as writer:
            write(writer)
        for event in _events(folder):
            if event.graph_def:
                found["graph"] = np.frombuffer(event.graph_def, np.uint8)
            for value in event.summary.value:
                found[f"{value.tag}_{event.step}"] = _contents(value)
    return found


def _contents(value):
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        return np.array(value.simple_value)
    if kind == "histo":
        return np.array(list(value.histo.bucket_limit) + list(value.histo.bucket) + [value.histo.sum])
    if kind == "image":
        return np.array([value.image.height, value.image.width, value.image.colorspace])
    return np.frombuffer(value.tensor.SerializeToString(), np.uint8)


def summaries():
    """Scalars, a histogram, images, text and a precision-recall curve of NDArrays."""

    def write(writer):
        for step in range(3):
            writer.add_scalar("loss", nd.array([1.0 / (step + 1)]).asscalar(), step)
            writer.add_histogram("weights", nd.array(random("w", (50, 20))), step, bins=10)
        writer.add_scalar("pair", {"train": 1.5, "validation": 2.5}, 7)
        writer.add_histogram("default", nd.array(random("d", (100,))), 0)
        writer.add_image("picture", nd.array(random("p", (3, 8, 10), 0, 1)), 1)
        writer.add_image("pictures", nd.array(random("q", (5, 3, 8, 10), 0, 1)), 2)
        writer.add_text("words", "some text", 3)
        writer.add_pr_curve("curve", nd.array([0, 1, 1, 0]), nd.array([0.1, 0.9, 0.4, 0.6]), 10, 4)

    return _written(write)


def graph():
    """The graph of a network that has run."""
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Conv2D(4, 3, activation="relu"), nn.BatchNorm(), nn.MaxPool2D(), nn.Flatten(), nn.Dense(2))
    data = nd.array(random("picture", (1, 3, 8, 8)))
    fill(net, data)
    net.hybridize()
    net(data)

    def write(writer):
        writer.add_graph(net)
        for name, parameter in net.collect_params().items():
            if parameter.grad_req != "null":
                writer.add_histogram(name, parameter.data(), 0, bins=5)

    return _written(write)


def symbol_graph():
    """The graph of a symbol."""
    data = mx.sym.var("data")
    out = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(data, num_hidden=3, name="fc"), name="softmax")
    return _written(lambda writer: writer.add_graph(out))


PROGRAMS = [summaries, graph, symbol_graph]
