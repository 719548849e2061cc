"""A user-defined strategy: exchange gradients every second step, and accumulate them in between.

    neomx run -n 2 examples/own_strategy.py

It sends half as many messages, and computes the same weights as with batches twice as large. All workers must have
the same number of batches.
"""

import torch

import neomx as mx
from neomx import autograd, gluon, nd


class EveryOther(mx.step.AllReduce):
    """Exchange gradients every second step, and accumulate them in between."""

    def __init__(self):
        super().__init__()
        self.count, self.kept = 0, {}

    def exchanges(self):
        return self.count % 2 == 1

    def add_kept(self, i):
        if i in self.kept:
            self.trained.gradient(i).add_(self.kept.pop(i))

    def ready(self, i):  # during backward
        if self.exchanges():
            self.add_kept(i)
            super().ready(i)

    def step(self, divisor, ignore_stale=False):
        self.follow()
        if self.exchanges():
            for i in self.trained.fresh():
                self.add_kept(i)  # parameters for which `ready` was not called
            super().step(divisor, ignore_stale)
        else:
            self.kept = {i: self.trained.gradient(i).clone() for i in self.trained.fresh()}
            self.trained.use_all()
        self.count += 1

    def state(self):
        return {"count": torch.tensor(self.count), **{f"kept {i}": each for i, each in self.kept.items()}}

    def load_state(self, state):
        self.count = int(state["count"])
        self.kept = {int(name.split()[1]): each for name, each in state.items() if name != "count"}


def main():
    mx.random.seed(7)
    rank, size = mx.dist.rank(), mx.dist.size()
    net = gluon.nn.Dense(1)
    net.initialize(mx.init.One())
    data = nd.array([[number, 1.0] for number in range(32)]) / 32
    target = data.sum(axis=1, keepdims=True) * 2
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5}, kvstore=EveryOther())
    for step in range(20):
        first = 16 * (step % 2)
        x, y = (array[first : first + 16][rank::size] for array in (data, target))  # this worker's part of 16 samples
        with autograd.record():
            loss = ((net(x) - y) ** 2).sum()
        loss.backward()
        trainer.step(32)
    if rank == 0:
        weight, bias = net.weight.data().asnumpy()[0], net.bias.data().asnumpy()
        print("weight", weight.round(5).tolist(), "bias", bias.round(5).tolist())


if __name__ == "__main__":
    main()
