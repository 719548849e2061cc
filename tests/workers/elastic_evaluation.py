"""Trains an epoch, then evaluates on a shard and sums over all workers, twice: run by tests of elastic jobs."""

import json
import os
import signal
import sys

import numpy as np

import neomx as mx
from neomx import autograd, gluon

out, where = sys.argv[1], sys.argv[2]  # where the worker in the variable DIES is killed
ME = int(os.environ["RANK"])


def may_die(here):
    if os.environ.get("DIES") == str(ME) and here == where:
        os.kill(os.getpid(), signal.SIGKILL)


net = gluon.nn.Dense(1, in_units=4)
net.initialize()
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01}, kvstore="dist_sync")
x = np.random.RandomState(0).randn(40, 4).astype("float32")
train = gluon.data.DataLoader(mx.dist.shard(gluon.data.ArrayDataset(x), shuffle=True), 4)
held_out = mx.dist.shard(gluon.data.SimpleDataset(list(range(31))))
evaluate = gluon.data.DataLoader(held_out, 3, num_workers=2, thread_pool=True)
found = []
for epoch in mx.elastic.epochs(2):
    for batch in train:
        with autograd.record():
            loss = (net(batch) ** 2).sum()
        loss.backward()
        trainer.step(12)
    seen = []
    may_die(f"before evaluation {epoch}")
    for number, samples in enumerate(evaluate):
        seen += samples.asnumpy().astype(int).tolist()
        may_die(f"in batch {number} of evaluation {epoch}")
    may_die(f"after evaluation {epoch}")
    counts = np.bincount(seen, minlength=31) if seen else np.zeros(31)
    total = mx.dist.all_reduce(mx.nd.array(counts.astype("float32")))
    may_die(f"after the sum {epoch}")
    found.append(total.asnumpy().astype(int).tolist())
with open(f"{out}/found-{ME}.json", "w") as file:
    json.dump(found, file)
