"""Unusual steps on this worker's part of the samples; the weights of each are saved.

odd.py OUT KVSTORE
"""

import sys

import numpy as np

import neomx as mx
from neomx import autograd, gluon, nd

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def dense(units=3, inputs=4, contexts=None, **how):
    """A layer with the same weights everywhere."""
    net = gluon.nn.Dense(units, in_units=inputs, **how)
    net.initialize(ctx=contexts or [mx.cpu()])
    random = np.random.default_rng(5)
    for param in net.collect_params().values():
        param.set_data(nd.array(random.standard_normal(param.shape)))
    return net


def samples(count, seed=0):
    return nd.array(np.random.default_rng(seed).standard_normal((count, 4)))


def trainer_of(net, kv, **how):
    how = {"optimizer": "sgd", "optimizer_params": {"learning_rate": 0.1, "momentum": 0.9}, **how}
    return gluon.Trainer(net.collect_params(), kvstore=kv, **how)


def backward(net, x):
    with autograd.record():
        loss = (net(x) ** 2).sum(axis=1)
    loss.backward()


def mine(x, kv):
    """This worker's rows of a global batch."""
    share = len(x) // kv.num_workers
    return x[kv.rank * share : (kv.rank + 1) * share]


@case
def gradients_that_add_up(kv):
    net = dense()
    net.collect_params().setattr("grad_req", "add")
    trainer = trainer_of(net, kv)
    for step in range(3):
        for part in range(2):
            backward(net, mine(samples(4, seed=2 * step + part), kv))
        trainer.step(8)
        net.collect_params().zero_grad()
    return net


@case
def a_second_backward_before_the_step(kv):
    net = dense()
    trainer = trainer_of(net, kv)
    for step in range(4):
        backward(net, mine(samples(4, seed=50 + step), kv))  # overwritten
        backward(net, mine(samples(4, seed=step), kv))
        trainer.step(4)
    return net


@case
def gradients_changed_before_the_step(kv):
    net = dense()
    trainer = trainer_of(net, kv)
    for step in range(4):
        backward(net, mine(samples(4, seed=step), kv))
        for param in net.collect_params().values():
            param.grad()[:] *= 0.5
        trainer.step(4)
    return net


@case
def clipped_after_the_sum(kv):
    net = dense()
    trainer = trainer_of(net, kv, update_on_kvstore=False)
    for step in range(4):
        backward(net, mine(samples(4, seed=step), kv))
        trainer.allreduce_grads()
        gluon.utils.clip_global_norm([param.grad() for param in net.collect_params().values()], 1.0)
        trainer.update(4)
    return net


@case
def several_contexts(kv):
    contexts = [mx.cpu(0), mx.cpu(1)]
    net = dense(contexts=contexts)
    trainer = trainer_of(net, kv)
    for step in range(3):
        parts = gluon.utils.split_and_load(mine(samples(8, seed=step), kv), contexts)
        with autograd.record():
            losses = [(net(part) ** 2).sum(axis=1) for part in parts]
        autograd.backward(losses)
        trainer.step(8)
    return net


@case
def frozen_in_the_middle(kv):
    net = dense()
    trainer = trainer_of(net, kv)
    for step in range(4):
        if step == 2:
            net.bias.grad_req = "null"
        backward(net, mine(samples(4, seed=step), kv))
        trainer.step(4)
    return net


@case
def two_trainers(kv):
    one, other = dense(), dense(2, 3)
    first = trainer_of(one, kv)
    second = trainer_of(other, mx.kv.create(kv.type), optimizer="adam", optimizer_params={})
    for step in range(3):
        x = mine(samples(4, seed=step), kv)
        with autograd.record():
            loss = (other(one(x)) ** 2).sum(axis=1)
        loss.backward()
        second.step(4)
        first.step(4)
    return [one, other]


@case
def sparse_rows(kv):
    net = gluon.nn.Embedding(10, 3, sparse_grad=True)
    net.initialize()
    net.weight.set_data(nd.array(np.random.default_rng(3).standard_normal((10, 3))))
    trainer = trainer_of(net, kv, optimizer_params={"learning_rate": 0.1})
    for step in range(3):
        ids = mine(nd.array(np.random.default_rng(step).integers(0, 10, (4, 2))), kv)
        with autograd.record():
            loss = (net(ids) ** 2).sum(axis=(1, 2))
        loss.backward()
        trainer.step(4)
    return net


@case
def unequal_numbers_of_batches(kv):
    """Nine samples in batches of two: worker 0 has the odd one, and more batches than the others."""
    net = dense()
    trainer = trainer_of(net, kv)
    for epoch in range(2):
        order = np.random.default_rng(epoch).permutation(9)
        batches = [order[i : i + 4] for i in range(0, 9, 4)]  # of all workers together
        for batch in batches:
            part = batch[kv.rank :: kv.num_workers]
            if len(part):
                backward(net, samples(9)[nd.array(part)])
                trainer.step(4)
        kv.barrier()
    return net


@case
def each_worker_says_its_own_count(kv):
    """The same with `step(len(batch))`: the sum over workers is divided by the mean of their numbers."""
    net = dense()
    trainer = trainer_of(net, kv)
    for step in range(3):
        x = samples(5, seed=step)
        part = x if kv.num_workers == 1 else x[: 5 - 5 // 2] if kv.rank == 0 else x[5 - 5 // 2 :]
        backward(net, part)
        trainer.step(len(part) * kv.num_workers)
    return net


@case
def statistics_over_all_workers(kv):
    net = gluon.nn.HybridSequential()
    net.add(dense(), gluon.contrib.nn.SyncBatchNorm(in_channels=3))
    net[1].initialize()
    net.hybridize()
    trainer = trainer_of(net, kv)
    for step in range(4):
        with autograd.record():
            loss = (net(mine(samples(8, seed=step), kv)) * nd.array([1, 2, 3])).sigmoid().sum(axis=1)
        loss.backward()
        trainer.step(8)
    return net


def main(out, kind):
    found = {}
    for name, function in CASES.items():
        kv = mx.kv.create(kind)
        if name == "each_worker_says_its_own_count" and kv.num_workers > 2:
            continue
        nets = function(kv)
        for at, net in enumerate(nets if isinstance(nets, list) else [nets]):
            for key, param in net._collect_params_with_prefix().items():
                found[f"{name}/{at}/{key}"] = param.data(param.list_ctx()[0]).asnumpy()
    np.savez(f"{out}-{kv.rank}.npz", **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
