"""Whole trainings from the same weights and batches: every step's loss, and the weights at the end."""

import numpy as np

from parity.cases.gluon_core import fill
from parity.spec import family

case, program = family(__name__)


def pictures(mx, batches, batch, *shape):
    """Batches of noisy pictures of which the class can be learned."""
    rng = np.random.RandomState(7)
    prototypes = rng.uniform(0, 1, (10, *shape))
    for _ in range(batches):
        labels = rng.randint(0, 10, batch)
        noise = rng.normal(0, 0.2, (batch, *shape))
        yield mx.nd.array(prototypes[labels] + noise), mx.nd.array(labels)


def train(mx, net, trainer, batches):
    loss_of, losses = mx.gluon.loss.SoftmaxCrossEntropyLoss(), []
    for x, y in batches:
        with mx.autograd.record():
            loss = loss_of(net(x), y)
        loss.backward()
        trainer.step(len(y))
        losses.append(loss.mean().asscalar())
    return np.array(losses)


def mlp(mx):
    nn = mx.gluon.nn
    net = nn.HybridSequential(prefix="mlp_")
    with net.name_scope():
        net.add(nn.Dense(32, activation="relu"), nn.Dense(16, activation="tanh"), nn.Dense(10))
    return net


def lenet(mx):
    nn = mx.gluon.nn
    net = nn.HybridSequential(prefix="lenet_")
    with net.name_scope():
        net.add(nn.Conv2D(4, 5, activation="tanh"), nn.MaxPool2D(2, 2), nn.BatchNorm())
        net.add(nn.Conv2D(8, 3), nn.LeakyReLU(0.1), nn.AvgPool2D(2, 2), nn.Flatten())
        net.add(nn.Dense(20, activation="sigmoid"), nn.Dense(10))
    return net


def run(mx, make, shape, optimizer, options, hybrid):
    net = make(mx)
    net.initialize()
    net(mx.nd.zeros((1, *shape)))
    fill(mx, net)
    if hybrid:
        net.hybridize()
    trainer = mx.gluon.Trainer(net.collect_params(), optimizer, options(mx))
    losses = train(mx, net, trainer, pictures(mx, 20, 16, *shape))
    params = net.collect_params()
    return [losses, *[params[name].data() for name in sorted(params.keys())]]


def with_schedule(mx):
    return {"learning_rate": 0.1, "momentum": 0.9, "wd": 1e-3, "lr_scheduler": mx.lr_scheduler.FactorScheduler(5, 0.7)}


@program
def mlp_by_sgd_with_a_schedule(mx):
    return run(mx, mlp, (12,), "sgd", with_schedule, False)


@program
def mlp_by_sgd_hybridized(mx):
    return run(mx, mlp, (12,), "sgd", with_schedule, True)


@program
def mlp_by_adam(mx):
    return run(mx, mlp, (12,), "adam", lambda mx: {"learning_rate": 0.01}, False)


@program
def lenet_by_nag(mx):
    return run(mx, lenet, (1, 14, 14), "nag", with_schedule, False)


@program
def lenet_by_adam_hybridized(mx):
    return run(mx, lenet, (1, 14, 14), "adam", lambda mx: {"learning_rate": 0.005, "wd": 1e-3}, True)


def language_model(mx, hybrid):
    """A two-layer LSTM that predicts the next word; its state goes from batch to batch, its gradient is clipped."""
    gluon, words, width = mx.gluon, 11, 6

    class Model(gluon.HybridBlock):
        def __init__(self):
            super().__init__(prefix="lm_")
            with self.name_scope():
                self.embedding = gluon.nn.Embedding(words, width)
                self.lstm = gluon.rnn.LSTM(width, 2, input_size=width)
                self.head = gluon.nn.Dense(words, flatten=False, in_units=width)

        def hybrid_forward(self, F, x, h, c):
            out, states = self.lstm(self.embedding(x), [h, c])
            return self.head(out), states[0], states[1]

    net = Model()
    net.initialize()
    fill(mx, net)
    if hybrid:
        net.hybridize()
    params = net.collect_params()
    trainer = gluon.Trainer(params, "sgd", {"learning_rate": 2.0})
    loss_of, losses, rng = gluon.loss.SoftmaxCrossEntropyLoss(), [], np.random.RandomState(5)
    state = [mx.nd.zeros((2, 3, width)), mx.nd.zeros((2, 3, width))]
    for _ in range(20):
        start = rng.randint(0, words, (1, 3))
        text = mx.nd.array((start + np.arange(6)[:, None] * 2) % words)
        state = [each.detach() for each in state]
        with mx.autograd.record():
            scores, *state = net(text[:-1], *state)
            loss = loss_of(scores.reshape((-3, 0)), text[1:].reshape((-1,)))
        loss.backward()
        gluon.utils.clip_global_norm([p.grad() for p in params.values()], 3.0)
        trainer.step(15)
        losses.append(loss.mean().asscalar())
    return [np.array(losses), *[params[name].data() for name in sorted(params.keys())]]


@program
def lstm_language_model(mx):
    return language_model(mx, False)


@program
def lstm_language_model_hybridized(mx):
    return language_model(mx, True)
