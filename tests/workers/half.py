"""Mixed precision and SyncBatchNorm on three workers; the results of each are saved.

half.py OUT
"""

import sys

import numpy as np
import torch

import neomx as mx
from neomx import amp, autograd, gluon, nd
from neomx.comm.session import session
from neomx.gluon.contrib.nn import SyncBatchNorm
from neomx.gluon.contrib.nn.basic_layers import sync_over

SHARES = [(0, 1), (1, 4), (4, 9)]  # rows of the whole batch, by worker
GROUP = [0, 2]


def images(seed=0):
    return np.random.default_rng(seed).standard_normal((9, 3, 2, 2)).astype("float32") * 2 + 1


def normalised(layer, x, slope):
    """Run two steps. Return outputs, gradients of data, gamma and beta, and the running averages after them."""
    layer.initialize()
    layer.gamma.set_data(nd.array([0.5, 1.0, 2.0]))
    found = []
    for _ in range(2):
        x = nd.array(x)
        x.attach_grad()
        with autograd.record():
            y = layer(x)
        y.backward(nd.array(slope))
        found += [y.asnumpy(), x.grad.asnumpy(), layer.gamma.grad().asnumpy(), layer.beta.grad().asnumpy()]
        x = x.asnumpy() * 1.5 - 1
    return [*found, layer.running_mean.data().asnumpy(), layer.running_var.data().asnumpy()]


def statistics(rank):
    """Statistics over all workers, then over two of them, then on one."""
    x, slope = images(), images(1)
    begin, end = SHARES[rank]
    results = {}
    group = session().group.subgroup(GROUP)
    for name, over in (("all", None), ("two", group or session().group.subgroup([rank]))):
        sync_over(over)
        found = normalised(SyncBatchNorm(in_channels=3), x[begin:end], slope[begin:end])
        results |= {f"{name}/{at}": value for at, value in enumerate(found)}
    return results


def one_weight(**how):
    weight = gluon.Parameter("w", shape=(3,))
    weight.initialize(init=mx.init.One())
    trainer = gluon.Trainer([weight], "sgd", {"learning_rate": 0.5}, **how)
    amp.init_trainer(trainer)
    return weight, trainer


def steps(weight, trainer, factors):
    """Return the weight, the scale and the next scale after each step."""
    lines = []
    for factor in factors:
        with autograd.record():
            loss = (weight.data() * factor).sum()
            with amp.scale_loss(loss, trainer) as scaled:
                scaled.backward()
        trainer.step(1)
        scaler = trainer._amp_loss_scaler
        lines.append([weight.data().asnumpy()[0], scaler.loss_scale, scaler._next_loss_scale])
    return np.array(lines)


def overflows(rank):
    """One worker's gradient is infinite, in the second step that of another."""
    inf = float("inf")
    factors = [inf if rank == 1 else 1.0, inf if rank == 2 else 1.0, float(rank), 3.0]
    together = steps(*one_weight(kvstore="dist_sync"), factors)
    # Parameters that no other worker has, as in pipeline stages: no sum reveals the overflow of the others.
    weight, trainer = one_weight(kvstore=None)
    trainer._amp_agree = amp.loss_scaler.agree(session().group.clone("overflow"))
    return {"together": together, "apart": steps(weight, trainer, factors)}


def torch_overflows(rank):
    """The same with torch modules and optimizers; the first worker has no gradient in the last step."""
    module = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.ones_(module.weight)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    scaler = amp.GradScaler("cpu", agree=amp.loss_scaler.agree(session().group.clone("torch")), init_scale=8.0)
    lines = []
    for at, factor in enumerate([float("inf") if rank == 1 else 1.0, float(rank), 3.0]):
        optimizer.zero_grad()
        if at < 2 or rank > 0:
            scaler.scale(module(torch.ones(1, 1)).sum() * factor).backward()
        else:
            scaler.scale(torch.ones(1))
        scaler.step(optimizer)
        scaler.update()
        lines.append([module.weight.item(), scaler.get_scale()])
    return {"torch": np.array(lines)}


def uneven(rank):
    """The last worker has one batch fewer: it copies the scale of the others with their weights."""
    weight, trainer = one_weight(kvstore="dist_sync")
    trainer._amp_loss_scaler._scale_seq_len = 2
    data = gluon.data.ArrayDataset(np.ones((8, 1), dtype="float32"))
    lines = [
        steps(weight, trainer, [float(batch.asnumpy().sum())])
        for _ in range(3)
        for batch in gluon.data.DataLoader(mx.dist.shard(data), batch_size=1)
    ]
    mx.dist.barrier()
    scaler = trainer._amp_loss_scaler
    last = [weight.data().asnumpy()[0], scaler.loss_scale, scaler._next_loss_scale, scaler._unskipped]
    return {"uneven": np.array(last), "uneven count": np.array(len(lines))}


def main(out):
    rank = mx.kv.create("dist_sync").rank
    results = statistics(rank)
    amp.init("float16")
    np.savez(f"{out}-{rank}.npz", **results, **overflows(rank), **torch_overflows(rank), **uneven(rank))


if __name__ == "__main__":
    main(*sys.argv[1:])
