"""Trains a small network on a shard, and writes what it saw and the weights: run by tests of elastic jobs."""

import json
import os
import signal
import sys
import time

import numpy as np

import neomx as mx
from neomx import autograd, gluon
from neomx.comm.session import session

out, epochs, batch, pause = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
die = dict(each.split(":") for each in sys.argv[5:])  # phase: step, with the member in the variable DIES
ME = int(os.environ["RANK"])
SAMPLES = 96


def may_die(phase, step):
    if os.environ.get("DIES") == str(ME) and die.get(phase) == str(step):
        os.kill(os.getpid(), signal.SIGKILL)


mx.random.seed(1)
rng = np.random.RandomState(3)
x, y = rng.randn(SAMPLES, 8).astype("float32"), rng.randn(SAMPLES, 1).astype("float32")
net = gluon.nn.HybridSequential()
net.add(gluon.nn.Dense(16, activation="tanh"), gluon.nn.Dense(1))
net.initialize(mx.init.Xavier())
loss = gluon.loss.L2Loss()
trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01}, kvstore="dist_sync")
data = gluon.data.ArrayDataset(x, y, np.arange(SAMPLES).astype("float32"))
loader = gluon.data.DataLoader(
    mx.dist.shard(data, shuffle=True, seed=5), batch, num_workers=int(os.environ.get("LOADERS", "0"))
)
transaction = mx.process.state.transaction
step = 0
with open(f"{out}/seen-{ME}.jsonl", "w") as seen:
    for epoch in mx.elastic.epochs(epochs):
        for a, b, numbers in loader:
            may_die("forward", step)
            before = transaction.steps if transaction else step
            with autograd.record():
                value = loss(net(a), b)
            may_die("backward", step)
            value.backward()
            may_die("exchange", step)
            joins = transaction is not None and not session().generations.admitted
            trainer.step(batch * int(os.environ["WORLD_SIZE"]))
            step = transaction.steps if transaction else step + 1
            if joins:
                continue  # the batch was only computed
            seen.write(json.dumps([epoch, before, step, numbers.asnumpy().astype(int).tolist(), time.time()]) + "\n")
            seen.flush()
            time.sleep(pause)
net.save_parameters(f"{out}/weights-{ME}.params")
with open(f"{out}/done-{ME}.json", "w") as file:
    json.dump({"steps": step, "rank": mx.dist.rank(), "size": mx.dist.size()}, file)
