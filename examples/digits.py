"""Train a small network on handwritten digits, as in an MXNet program, and print its accuracy."""

import argparse

import neomx as mx
from neomx import autograd, nd
from neomx.sample import digits


def network(x, parameters):
    """Two hidden layers with relu."""
    w1, b1, w2, b2, w3, b3 = parameters
    h = nd.relu(nd.FullyConnected(x, w1, b1, num_hidden=w1.shape[0]))
    h = nd.relu(nd.FullyConnected(h, w2, b2, num_hidden=w2.shape[0]))
    return nd.FullyConnected(h, w3, b3, num_hidden=w3.shape[0])


def accuracy(x, y, parameters):
    """Return the fraction of digits that the network classifies correctly."""
    return (network(x, parameters).argmax(axis=1) == y).mean().asscalar()


def main(epochs=10, batch=50, rate=0.1, save=None):
    mx.random.seed(7)
    train_x, train_y, test_x, test_y = (nd.array(part) for part in digits())
    train_x, test_x = train_x / 255, test_x / 255

    sizes = [784, 128, 64, 10]
    parameters = []
    for inputs, outputs in zip(sizes, sizes[1:], strict=False):
        parameters += [nd.random.normal(scale=(2 / inputs) ** 0.5, shape=(outputs, inputs)), nd.zeros(outputs)]
    for p in parameters:
        p.attach_grad()

    for epoch in range(epochs):
        order = nd.random.shuffle(nd.arange(len(train_x)))
        total = 0.0
        for start in range(0, len(train_x), batch):
            rows = order[start : start + batch]
            x, y = train_x.take(rows), train_y.take(rows)
            with autograd.record():
                loss = -nd.pick(nd.log_softmax(network(x, parameters)), y).mean()
            loss.backward()
            for p in parameters:
                p -= rate * p.grad
            total += loss.asscalar()
        print(
            f"epoch {epoch + 1:2}: loss {total / (len(train_x) // batch):.4f}, "
            f"test accuracy {accuracy(test_x, test_y, parameters):.3f}"
        )
    if save:
        nd.save(save, {f"p{i}": p for i, p in enumerate(parameters)})
        print(f"weights saved to {save}: MXNet can read them, too")
    return accuracy(test_x, test_y, parameters)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--save", help="write the weights to this .params file")
    main(**vars(parser.parse_args()))
