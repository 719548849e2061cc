"""Train a LeNet on handwritten digits, on any number of workers.

    neomx run -n 2 examples/distributed_digits.py

The workers split each batch of `--batch` digits among them, so the weights do not depend on the number of workers.
"""

import argparse
import time

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn
from neomx.sample import digits


def lenet():
    """Return a LeNet with tanh and average pooling; kinks of relu and maximum pooling could amplify rounding errors."""
    net = nn.HybridSequential()
    net.add(nn.Conv2D(20, 5, activation="tanh"), nn.AvgPool2D(2, 2))
    net.add(nn.Conv2D(50, 5, activation="tanh"), nn.AvgPool2D(2, 2))
    net.add(nn.Dense(500, activation="tanh"), nn.Dense(10))
    return net


def images(pixels):
    return pixels[:, None].astype("float32") / 255


def main(epochs=5, batch=400, rate=0.2, seed=7, kvstore="dist_sync", save=None):
    """Train; return the accuracy, the samples per second after the first epoch, and the weights."""
    mx.random.seed(seed)
    kv = mx.kv.create(kvstore)
    train_x, train_y, test_x, test_y = digits()
    train = gluon.data.ArrayDataset(images(train_x), train_y)
    loader = gluon.data.DataLoader(mx.dist.shard(train, shuffle=True, seed=seed), batch // kv.num_workers)

    net = lenet()
    net.initialize(mx.init.Xavier())
    net.hybridize()
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": rate, "momentum": 0.9}, kvstore=kv)

    mx.monitor.progress(epochs)
    for epoch in range(epochs):
        if epoch < 2:
            began = time.perf_counter()  # of the second epoch, if there is one: the first includes setup
        for x, y in loader:
            with autograd.record():
                loss = loss_of(net(x), y)
            loss.backward()
            trainer.step(batch)
            mx.monitor.report(loss=loss)
    speed = len(train_x) * max(epochs - 1, 1) / (time.perf_counter() - began)

    accuracy = (net(nd.array(images(test_x))).argmax(axis=1) == nd.array(test_y)).mean().asscalar()
    if kv.rank == 0:
        print(f"accuracy {accuracy:.3f}, {speed:,.0f} samples per second on {kv.num_workers} worker(s)")
    if save and kv.rank == 0:
        net.save_parameters(save)
    return accuracy, speed, [array.data() for array in net.collect_params().values()]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=400, help="batch size, over all workers")
    parser.add_argument("--rate", type=float, default=0.2, help="learning rate")
    parser.add_argument("--kvstore", default="dist_sync")
    parser.add_argument("--save", help="write the weights to this .params file")
    main(**vars(parser.parse_args()))
