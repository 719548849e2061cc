"""Train on digits with many workers, with Horovod's API and MXNet's iterators; each worker reads its own part.

    neomx run -n 2 examples/horovod_mnist_iter.py --epochs 3

The program does not depend on neomx, except for `get_mnist(sample=True)`, which selects the six thousand digits
included in it. With `--data DIR` it reads MNIST's four files from there.
"""

import argparse
import os
import struct
import tempfile
import time

import horovod.mxnet as hvd
import mxnet as mx
from mxnet import autograd, gluon


def write_digits(directory):
    """Write the sample as the files that MNISTIter reads."""
    for name, values in mx.test_utils.get_mnist(sample=True).items():
        pixels = (values * 255).round() if values.ndim == 4 else values
        shape = (len(values), 28, 28) if values.ndim == 4 else values.shape
        with open(os.path.join(directory, name), "wb") as file:
            file.write(struct.pack(f">4B{len(shape)}I", 0, 0, 8, len(shape), *shape))
            file.write(pixels.astype("uint8").tobytes())


def batches(directory, files, size, train):
    """Return an iterator over this worker's part of the digits."""
    image, label = (os.path.join(directory, name) for name in files)
    return mx.io.MNISTIter(
        image=image,
        label=label,
        batch_size=size,
        shuffle=train,
        seed=hvd.rank(),
        num_parts=hvd.size(),
        part_index=hvd.rank(),
    )


def network():
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Conv2D(8, kernel_size=5, activation="relu"), gluon.nn.MaxPool2D(pool_size=2, strides=2))
    net.add(gluon.nn.Conv2D(16, kernel_size=5, activation="relu"), gluon.nn.MaxPool2D(pool_size=2, strides=2))
    net.add(gluon.nn.Dense(64, activation="relu"), gluon.nn.Dense(10))
    return net


def evaluate(net, data, context):
    """Return the accuracy over the samples of all workers."""
    metric = mx.metric.Accuracy()
    data.reset()
    for batch in data:
        metric.update(batch.label, [net(batch.data[0].as_in_context(context))])
    return hvd.allreduce(mx.nd.array([metric.get()[1]]), name="accuracy").asscalar()


def train(directory, names, epochs, size, rate):
    context = mx.gpu(hvd.local_rank()) if mx.context.num_gpus() else mx.cpu(hvd.local_rank())
    training = batches(directory, names[:2], size, True)
    testing = batches(directory, names[2:], 100, False)

    net = network()
    net.initialize(mx.init.Xavier(), ctx=context)
    net.hybridize()
    params = net.collect_params()
    hvd.broadcast_parameters(params, root_rank=0)  # equal start, including deferred parameters
    optimizer = mx.optimizer.create("sgd", learning_rate=rate * hvd.size(), momentum=0.9)
    trainer = hvd.DistributedTrainer(params, optimizer)
    loss_of, metric = gluon.loss.SoftmaxCrossEntropyLoss(), mx.metric.Accuracy()

    for epoch in range(epochs):
        start, steps = time.time(), 0
        training.reset()
        metric.reset()
        for batch in training:
            x, y = batch.data[0].as_in_context(context), batch.label[0].as_in_context(context)
            with autograd.record():
                output = net(x)
                loss = loss_of(output, y)
            loss.backward()
            trainer.step(size)
            metric.update([y], [output])
            steps += 1
        seconds, reached = time.time() - start, evaluate(net, testing, context)
        if hvd.rank() == 0:
            print(
                f"epoch {epoch + 1}: training accuracy {metric.get()[1]:.4f}, test accuracy {reached:.4f}, "
                f"{hvd.size() * steps * size / seconds:.0f} samples/s",
                flush=True,
            )


def main(data=None, epochs=3, batch=32, rate=0.02):
    hvd.init()
    if data:
        names = [f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]
        train(data, names, epochs, batch, rate)
        return
    with tempfile.TemporaryDirectory() as directory:
        write_digits(directory)
        names = ["train_data", "train_label", "test_data", "test_label"]
        train(directory, names, epochs, batch, rate)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="a directory with MNIST's four files, not gzipped")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32, help="samples per worker and step")
    parser.add_argument("--rate", type=float, default=0.02, help="learning rate of one worker")
    main(**vars(parser.parse_args()))
