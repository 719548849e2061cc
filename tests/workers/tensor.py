"""Runs networks whole and divided over all workers, and saves the results.

tensor.py OUT
"""

import sys
from contextlib import contextmanager

import numpy as np
import torch
from torch.distributed.tensor import DTensor

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.comm.engine import EngineGroup
from neomx.gluon.model_zoo.transformer import BERTMaskedLM, bert_tiny, gpt2_tiny

torch.set_num_threads(1)
STEPS, CLASSES, TIME = 10, 251, 8  # 251 is prime: parts of unequal size
SEQUENCE_PLAN = {
    "embed": "vocabulary",
    "blocks": "sequence_region",
    "blocks.*.norm?": "sequence",
    "blocks.*.attention.[qkv]*": "sequence_column",
    "blocks.*.attention.out": "sequence_row",
    "blocks.*.feedforward.up": "sequence_column",
    "blocks.*.feedforward.down": "sequence_row",
    "head": "logits",
}
LAYOUT = mx.parallel.Layout(tensor=mx.dist.size())
MESH = LAYOUT.mesh()["tensor"]


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def classes(*shape, count=CLASSES, seed=1):
    return np.random.default_rng(seed).integers(0, count, shape)


def filled(net):
    """Set random weights from numpy."""
    net.initialize()
    for at, param in enumerate(net.collect_params().values()):
        param.set_data(nd.array(numbers(*param.shape, seed=at) * 0.1 + ("gamma" in param.name)))
    return net


def filled_torch(net):
    with torch.no_grad():
        for at, param in enumerate(net.parameters()):
            param.copy_(torch.from_numpy(numbers(*param.shape, seed=at)) * 0.1)
    return net


def divide(net, plan):
    return mx.parallel.apply(net, LAYOUT, plan=plan)


# ---- training ----


def train(net, *inputs, loss=None):
    """Return the loss of each step, and the final weights."""
    *inputs, y = inputs
    loss = loss or gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.5})
    losses = []
    for _ in range(STEPS):
        with autograd.record():
            value = loss(net(*inputs), y)
        value.backward()
        trainer.step(len(y), ignore_stale_grad=True)  # the pooler of a BERT is not used by its masked model
        losses.append(value.asnumpy())
    return np.array(losses), {name: p.data().asnumpy() for name, p in net._collect_params_with_prefix().items()}


def train_torch(net, x, y, loss):
    losses, optimizer = [], torch.optim.SGD(net.parameters(), 0.1, 0.5)
    for _ in range(STEPS):
        optimizer.zero_grad()
        value = loss(net(x), y)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    whole = {n: p.full_tensor() if isinstance(p, DTensor) else p for n, p in net.named_parameters()}
    return np.array(losses), {name: value.detach().numpy() for name, value in whole.items()}


def difference(one, other):
    """Return the largest differences of (losses, weights)."""
    assert one[1].keys() == other[1].keys()
    weights = max(np.abs(one[1][name] - other[1][name]).max() for name in one[1])
    return np.array([np.abs(one[0] - other[0]).max(), weights])


# ---- networks ----


def mlp():
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(16, activation="relu", in_units=12), gluon.nn.Dropout(0.0))
    net.add(gluon.nn.Dense(12, in_units=16), gluon.nn.LayerNorm(in_channels=12), gluon.nn.Dense(8, in_units=12))
    net.add(gluon.nn.GELU(), gluon.nn.Dense(5, in_units=8, use_bias=False))
    return filled(net)


def gpt2(**kwargs):
    return filled(gpt2_tiny(vocab_size=CLASSES, dropout=0.0, units=32, max_length=16, **kwargs))


def bert():
    return filled(BERTMaskedLM(bert_tiny(vocab_size=CLASSES, dropout=0.0, units=32, heads=4, max_length=16)))


def torch_mlp():
    layers = [torch.nn.Linear(12, 16), torch.nn.GELU(), torch.nn.Linear(16, 12), torch.nn.LayerNorm(12)]
    return filled_torch(torch.nn.Sequential(*layers, torch.nn.Linear(12, 5)))


