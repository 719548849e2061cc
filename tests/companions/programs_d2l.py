"""Programs of the book Dive into Deep Learning (its package for mx.nd), the same under MXNet and neomx."""

import contextlib
import os
import random as python_random
import tempfile

import d2l
import mxnet as mx
import numpy as np
from mxnet import autograd, gluon, init, nd
from mxnet.gluon import nn, rnn
from weights import fill, random

TEXT = "The Time Machine, by H. G. Wells\nThe Time Traveller was expounding a recondite matter to us\n" * 20


@contextlib.contextmanager
def _data_of_the_book():
    """Run in a chapter's directory, next to `../data` with the text of the book."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        for part in ("data", "chapter"):
            os.mkdir(os.path.join(folder, part))
        with open(os.path.join(folder, "data", "timemachine.txt"), "w") as file:
            file.write(TEXT)
        os.chdir(os.path.join(folder, "chapter"))
        try:
            yield
        finally:
            os.chdir(before)


def _digits(count=32, size=28):
    """Images whose brightest corner is their class, as a loader with a fixed order."""
    label = np.arange(count) % 4
    pictures = random("digits", (count, 1, size, size), 0, 0.3)
    for picture, corner in zip(pictures, label, strict=False):
        half = size // 2
        picture[0, half * (corner // 2) :][:half, half * (corner % 2) :][:, :half] += 0.7
    return d2l.load_array((nd.array(pictures), nd.array(label)), 8, is_train=False)


def linear_regression():
    """Linear regression from scratch, with d2l's model, loss and sgd."""
    features = nd.array(random("features", (64, 2)))
    labels = nd.dot(features, nd.array([[2.0], [-3.4]])) + 4.2
    w, b = nd.array(random("w", (2, 1))), nd.zeros(1)
    w.attach_grad()
    b.attach_grad()
    losses = []
    for _ in range(3):
        for X, y in d2l.load_array((features, labels), 8, is_train=False):
            with autograd.record():
                loss = d2l.squared_loss(d2l.linreg(X, w, b), y)
            loss.backward()
            d2l.sgd([w, b], 0.3, 8)
            losses.append(loss.mean().asscalar())
    return {"w": w, "b": b, "losses": losses}


def softmax_regression():
    """The training loop of chapter 3, with its figure."""
    net = nn.Sequential()
    net.add(nn.Flatten(), nn.Dense(4))
    fill(net, nd.zeros((1, 1, 28, 28)))
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    data = _digits()
    d2l.train_ch3(net, data, data, gluon.loss.SoftmaxCrossEntropyLoss(), 2, trainer)
    return {"accuracy": d2l.evaluate_accuracy(net, data), "loss": d2l.evaluate_loss(net, data, _cross_entropy)}


def _cross_entropy(scores, label):
    return gluon.loss.SoftmaxCrossEntropyLoss()(scores, label)


def lenet():
    """The training loop of chapter 5, which initializes the network itself: equal weights make it reproducible."""
    net = nn.Sequential()
    net.add(
        nn.Conv2D(6, kernel_size=5, padding=2, activation="sigmoid"),
        nn.AvgPool2D(pool_size=2, strides=2),
        nn.Conv2D(8, kernel_size=5, activation="sigmoid"),
        nn.AvgPool2D(pool_size=2, strides=2),
        nn.Dense(16, activation="sigmoid"),
        nn.Dense(4),
    )
    for block in net:
        for parameter in block.params.values():
            parameter.init = init.Constant(0.05) if parameter.name.endswith("weight") else init.Zero()
    data = _digits()
    d2l.train_ch5(net, data, data, 2, 0.9, ctx=mx.cpu())
    return {"scores": net(next(iter(data))[0]), "accuracy": d2l.evaluate_accuracy_gpu(net, data)}


def resnet18_on_two_devices():
    """The training loop of chapter 12, on two contexts."""
    net = d2l.resnet18(4)
    contexts = [mx.cpu(0), mx.cpu(1)]
    fill(net, nd.zeros((1, 1, 16, 16)))
    net.collect_params().reset_ctx(contexts)
    data = _digits(40, size=16)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01})
    features, labels = next(iter(data))
    loss_function = gluon.loss.SoftmaxCrossEntropyLoss()
    before = net(features.as_in_context(contexts[1]))
    loss, _ = d2l.train_batch_ch12(net, features, labels, loss_function, trainer, contexts)
    d2l.train_ch12(net, data, data, loss_function, trainer, 1, contexts)
    return {"before": before, "loss": loss, "accuracy_at_end": d2l.evaluate_accuracy_gpus(net, data)}


def language_model():
    """Tokenization, a character-level LSTM, the training loop of chapter 8, and prediction."""
    with _data_of_the_book():
        python_random.seed(3)
        data, vocabulary = d2l.load_data_time_machine(4, 8)
    model = d2l.RNNModel(rnn.LSTM(16), len(vocabulary))
    for parameter in model.collect_params().values():
        parameter.init = init.Constant(0.02)
    batches = [(X, Y) for X, Y in data][:3]
    d2l.train_ch8(model, batches, vocabulary, 1, 2, mx.cpu())
    scores, _ = model(batches[0][0], model.begin_state(batch_size=4))
    characters = d2l.predict_ch8("time", 10, model, vocabulary, mx.cpu())
    found = {f"X{at}": X for at, (X, _) in enumerate(batches)}
    found.update(scores=scores, sentence=[vocabulary[each] for each in characters])
    return found


def attention():
    """Sequence to sequence with a masked loss; dot-product and additive attention."""
    source, target = nd.array([[2, 3, 4, 0], [3, 5, 0, 0]]), nd.array([[1, 4, 3, 2, 0], [1, 2, 5, 4, 2]])
    lengths = nd.array([3, 2]), nd.array([4, 5])
    model = d2l.EncoderDecoder(d2l.Seq2SeqEncoder(6, 4, 5, 2), d2l.Seq2SeqDecoder(6, 4, 5, 2))
    fill(model, source, target[:, :-1], lengths[0])
    trainer = gluon.Trainer(model.collect_params(), "adam", {"learning_rate": 0.01})
    with autograd.record():
        scores, _ = model(source, target[:, :-1], lengths[0])
        loss = d2l.MaskedSoftmaxCELoss()(scores, target[:, 1:], lengths[1] - 1)
    loss.backward()
    d2l.grad_clipping(model, 0.1)
    trainer.step(7)
    query, key = nd.array(random("query", (2, 1, 3))), nd.array(random("key", (2, 4, 3)))
    value, valid = nd.array(random("value", (2, 4, 5))), nd.array([2, 4])
    additive = fill(d2l.MLPAttention(8, 0), query, key, value, valid)
    return {
        "scores": scores,
        "loss": loss,
        "trained": model(source, target[:, :-1], lengths[0])[0],
        "dot": d2l.DotProductAttention(0)(query, key, value, valid),
        "additive": additive(query, key, value, valid),
    }


PROGRAMS = [
    linear_regression,
    softmax_regression,
    lenet,
    resnet18_on_two_devices,
    language_model,
    attention,
]
