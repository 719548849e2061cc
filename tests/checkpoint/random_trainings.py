"""Random trainings that are stopped at random steps: they end with the bits of one that was never stopped.

Each seed chooses everything that has state: the order and the transforms of the data, dropout, running averages, the
optimizer and its schedule, the loss scale with overflows, gradients that add up, contexts, a second loader, and how the
training ends. To try many seeds: `python tests/checkpoint/random_trainings.py FIRST LAST`.
"""

import pathlib
import random
import signal
import sys
import tempfile
import traceback

import numpy as np

import neomx as mx
from neomx import autograd, gluon, process
from neomx.amp.loss_scaler import LossScaler
from neomx.checkpoint import Checkpointer
from neomx.gluon.data import ArrayDataset, DataLoader

SAMPLES, EPOCHS = 26, 3
CHOICES = {
    "batch": [4, 5],
    "order": ["shard", "shuffle", "sequential", "sampler"],
    "last_batch": ["keep", "discard", "rollover"],
    "ahead": [{}, {}, {"num_workers": 2}, {"num_workers": 2, "thread_pool": True, "auto_reload": True}],
    "augments": [False, True],
    "layers": ["dense", "convolution", "recurrent"],
    "dropout": [0.0, 0.4],
    "norm": [False, True],
    "optimizer": ["sgd", "adam", "nag", "rmsprop", "ftrl", "lamb", "nadam", "signum", "adagrad", "adadelta", "sgld"],
    "schedule": [None, "factor", "cosine", "function", "own"],
    "scales": [False, True],
    "adds": [1, 1, 3],
    "second": [False, True],
    "hybrid": [False, True],
    "contexts": [1, 1, 2],
    "store": ["device", "local", None],
    "on_store": [None, False],
    "clips": [False, True],
    "frozen": [False, True],
    "mixes": [False, True],
    "evaluates": [False, True],
    "loop": ["epochs", "endless"],
    "stops": ["saved", "signal", "killed"],
}


def draw(seed):
    """Return the choices of a seed, without combinations that are refused, and the generator for more."""
    rng = random.Random(seed)
    choice = {name: rng.choice(values) for name, values in CHOICES.items()}
    if choice["contexts"] > 1 and choice["store"] is None:
        choice["store"] = "device"
    if choice["contexts"] > 1 and choice["last_batch"] == "keep":
        choice["last_batch"] = "discard"  # the last batch may have one sample
    alike = choice["contexts"] == 1 or choice["optimizer"] not in ("sgld", "nadam")
    if not alike:
        choice["on_store"] = True
        choice["clips"] = choice["scales"] = False
    if choice["scales"] or choice["clips"]:
        choice["on_store"] = False
    return choice, rng


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
    if choice["order"] == "sampler":
        return DataLoader(data, batch, sampler=gluon.data.RandomSampler(SAMPLES), **options)
    return DataLoader(data, batch, shuffle=choice["order"] == "shuffle", **options)


def network(choice):
    net = gluon.nn.HybridSequential()
    if choice["layers"] == "convolution":
        net.add(gluon.nn.HybridLambda(lambda F, x: x.reshape((0, 1, 2, 2))), gluon.nn.Conv2D(3, 2))
    elif choice["layers"] == "recurrent":
        net.add(gluon.nn.HybridLambda(lambda F, x: x.reshape((0, 2, 2))), gluon.rnn.LSTM(3, 2, "NTC", dropout=0.3))
    net.add(gluon.nn.Dense(8, activation="relu"))
    if choice["norm"]:
        net.add(gluon.nn.BatchNorm())
    net.add(gluon.nn.Dropout(choice["dropout"]), gluon.nn.Dense(2))
    net.initialize(mx.init.Xavier(), ctx=contexts_of(choice))
    if choice["hybrid"]:
        net.hybridize()
    if choice["frozen"]:
        net[-3 if choice["norm"] else -2].collect_params().setattr("lr_mult", 0.5)
        net[-1].bias.grad_req = "null"
    if choice["adds"] > 1:
        for param in net.collect_params().values():
            if param.grad_req != "null":
                param.grad_req = "add"
    return net


def contexts_of(choice):
    return [mx.cpu(i) for i in range(choice["contexts"])]


def schedule_of(name):
    return {
        "factor": lambda: mx.lr_scheduler.FactorScheduler(3, 0.8, base_lr=0.02),
        "cosine": lambda: mx.lr_scheduler.CosineScheduler(15, base_lr=0.02, warmup_steps=3),
        "function": lambda: lambda updates: 0.02 / (1 + updates),
    }[name]()


def trainer_of(net, choice):
    options = {"learning_rate": 0.02}
    if choice["schedule"] not in (None, "own"):
        options = {"lr_scheduler": schedule_of(choice["schedule"])}
    if choice["schedule"] == "function":
        options["learning_rate"] = None
    stores = {"kvstore": choice["store"], "update_on_kvstore": choice["on_store"]}
    trainer = gluon.Trainer(net.collect_params(), choice["optimizer"], options, **stores)
    if choice["scales"]:
        scaler = trainer.training.scaler = LossScaler()
        scaler.load_state({"scale": 256.0, "next_scale": 256.0, "unskipped": 1996})  # doubled after four steps
    return trainer


def forever(loader):
    while True:
        yield from loader


class Stopped(Exception):
    """The training stops at this step."""


