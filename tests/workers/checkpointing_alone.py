"""Trains without a word about checkpoints; run by tests/checkpoint/test_checkpoint_programs.py.

Arguments: file for the weights, step to kill itself at (0: none), signal, "epochs" or "range".
"""

import os
import pathlib
import sys

import numpy as np

import neomx as mx

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "checkpoint"))
from training import fit, loader_of, network, trainer_of, weights

if __name__ == "__main__":
    out, stop, signum, loop = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    net = network()
    net(mx.nd.zeros((1, 4)))
    trainer = trainer_of(net)
    loader = loader_of("shard", 4)
    steps = 0
    for _ in mx.checkpoint.epochs(3) if loop == "epochs" else range(3):
        for each in loader:
            fit(net, trainer, each, 4)
            steps += 1
            if steps == stop:
                os.kill(os.getpid(), signum)
    np.savez(out, **weights(net, trainer))
