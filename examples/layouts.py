"""One program for any layout: a small GPT-2 learns to count, with the same losses as in one process.

python examples/layouts.py
neomx run --layout data=2 examples/layouts.py
neomx run --layout data=2,tensor=2,pipeline=2 examples/layouts.py
"""

import argparse

import numpy as np

import neomx as mx
from neomx import gluon, nd
from neomx.gluon.model_zoo import transformer
from neomx.parallel import Layout


def main(steps=20, batch=16, length=12, shard=None):
    layout = Layout.from_env()
    mx.random.seed(1)
    net = transformer.GPT2(vocab_size=32, units=32, layers=4, heads=4, max_length=length, dropout=0.0)
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "adamw", {"learning_rate": 1e-2})
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    # The auto plan splits the transformer's layers if tensor > 1; the pipeline is cut between its blocks.
    step = mx.parallel.train_step(net, loss_of, trainer, layout, microbatches=4, shard=shard, clip=1.0)

    rng = np.random.default_rng(1)
    losses = []
    for number in range(steps):
        starts = rng.integers(0, 32, (batch, 1))
        rows = (starts + np.arange(length + 1)) % 32
        mine = nd.array(rows[layout.batch_rank :: layout.batch_size], dtype="int32")  # this worker's samples
        losses.append(float(step(mine[:, :-1], mine[:, 1:]).asscalar()))
        if number % 5 == 4 and mx.dist.rank() == 0:
            print(f"step {number + 1}: loss {losses[-1]:.4f}", flush=True)
    if mx.dist.rank() == 0:
        print(step.report())
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--shard", choices=["full", "grads", "optimizer"])
    main(**vars(parser.parse_args()))
