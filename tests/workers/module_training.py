"""Trains Modules and a FeedForward on this worker's part of each batch and saves the parameters: `PROGRAM OUT STORE`.

With a store of one process ("local") it trains on the whole batches, which gives the expected result.
"""

import os
import sys

import numpy as np
import torch

import neomx as mx

torch.set_num_threads(1)
OUT, STORE = sys.argv[1:3]
GLOBAL, STEPS, EPOCHS = 8, 5, 2
IGNORED = -1
SGD = {"learning_rate": 0.2, "momentum": 0.9, "wd": 1e-3}


def network():
    sym = mx.sym
    x = sym.Activation(sym.FullyConnected(sym.Variable("data"), num_hidden=16, name="fc1"), act_type="tanh")
    x = sym.FullyConnected(x, num_hidden=4, name="fc2")
    return sym.SoftmaxOutput(x, name="softmax", use_ignore=True, ignore_label=IGNORED)


def whole(missing=0):
    """Every global batch; the second half of the samples of the last steps may be missing."""
    random = np.random.default_rng(3)
    data = random.standard_normal((STEPS, GLOBAL, 6)).astype("float32")
    labels = random.integers(0, 4, (STEPS, GLOBAL)).astype("float32")
    if missing:
        labels[STEPS - missing :, GLOBAL // 2 :] = IGNORED
    return data, labels


def part(store, missing=0):
    """This worker's batches; worker 1 of two has no batches where samples are missing."""
    data, labels = whole(missing)
    share = GLOBAL // store.num_workers
    rows = slice(store.rank * share, (store.rank + 1) * share)
    steps = STEPS - missing if store.num_workers > 1 and store.rank > 0 else STEPS
    data, labels = data[:steps, rows].reshape(-1, 6), labels[:steps, rows].reshape(-1)
    return mx.io.NDArrayIter(data, labels, share)


def fit(store, contexts=1, missing=0, epochs=EPOCHS, **options):
    """Return the parameters after training from different weights on every worker."""
    mx.random.seed(store.rank)
    module = mx.mod.Module(network(), context=[mx.cpu(i) for i in range(contexts)])
    module.fit(part(store, missing), kvstore=store, num_epoch=epochs, initializer=mx.init.Xavier(), **options)
    return module


def in_buckets(store):
    """The same with two buckets, whose weights differ only in their names."""
    mx.random.seed(store.rank)
    module = mx.mod.BucketingModule(lambda key: (network(), ("data",), ("softmax_label",)), default_bucket_key=1)
    iterator = part(store)
    module.bind(iterator.provide_data, iterator.provide_label)
    module.init_params(mx.init.Xavier())
    module.init_optimizer(kvstore=store, optimizer="adam", optimizer_params={"learning_rate": 0.05})
    for i, batch in enumerate(iterator):
        batch.bucket_key = i % 2
        batch.provide_data, batch.provide_label = iterator.provide_data, iterator.provide_label
        module.forward_backward(batch)
        module.update()
    return module


def resumed(store):
    """Training that is saved with its optimizer's states and resumed from files."""
    prefix = f"{OUT}-{store.rank}-saved"
    first = fit(store, epochs=1, optimizer_params=SGD)
    first.save_checkpoint(prefix, 1, save_optimizer_states=True)
    second = mx.mod.Module.load(prefix, 1, load_optimizer_states=True)
    second.fit(part(store), kvstore=mx.kv.create(STORE), num_epoch=2, begin_epoch=1, optimizer_params=SGD)
    return second


def feed_forward(store):
    """The older API, whose parameters are attributes."""
    mx.random.seed(store.rank)
    model = mx.model.FeedForward(network(), num_epoch=EPOCHS, initializer=mx.init.Xavier(), **SGD)
    model.fit(part(store), kvstore=store)
    return model.arg_params


def main():
    trained = {
        "sgd": fit(mx.kv.create(STORE), optimizer_params=SGD),
        "adam": fit(mx.kv.create(STORE), contexts=2, optimizer="adam", optimizer_params={"learning_rate": 0.05}),
        "unequal": fit(mx.kv.create(STORE), missing=2, optimizer_params=SGD),
        "buckets": in_buckets(mx.kv.create(STORE)),
        "resumed": resumed(mx.kv.create(STORE)),
    }
    os.environ["MXNET_UPDATE_ON_KVSTORE"] = "0"
    trained["by workers"] = fit(mx.kv.create(STORE), optimizer_params=SGD)
    trained["by workers, unequal"] = fit(mx.kv.create(STORE), missing=2, optimizer_params=SGD)
    arrays = {
        f"{how}/{name}": array.asnumpy()
        for how, module in trained.items()
        for name, array in module.get_params()[0].items()
    }
    arrays |= {f"feed forward/{name}": array.asnumpy() for name, array in feed_forward(mx.kv.create(STORE)).items()}
    np.savez(f"{OUT}-{mx.kv.create(STORE).rank}.npz", **arrays)


main()
