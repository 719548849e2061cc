"""Train a small convolutional network on handwritten digits, with hand-written layers, batch normalization and Adam."""

import argparse

import neomx as mx
from neomx import autograd, nd
from neomx.sample import digits


class Network:
    """Two convolutions that halve the image size, each with batch normalization, and a dense layer."""

    def __init__(self):
        self.parameters, self.averages = [], []
        for inputs, outputs in ((1, 8), (8, 16)):
            weight = nd.random.normal(scale=(2 / (inputs * 9)) ** 0.5, shape=(outputs, inputs, 3, 3))
            self.parameters += [weight, nd.ones(outputs), nd.zeros(outputs)]
            self.averages += [nd.zeros(outputs), nd.ones(outputs)]
        self.parameters += [nd.random.normal(scale=0.05, shape=(10, 16 * 7 * 7)), nd.zeros(10)]
        for parameter in self.parameters:
            parameter.attach_grad()

    def __call__(self, x):
        w1, gamma1, beta1, w2, gamma2, beta2, w3, b3 = self.parameters
        mean1, var1, mean2, var2 = self.averages
        for weight, *norm in ((w1, gamma1, beta1, mean1, var1), (w2, gamma2, beta2, mean2, var2)):
            shape = {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1), "num_filter": weight.shape[0]}
            x = nd.Convolution(x, weight, no_bias=True, **shape)
            x = nd.relu(nd.BatchNorm(x, *norm, fix_gamma=False))
        return nd.FullyConnected(x, w3, b3, num_hidden=10)

    def accuracy(self, x, y):
        """Return the fraction of digits that the network classifies correctly."""
        return (self(x).argmax(axis=1) == y).mean().asscalar()


class Adam:
    """Adam as described in its paper."""

    def __init__(self, parameters, rate):
        self.rate, self.steps = rate, 0
        self.states = [(p, nd.zeros_like(p), nd.zeros_like(p)) for p in parameters]

    def step(self):
        self.steps += 1
        for p, mean, square in self.states:
            mean[:] = 0.9 * mean + 0.1 * p.grad
            square[:] = 0.999 * square + 0.001 * p.grad**2
            corrected = (square / (1 - 0.999**self.steps)).sqrt() + 1e-8
            p -= self.rate / (1 - 0.9**self.steps) * mean / corrected


def main(epochs=3, batch=100, rate=0.01):
    mx.random.seed(7)
    train_x, train_y, test_x, test_y = (nd.array(part) for part in digits())
    train_x, test_x = (x.reshape((-1, 1, 28, 28)) / 255 for x in (train_x, test_x))

    network = Network()
    adam = Adam(network.parameters, rate)
    for epoch in range(epochs):
        order = nd.random.shuffle(nd.arange(len(train_x)))
        total = 0.0
        for start in range(0, len(train_x), batch):
            rows = order[start : start + batch]
            with autograd.record():
                loss = -nd.pick(nd.log_softmax(network(train_x.take(rows))), train_y.take(rows)).mean()
            loss.backward()
            adam.step()
            total += loss.asscalar() * len(rows)
        accuracy = network.accuracy(test_x, test_y)
        print(f"epoch {epoch + 1}: loss {total / len(train_x):.4f}, test accuracy {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    main(**vars(parser.parse_args()))
