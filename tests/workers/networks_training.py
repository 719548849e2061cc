"""Trains FeedForwards of `mx.sym`'s networks on this worker's part of each batch and saves them: `PROGRAM OUT STORE`.

With a store of one process ("local") it trains on the whole batches, which gives the expected result.
"""

import sys
import warnings

import numpy as np
import torch

import neomx as mx

torch.set_num_threads(1)
warnings.simplefilter("ignore", DeprecationWarning)  # of FeedForward, as in MXNet
OUT, STORE = sys.argv[1:3]
GLOBAL, STEPS = 8, 4
SGD = {"learning_rate": 0.2, "momentum": 0.9}


def recurrent(data):
    """A network of layers, for numbers."""
    x = mx.sym.SelfAttention(mx.sym.LSTM(data, num_hidden=4, num_layers=2, name="lstm"), 2, 3, name="look")
    return mx.sym.FullyConnected(x, num_hidden=3, name="fc")


def language(data):
    """A transformer, for tokens."""
    x = mx.sym.GPT2(data, num_layers=1, hidden_size=8, vocab_size=7, num_heads=2, max_length=5, dropout=0, name="gpt")
    return mx.sym.FullyConnected(x, num_hidden=3, name="fc")


def trained(build, data, store):
    """Return the parameters after an epoch from different weights on every worker."""
    labels = np.arange(STEPS * GLOBAL).astype("float32") % 3
    rows = np.arange(STEPS * GLOBAL).reshape(STEPS, store.num_workers, -1)[:, store.rank].ravel()
    iterator = mx.io.NDArrayIter(data[rows], labels[rows], GLOBAL // store.num_workers)
    mx.random.seed(store.rank)
    net = mx.sym.SoftmaxOutput(build(mx.sym.Variable("data")), name="softmax")
    model = mx.model.FeedForward(net, num_epoch=2, initializer=mx.init.Xavier(), **SGD)
    model.fit(iterator, kvstore=store)
    return {name: array.asnumpy() for name, array in model.arg_params.items()}


random = np.random.default_rng(3)
inputs = {
    recurrent: random.normal(size=(STEPS * GLOBAL, 5, 3)).astype("float32"),
    language: random.integers(0, 7, (STEPS * GLOBAL, 5)).astype("float32"),
}
found = {}
for build, data in inputs.items():
    values = trained(build, data, mx.kv.create(STORE))
    found |= {f"{build.__name__}/{name}": value for name, value in values.items()}
np.savez(f"{OUT}-{mx.kv.create(STORE).rank}.npz", **found)
