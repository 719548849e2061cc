"""Trains a kind of Module in an elastic job, whose worker 1 dies after a step: elastic_modules.py KIND OUT."""

import os
import signal
import sys
import warnings

import numpy as np

import neomx as mx

BATCH, SAMPLES, EPOCHS, RATE = 4, 48, 3, 0.05
DIES = 5  # batches after which worker 1 dies, in the first epoch
SGD = {"learning_rate": RATE, "momentum": 0.9}
KINDS = ("fit", "feedforward", "bucketing", "sequential")


def samples():
    rng = np.random.RandomState(3)
    return rng.randn(SAMPLES, 8).astype("float32"), rng.randn(SAMPLES, 1).astype("float32")


def first():
    data = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=16, name="fc1")
    return mx.sym.Activation(data, act_type="tanh")


def last(data):
    return mx.sym.LinearRegressionOutput(
        mx.sym.FullyConnected(data, num_hidden=1, name="fc2"), mx.sym.Variable("label"), name="out"
    )


def module(kind):
    """Return a module of a kind that trains the same network."""
    if kind == "bucketing":
        return mx.mod.BucketingModule(lambda key: (last(first()), ("data",), ("label",)), default_bucket_key=1)
    if kind == "sequential":
        made = mx.mod.SequentialModule()
        made.add(mx.mod.Module(first(), label_names=[]))
        made.add(
            mx.mod.Module(last(mx.sym.Variable("data")), label_names=["label"]), take_labels=True, auto_wiring=True
        )
        return made
    return mx.mod.Module(last(first()), label_names=["label"])


def train(kind, data, kvstore, after=lambda *_: None):
    """Return the parameters after training on an iterator. `after` is called after each batch."""
    mx.random.seed(1)
    settings = {"eval_metric": "mse", "kvstore": kvstore, "batch_end_callback": after}
    if kind == "feedforward":
        warnings.simplefilter("ignore", DeprecationWarning)
        model = mx.model.FeedForward(last(first()), num_epoch=EPOCHS, initializer=mx.init.Xavier(), **SGD)
        model.fit(data, **settings)
        return model.arg_params
    made = module(kind)
    if kind == "bucketing":
        in_buckets(made, data, kvstore, after)
    else:
        made.fit(data, num_epoch=EPOCHS, optimizer_params=SGD, initializer=mx.init.Xavier(), **settings)
    return made.get_params()[0]


def in_buckets(made, data, kvstore, after):
    """Train with two buckets in turn, whose networks are equal."""
    made.bind(data.provide_data, data.provide_label)
    made.init_params(mx.init.Xavier())
    made.init_optimizer(kvstore=kvstore, optimizer="sgd", optimizer_params=SGD)
    for _ in mx.elastic.epochs(EPOCHS):
        data.reset()
        for number, batch in enumerate(data):
            batch.bucket_key = number % 2
            batch.provide_data = [mx.io.DataDesc("data", batch.data[0].shape)]
            batch.provide_label = [mx.io.DataDesc("label", batch.label[0].shape)]
            made.forward_backward(batch)
            made.update()
            after()


def main(kind, out):
    rank, batches = os.environ["RANK"], 0

    def die(*_):
        nonlocal batches
        batches += 1
        if rank == "1" and batches == DIES:
            os.kill(os.getpid(), signal.SIGKILL)

    kv = mx.kv.create("dist_sync")
    x, y = samples()
    data = mx.io.NDArrayIter(x, {"label": y}, BATCH, num_parts=kv.num_workers, part_index=kv.rank)
    found = train(kind, data, kv, die)
    np.savez(f"{out}/weights-{rank}.npz", **{name: array.asnumpy() for name, array in found.items()})


if __name__ == "__main__":
    main(*sys.argv[1:])
