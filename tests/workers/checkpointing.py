"""Trains with checkpoints on one worker or several; run by tests/checkpoint/test_checkpoint_workers.py.

Arguments: directory, file for the weights, samples of all workers in a batch, step to stop at (0: none), dropout.
"""

import os
import pathlib
import sys

import numpy as np

import neomx as mx

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "checkpoint"))
from training import fit, loader_of, network, trainer_of, weights

if __name__ == "__main__":
    directory, out, batch, stop, dropout = sys.argv[1], sys.argv[2], *map(float, sys.argv[3:6])
    kv = mx.kv.create("dist_sync")
    net = network(dropout=dropout)
    if not dropout:  # running averages are those of each worker: leave them out where numbers are compared
        net = type(net)(prefix="plain_")
        net.add(mx.gluon.nn.Dense(8, activation="relu"), mx.gluon.nn.Dense(2))
        mx.random.seed(1)
        net.initialize(mx.init.Xavier())
    trainer = trainer_of(net, kvstore=kv)
    loader = loader_of("shard", int(batch) // kv.num_workers)
    ckpt = mx.checkpoint.Checkpointer(directory, net=net, trainer=trainer, loader=loader, every=5, keep=None)
    print("restored", ckpt.restore(), ckpt.steps, flush=True)
    for _ in ckpt.epochs(3):
        for each in loader:
            fit(net, trainer, each, batch)
            ckpt.step()
            if ckpt.steps == stop:
                ckpt.close()
                mx.dist.barrier()
                os._exit(0)
    ckpt.close()
    np.savez(f"{out}-{kv.rank}.npz", **weights(net, trainer))
