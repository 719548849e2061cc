"""Fine-tuning: features learned from ten digits help to learn odd from even with fifty examples."""

import argparse
import os
import tempfile

import numpy as np

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn
from neomx.sample import digits


class Net(gluon.HybridBlock):
    """Features, which can be reused, and a head for this many classes."""

    def __init__(self, classes, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="features_")
            with self.features.name_scope():
                self.features.add(nn.Conv2D(8, 5, strides=2, activation="relu"), nn.Conv2D(16, 3, activation="relu"))
                self.features.add(nn.MaxPool2D(), nn.Dense(64, activation="relu"))
            self.output = nn.Dense(classes, prefix="output_")

    def hybrid_forward(self, F, x):
        return self.output(self.features(x))


def train(net, x, y, epochs, rate, batch=25):
    batches = gluon.data.DataLoader(gluon.data.ArrayDataset(x, y), batch, shuffle=True)
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": rate})
    for _ in range(epochs):
        for data, label in batches:
            with autograd.record():
                loss = loss_of(net(data), label)
            loss.backward()
            trainer.step(len(label))


def accuracy(net, x, y):
    return (net(x).argmax(axis=1) == y).mean().asscalar()


def main(epochs=3, tuning_epochs=20, examples=50):
    mx.random.seed(7)
    np.random.seed(7)  # for the order of the loader
    train_x, train_y, test_x, test_y = (nd.array(part) for part in digits())
    train_x, test_x = (x.expand_dims(1) / 255 for x in (train_x, test_x))
    few, test = (train_x[:examples], train_y[:examples] % 2), (test_x, test_y % 2)
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "features.params")
        old = Net(10)
        old.initialize(mx.init.Xavier())
        train(old, train_x, train_y, epochs, rate=2e-3)
        print(f"ten digits: test accuracy {accuracy(old, test_x, test_y):.3f}")
        old.features.save_parameters(file)

        tuned = Net(2)
        tuned.features.load_parameters(file)
    tuned.output.initialize(mx.init.Xavier())
    tuned.features[:2].collect_params().setattr("grad_req", "null")  # freeze the convolutions
    tuned.features[3].collect_params().setattr("lr_mult", 0.1)  # train the last features slowly
    train(tuned, *few, tuning_epochs, rate=2e-2)
    same = (tuned.features[0].weight.data() == old.features[0].weight.data()).asnumpy().all()

    fresh = Net(2)
    fresh.initialize(mx.init.Xavier())
    train(fresh, *few, tuning_epochs, rate=5e-3)
    reached = accuracy(tuned, *test), accuracy(fresh, *test)
    print("odd or even: test accuracy {:.3f} fine-tuned, {:.3f} from nothing".format(*reached))
    return *reached, same


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    main(**vars(parser.parse_args()))
