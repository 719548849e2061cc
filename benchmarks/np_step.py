"""Compare a training step of a small MLP in NumPy mode and in nd mode, in turns, by the ratio of median CPU times.

python benchmarks/np_step.py [--rounds 30]
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

import neomx as mx
from neomx import autograd, gluon


def training(array, hybrid):
    """Return a function that runs a number of steps with arrays of one kind."""
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(64, activation="relu", in_units=32), gluon.nn.Dense(10, in_units=64))
    net.initialize()
    if hybrid:
        net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01, "momentum": 0.9})
    error = gluon.loss.SoftmaxCrossEntropyLoss()
    x, y = array(torch.randn(64, 32).numpy()), array(torch.randint(10, (64,)).float().numpy())

    def steps(count):
        start = time.process_time()
        for _ in range(count):
            with autograd.record():
                loss = error(net(x), y)
            loss.backward()
            trainer.step(64)
        return (time.process_time() - start) / count

    return steps


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    for hybrid in (False, True):
        nd_steps = training(mx.nd.array, hybrid)
        mx.npx.set_np()
        np_steps = training(mx.np.array, hybrid)
        mx.npx.reset_np()
        times: dict[str, list[float]] = {"nd": [], "np": []}
        for _ in range(rounds):
            times["nd"].append(nd_steps(50))
            mx.npx.set_np()
            times["np"].append(np_steps(50))
            mx.npx.reset_np()
        medians = {kind: statistics.median(each) * 1e6 for kind, each in times.items()}
        name, ratio = "hybridized" if hybrid else "eager", medians["np"] / medians["nd"]
        print(f"{name}: nd {medians['nd']:.0f} us, np {medians['np']:.0f} us, ratio {ratio:.3f}")


if __name__ == "__main__":
    main()
