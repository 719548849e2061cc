"""Two ways to define an operation: `autograd.Function`, and `mx.operator.CustomOp`.

A network with binary activations learns to classify handwritten digits, with a hinge loss that is a custom op.
"""

import argparse

import neomx as mx
from neomx import autograd, nd
from neomx.sample import digits


class Binarise(autograd.Function):
    """The sign of x. Its gradient is approximated by 1 near zero; the true gradient is 0 everywhere."""

    def forward(self, x):
        self.save_for_backward(x)
        return nd.sign(x)

    def backward(self, dy):
        (x,) = self.saved_tensors
        return dy * (x.abs() <= 1)


class Hinge(mx.operator.CustomOp):
    """The squared hinge loss of each sample: every wrong class within `margin` of the correct one adds to the loss."""

    def __init__(self, margin):
        super().__init__()
        self.margin = margin

    def excess(self, scores, labels):
        """Return by how much each wrong class violates the margin, and the correct class."""
        right = nd.one_hot(labels, scores.shape[1])
        target = (scores * right).sum(axis=1, keepdims=True)
        return nd.relu(scores - target + self.margin) * (1 - right), right

    def forward(self, is_train, req, in_data, out_data, aux):
        excess, _ = self.excess(*in_data)
        self.assign(out_data[0], req[0], (excess**2).sum(axis=1))

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        excess, right = self.excess(*in_data)
        slope = 2 * (excess - right * excess.sum(axis=1, keepdims=True))
        self.assign(in_grad[0], req[0], slope * out_grad[0].expand_dims(1))
        self.assign(in_grad[1], req[1], 0)


@mx.operator.register("hinge")
class HingeProp(mx.operator.CustomOpProp):
    """The interface of Hinge: its arguments and shapes. Parameters arrive as strings."""

    def __init__(self, margin="1.0"):
        super().__init__(need_top_grad=True)
        self.margin = float(margin)

    def list_arguments(self):
        return ["scores", "labels"]

    def infer_shape(self, in_shape):
        scores, labels = in_shape
        return [scores, labels], [[scores[0]]], []

    def create_operator(self, ctx, in_shapes, in_dtypes):
        return Hinge(self.margin)


def network(x, parameters):
    """Return one hidden layer whose activations are -1 or 1."""
    w1, b1, w2, b2 = parameters
    h = Binarise()(nd.FullyConnected(x, w1, b1, num_hidden=w1.shape[0])) / w1.shape[0] ** 0.5
    return nd.FullyConnected(h, w2, b2, num_hidden=w2.shape[0])


def main(epochs=4, batch=50, rate=0.1, hidden=128):
    mx.random.seed(7)
    train_x, train_y, test_x, test_y = (nd.array(part) for part in digits())
    train_x, test_x = train_x / 255, test_x / 255

    parameters = [nd.random.normal(scale=0.05, shape=(hidden, 784)), nd.zeros(hidden)]
    parameters += [nd.random.normal(scale=0.5, shape=(10, hidden)), nd.zeros(10)]
    for p in parameters:
        p.attach_grad()
    for epoch in range(epochs):
        order = nd.random.shuffle(nd.arange(len(train_x)))
        total = 0.0
        for start in range(0, len(train_x), batch):
            rows = order[start : start + batch]
            with autograd.record():
                scores = network(train_x.take(rows), parameters)
                loss = nd.Custom(scores, train_y.take(rows), margin=1.0, op_type="hinge").mean()
            loss.backward()
            for p in parameters:
                p -= rate * p.grad
            total += loss.asscalar() * len(rows)
        accuracy = (network(test_x, parameters).argmax(axis=1) == test_y).mean().asscalar()
        print(f"epoch {epoch + 1}: loss {total / len(train_x):.4f}, test accuracy {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=4)
    main(**vars(parser.parse_args()))
