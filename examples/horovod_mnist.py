"""Train a convolutional network on digits with many workers, through Horovod's API.

    neomx run -n 2 examples/horovod_mnist.py --epochs 3

The program does not depend on neomx: it also runs with MXNet and Horovod, except for `sample=True`, which selects the
six thousand digits included in neomx.
"""

import argparse
import time

import horovod.mxnet as hvd
import mxnet as mx
import numpy as np
from mxnet import autograd, gluon, nd


def network():
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Conv2D(8, kernel_size=5, activation="relu"), gluon.nn.MaxPool2D(pool_size=2, strides=2))
    net.add(gluon.nn.Conv2D(16, kernel_size=5, activation="relu"), gluon.nn.MaxPool2D(pool_size=2, strides=2))
    net.add(gluon.nn.Dense(64, activation="relu"), gluon.nn.Dense(10))
    return net


def digits(train, batch):
    """Return batches of this worker's part of the digits."""
    images, labels = gluon.data.vision.MNIST(train=train, sample=True)[:]
    data = gluon.data.ArrayDataset(images.transpose((0, 3, 1, 2)).astype("float32") / 255, labels)
    part = data.shard(hvd.size(), hvd.rank())
    return gluon.data.DataLoader(part, batch, shuffle=train, last_batch="discard" if train else "keep")


def accuracy(net, batches, context):
    """Return the accuracy over the samples of all workers."""
    counts = nd.zeros(2, ctx=context)  # correct, total
    for x, y in batches:
        guess = net(x.as_in_context(context)).argmax(axis=1)
        counts += nd.concat((guess == y.as_in_context(context).astype("float32")).sum(), nd.array([len(y)]), dim=0)
    right, seen = hvd.allreduce(counts, average=False, name="accuracy").asnumpy()
    return right / seen


def main(epochs=3, batch=32, rate=0.02, momentum=0.9, fp16_allreduce=False):
    hvd.init()
    context = mx.gpu(hvd.local_rank()) if mx.context.num_gpus() else mx.cpu(hvd.local_rank())
    np.random.seed(7 + hvd.rank())  # for the order of the samples
    train, test = digits(True, batch), digits(False, 250)

    net = network()
    net.initialize(mx.init.Xavier(), ctx=context)
    net.hybridize()
    params = net.collect_params()
    hvd.broadcast_parameters(params, root_rank=0)  # equal start, including deferred parameters
    optimizer = mx.optimizer.create("sgd", learning_rate=rate * hvd.size(), momentum=momentum)
    compression = hvd.Compression.fp16 if fp16_allreduce else hvd.Compression.none
    trainer = hvd.DistributedTrainer(params, optimizer, compression=compression)
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()

    for epoch in range(epochs):
        start, total = time.time(), nd.zeros(1, ctx=context)
        for x, y in train:
            with autograd.record():
                loss = loss_of(net(x.as_in_context(context)), y.as_in_context(context))
            loss.backward()
            trainer.step(batch)
            total += loss.mean()
        mean = hvd.allreduce(total / len(train), name="loss").asscalar()
        seconds, reached = time.time() - start, accuracy(net, test, context)
        if hvd.rank() == 0:
            rate_now = hvd.size() * len(train) * batch / seconds
            print(
                f"epoch {epoch + 1}: loss {mean:.4f}, test accuracy {reached:.4f}, {rate_now:.0f} samples/s", flush=True
            )
    return reached


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32, help="samples per worker and step")
    parser.add_argument("--rate", type=float, default=0.02, help="learning rate of one worker")
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients as float16")
    main(**vars(parser.parse_args()))
