"""Trains under a layout until worker 1 dies or hangs in the middle of a step.

layouts_faulty.py FOLDER LAYOUT SHARD kill|hang forward|backward

Worker 1 writes FOLDER/fault at the fault, the others FOLDER/<rank> with the error that they get, and when.
"""

import os
import sys
import time

import torch
import torch.distributed.fsdp  # so that no worker is late in the training because of the import
import torch.distributed.tensor

import neomx as mx
from neomx import autograd, gluon, nd

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
folder, layout, shard, fault, where = sys.argv[1:]


def note(name, text=""):
    with open(f"{folder}/{name}.part", "w") as file:
        file.write(f"{time.time()} {text}")
    os.rename(f"{folder}/{name}.part", f"{folder}/{name}")


def happen(*_):
    note("fault")
    os._exit(3) if fault == "kill" else time.sleep(3600)


class Trap(gluon.Block):
    """Returns its input, until it is armed."""

    armed = False

    def forward(self, x):
        if self.armed and where == "forward":
            happen()
        if self.armed:
            x._data.register_hook(happen)
        return x


def network():
    net = gluon.nn.Sequential()
    trap = Trap()
    net.add(gluon.nn.Dense(8, in_units=8), gluon.nn.Dense(8, in_units=8), trap)
    net.add(gluon.nn.Dense(8, in_units=8), gluon.nn.Dense(8, in_units=8))
    net.initialize()
    return net, trap


def train():
    net, trap = network()
    mx.parallel.apply(net, mx.parallel.Layout.parse(layout), shard=None if shard == "None" else shard)
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    for step in range(4):
        trap.armed = step == 2 and RANK == 1
        with autograd.record():
            value = net(nd.ones((4, 8)))
        value.backward()
        trainer.step(4)
        if RANK == 0:
            note("steps", step)


if __name__ == "__main__":
    torch.set_num_threads(1)
    note(f"pid{RANK}", os.getpid())
    while not all(os.path.exists(f"{folder}/pid{rank}") for rank in range(SIZE)):
        time.sleep(0.05)
    try:
        train()
    except Exception as error:
        note(str(RANK), f"{type(error).__name__}: {error}")
        raise
