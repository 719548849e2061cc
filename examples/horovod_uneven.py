"""Workers with different amounts of data train together, through Horovod's API, and resume from a checkpoint.

    neomx run -n 2 examples/horovod_uneven.py --epochs 2 --checkpoint /tmp/uneven

Each worker processes all of its batches, then joins, and the others continue without it. Every sample has the same
weight, and at the end of an epoch all workers have the same weights. The learning rate warms up over the first epoch.
Worker 0 writes a checkpoint after every epoch; a restarted program resumes after the last one.
"""

import argparse
import os

import horovod.mxnet as hvd
import mxnet as mx
import numpy as np
from mxnet import autograd, gluon, nd


def digits(train):
    """Return images as rows, and labels; of the training set, worker r of n gets (r + 1) parts of 1 + 2 + ... + n."""
    images, labels = gluon.data.vision.MNIST(train=train, sample=True)[:]
    rows = images.astype("float32").reshape((len(labels), -1)) / 255
    if not train:
        return rows, nd.array(labels)
    ends = np.cumsum(np.arange(hvd.size() + 1)) * len(labels) // np.arange(1, hvd.size() + 1).sum()
    mine = slice(int(ends[hvd.rank()]), int(ends[hvd.rank() + 1]))
    return rows[mine], nd.array(labels[mine])


def resume(checkpoint, net):
    """Load the checkpoint on worker 0, broadcast its weights to all workers, and return the first epoch to train."""
    first = 0
    if hvd.rank() == 0 and checkpoint and os.path.exists(checkpoint + ".params"):
        net.load_parameters(checkpoint + ".params")
        with open(checkpoint + ".epoch") as file:
            first = int(file.read())
    hvd.broadcast_parameters(net.collect_params(), root_rank=0)
    return hvd.broadcast_object(first, root_rank=0)


def keep(checkpoint, net, epochs_done):
    net.save_parameters(checkpoint + ".params")
    with open(checkpoint + ".epoch", "w") as file:
        file.write(str(epochs_done))


def main(epochs=2, batch=50, rate=4e-3, checkpoint=""):
    hvd.init()
    mx.random.seed(hvd.rank())
    np.random.seed(hvd.rank())  # for the order of the samples
    pictures, labels = digits(train=True)
    data = gluon.data.DataLoader(gluon.data.ArrayDataset(pictures, labels), batch, shuffle=True)
    seen, seen_labels = (each[hvd.rank() :: hvd.size()] for each in digits(train=False))

    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(128, activation="relu", in_units=28 * 28), gluon.nn.Dense(10, in_units=128))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    longest = int(hvd.allreduce(nd.array([len(data)]), op=hvd.Max).asscalar())
    trainer = hvd.DistributedTrainer(net.collect_params(), "adam", {"learning_rate": rate})
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()

    for epoch in range(resume(checkpoint, net), epochs):
        for step, (x, y) in enumerate(data, start=epoch * longest + 1):
            trainer.set_learning_rate(rate * min(1, step / longest))
            with autograd.record():
                loss = loss_of(net(x), y)
            loss.backward()
            trainer.step(len(y))
        last = hvd.join()  # until the last worker is out of data
        metric = mx.metric.Accuracy()
        metric.update(seen_labels, net(seen))
        reached = hvd.allreduce(nd.array([metric.get()[1]]), name="accuracy").asscalar()
        batches = hvd.allgather_object(len(data))
        if hvd.rank() == 0:
            print(
                f"epoch {epoch + 1}: batches {batches}, worker {last} was last, test accuracy {reached:.4f}", flush=True
            )
            if checkpoint:
                keep(checkpoint, net, epoch + 1)
    return reached


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=50, help="samples per worker and step")
    parser.add_argument("--rate", type=float, default=4e-3)
    parser.add_argument(
        "--checkpoint", default="", help="path prefix of the checkpoint: writes PATH.params and PATH.epoch"
    )
    main(**vars(parser.parse_args()))
