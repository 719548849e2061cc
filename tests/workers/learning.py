"""Runs ways to learn on this worker's part of the data, and saves the results: `learning.py OUT`."""

import sys

import numpy as np

import neomx as mx
from neomx import autograd, gluon, learn, nd
from neomx.gluon import nn

RANK, SIZE = mx.dist.rank(), mx.dist.size()
LOSS = gluon.loss.SoftmaxCrossEntropyLoss()
random = np.random.default_rng(3)
X = random.standard_normal((50, 6)).astype("float32") * 2
Y = random.integers(0, 4, 50).astype("float32")
GLOBAL = 12  # samples of all workers in a batch: the last of 5 batches has 2


def network(*layers, hybridize=False):
    net = nn.HybridSequential()
    net.add(*layers)
    net.initialize()
    net(nd.zeros((1, 6)))
    weights = np.random.default_rng(5)
    for param in net.collect_params().values():
        if param.grad_req != "null":
            param.set_data(nd.array(weights.standard_normal(param.shape).astype("float32") * 0.4))
    if hybridize:
        net.hybridize()
    return net


def values(net):
    return {name: param.data().asnumpy() for name, param in net._collect_params_with_prefix().items()}


def trainer_of(net, optimizer="sgd", **how):
    settings = {"learning_rate": 0.2, "momentum": 0.9} if optimizer == "sgd" else {"learning_rate": 0.02}
    return gluon.Trainer(net.collect_params(), optimizer, settings, kvstore="dist_sync", **how)


