"""Trainings that are saved after an epoch and go on from the files: the same code under MXNet and neomx.

After `train(mx, name, prefix, 0, 1)` and `train(mx, name, prefix, 1, 2)`, where the second may run elsewhere than the
first, `prefix`-0002.params are what an uninterrupted training gives, but for the count of Adam, which files lack.
"""

from parity.cases.module import mlp, samples, weights
from parity.cases.module_buckets import BATCH, Sentences, lstm, params

TRAININGS = {
    "sgd": (1, "sgd", {"learning_rate": 0.3, "momentum": 0.9, "wd": 0.01}),
    "adam": (1, "adam", {"learning_rate": 0.05}),
    "contexts": (2, "sgd", {"learning_rate": 0.3, "momentum": 0.9}),
}


def train(mx, name, prefix, begin, end):
    """Train from the epoch `begin`, whose files are read, to `end`, whose files are written."""
    contexts, optimizer, settings = TRAININGS[name]
    where = [mx.cpu(i) for i in range(contexts)]
    data, labels = samples(20, (5,), 3)
    iterator = mx.io.NDArrayIter(data, labels, 4)
    symbol = mlp(mx)
    if begin:
        module, args = mx.mod.Module.load(prefix, begin, load_optimizer_states=True, context=where), None
    else:
        module, args = mx.mod.Module(symbol, context=where), weights(mx, symbol, data=(4, 5), softmax_label=(4,))[0]
    module.bind(iterator.provide_data, iterator.provide_label)
    if not begin:
        module.init_params(arg_params=args)
    module.init_optimizer(optimizer=optimizer, optimizer_params=settings)
    for _ in range(begin, end):
        iterator.reset()
        for batch in iterator:
            module.forward_backward(batch)
            module.update()
    module.save_checkpoint(prefix, end, save_optimizer_states=True)


def sentences(mx, prefix, module=None):
    """What a module of buckets says to sentences; one with parameters of its own is saved first, others are loaded."""

    def generate(length):
        return lstm(mx, length, True)

    load = module is None
    if load:
        module = mx.mod.BucketingModule.load(prefix, 1, generate, 7)
    module.bind([("data", (BATCH, 7))], [("softmax_label", (BATCH, 7))], for_training=False)
    if not load:
        module.init_params(arg_params=params(mx, generate(7)[0], data=(BATCH, 7), softmax_label=(BATCH, 7)))
    outputs = [out[0].copy() for out, _, _ in module.iter_predict(Sentences(mx))]
    if not load:
        module.save_checkpoint(prefix, 1)
    return outputs


def new_buckets(mx):
    return mx.mod.BucketingModule(lambda length: lstm(mx, length, True), default_bucket_key=7)
