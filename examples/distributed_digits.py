"""Train a perceptron on handwritten digits, on as many workers as there are:

    neomx run -n 2 examples/distributed_digits.py

All workers together have batches of a hundred digits, so the result does not depend on how many they are.
"""

import argparse
import time

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn
from neomx.sample import digits


def network():
    """Smooth activations: where relu has its kink, a rounding of sums in another order may change the way."""
    net = nn.HybridSequential()
    net.add(nn.Dense(512, activation="tanh", in_units=784), nn.Dense(256, activation="tanh", in_units=512))
    net.add(nn.Dense(10, in_units=256))
    return net


def images(pixels):
    return pixels.reshape(-1, 784).astype("float32") / 255


def main(epochs=5, batch=100, rate=0.1, seed=7, kvstore="dist_sync", save=None):
    mx.random.seed(seed)
    kv = mx.kv.create(kvstore)
    train_x, train_y, test_x, test_y = digits()
    train = gluon.data.ArrayDataset(images(train_x), train_y)
    loader = gluon.data.DataLoader(mx.dist.shard(train, shuffle=True, seed=seed), batch // kv.num_workers)

    net = network()
    net.initialize(mx.init.Xavier())
    net.hybridize()
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": rate, "momentum": 0.9}, kvstore=kv)

    mx.monitor.progress(epochs)
    for _ in range(epochs):
        began = time.perf_counter()
        for x, y in loader:
            with autograd.record():
                loss = loss_of(net(x), y)
            loss.backward()
            trainer.step(batch)
            mx.monitor.report(loss=loss)
        speed = len(train_x) / (time.perf_counter() - began)

    accuracy = (net(nd.array(images(test_x))).argmax(axis=1) == nd.array(test_y)).mean().asscalar()
    if kv.rank == 0:
        print(
            f"accuracy {accuracy:.3f}, {speed:,.0f} samples per second in the last epoch on {kv.num_workers} worker(s)"
        )
    if save and kv.rank == 0:
        net.save_parameters(save)
    return accuracy


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=100, help="digits in a batch, over all workers")
    parser.add_argument("--kvstore", default="dist_sync")
    parser.add_argument("--save", help="write the weights to this .params file")
    main(**vars(parser.parse_args()))
