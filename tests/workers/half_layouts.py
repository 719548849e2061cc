"""Mixed precision on two workers under layouts; weights and scales after some steps are saved.

half_layouts.py OUT
"""

import sys

import numpy as np

import neomx as mx
from neomx import amp, autograd, gluon, nd
from neomx.gluon import nn

KINDS = ["amp float16", "amp bfloat16", "cast float16", "cast bfloat16"]
LAYOUTS = {"full": ("shard=2", "full"), "optimizer": ("shard=2", "optimizer"), "tensor": ("tensor=2", None)}


def network():
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(16, activation="relu", in_units=8), nn.Dense(16, activation="relu", in_units=16))
        net.add(nn.Dense(4, in_units=16))
    net.initialize()
    random = np.random.default_rng(0)
    for param in net.collect_params().values():
        param.set_data(nd.array(random.standard_normal(param.shape) * 0.3))
    return net


def trained(kind, layout=None, shard=None):
    """Six steps, with infinite gradients in one worker in the third if there is a scale: {name: weight}, (scales)."""
    how, dtype = kind.split()
    net, parts, part = network(), 1, 0
    if how == "cast":
        net.cast(dtype)
    else:
        amp.init(dtype)
    if layout is not None:
        mx.parallel.apply(net, layout, shard=shard)
        parts, part = layout.batch_size, layout.batch_rank
    x = np.array_split(np.random.default_rng(1).standard_normal((8, 8)).astype("float32"), parts)[part]
    y = nd.array(np.array_split(np.arange(8) % 4, parts)[part])
    settings = {"learning_rate": 0.1, "momentum": 0.9, "multi_precision": True}
    trainer = gluon.Trainer(net.collect_params(), "sgd", settings)
    if how == "amp":
        amp.init_trainer(trainer)
    for step in range(6):
        factor = float("inf") if how == "amp" and step == 2 and part == parts - 1 else 1.0
        with autograd.record():
            loss = gluon.loss.SoftmaxCrossEntropyLoss()(net(nd.array(x * factor).astype(x_dtype(how, dtype))), y)
            if how == "amp":
                with amp.scale_loss(loss, trainer) as scaled:
                    autograd.backward(scaled)
        if how == "cast":
            loss.backward()
        trainer.step(len(x))
    amp.amp._reset()
    scaler = trainer._amp_loss_scaler
    weights = {name: param.data().astype("float32").asnumpy() for name, param in net.collect_params().items()}
    return weights, [] if scaler is None else [scaler.loss_scale, scaler._next_loss_scale]


def x_dtype(how, dtype):
    return dtype if how == "cast" else "float32"


def main(out):
    found = {}
    for name, (layout, shard) in LAYOUTS.items():
        for kind in KINDS:
            weights, scales = trained(kind, mx.parallel.Layout.parse(layout), shard)
            found |= {f"{name}/{kind}/{key}": value for key, value in weights.items()}
            found[f"{name}/{kind}/scales"] = np.array(scales)
    np.savez(f"{out}-{mx.dist.rank()}.npz", **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
