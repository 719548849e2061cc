"""Training steps as MXNet's users write them, for both engines; each imperative and hybridized."""

import numpy as np

BATCHES = 4  # each step uses the next of these


def mlp(nn, *hidden):
    net = nn.HybridSequential()
    for units in hidden:
        net.add(nn.Dense(units, activation="relu"))
    net.add(nn.Dense(10))
    return net


def lenet(nn):
    net = nn.HybridSequential()
    net.add(nn.Conv2D(20, 5, activation="relu"), nn.MaxPool2D(2, 2))
    net.add(nn.Conv2D(50, 5, activation="relu"), nn.MaxPool2D(2, 2))
    net.add(nn.Dense(500, activation="relu"), nn.Dense(10))
    return net


def images(mx, batch, *shape):
    return [
        (mx.nd.array(np.random.uniform(0, 1, (batch, *shape))), mx.nd.array(np.random.randint(0, 10, batch)))
        for _ in range(BATCHES)
    ]


def classifier(make, batch, *shape):
    """Train an image classifier."""

    def setup(mx, hybrid):
        gluon = mx.gluon
        net = make(mx)
        net.initialize(mx.init.Xavier())
        loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
        if hybrid:
            net.hybridize(static_alloc=True, static_shape=True)
            loss_of.hybridize(static_alloc=True, static_shape=True)
        data = images(mx, batch, *shape)
        net(data[0][0])
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01, "momentum": 0.9, "wd": 1e-4})
        turn = iter(range(10**9))

        def step():
            x, y = data[next(turn) % BATCHES]
            with mx.autograd.record():
                loss = loss_of(net(x), y)
            loss.backward()
            trainer.step(batch)
            return loss

        return step

    return setup


VOCABULARY, WIDTH, LENGTH, SENTENCES = 2000, 200, 35, 32


def language_model(mx, hybrid):
    """Train a 2-layer LSTM over sentences, with its state carried from step to step."""
    gluon, nn, rnn = mx.gluon, mx.gluon.nn, mx.gluon.rnn

    class Model(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.embedding = nn.Embedding(VOCABULARY, WIDTH)
                self.lstm = rnn.LSTM(WIDTH, 2, input_size=WIDTH)
                self.head = nn.Dense(VOCABULARY, flatten=False, in_units=WIDTH)

        def hybrid_forward(self, F, words, h, c):
            out, states = self.lstm(self.embedding(words), [h, c])
            return self.head(out), states[0], states[1]

    net = Model()
    net.initialize(mx.init.Xavier())
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    if hybrid:
        net.hybridize(static_alloc=True, static_shape=True)
        loss_of.hybridize(static_alloc=True, static_shape=True)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    data = [mx.nd.array(np.random.randint(0, VOCABULARY, (LENGTH + 1, SENTENCES))) for _ in range(BATCHES)]
    batches = [(words[:-1], words[1:]) for words in data]
    state = [mx.nd.zeros((2, SENTENCES, WIDTH)), mx.nd.zeros((2, SENTENCES, WIDTH))]
    turn = iter(range(10**9))

    def step():
        words, following = batches[next(turn) % BATCHES]
        with mx.autograd.record():
            scores, h, c = net(words, state[0].detach(), state[1].detach())
            loss = loss_of(scores.reshape((-3, 0)), following.reshape((-1,)))
        loss.backward()
        state[:] = [h, c]
        trainer.step(LENGTH * SENTENCES)
        return loss

    return step


MODELS = {
    "MLP 784-256-128, batch 64": classifier(lambda mx: mlp(mx.gluon.nn, 256, 128), 64, 784),
    "LeNet, batch 64": classifier(lambda mx: lenet(mx.gluon.nn), 64, 1, 28, 28),
    "MLP of 10M, batch 32": classifier(lambda mx: mlp(mx.gluon.nn, 2048, 2048, 2048), 32, 784),
    "ResNet-18 on 32x32, batch 32": classifier(
        lambda mx: mx.gluon.model_zoo.vision.get_resnet(1, 18, classes=10, thumbnail=True), 32, 3, 32, 32
    ),
    "LSTM language model": language_model,
}
WORKLOADS = {
    f"{name} ({mode})": (lambda mx, setup=setup, hybrid=hybrid: setup(mx, hybrid))
    for name, setup in MODELS.items()
    for mode, hybrid in (("imperative", False), ("hybridized", True))
}
