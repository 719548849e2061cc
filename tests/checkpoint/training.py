"""A small training with dropout, running averages, shuffling and augmentation, for tests of checkpoints."""

import numpy as np

import neomx as mx
from neomx import autograd, gluon


def augment(x, y):
    return x + mx.random.rng().normal(0, 0.1, x.shape).astype("float32"), y


def data(samples=22):
    rng = np.random.RandomState(3)
    return gluon.data.ArrayDataset(rng.rand(samples, 4).astype("float32"), rng.rand(samples, 2).astype("float32"))


def network(seed=1, units=8, dropout=0.5):
    mx.random.seed(seed)
    np.random.seed(seed)
    net = gluon.nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(gluon.nn.Dense(units, activation="relu"), gluon.nn.BatchNorm(), gluon.nn.Dropout(dropout))
        net.add(gluon.nn.Dense(2))
    net.initialize(mx.init.Xavier())
    return net


def trainer_of(net, optimizer="adam", kvstore="device"):
    schedule = mx.lr_scheduler.FactorScheduler(3, 0.7, base_lr=0.05)
    options = {"kvstore": kvstore, "update_on_kvstore": False}  # a store of one worker would keep the states
    return gluon.Trainer(net.collect_params(), optimizer, {"lr_scheduler": schedule}, **options)


def loader_of(kind="shard", batch=4, **options):
    shown = data().transform(augment)
    if kind == "shard":
        return gluon.data.DataLoader(mx.dist.shard(shown, shuffle=True, seed=7), batch, **options)
    return gluon.data.DataLoader(shown, batch, shuffle=kind == "shuffle", **options)


def fit(net, trainer, batch, divisor):
    x, y = batch
    with autograd.record():
        loss = gluon.loss.L2Loss()(net(x), y)
    loss.backward()
    trainer.step(divisor)


def weights(net, trainer):
    found = {name: p.data().asnumpy() for name, p in net._collect_params_with_prefix().items()}
    found["next random"] = np.array([np.random.rand(), mx.nd.random.uniform(shape=1).asscalar()])
    found["learning rate"] = np.array([trainer.learning_rate])
    return found
