"""Creates and drops Trainers one after the other; run by test_workers.py on two workers.

The second worker has one batch fewer each time, and drops its Trainer while the first still steps.
"""

import gc
import sys

import numpy as np

import neomx as mx
from neomx import autograd, gluon
from neomx.step import StepStrategy


def train(batches):
    net = gluon.nn.Dense(1, in_units=2, use_bias=False)
    net.initialize(mx.init.One())
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5}, kvstore="dist_sync")
    for _ in range(batches):
        with autograd.record():
            loss = net(mx.nd.ones((1, 2)))
        loss.backward()
        trainer.step(1)
    return net


def alive():
    gc.collect()
    return sum(issubclass(type(each), StepStrategy) for each in gc.get_objects())


counts = []
for _ in range(5):
    net = train(3 - mx.dist.rank())
    mx.nd.waitall()
    mx.dist.barrier()  # takes part in the last step of the first worker, and then has its weights
    # The gradient is 1 for each sample, and those of both workers are summed: two steps by 2, one by 1.
    np.testing.assert_allclose(net.weight.data().asnumpy(), 1 - 0.5 * float(sys.argv[1]))
    counts.append(alive())
assert counts == [1] * 5, counts
print("dropped")
