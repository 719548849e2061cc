"""Module.fit trains networks that contain each of `mx.sym`'s builders. Accuracies are those of the training data."""

import numpy as np
import pytest

import neomx as mx
from neomx import symbol as sym


def classes(x):
    return sym.SoftmaxOutput(sym.FullyConnected(x, num_hidden=2, name="fc"), name="softmax")


def sequences():
    """Sequences whose first step decides."""
    data = np.random.default_rng(0).normal(size=(64, 5, 3)).astype("float32")
    return data, (data[:, 0, 0] > 0).astype("float32")


def sentences():
    """Sentences that contain the word 0 or not."""
    data = np.random.default_rng(0).integers(1, 8, (64, 5)).astype("float32")
    data[::2, 2] = 0
    return data, (data == 0).any(1).astype("float32")


def images():
    """Images with a bright row, or with a bright column."""
    data = np.random.default_rng(0).normal(size=(64, 1, 8, 8)).astype("float32") * 0.3
    data[::2, :, :, 4] += 2
    data[1::2, :, 4] += 2
    return data, (np.arange(64) % 2).astype("float32")


def tones():
    """Tones of two frequencies, in any phase."""
    label = np.arange(64) % 2
    phase = np.random.default_rng(0).uniform(0, 2 * np.pi, (64, 1))
    return np.sin(phase + np.arange(40) * (0.6 + 0.8 * label[:, None])).astype("float32"), label.astype("float32")


def convolved(data):
    x = sym.RandomFlip(sym.RandomRotation(data, angle=10), prob=0.5)
    x = sym.Convolution(x, kernel=(3, 3), num_filter=4, name="conv")
    return classes(sym.DeConvolution(sym.relu(x), kernel=(2, 2), num_filter=2, name="up"))


def spectral(data):
    frames = sym.HammingWindow(data, length=16)
    power = sym.square(sym.Fft(frames))
    return classes(sym.mean(power, axis=1))


def quantized(data):
    x = sym.tanh(sym.FullyConnected(data, num_hidden=8, name="below"))
    return classes(sym.dequantize(sym.quantize(x, bit=4, dtype="float32")))


def read(data):
    return classes(sym.Bert(data, num_hidden=8, num_layers=1, num_heads=2, vocab_size=8, max_length=5, dropout=0))


CASES = {
    "lstm": (lambda data: classes(sym.slice_axis(sym.LSTM(data, 8), axis=1, begin=-1, end=None)), sequences),
    "self-attention": (lambda data: classes(sym.SelfAttention(data, num_heads=2, key_dim=4)), sequences),
    "attention": (lambda data: classes(sym.MultiHeadAttention(data, data, data, 2, 4, units=3)), sequences),
    "bert": (read, sentences),
    "gpt2": (
        lambda data: classes(sym.GPT2(data, 1, 8, 8, num_heads=2, max_length=5, dropout=0, head=False)),
        sentences,
    ),
    "augmented images": (convolved, images),
    "sounds": (spectral, tones),
    "quantized": (quantized, sequences),
}


def begun(net, iterator):
    """Return a Module with initial weights."""
    mx.random.seed(1)
    module = mx.mod.Module(net, label_names=[each.name for each in iterator.provide_label])
    module.bind(iterator.provide_data, iterator.provide_label)
    module.init_params(mx.init.Xavier())
    return module


def fitted(net, iterator, epochs=20, metric="acc"):
    """Train a Module. Return it and its score before and after."""
    before = begun(net, iterator).score(iterator, metric)[0][1]
    iterator.reset()
    mx.random.seed(1)
    module = mx.mod.Module(net, label_names=[each.name for each in iterator.provide_label])
    options = {"initializer": mx.init.Xavier(), "optimizer": "adam", "optimizer_params": {"learning_rate": 0.02}}
    module.fit(iterator, num_epoch=epochs, eval_metric=metric, **options)
    return module, before, module.score(iterator, metric)[0][1]


def batches(data, label, name="softmax_label"):
    return mx.io.NDArrayIter(data, {name: label}, 16)


@pytest.mark.parametrize("name", CASES)
def test_training_learns(name):
    build, make = CASES[name]
    module, before, after = fitted(build(sym.Variable("data")), batches(*make()))
    assert after > 0.9 and after > before + 0.15, (before, after)
    assert all(np.isfinite(each.asnumpy()).all() for each in module.get_params()[0].values())


def test_weights_below_a_quantization_are_trained():
    net, iterator = quantized(sym.Variable("data")), batches(*sequences())
    modules = begun(net, iterator), fitted(net, iterator, epochs=1)[0]
    one, other = (each.get_params()[0]["below_weight"].asnumpy() for each in modules)
    assert np.abs(one - other).max() > 0.01


def test_mixup_trains_with_soft_labels():
    data, label = images()
    mixed, soft = sym.Mixup(sym.Variable("data"), sym.Variable("label"), num_classes=2)
    hidden = sym.relu(sym.FullyConnected(mixed, num_hidden=16, name="hidden"))
    net = sym.SoftmaxOutput(sym.FullyConnected(hidden, num_hidden=2, name="fc"), soft, name="softmax")
    _, before, after = fitted(net, batches(data, label, "label"), metric="ce")
    assert after < before / 2, (before, after)


def test_language_model_learns_to_count():
    steps = ((np.arange(6) + np.arange(32)[:, None]) % 5).astype("float32")
    scores = sym.GPT2(sym.Variable("data"), 1, 8, 5, num_heads=2, max_length=5, dropout=0)
    label = sym.reshape(sym.Variable("softmax_label"), shape=(-1,))
    net = sym.SoftmaxOutput(sym.reshape(scores, shape=(-3, 0)), label, name="softmax")
    iterator = batches(steps[:, :-1], steps[:, 1:])
    _, before, after = fitted(net, iterator, metric=mx.metric.Perplexity(None))
    assert before > 4 and after < 1.5, (before, after)
