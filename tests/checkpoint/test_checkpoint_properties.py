"""A training that is stopped any number of times, at any step, ends with the weights of one that never stopped.

Each case trains with a random choice of everything that has state: the order and the transforms of the data, dropout,
running averages, the schedule, the loss scale, gradients that add up, a second loader. It is stopped at random steps,
in the middle of additions too, and must end with the same bits, also of the random numbers that come next.
"""

import random

import numpy as np
import pytest

import neomx as mx
from neomx import autograd, gluon
from neomx.amp.loss_scaler import LossScaler
from neomx.checkpoint import Checkpointer
from neomx.gluon.data import ArrayDataset, DataLoader

SAMPLES, EPOCHS = 26, 3
CHOICES = {
    "batch": [4, 5],
    "order": ["shard", "shuffle", "sequential"],
    "last_batch": ["keep", "discard", "rollover"],
    "ahead": [{}, {"num_workers": 2}, {"num_workers": 2, "thread_pool": True}],
    "augments": [False, True],
    "dropout": [0.0, 0.4],
    "norm": [False, True],
    "optimizer": ["sgd", "adam", "nag", "rmsprop", "ftrl", "lamb", "nadam", "signum"],
    "schedule": [None, "factor", "cosine", "function"],
    "scales": [False, True],
    "adds": [1, 3],
    "second": [False, True],
    "hybrid": [False, True],
}


def augment(x, y):
    return x + mx.random.rng().normal(0, 0.1, x.shape).astype("float32"), y


def loader_of(choice, seed, batch):
    rng = np.random.RandomState(seed)
    data = ArrayDataset(rng.rand(SAMPLES, 4).astype("float32"), rng.rand(SAMPLES, 2).astype("float32"))
    if choice["augments"]:
        data = data.transform(augment)
    options = {"last_batch": choice["last_batch"], **choice["ahead"]}
    if choice["order"] == "shard":
        return DataLoader(mx.dist.shard(data, shuffle=True, seed=7), batch, **options)
    return DataLoader(data, batch, shuffle=choice["order"] == "shuffle", **options)


def network(choice):
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(8, activation="relu"))
    if choice["norm"]:
        net.add(gluon.nn.BatchNorm())
    net.add(gluon.nn.Dropout(choice["dropout"]), gluon.nn.Dense(2))
    net.initialize(mx.init.Xavier())
    if choice["hybrid"]:
        net.hybridize()
    if choice["adds"] > 1:
        net.collect_params().setattr("grad_req", "add")
    return net


def schedule_of(name):
    return {
        "factor": lambda: mx.lr_scheduler.FactorScheduler(3, 0.8, base_lr=0.02),
        "cosine": lambda: mx.lr_scheduler.CosineScheduler(15, base_lr=0.02, warmup_steps=3),
        "function": lambda: lambda updates: 0.02 / (1 + updates),
    }[name]()


def trainer_of(net, choice):
    options = {"learning_rate": 0.02}
    if choice["schedule"]:
        options = {"lr_scheduler": schedule_of(choice["schedule"])}
    if choice["schedule"] == "function":
        options["learning_rate"] = None
    trainer = gluon.Trainer(net.collect_params(), choice["optimizer"], options)
    if choice["scales"]:
        scaler = trainer.training.scaler = LossScaler()
        scaler.load_state({"scale": 256.0, "next_scale": 256.0, "unskipped": 1996})  # doubled after four steps
    return trainer


def train(directory, choice, stop=None, resumes=False):
    """Train from the newest checkpoint, up to `stop` steps. Return what must be equal at the end."""
    random.seed(11)
    np.random.seed(11)
    mx.random.seed(11)
    net = network(choice)
    net(mx.nd.zeros((1, 4)))
    trainer = trainer_of(net, choice)
    loaders = [loader_of(choice, 3, choice["batch"])]
    if choice["second"]:
        loaders.append(loader_of(choice | {"ahead": {}}, 4, 3))
    seen = {"sums": []}
    ckpt = Checkpointer(directory, net=net, trainer=trainer, loader=loaders, every=1, keep=2, extra=seen, signals=False)
    assert ckpt.restore() is resumes
    others = iter(())
    for _ in ckpt.epochs(EPOCHS):
        for x, y in loaders[0]:
            if choice["second"]:
                other = next(others, None)
                if other is None:
                    others = iter(loaders[1])
                    other = next(others)
                x, y = mx.nd.concat(x, other[0], dim=0), mx.nd.concat(y, other[1], dim=0)
            with autograd.record():
                loss = gluon.loss.L2Loss()(net(x), y)
                if choice["scales"]:
                    loss = loss * trainer.training.scaler.loss_scale
            loss.backward()
            seen["sums"].append(float(x.sum().asscalar()))
            if (ckpt.steps + 1) % choice["adds"] == 0:
                scale = trainer.training.scaler.loss_scale if choice["scales"] else 1
                trainer.step(len(x) * choice["adds"] * scale)
                if choice["adds"] > 1:
                    net.collect_params().zero_grad()
            ckpt.step()
            if ckpt.steps == stop:
                ckpt.close()
                return None
    ckpt.close()
    found = {name: param.data().asnumpy() for name, param in net._collect_params_with_prefix().items()}
    found["rate"] = np.array([trainer.learning_rate, trainer.optimizer.num_update])
    found["random"] = np.array([random.random(), np.random.rand(), mx.nd.random.uniform(shape=1).asscalar()])
    found["data"] = np.array(seen["sums"])
    if choice["scales"]:
        found["scale"] = np.array([trainer.training.scaler.loss_scale])
    return found


@pytest.mark.parametrize("seed", range(16))
def test_stopped_anywhere_it_ends_with_the_same_bits(tmp_path, seed):
    draw = random.Random(seed)
    choice = {name: draw.choice(values) for name, values in CHOICES.items()}
    expected = train(tmp_path / "whole", choice)
    last = len(expected["data"])
    stops = sorted(draw.sample(range(1, last + 1), draw.randint(1, 4)))
    for number, stop in enumerate(stops):
        assert train(tmp_path / "cut", choice, stop, resumes=number > 0) is None, (choice, stops)
    found = train(tmp_path / "cut", choice, resumes=True)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=f"{name}, stopped at {stops} with {choice}")
