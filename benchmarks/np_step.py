"""A training step of a small MLP in NumPy mode against nd mode, in turns: CPU time, the median of the rounds' ratios.

python benchmarks/np_step.py [--rounds 400]
"""

from __future__ import annotations

import argparse
import time

import record
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
    parser.add_argument("--rounds", type=int, default=400)
    record.add_option(parser)
    args = parser.parse_args()
    result = record.begin("np_step")
    torch.set_num_threads(1)
    for hybrid in (False, True):
        nd_steps = training(mx.nd.array, hybrid)
        mx.npx.set_np()
        np_steps = training(mx.np.array, hybrid)
        mx.npx.reset_np()
        times: dict[str, list[float]] = {"nd": [], "np": []}
        for i in range(args.rounds):
            for kind in ("nd", "np") if i % 2 else ("np", "nd"):
                if kind == "nd":
                    times[kind].append(nd_steps(10))
                else:
                    mx.npx.set_np()
                    times[kind].append(np_steps(10))
                    mx.npx.reset_np()
        name, kinds = "hybridized" if hybrid else "imperative", {"by": "NumPy mode", "against": "nd mode"}
        row = result.add(record.row("a training step", name, "s", times["np"], times["nd"], **kinds))
        print(f"{name}: nd {row.theirs * 1e6:.0f} us, np {row.ours * 1e6:.0f} us, ratio {row.ratio:.3f}")
    result.save(args.json)


if __name__ == "__main__":
    main()
