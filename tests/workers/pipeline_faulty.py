"""Trains in a pipeline of three workers until the middle one dies, hangs or raises; saves the errors of the others.

pipeline_faulty.py FOLDER kill|hang|raise SCHEDULE
"""

import os
import signal
import sys
import time

import numpy as np
import torch

import neomx as mx
from neomx import gluon, nd
from neomx.gluon import nn
from neomx.parallel import Layout, train_step

FOLDER, WHAT, SCHEDULE = sys.argv[1:]
RANK = int(os.environ["RANK"])


class Fault(gluon.HybridBlock):
    """Fails in the third step, in the forward of the second microbatch."""

    calls = 0

    def forward(self, x):
        Fault.calls += 1
        if RANK == 1 and Fault.calls == 10:
            with open(f"{FOLDER}/fault", "w") as file:
                file.write(str(time.time()))
            if WHAT == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if WHAT == "hang":
                time.sleep(3600)
            raise RuntimeError("a mistake in the model")
        return x * 1


def await_others():
    """Wait until all have imported the library, which may take longer than the timeout."""
    open(f"{FOLDER}/imported-{RANK}", "w").close()
    while not all(os.path.exists(f"{FOLDER}/imported-{rank}") for rank in range(int(os.environ["WORLD_SIZE"]))):
        time.sleep(0.05)


def main():
    torch.set_num_threads(1)
    await_others()
    net = nn.Sequential()
    net.add(nn.Dense(4, in_units=4), Fault(), nn.Dense(4, in_units=4))
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    step = train_step(net, gluon.loss.L2Loss(), trainer, Layout(pipeline=3), 3, SCHEDULE, ["1", "2"])
    x = nd.array(np.ones((6, 4)))
    mx.dist.barrier()
    try:
        for _ in range(5):
            step(x, x)
    except Exception as error:
        with open(f"{FOLDER}/{RANK}", "w") as file:
            file.write(f"{time.time()} {type(error).__name__}: {error}")
        raise


if __name__ == "__main__":
    main()
