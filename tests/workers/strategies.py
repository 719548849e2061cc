"""Strategies and compressors that a program adds, run on this worker: `PROGRAM OUT`; for test_step.py."""

import pathlib
import sys

import numpy as np
import torch

import neomx as mx
from neomx import autograd, gluon, nd

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))
from own_strategy import EveryOther

torch.set_num_threads(1)
STEPS, BATCH = 6, 8
RANK, SIZE = mx.dist.rank(), mx.dist.size()
DATA = np.random.RandomState(1).standard_normal((STEPS, BATCH, 5)).astype("float32")
TARGET = np.random.RandomState(2).randint(0, 3, (STEPS, BATCH)).astype("float32")


@mx.step.register_compressor
class Low(mx.step.Compressor):
    """Matrices as products of two low-rank factors, which are summed one after the other in two collectives."""

    kind = "low-rank"

    def __init__(self, rank: int = 2):
        if not isinstance(rank, int) or rank < 1:
            raise ValueError(f"rank must be an integer above 0, received {rank!r}")
        self.rank = rank
        self.directions = {}

    def encode(self, key, tensor):
        return tensor.contiguous().view(torch.uint8)

    def decode(self, data, out):
        return out.copy_(data.clone().view(out.dtype).view(out.shape))

    def sum_(self, keys, tensors, outs, group, what):
        for key, tensor, out in zip(keys, tensors, outs, strict=True):
            if tensor.numel() % 5:
                super().sum_([key], [tensor], [out], group, what)
                continue
            matrix = tensor.view(-1, 5)
            if key not in self.directions:
                drawn = torch.randn(5, self.rank, generator=torch.Generator().manual_seed(0))
                self.directions[key] = torch.linalg.qr(drawn)[0]
            left = group.all_reduce_(matrix @ self.directions[key], what=what)
            left = torch.linalg.qr(left)[0]
            right = group.all_reduce_(matrix.T @ left, what=what)
            self.directions[key] = torch.linalg.qr(right)[0]
            out.view(-1, 5).copy_(left @ right.T)


@mx.step.register_compressor
class Largest(mx.step.Compressor):
    """Elements above a limit, with their indices: messages whose sizes differ between workers."""

    kind = "largest"

    def __init__(self, limit: float = 0.0):
        self.limit = limit

    def encode(self, key, tensor):
        flat = tensor.reshape(-1)
        places = (flat.abs() >= self.limit).nonzero().view(-1)
        return torch.cat([places.view(torch.uint8), flat[places].contiguous().view(torch.uint8)])

    def decode(self, data, out):
        count = data.numel() // 12
        places, values = data[: 8 * count].clone().view(torch.int64), data[8 * count :].clone().view(torch.float32)
        out.view(-1).zero_()[places] = values
        return out


class Halved(mx.step.AllReduce):
    """Changes the sums in place, which workers of one host share."""

    def apply(self, places, gradients):
        for gradient in gradients:
            gradient *= 0.5
        super().apply(places, gradients)


class Tenth(mx.step.AllReduce):
    """Divides by ten times the given divisor."""

    def step(self, divisor, ignore_stale=False):
        super().step(10 * divisor, ignore_stale)


def network():
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(7, activation="tanh", in_units=5), gluon.nn.Dense(3, in_units=7))
    net.initialize(mx.init.Xavier(rnd_type="gaussian"))
    return net


def gluon_run(steps, rate=0.3, **how):
    mx.random.seed(3)
    net = network()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": rate, "momentum": 0.9}, **how)
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    for x, y in steps:
        with autograd.record():
            total = loss(net(nd.array(x)), nd.array(y)).sum()
        total.backward()
        trainer.step(2 * BATCH)
    return np.concatenate([p.data().asnumpy().ravel() for p in net.collect_params().values()])


def module_run(steps, kvstore, rate=0.3):
    x = mx.sym.Activation(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=7, name="a"), act_type="tanh")
    symbol = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=3, name="b"), name="softmax")
    rng = np.random.RandomState(5)
    shapes = dict(zip(symbol.list_arguments(), symbol.infer_shape(data=(1, 5))[0], strict=True))
    args = {
        name: nd.array(rng.standard_normal(shape) / 3)
        for name, shape in shapes.items()
        if name not in ("data", "softmax_label")
    }
    module = mx.mod.Module(symbol)
    module.bind([("data", steps[0][0].shape)], [("softmax_label", steps[0][1].shape)])
    module.init_params(arg_params=args)
    settings = {"learning_rate": rate, "momentum": 0.9, "rescale_grad": 1 / (2 * BATCH)}
    module.init_optimizer(kvstore=kvstore, optimizer_params=settings)
    for x, y in steps:
        module.forward_backward(mx.io.DataBatch([nd.array(x)], [nd.array(y)]))
        module.update()
    found, _ = module.get_params()
    return np.concatenate([found[name].asnumpy().ravel() for name in sorted(found)])


def mine():
    """This worker's part of each batch."""
    return [(x[RANK::SIZE], y[RANK::SIZE]) for x, y in zip(DATA, TARGET, strict=True)]


def doubled():
    """The data of a single process, equivalent to two batches."""
    return [(np.concatenate(DATA[i : i + 2]), np.concatenate(TARGET[i : i + 2])) for i in range(0, STEPS, 2)]


def main(out):
    results = {
        "gluon": gluon_run(mine(), kvstore=EveryOther()),
        "module": module_run(mine(), EveryOther()),
        "module all-reduce": module_run(mine(), mx.step.AllReduce()),
        "gluon expected": gluon_run(doubled(), kvstore=None),
        "module expected": module_run(doubled(), None),
        "module all-reduce expected": module_run(list(zip(DATA, TARGET, strict=True)), None),
    }
    results |= {
        "in place": gluon_run(mine(), kvstore=Halved()),
        "in place expected": gluon_run(mine(), 0.15, kvstore="dist_sync"),
        "module divisor": module_run(mine(), Tenth()),
        "module divisor expected": module_run(mine(), mx.step.AllReduce(), 0.03),
    }
    for kind, params in (("low-rank", {"rank": 5}), ("largest", {"limit": 0.0}), ("fp16", {})):
        results[kind] = gluon_run(mine(), kvstore="dist_sync", compression_params={"type": kind, **params})
    results["plain"] = gluon_run(mine(), kvstore="dist_sync")
    np.savez(f"{out}-{RANK}.npz", **results)


if __name__ == "__main__":
    main(sys.argv[1])
