"""Tasks of all kinds on four workers, compared with a single process."""

import functools
import re
import sys
import time

import numpy as np
import torch

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.comm.session import session

tasks = mx.parallel.tasks

STEPS, BATCH = 6, 8
LOSS = gluon.loss.L2Loss()
random = np.random.default_rng(0)
X = random.standard_normal((STEPS, BATCH, 5)).astype("float32")
Y = {name: random.standard_normal((STEPS, BATCH, 2)).astype("float32") for name in ("a", "b")}


def dense(units, inputs, seed, **how):
    net = gluon.nn.Dense(units, in_units=inputs, **how)
    net.initialize()
    for param in net.collect_params().values():
        param.set_data(nd.array(np.random.default_rng(seed).standard_normal(param.shape).astype("float32")))
    return net


def trainer(net, kvstore):
    return gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.05, "momentum": 0.9}, kvstore=kvstore)


def weights(net):
    return {name: param.data() for name, param in net._collect_params_with_prefix().items()}


def close(found, expected):
    assert found.keys() == expected.keys()
    for name, value in found.items():
        np.testing.assert_allclose(value.asnumpy(), expected[name].asnumpy(), rtol=0, atol=2e-6, err_msg=name)


def share(step, of):
    """Return this worker's part of a batch, among the workers of its task."""
    rank, size = mx.dist.rank(), mx.dist.size()
    return nd.array(X[step][rank::size]), nd.array(of[step][rank::size])


def model(seed, kvstore="dist_sync"):
    """Train one model and return its weights."""
    net = dense(2, 5, seed)
    by = trainer(net, kvstore)
    for step in range(STEPS):
        x, y = share(step, Y["a"]) if kvstore else (nd.array(X[step]), nd.array(Y["a"][step]))
        with autograd.record():
            loss = LOSS(net(x), y)
        loss.backward()
        by.step(BATCH)
    return {"weights": weights(net), "workers": mx.dist.size(), "seed": seed}


def models_at_once(rank):
    found = tasks({"small": functools.partial(model, 1), "large": (functools.partial(model, 2), 3)})
    assert list(found) == ["small", "large"]
    assert [found[name]["workers"] for name in found] == [1, 3]
    for seed, name in enumerate(found, 1):
        close(found[name]["weights"], model(seed, None)["weights"])
    assert (mx.dist.rank(), mx.dist.size()) == (rank, 4)


def a_queue(rank):
    """Seven tasks for two groups of two: the long one occupies its group, the other group runs all the rest."""

    def work(number):
        total = mx.dist.all_reduce(torch.ones(1)).item()
        if number == 0:
            session().store.get("the last of the queue")
        if number == 6:
            session().store.set("the last of the queue", b"")
        return {"number": number, "workers": total, "who": rank}

    found = tasks({f"t{number}": functools.partial(work, number) for number in range(7)}, workers=2)
    assert [each["number"] for each in found.values()] == list(range(7))
    assert {each["workers"] for each in found.values()} == {2.0}
    assert [each["who"] for each in found.values()] == [0, 2, 2, 2, 2, 2, 2]


def heavier_first(rank):
    found = tasks({name: (lambda: rank, 2 if name == "f" else 1) for name in "abcdef"})
    assert list(found) == list("abcdef")
    assert [found[name] for name in "fabc"] == [0, 1, 2, 3]


def heads_on_a_trunk(rank):
    """Two heads, each trained by its group; the trunk's Trainer was created before, and sums over all workers."""
    trunk = dense(4, 5, 3, activation="tanh")
    trunk_trainer = trainer(trunk, "dist_sync")

    def head(name, seed):
        net = dense(2, 4, seed)
        head_trainer = trainer(net, "dist_sync")
        for step in range(STEPS):
            x, y = share(step, Y[name])
            with autograd.record():
                loss = LOSS(net(trunk(x)), y)
            loss.backward()
            head_trainer.step(BATCH)
            trunk_trainer.step(BATCH)
        return weights(net)

    found = tasks({"a": functools.partial(head, "a", 4), "b": functools.partial(head, "b", 5)})
    alone = heads_in_one_process()
    close(found["a"], alone["a"])
    close(found["b"], alone["b"])
    close(weights(trunk), alone["trunk"])