class Training:
    """A program that trains from the newest checkpoint, up to `stop` steps."""

    def __init__(self, directory, choice, every, stop=None, resumes=False):
        random.seed(11)
        np.random.seed(11)
        mx.random.seed(11)
        self.choice, self.stop = choice, stop
        self.net = network(choice)
        for ctx in contexts_of(choice):
            self.net(mx.nd.zeros((1, 4), ctx=ctx))
        self.trainer = trainer_of(self.net, choice)
        self.loaders = [loader_of(choice, 3, choice["batch"])]
        if choice["second"]:
            self.loaders.append(loader_of(choice | {"ahead": {}}, 4, 3))
        self.test = loader_of(choice | {"ahead": {}, "order": "shuffle", "last_batch": "keep"}, 5, 6)
        self.seen = {"sums": [], "tests": []}
        self.others = iter(())
        options = {"signals": choice["stops"] == "signal", "extra": self.seen}
        self.ckpt = Checkpointer(
            directory, net=self.net, trainer=self.trainer, loader=self.loaders, every=every, keep=2, **options
        )
        assert self.ckpt.restore() is resumes

    def other(self):
        """Return the next batch of the second loader."""
        found = next(self.others, None)
        if found is None:
            self.others = iter(self.loaders[1])
            found = next(self.others)
        return found

    def run(self):
        """Train. Return what must be equal at the end."""
        if self.choice["loop"] == "epochs":
            for _ in self.ckpt.epochs(EPOCHS):
                for batch in self.loaders[0]:
                    self.step(*batch)
                self.evaluate()
        else:
            batches = forever(self.loaders[0])
            while self.ckpt.steps < 17:
                self.step(*next(batches))
        self.ckpt.close()
        return self.found()

    def step(self, x, y):
        choice, ckpt = self.choice, self.ckpt
        if choice["second"]:
            other = self.other()
            x, y = mx.nd.concat(x, other[0], dim=0), mx.nd.concat(y, other[1], dim=0)
        if choice["mixes"]:
            share = random.random() * np.random.rand()
            x = x * share + x[::-1] * mx.nd.random.uniform(0, 1 - share, shape=x.shape)
        self.seen["sums"].append(float(x.sum().asscalar()))
        parts = [gluon.utils.split_and_load(each, contexts_of(choice), even_split=False) for each in (x, y)]
        with autograd.record():
            losses = [self.loss(*part) for part in zip(*parts, strict=True)]
        autograd.backward(losses)
        if (ckpt.steps + 1) % choice["adds"] == 0:
            self.update(len(x))
        if ckpt.steps + 1 == self.stop and choice["stops"] == "signal":
            signal.raise_signal(random.Random(self.stop).choice([signal.SIGTERM, signal.SIGUSR1]))
        ckpt.step()
        if ckpt.steps == self.stop:
            if choice["stops"] == "saved":
                ckpt.save()
            ckpt.close()
            raise Stopped

    def loss(self, x, y):
        loss = gluon.loss.L2Loss()(self.net(x), y)
        if self.choice["scales"]:
            loss = loss * self.trainer.training.scaler.loss_scale
            if self.ckpt.steps == 7:
                loss = loss * float("inf")  # this update is skipped, and the scale is halved
        return loss

    def update(self, samples):
        choice, trainer = self.choice, self.trainer
        if choice["clips"]:
            trainer.allreduce_grads()
            arrays = [p.grad() for p in self.net.collect_params().values() if p.grad_req != "null"]
            if not choice["scales"] and choice["contexts"] == 1:
                gluon.utils.clip_global_norm(arrays, 0.5)
        scale = trainer.training.scaler.loss_scale if choice["scales"] else 1
        (trainer.update if choice["clips"] else trainer.step)(samples * choice["adds"] * scale)
        if choice["adds"] > 1:
            self.net.collect_params().zero_grad()
        if choice["schedule"] == "own":
            trainer.set_learning_rate(trainer.learning_rate * 0.9)

    def evaluate(self):
        if self.choice["evaluates"]:
            loss = sum(float(gluon.loss.L2Loss()(self.net(x), y).sum().asscalar()) for x, y in self.test)
            self.seen["tests"].append(loss)

    def found(self):
        found = {name: param.data().asnumpy() for name, param in self.net._collect_params_with_prefix().items()}
        trainer = self.trainer
        found["rate"] = np.array([trainer.learning_rate, trainer.optimizer.num_update])
        found["random"] = np.array([random.random(), np.random.rand(), mx.nd.random.uniform(shape=1).asscalar()])
        found["data"], found["tests"] = np.array(self.seen["sums"]), np.array(self.seen["tests"])
        if self.choice["scales"]:
            found["scale"] = np.array([trainer.training.scaler.loss_scale])
        return found


def check(directory, seed):
    """Compare a training that is stopped several times with one that is not."""
    choice, rng = draw(seed)
    expected = Training(directory / "whole", choice, every=1000).run()
    last = len(expected["data"])
    stops = sorted(rng.choices(range(1, last + 1), k=rng.randint(1, 4)))
    every = rng.randint(1, 4)
    said = f"seed {seed} stopped at {stops}, every={every}, {choice}"
    cut, saved = directory / "cut", 0
    for stop in stops:
        if saved >= stop:
            continue
        training = Training(cut, choice, every, stop, resumes=saved > 0)
        assert training.ckpt.steps == saved, said
        try:
            training.run()
        except Stopped:
            assert choice["stops"] != "signal", said
        except SystemExit as error:
            assert choice["stops"] == "signal" and error.code == 75, said
        else:
            raise AssertionError(f"it did not stop: {said}")
        saved = stop // every * every if choice["stops"] == "killed" else stop
    found = Training(cut, choice, every, resumes=saved > 0).run()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=f"{name}, {said}")


def main(first, last):
    failed = []
    for seed in range(first, last):
        with tempfile.TemporaryDirectory() as directory:
            try:
                check(pathlib.Path(directory), seed)
            except Exception:
                list(map(process.stop, list(process.state.running)))
                traceback.print_exc()
                failed.append(seed)
    print(f"seeds {first} to {last - 1}: {len(failed)} failed {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