def loader(last_batch="keep", samples=50):
    part = mx.dist.shard(gluon.data.ArrayDataset(nd.array(X[:samples]), nd.array(Y[:samples])), shuffle=True, seed=2)
    return gluon.data.DataLoader(part, GLOBAL // SIZE, last_batch=last_batch)


def accumulation(parts, optimizer):
    """A batch in parts, with clipping in most steps; the last batch of an epoch is smaller."""
    net = network(nn.Dense(8, activation="tanh"), nn.Dense(4), hybridize=parts == 3)
    trainer = trainer_of(net, optimizer, update_on_kvstore=False)
    norms = []
    for _ in range(2):
        for x, y in loader():
            for part_x, part_y in learn.micro_batches(trainer, parts, x, y):
                with autograd.record():
                    loss = LOSS(net(part_x), part_y)
                loss.backward()
                assert not trainer.strategy.has_sent(), "gradients were sent before the step"
            norms.append(learn.clipped_step(trainer, len(x) * SIZE, 0.87))
    assert min(norms) < 0.87 < max(norms), norms
    return {**values(net), "norms": np.array(norms)}


def plain_steps():
    """The same without clipping, by `Trainer.step`, which may update in the store."""
    net = network(nn.Dense(8, activation="tanh"), nn.Dense(4))
    trainer = trainer_of(net)
    for x, y in loader():
        for part_x, part_y in learn.micro_batches(trainer, 2, x, y):
            with autograd.record():
                loss = LOSS(net(part_x), part_y)
            loss.backward()
        trainer.step(len(x) * SIZE)
    return values(net)


def unfreezing(hybridize):
    """Groups of layers are trained one epoch after the other by one Trainer; statistics stay frozen in the first."""
    net = network(
        *(nn.Dense(8), nn.BatchNorm(), nn.Dense(7, activation="tanh"), nn.Dense(6, activation="tanh"), nn.Dense(4)),
        hybridize=hybridize,
    )
    learn.discriminative_rates(net, 0.5)
    trainer = trainer_of(net)
    found = {}
    for epoch, trained in enumerate((2, 4, 6)):
        names = learn.unfreeze_gradually(net, epoch)
        assert len(names) == trained, names
        for x, y in loader(samples=48):
            with autograd.record():
                loss = LOSS(net(x), y)
            loss.backward()
            trainer.step(GLOBAL)
        found |= {f"{epoch}/{name}": value for name, value in values(net).items()}
    return found


def averages():
    """A moving average in an epoch whose last batch one worker does not have."""
    net = network(nn.Dense(4))
    trainer = trainer_of(net)
    ema = learn.EMA(net, 0.9)
    for _ in range(2):
        for x, y in loader(samples=49):
            with autograd.record():
                loss = LOSS(net(x), y)
            loss.backward()
            trainer.step(len(x) * SIZE)
            ema.update()
        ema.agree()
    with ema:
        return {**values(net), "updates": np.array(ema.updates)}


def balanced():
    """Two tasks, weighed by gradient norms, and by learned uncertainties."""
    found = {}
    for way in ("norms", "uncertainty"):
        trunk = network(nn.Dense(8, activation="tanh"))
        heads = {name: nn.Dense(units, in_units=8) for name, units in (("class", 4), ("value", 1))}
        net = learn.SharedTrunk(trunk, heads)
        for head in heads.values():
            head.initialize(mx.init.Constant(0.1))
        net.hybridize()
        weights = learn.UncertaintyWeights(2)
        weights.initialize()
        balance = learn.GradNorm(2, trunk[0].weight, rate=0.1)
        params = dict(net.collect_params().items())
        params |= weights.collect_params().items() if way == "uncertainty" else {}
        trainer = gluon.Trainer(params, "adam", {"learning_rate": 0.02}, kvstore="dist_sync")
        history = []
        for _ in range(3):
            for x, y in loader("discard"):
                with autograd.record():
                    scores, value = net(x)
                    losses = [LOSS(scores, y), 10 * gluon.loss.L2Loss()(value, x[:, 0])]
                    total = None if way == "norms" else weights(*losses)
                balance.backward(losses) if way == "norms" else total.backward()
                trainer.step(GLOBAL)
                history.append(balance.weights if way == "norms" else weights.log_variance.data().asnumpy())
        found |= {f"{way}/{name}": value for name, value in values(net).items()}
        found[f"{way}/history"] = np.array(history)
    return found


def stopping():
    """An accuracy of which each worker knows a part; it is best after the epoch 2, and the patience is 2."""
    accuracy = mx.metric.Accuracy()
    early = learn.EarlyStopping(accuracy, patience=2, mode="max")
    right = [10, 20, 30, 29, 30, 40]  # of 50 samples
    labels = np.arange(50) % 4
    improved = []
    for epoch in range(len(right)):
        guesses = np.where(np.arange(50) < right[epoch], labels, labels + 1)
        accuracy.reset()
        accuracy.update([nd.array(labels[RANK::SIZE])], [nd.array(guesses[RANK::SIZE])])
        ends = early.should_stop()
        improved.append(early.improved)
        if ends:
            break
    return {"epochs": np.array(epoch), "best": np.array(early.best), "improved": np.array(improved)}


def courses():
    """Training on a growing pool."""
    difficulty = np.abs(X).sum(1) + RANK  # those of worker 0 count, and they have the same order
    part = learn.Curriculum(gluon.data.ArrayDataset(nd.array(X), nd.array(Y)), difficulty, 0.3, 3, seed=4)
    data = gluon.data.DataLoader(part, GLOBAL // SIZE)
    net = network(nn.Dense(4))
    trainer = trainer_of(net)
    sizes = []
    for epoch in range(5):
        sizes.append(part.pool(epoch))
        assert len(data) == -(-len(part) // (GLOBAL // SIZE))
        for x, y in data:
            with autograd.record():
                loss = LOSS(net(x), y)
            loss.backward()
            trainer.step(len(x) * SIZE)
    return {**values(net), "sizes": np.array(sizes)}


def searches():
    """Small trainings as trials. Those with a rate above 0.45 fail on their last worker, for which others wait."""

    def trial(config, budget=1):
        if config["rate"] > 0.45 and mx.dist.rank() == mx.dist.size() - 1:
            raise ValueError("too fast")
        net = nn.Dense(4, in_units=6)
        net.initialize(mx.init.Normal(0.5))
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": config["rate"]}, kvstore="dist_sync")
        for _ in range(2 * budget):
            rows = slice(mx.dist.rank(), None, mx.dist.size())
            with autograd.record():
                loss = LOSS(net(nd.array(X[rows])), nd.array(Y[rows]))
            loss.backward()
            trainer.step(50)
        return LOSS(net(nd.array(X)), nd.array(Y)).mean().asscalar()

    space = {"rate": learn.uniform(0.01, 1.0), "unused": [1, 2, 3]}
    found = {}
    for name, trials in {
        "random": learn.random_search(trial, space, 8, seed=1, ignore_errors=True),
        "together": learn.random_search(trial, space, 8, seed=1, ignore_errors=True, workers=SIZE),
        "halving": learn.successive_halving(trial, space, 9, [1, 3, 5], seed=1, ignore_errors=True),
    }.items():
        found[f"{name}/numbers"] = np.array([each.number for each in trials])
        found[f"{name}/scores"] = np.array([each.score for each in trials])
        found[f"{name}/budgets"] = np.array([each.budget or 0 for each in trials])
        failed = [each for each in trials if each.error is not None]
        assert failed and all("ValueError: too fast" in each.error for each in failed), learn.table(trials)
        assert all(each.config["rate"] > 0.45 for each in failed)
    return found


def main(out):
    results = {
        "accumulation": accumulation(3, "sgd"),
        "accumulation of Adam": accumulation(2, "adam"),
        "whole batches": accumulation(1, "sgd"),
        "plain steps": plain_steps(),
        "unfreezing": unfreezing(False),
        "unfreezing hybridized": unfreezing(True),
        "averages": averages(),
        "balanced": balanced(),
        "stopping": stopping(),
        "courses": courses(),
        "searches": searches(),
    }
    np.savez(f"{out}-{RANK}.npz", **{f"{case}: {name}": v for case, all in results.items() for name, v in all.items()})


if __name__ == "__main__":
    main(sys.argv[1])
