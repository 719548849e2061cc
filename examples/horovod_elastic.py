"""Train a network on digits with workers that may die and be replaced, through Horovod's elastic API.

    neomx run -n 2 --elastic examples/horovod_elastic.py --epochs 3

When a worker dies, the others continue from the last commit. A worker that joins enters at the next commit. In a job
that is not elastic, the program trains like any other.
"""

import argparse

import horovod.mxnet as hvd
import mxnet as mx
from mxnet import autograd, gluon, nd


def digits(train):
    images, labels = gluon.data.vision.MNIST(train=train, sample=True)[:]
    return gluon.data.ArrayDataset(images.reshape((-1, 784)).astype("float32") / 255, labels.astype("float32"))


def accuracy(net, batches):
    """Return the accuracy over the samples of all workers."""
    counts = nd.zeros(2)  # correct, total
    for x, y in batches:
        counts += nd.concat((net(x).argmax(axis=1) == y).sum(), nd.array([len(y)]), dim=0)
    right, seen = hvd.allreduce(counts, average=False, name="accuracy").asnumpy()
    return right / seen


def main(epochs=3, batch=32, rate=0.02, commit_every=10):
    hvd.init()
    # The position of a shard's loader can be committed, so no sample is lost or repeated.
    train_data = gluon.data.DataLoader(mx.dist.shard(digits(True), shuffle=True, seed=7), batch)
    test_data = gluon.data.DataLoader(mx.dist.shard(digits(False)), 250)

    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(128, activation="relu"), gluon.nn.Dense(10))
    net.initialize(mx.init.Xavier())
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": rate, "momentum": 0.9})
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()

    def set_rate():
        trainer.set_learning_rate(rate * hvd.size())

    @hvd.elastic.run
    def train(state):
        for state.epoch in range(state.epoch, epochs):  # noqa: B020 - as in Horovod's examples
            for count, (x, y) in enumerate(train_data, 1):
                with autograd.record():
                    loss = loss_of(net(x), y)
                loss.backward()
                trainer.step(len(x))
                if count % commit_every == 0:
                    state.commit()
            state.commit()
            reached = accuracy(net, test_data)
            if hvd.rank() == 0:
                print(f"epoch {state.epoch + 1}: {hvd.size()} workers, test accuracy {reached:.4f}", flush=True)
        return reached

    set_rate()
    state = hvd.elastic.MXNetState(net, trainer, data=train_data, epoch=0)
    state.register_reset_callbacks([set_rate])  # after workers were lost or have joined
    return train(state)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32, help="samples per worker and step")
    parser.add_argument("--rate", type=float, default=0.02, help="learning rate of one worker")
    parser.add_argument("--commit-every", type=int, default=10, help="steps between two commits")
    main(**vars(parser.parse_args()))