def heads_in_one_process():
    nets = {"trunk": dense(4, 5, 3, activation="tanh"), "a": dense(2, 4, 4), "b": dense(2, 4, 5)}
    trainers = [trainer(net, None) for net in nets.values()]
    for step in range(STEPS):
        with autograd.record():
            inner = nets["trunk"](nd.array(X[step]))
            loss = LOSS(nets["a"](inner), nd.array(Y["a"][step])) + LOSS(nets["b"](inner), nd.array(Y["b"][step]))
        loss.backward()
        for each in trainers:
            each.step(BATCH)
    return {name: weights(net) for name, net in nets.items()}


def uneven_data(rank):
    """A worker without data takes part in the steps of the others in a task, too."""

    def fold():
        data = gluon.data.ArrayDataset(X[0], Y["a"][0])
        net = dense(2, 5, 1)
        by = trainer(net, "dist_sync")
        for x, y in gluon.data.DataLoader(mx.dist.shard(data), batch_size=3):
            with autograd.record():
                loss = LOSS(net(x), y)
            loss.backward()
            by.step(len(x))
        return weights(net)

    found = tasks({"one": fold, "three": (fold, 3)})
    net = dense(2, 5, 1)
    with autograd.record():
        loss = LOSS(net(nd.array(X[0])), nd.array(Y["a"][0]))
    loss.backward()
    trainer(net, None).step(8 / 3)  # the mean over three workers
    close(found["three"], weights(net))
    assert abs(found["one"]["weight"] - found["three"]["weight"]).max().asscalar() > 1e-3  # three steps of three


def nested(rank):
    found = tasks({"left": lambda: tasks({"x": mx.dist.size, "y": mx.dist.size}), "right": mx.dist.size})
    assert found == {"left": {"x": 1, "y": 1}, "right": 2}


def layouts(rank):
    def lay_out():
        try:
            mx.parallel.apply(dense(4, 4, 0), mx.parallel.Layout(data=2))
        except mx.MXNetError as error:
            return str(error)

    found = tasks({"a": lay_out, "b": lay_out})
    assert all("a layout needs all workers of the job" in said for said in found.values()), found


def failures(rank):
    """One error on every worker, without waiting for the failed one; afterwards everything works as before."""

    def failing():
        if mx.dist.rank() == 1:
            raise ValueError("no such fold")
        mx.dist.barrier()  # the other never reaches this

    def waits_for_all(everyone):
        mx.dist.all_reduce(torch.ones(1), group=everyone)

    everyone = mx.dist.new_group(range(4))
    began = time.monotonic()
    text = refused({"good": lambda: 1, "bad": failing})
    assert "task 'bad', on workers 2, 3, failed on worker 3: ValueError: no such fold" in text, text
    assert "several_tasks.py, line" in text and "good" not in text, text
    text = refused({"waits": functools.partial(waits_for_all, everyone), "bad": failing})
    assert text.count("failed on") == 1 and "worker 3: ValueError" in text, text
    text = refused({"odd": lambda: {"here": [object()]}, **{f"t{n}": outlasts for n in range(6)}})
    assert "task 'odd', on worker 0, failed on worker 0: TypeError" in text, text
    assert "at ['here'][0]" in text and "not started: 't3', 't4', 't5'" in text, text
    assert time.monotonic() - began < 180  # the job's timeout is 600
    assert mx.dist.all_reduce(torch.ones(1)).item() == 4.0


def outlasts():
    """A task that lasts until another one has failed, and all workers that would start the next one know it."""
    board = re.match(r".*/tasks#[0-9]+", session().group.name)[0]
    session().store.get(f"{board}/failed")


def refused(asked):
    try:
        tasks(asked)
    except mx.MXNetError as error:
        return str(error)
    raise AssertionError("no error")


def different(rank):
    assert "the same tasks" in refused({f"mine {rank == 2}": lambda: None})


def main():
    rank = mx.dist.rank()
    torch.set_num_threads(1)
    for check in (
        models_at_once,
        a_queue,
        heavier_first,
        heads_on_a_trunk,
        uneven_data,
        nested,
        layouts,
        failures,
        different,
    ):
        began = time.monotonic()
        check(rank)
        if rank == 0:
            print(f"{check.__name__} holds, {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