class TorchModel(torch.nn.Module):
    """An encoder layer between an embedding with padding and a head."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(CLASSES, 16, padding_idx=200)
        self.wide = torch.nn.Embedding(CLASSES, 16)
        self.layer = torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
        self.head = torch.nn.Linear(16, CLASSES)

    def forward(self, tokens):
        return self.head(self.layer(self.embed(tokens) + self.wide(tokens)))


TORCH_PLAN = {
    "embed": "vocabulary",
    "wide": "width",
    "layer.linear1": "column",
    "layer.linear2": "row",
    "head": "logits",
}


def blocks(found):
    x, y = nd.array(numbers(6, 12)), nd.array(classes(6, count=5))
    whole = train(mlp(), x, y)
    tokens, labels = nd.array(classes(2, TIME)), nd.array(classes(2, TIME, seed=2))
    whole_gpt2 = train(gpt2(), tokens, labels)
    assert whole[0].sum(1)[-1] < whole[0].sum(1)[0] and whole_gpt2[0].sum(1)[-1] < whole_gpt2[0].sum(1)[0]

    def run(name, net, plan, *data, expected, before=None, after=None, loss=None):
        if before:
            net.hybridize()
        divide(net, plan)
        if after:
            net.hybridize()
        found[name] = difference(train(net, *data, loss=loss), expected)
        return net

    net = run("mlp", mlp(), "auto", x, y, expected=whole)
    found["kinds"] = [type(p.data()._data).__name__ for p in net.collect_params().values()]
    found["elements"] = sum(p.data()._data.to_local().numel() for p in (net[0].weight, net[0].bias, net[2].weight))
    if MESH.size() == 2:
        run("mlp hybridized", mlp(), "auto", x, y, expected=whole, before=True)
        run("mlp hybridized after", mlp(), "auto", x, y, expected=whole, after=True)
        run("gpt2 hybridized", gpt2(), "auto", tokens, labels, expected=whole_gpt2, after=True, loss=hybrid_loss())
        found["gpt2 as torch"] = as_torch(tokens, labels, whole_gpt2)
        masked = tokens, nd.zeros(tokens.shape), nd.array([TIME, TIME - 3]), labels
        run("bert", bert(), "auto", *masked, expected=train(bert(), *masked))
    net = run("mlp gathered", mlp(), {"0": "column_gather", "4": "column_gather"}, x, y, expected=whole)
    found["evaluated"] = np.abs(net(x).asnumpy() - with_weights(mlp(), whole)(x).asnumpy()).max()
    net = run("gpt2", gpt2(), "auto", tokens, labels, expected=whole_gpt2)
    found["tied"] = net.embed.weight.data()._data is net.head.torch()._parameters["weight"]
    same = [param.data()._data.grad for param in net.collect_params().values() if not is_sharded(param)]
    same = torch.cat([(each.to_local() if isinstance(each, DTensor) else each).reshape(-1) for each in same])
    found["replicated gradients"] = same.numpy()
    run("gpt2 by sequence", gpt2(), SEQUENCE_PLAN, tokens, labels, expected=whole_gpt2)
    found["text"] = net.generate(tokens, 6).asnumpy()
    found["expected text"] = with_weights(gpt2(), whole_gpt2).generate(tokens, 6).asnumpy()
    return net, tokens, labels


def hybrid_loss():
    loss = gluon.loss.SoftmaxCELoss()
    loss.hybridize()
    return loss


def is_sharded(param):
    tensor = param.data()._data
    return isinstance(tensor, DTensor) and tensor.placements[0].is_shard()


def with_weights(net, trained):
    for name, param in net._collect_params_with_prefix().items():
        param.set_data(nd.array(trained[1][name]))
    return net


def as_torch(tokens, labels, expected):
    """Train the twin as a torch module, with its loss."""
    twin = divide(gpt2(), "auto").torch()
    losses, weights = train_torch(twin, tokens._data.long(), labels._data.long(), mx.parallel.cross_entropy)
    return difference((losses, weights), (expected[0].mean(1), {n: expected[1][n] for n in weights}))


def torch_modules(found):
    x, y = torch.from_numpy(numbers(6, 12)), torch.from_numpy(classes(6, count=5))
    whole, net = train_torch(torch_mlp(), x, y, mx.parallel.cross_entropy), torch_mlp()
    divide(net, "auto")
    found["torch mlp"] = difference(train_torch(net, x, y, mx.parallel.cross_entropy), whole)
    tokens, labels = torch.from_numpy(classes(2, TIME)), torch.from_numpy(classes(2, TIME, seed=2))
    tokens[0, 3], labels[1, 2] = 200, -100  # padding, and one that does not count
    flat = lambda scores, y: torch.nn.functional.cross_entropy(scores.flatten(0, 1), y.flatten())  # noqa: E731
    whole, net = train_torch(filled_torch(TorchModel()), tokens, labels, flat), filled_torch(TorchModel())
    divide(net, TORCH_PLAN)
    found["torch model"] = difference(train_torch(net, tokens, labels, mx.parallel.cross_entropy), whole)
    net.eval()
    with torch.no_grad():
        scores = net(tokens)
        for reduction in ("sum", "none"):
            one = mx.parallel.cross_entropy(scores, labels, reduction)
            other = mx.parallel.cross_entropy(scores.full_tensor(), labels, reduction)
            found[f"torch {reduction}"] = (one - other).abs().max().item()
    try:
        net(torch.full((1, 2), CLASSES))
    except IndexError as error:
        found["beyond"] = str(error)
    x, y = torch.from_numpy(numbers(2, TIME, 12)), torch.from_numpy(numbers(2, TIME, 5, seed=1))
    nets = [torch.nn.Sequential(net[:4], net[4]) for net in (torch_mlp(), torch_mlp())]
    whole, net = train_torch(nets[0], x, y, torch.nn.functional.mse_loss), nets[1]
    by_sequence = {"0": "sequence_region", "0.0": "sequence_column", "0.2": "sequence_row", "0.3": "sequence"}
    divide(net, by_sequence)
    found["torch by sequence"] = difference(train_torch(net, x, y, torch.nn.functional.mse_loss), whole)
    try:
        net(torch.zeros(2, 2 * MESH.size() + 1, 12))
    except mx.MXNetError as error:
        found["odd sequence"] = str(error)


# ---- losses of scores sharded over workers ----

LOSSES = {
    "plain": ({}, None, (5, 3)),
    "two axes": ({}, None, (5,)),
    "weight": ({"weight": 0.3}, None, (5, 3)),
    "sample_weight": ({}, (5, 1, 1), (5, 3)),
    "batch_axis": ({"batch_axis": 1}, None, (5, 3)),
    "hybridized": ({"hybridize": True}, (5, 1, 1), (5, 3)),
    "labels beyond": ({"beyond": True}, None, (5, 3)),
}


def losses(found):
    from torch.distributed.tensor import Shard, distribute_tensor

    for name, (options, weights, shape) in LOSSES.items():
        options = dict(options)
        hybridize, beyond = options.pop("hybridize", False), options.pop("beyond", False)
        loss = gluon.loss.SoftmaxCrossEntropyLoss(**options)
        if hybridize:
            loss.hybridize()
        scores = torch.from_numpy(numbers(*shape, CLASSES) * 30)
        labels = nd.array(classes(*shape) + (200 if beyond else 0))
        more = [] if weights is None else [nd.array(numbers(*weights))]
        results = []
        for tensor in (scores.clone(), distribute_tensor(scores, MESH, [Shard(-1)])):
            array = nd.from_torch(tensor)
            array.attach_grad()
            with autograd.record():
                value = loss(array, labels, *more)
            value.backward(nd.array(numbers(*value.shape, seed=7)))
            results.append((value.asnumpy(), array.grad.asnumpy()))
        (one, slope), (other, other_slope) = results
        assert one.shape == other.shape and slope.shape == other_slope.shape
        found[f"loss {name}"] = np.array(
            [(np.abs(one - other) / np.maximum(1, np.abs(one))).max(), np.abs(slope - other_slope).max()]
        )


# ---- communication between workers ----


@contextmanager
def counting():
    """Record the sizes of all tensors in collectives."""
    sizes, originals = [], {}
    for name in ("allreduce", "_allgather_base", "_reduce_scatter_base", "all_gather_single", "reduce_scatter_single"):
        originals[name] = original = getattr(EngineGroup, name)

        def counted(self, first, *others, _original=original, _name=name, **more):
            tensors = first if isinstance(first, list) else [first]
            sizes.extend(each.numel() for each in tensors)
            return _original(self, first, *others, **more)

        setattr(EngineGroup, name, counted)
    try:
        yield sizes
    finally:
        for name, original in originals.items():
            setattr(EngineGroup, name, original)


def traffic(found, net, tokens, labels):
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    with autograd.record():
        with counting() as forward:
            scores = net(tokens)
        with counting() as for_the_loss:
            value = loss(scores, labels)
    with counting() as backward:
        value.backward()
    found["crossed forward"], found["crossed backward"] = forward, backward
    found["crossed for the loss"] = for_the_loss
    found["shape"], found["kind"] = scores.shape, type(scores._data).__name__
    whole = scores.asnumpy()
    found["argmax"] = np.abs(nd.argmax(scores, axis=2).asnumpy() - whole.argmax(2)).max()
    found["sum"] = abs(float(scores.sum().asscalar()) - float(whole.sum()))
    found["scaled"] = np.abs((scores * 2).asnumpy() - 2 * whole).max()
    found["row"] = np.abs(scores[1].asnumpy() - whole[1]).max()
    try:
        scores + nd.zeros(scores.shape)
    except mx.MXNetError as error:
        found["mixed"] = str(error)


def dropout(found):
    """Masks are the same on all workers if the masked values are replicated."""
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(16, in_units=12), gluon.nn.Dense(12, in_units=16), gluon.nn.Dropout(0.5))
    divide(filled(net), "auto")
    mx.random.seed(11)
    with autograd.record():
        found["dropped"] = net(nd.array(numbers(6, 12))).asnumpy()
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(16, in_units=12, flatten=False), gluon.nn.Dropout(0.5), gluon.nn.Dense(12, in_units=16))
    divide(filled(net), {"0": "column", "2": "row"})
    try:
        net(nd.array(numbers(6, 4, 12)))
    except mx.MXNetError as error:
        found["flattened"] = str(error)


def main(out):
    found = {}
    net, tokens, labels = blocks(found)
    traffic(found, net, tokens, labels)
    torch_modules(found)
    losses(found)
    dropout(found)
    np.savez(f"{out}-{mx.dist.rank()}.npz", **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
