"""Train a symbol with Module, as in programs before Gluon: checkpoints, resuming, several workers.

python examples/module_digits.py --epochs 4
neomx run -n 2 examples/module_digits.py --kvstore dist_sync
"""

import argparse
import logging

import numpy as np

import neomx as mx


def lenet():
    """Return a network of two convolutions and two dense layers, with a loss."""
    net = mx.sym.Variable("data")
    for number, filters in enumerate((8, 16), 1):
        net = mx.sym.Convolution(net, kernel=(5, 5), num_filter=filters, name=f"conv{number}")
        net = mx.sym.Pooling(mx.sym.Activation(net, act_type="relu"), pool_type="max", kernel=(2, 2), stride=(2, 2))
    net = mx.sym.FullyConnected(mx.sym.Flatten(net), num_hidden=64, name="fc1")
    net = mx.sym.FullyConnected(mx.sym.Activation(net, act_type="relu"), num_hidden=10, name="fc2")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def digits(train, batch, part=slice(None)):
    """Return batches of the digits included in neomx, or of a part of them."""
    images, labels = mx.gluon.data.vision.MNIST(train=train, sample=True)[:]
    pixels = images.asnumpy().transpose(0, 3, 1, 2).astype("float32") / 255
    return mx.io.NDArrayIter(pixels[part], labels[part], batch, shuffle=train)


def main(epochs=4, batch=50, kvstore="local", prefix=None, load_epoch=None):
    mx.random.seed(7)
    np.random.seed(7)
    store = mx.kv.create(kvstore)
    train = digits(True, batch, slice(store.rank, None, store.num_workers))  # every worker has different digits
    test = digits(False, batch)

    if load_epoch is None:
        module, arguments, states = mx.mod.Module(lenet()), None, None
    else:  # resume from a checkpoint
        symbol, arguments, states = mx.model.load_checkpoint(prefix, load_epoch)
        module = mx.mod.Module(symbol)
    module.fit(
        train,
        eval_data=test,
        kvstore=store,
        optimizer="sgd",
        optimizer_params={"learning_rate": 0.1, "momentum": 0.9, "wd": 1e-4},
        initializer=mx.init.Xavier(),
        arg_params=arguments,
        aux_params=states,
        begin_epoch=load_epoch or 0,
        num_epoch=epochs,
        batch_end_callback=mx.callback.Speedometer(batch, 20),
        epoch_end_callback=mx.callback.do_checkpoint(prefix) if prefix and store.rank == 0 else None,
    )
    return dict(module.score(test, "acc"))["accuracy"]


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--kvstore", default="local")
    parser.add_argument("--prefix", help="prefix of checkpoints to write and resume from")
    parser.add_argument("--load-epoch", type=int, help="resume from the checkpoint of this epoch")
    print(f"accuracy {main(**vars(parser.parse_args())):.4f}")
