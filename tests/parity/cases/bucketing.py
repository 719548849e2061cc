"""Language models trained through BucketingModule on buckets of sentences: metrics and weights step by step."""

import random
import zlib

import numpy as np

from ..spec import family

case, program = family(__name__)

WORDS, INVALID = 12, 0


def sentences():
    """Sentences with something to learn: most words follow from the one before."""
    rng = np.random.RandomState(7)
    made = []
    for _ in range(36):
        sentence = [rng.randint(1, WORDS)]
        while len(sentence) < rng.randint(2, 9):
            sentence.append(sentence[-1] * 5 % (WORDS - 1) + 1 if rng.rand() < 0.8 else rng.randint(1, WORDS))
        made.append(sentence)
    return made


def batches(mx, **kwargs):
    random.seed(3)
    np.random.seed(3)
    return mx.rnn.BucketSentenceIter(sentences(), 4, buckets=[3, 5, 8], invalid_label=INVALID, **kwargs)


def model(mx, cell, layout="NTC"):
    """`sym_gen` of a language model around a cell."""

    def sym_gen(length):
        data, label = mx.sym.Variable("data"), mx.sym.Variable("softmax_label")
        vectors = mx.sym.Embedding(data=data, input_dim=WORDS, output_dim=5, name="embed")
        outputs, _ = cell.unroll(length, inputs=vectors, layout=layout, merge_outputs=True)
        rows = mx.sym.Reshape(outputs, shape=(-3, -1))
        scores = mx.sym.FullyConnected(data=rows, num_hidden=WORDS, name="pred")
        label = mx.sym.Reshape(label, shape=(-1,))
        net = mx.sym.SoftmaxOutput(
            data=scores, label=label, name="softmax", use_ignore=True, ignore_label=INVALID, normalization="valid"
        )
        return net, ("data",), ("softmax_label",)

    return sym_gen


def by_name(mx):
    """An initializer that makes of a name the same numbers everywhere."""

    class ByName(mx.init.Initializer):
        def _init_weight(self, name, array):
            rng = np.random.RandomState(zlib.crc32(str(name).encode()))
            array[:] = rng.uniform(-0.4, 0.4, array.shape).astype("float32")

        _init_bias = _init_weight

    return ByName()


def stack(mx):
    cells = mx.rnn.SequentialRNNCell()
    cells.add(mx.rnn.LSTMCell(6, prefix="lstm_l0_"))
    cells.add(mx.rnn.DropoutCell(0.0))
    cells.add(mx.rnn.LSTMCell(6, prefix="lstm_l1_", forget_bias=0.5))
    return cells


def bound(mx, cell, data, layout="NTC"):
    module = mx.mod.BucketingModule(
        sym_gen=model(mx, cell, layout), default_bucket_key=data.default_bucket_key, context=mx.cpu()
    )
    module.bind(data.provide_data, data.provide_label)
    module.init_params(by_name(mx))
    return module


def steps(mx, module, data, metric, epochs=2):
    """Train, and keep what every step gave."""
    results = {}
    for epoch in range(epochs):
        data.reset()
        metric.reset()
        for i, batch in enumerate(data):
            module.forward_backward(batch)
            module.update()
            module.update_metric(metric, batch.label)
            name = "%d_%02d_" % (epoch, i)
            results[name + "metric"] = metric.get()[1]
            results[name + "bucket"] = batch.bucket_key
            weights = sorted(module.get_params()[0].items())
            results[name + "weights"] = np.concatenate([each.asnumpy().ravel() for _, each in weights])
    results["names"] = [(name, each.shape) for name, each in weights]
    return results


@program
def lstm_cells_step_by_step(mx):
    data = batches(mx)
    module = bound(mx, stack(mx), data)
    module.init_optimizer(optimizer="sgd", optimizer_params={"learning_rate": 0.2, "momentum": 0.9, "wd": 1e-4})
    return steps(mx, module, data, mx.metric.Perplexity(INVALID))


@program
def fused_lstm_step_by_step(mx):
    data, cell = batches(mx, layout="TN"), mx.rnn.FusedRNNCell(6, num_layers=2, mode="lstm", prefix="lstm_")
    module = bound(mx, cell, data, "TNC")
    module.init_optimizer(optimizer="adam", optimizer_params={"learning_rate": 0.01})
    return steps(mx, module, data, mx.metric.Perplexity(INVALID))


@program
def bidirectional_gru_step_by_step(mx):
    data = batches(mx)
    cell = mx.rnn.BidirectionalCell(mx.rnn.GRUCell(4, prefix="left_"), mx.rnn.GRUCell(4, prefix="right_"))
    module = bound(mx, cell, data)
    module.init_optimizer(optimizer="sgd", optimizer_params={"learning_rate": 0.1})
    return steps(mx, module, data, mx.metric.CrossEntropy(), epochs=1)


@program
def fitted_and_scored(mx):
    """`fit` with callbacks and validation, as the classic example has it."""
    data, held_out, seen = batches(mx), batches(mx), []
    module = mx.mod.BucketingModule(model(mx, stack(mx)), data.default_bucket_key, context=mx.cpu())

    def after_batch(param):
        seen.append((param.epoch, param.nbatch, param.eval_metric.get()[1]))

    module.fit(
        train_data=data,
        eval_data=held_out,
        eval_metric=mx.metric.Perplexity(INVALID),
        kvstore="local",
        optimizer="sgd",
        optimizer_params={"learning_rate": 0.1, "momentum": 0.5},
        initializer=by_name(mx),
        num_epoch=2,
        batch_end_callback=after_batch,
    )
    results = {name: array for name, array in module.get_params()[0].items()}
    results["when"] = [place[:2] for place in seen]
    results["metrics"] = np.array([place[2] for place in seen])
    results["score"] = module.score(held_out, mx.metric.Perplexity(INVALID))[0][1]
    return results
