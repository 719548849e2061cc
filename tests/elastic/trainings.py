"""Small trainings that survive faults, as data: one for each way in which a program may step."""

import contextlib
from dataclasses import dataclass, replace

import numpy as np

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn
from neomx.gluon.data.shard import ShardedDataset

BATCH = 4  # samples of each worker in a batch, while there are as many workers as at the start
STEPS = 8  # batches in an epoch
EPOCHS = 3


@dataclass(frozen=True)
class Mode:
    """How a program trains."""

    optimizer: str = "sgd"
    splits: bool = False  # allreduce_grads, clip, update
    micro: int = 1  # batches whose gradients are accumulated before a step
    loaders: int = 0
    threads: bool = False  # whether the loaders are threads
    layers: str = "dense"
    rest: int = 0  # samples that are missing for a batch of all workers at the end of an epoch: 0 or 1
    trainers: int = 1
    half: bool = False
    compression: str = ""
    own: bool = False  # whether steps are divided by the samples of the batch
    drops: bool = False  # whether layers draw random numbers
    defers: bool = False  # whether the first forward pass determines shapes
    calls: bool = False  # whether the program makes a collective call of its own before each step
    servers: int = 0
    replicas: int = 1  # servers that hold each parameter
    layout: str = ""  # of a replica: "tensor=2", "pipeline=2", "shard=2"
    is_replayed: bool = True  # whether the weights can be computed again in one process: without a layout, bit by bit
    api: str = "gluon"  # "module": forward, backward and update of a Module; "fit": its fit
    source: str = "shard"  # or an iterator of mx.io: "arrays", "csv" or "records"
    scores: bool = False  # whether `fit` evaluates after each epoch


PLAIN = Mode()
MODES = {
    "plain": PLAIN,
    "deferred": replace(PLAIN, defers=True),
    "adam": replace(PLAIN, optimizer="adam"),
    "split": replace(PLAIN, splits=True),
    "accumulate": replace(PLAIN, micro=2),
    "accumulate split": replace(PLAIN, micro=2, splits=True),
    "norm": replace(PLAIN, layers="norm"),
    "dropout": replace(PLAIN, layers="dropout", drops=True),
    "uneven": replace(PLAIN, rest=1),
    "uneven split": replace(PLAIN, rest=1, splits=True),
    "own": replace(PLAIN, rest=1, own=True),
    "loaders": replace(PLAIN, loaders=2),
    "threads": replace(PLAIN, loaders=2, threads=True),
    "calls": replace(PLAIN, calls=True),
    "half": replace(PLAIN, half=True, is_replayed=False),
    "two": replace(PLAIN, trainers=2),
    "buckets": replace(PLAIN, layers="wide"),
    "sparse": replace(PLAIN, layers="sparse"),
    "compressed": replace(PLAIN, compression="2bit", is_replayed=False),
    "servers": replace(PLAIN, servers=2),
    "servers adam": replace(PLAIN, servers=2, optimizer="adam"),
    "servers deferred": replace(PLAIN, servers=2, defers=True),
    "servers split": replace(PLAIN, servers=2, splits=True),
    "servers accumulate": replace(PLAIN, servers=2, micro=2),
    "servers norm": replace(PLAIN, servers=1, layers="norm"),
    "servers uneven": replace(PLAIN, servers=2, rest=1),
    "servers uneven split": replace(PLAIN, servers=1, rest=1, splits=True),
    "servers wide": replace(PLAIN, servers=2, layers="wide"),
    "servers sparse": replace(PLAIN, servers=2, layers="sparse"),
    "servers compressed": replace(PLAIN, servers=2, compression="2bit", is_replayed=False),
    "replicas": replace(PLAIN, servers=2, replicas=2),
    "replicas adam": replace(PLAIN, servers=3, replicas=2, optimizer="adam"),
    "replicas wide": replace(PLAIN, servers=2, replicas=2, layers="wide"),
    "replicas sparse": replace(PLAIN, servers=2, replicas=2, layers="sparse"),
    "replicas split": replace(PLAIN, servers=2, replicas=2, splits=True),
    "module": replace(PLAIN, api="module", layers="norm"),
    "fit": replace(PLAIN, api="fit", rest=1),
    "fit dropout": replace(PLAIN, api="fit", layers="dropout", drops=True, optimizer="adam"),
    "arrays": replace(PLAIN, api="module", source="arrays", rest=1),
    "fit csv": replace(PLAIN, api="fit", source="csv", layers="norm", scores=True),
    "fit records": replace(PLAIN, api="fit", source="records", rest=1),
    "records": replace(PLAIN, source="records", own=True, rest=1),
    "tensor": replace(PLAIN, layout="tensor=2", optimizer="adam"),
    "tensor split": replace(PLAIN, layout="tensor=2", splits=True),
    "tensor uneven": replace(PLAIN, layout="tensor=2", layers="norm", rest=1, own=True),
    "shard": replace(PLAIN, layout="shard=2", optimizer="adam"),
    "pipeline": replace(PLAIN, layout="pipeline=2", own=True),
    "pipeline adam": replace(PLAIN, layout="pipeline=2", optimizer="adam", own=True),
}


def replica_of(mode):
    """Return the number of workers that have a model together."""
    return int(mode.layout.partition("=")[2] or 1)


def shares_of(mode, workers):
    """Return the number of workers with different samples."""
    return workers if mode.layout.startswith("shard") else workers // replica_of(mode)


def total(mode, workers):
    """Return the number of samples of the data, for a number of workers at the start."""
    return BATCH * workers * STEPS - mode.rest * (BATCH * workers - workers + 1)


def steps_of_epoch(mode):
    """Return the number of steps of all Trainers in an epoch."""
    return STEPS // mode.micro * mode.trainers


def data(count):
    rng = np.random.RandomState(3)
    x, y = rng.randn(count, 8).astype("float32"), rng.randn(count, 1).astype("float32")
    return gluon.data.ArrayDataset(x, y, np.arange(count).astype("float32"))


def order(mode, count, epoch):
    """Return the order in which all workers process the samples of an epoch."""
    return ShardedDataset(range(count), shuffle=mode.source != "csv", seed=5).order(epoch)


def iterator(mode, count, folder, kv):
    """Return an iterator of mx.io over the samples, whose labels are the targets and the numbers of the samples."""
    if mode.source == "shard":
        made = mx.dist.shard(data(count), shuffle=True, seed=5)
        made.batch_size = BATCH
        return made
    part = {"batch_size": BATCH, "num_parts": kv.num_workers, "part_index": kv.rank}
    if mode.source == "arrays":
        x, y, numbers = data(count)._data
        return mx.io.NDArrayIter(x, {"label": y, "number": numbers}, shuffle=True, seed=5, **part)
    if mode.source == "csv":
        made = mx.io.CSVIter(
            data_csv=f"{folder}/x.csv", label_csv=f"{folder}/y.csv", data_shape=(8,), label_shape=(2,), **part
        )
    else:
        settings = {"data_shape": (3, 1, 3), "label_width": 2, "shuffle": True, "seed": 5, "preprocess_threads": 2}
        made = mx.io.ImageRecordIter(path_imgrec=f"{folder}/x.rec", scale=1 / 64, **settings, **part)
    return Separated(made)


class Separated(mx.io.DataIter):
    """The batches of an iterator with two values in its labels, as two arrays. Pictures lose their last value."""

    def __init__(self, source):
        super().__init__(source.batch_size)
        self.source, self.reset = source, source.reset
        self.provide_data = [mx.io.DataDesc("data", (self.batch_size, 8))]
        self.provide_label = [("label", (self.batch_size, 1)), ("number", (self.batch_size,))]

    def next(self):
        batch = self.source.next()
        return mx.io.DataBatch([flat(batch.data[0])], [batch.label[0][:, :1], batch.label[0][:, 1]], batch.pad)


def flat(x):
    return x.reshape((len(x), -1))[:, :8]


def write_files(mode, count, folder):
    """Write the files of an iterator."""
    x, y, numbers = (part.asnumpy() if isinstance(part, nd.NDArray) else part for part in data(count)._data)
    labels = np.concatenate([y, numbers[:, None]], axis=1)
    if mode.source == "csv":
        for name, values in (("x", x), ("y", labels)):
            np.savetxt(f"{folder}/{name}.csv", values, "%.9g", ",")
    elif mode.source == "records":
        record = mx.recordio.MXRecordIO(f"{folder}/x.rec", "w")
        for number in range(count):
            header = mx.recordio.IRHeader(0, labels[number], number, 0)
            record.write(mx.recordio.pack_img(header, pixels(number), img_fmt=".png"))
        record.close()


def pixels(number):
    return np.random.RandomState(number).randint(0, 256, (1, 3, 3)).astype("uint8")


def samples(mode, count, rows):
    """Return the data and the targets of some samples, as the program sees them."""
    x, y, _ = (part[rows] for part in data(count)._data)
    if mode.source == "records":  # red first, and one plane for each color
        planes = np.stack([pixels(row)[:, :, ::-1].transpose(2, 0, 1) for row in rows]).astype("float32")
        x = flat(planes * np.float32(1 / 64))
    return nd.array(x, dtype=x.dtype), nd.array(y, dtype=y.dtype)


def network(layers):
    net = nn.HybridSequential()
    if layers == "sparse":
        net.add(nn.Embedding(50, 4, sparse_grad=True), nn.Dense(1))
    elif layers == "wide":
        net.add(*(nn.Dense(width, activation="tanh", in_units=into) for into, width in ((8, 1100), (1100, 1100))))
        net.add(nn.Dense(1, in_units=1100))
    else:
        net.add(nn.Dense(9 if layers == "other" else 16, activation="tanh"))
        if layers == "norm":
            net.add(nn.BatchNorm())
        if layers == "dropout":
            net.add(nn.Dropout(0.3))
        net.add(nn.Dense(1))
    net.initialize(mx.init.Xavier())
    return net


def program_of(mode, kvstore, at_once):
    """Return the program of a mode, whose batches of all workers have so many samples."""
    if mode.layout:
        from replicas import LayoutProgram

        return LayoutProgram(mode, is_alone=kvstore is None)
    return Program(mode, kvstore) if mode.api == "gluon" else ModuleProgram(mode, kvstore, at_once)


class Program:
    """The networks and Trainers of a training."""

    def __init__(self, mode, kvstore):
        mx.random.seed(1)
        if mode.half:
            mx.amp.init("bfloat16")
        self.mode, self.loss = mode, gluon.loss.L2Loss()
        self.nets = [network(mode.layers) for _ in range(mode.trainers)]
        if kvstore is None or not mode.defers:
            for net in self.nets:
                self.output(net, nd.zeros((2, 8)))
        settings = {"learning_rate": 0.01} if mode.optimizer == "adam" else {"learning_rate": 0.05, "momentum": 0.9}
        more = {"compression_params": {"type": mode.compression, "threshold": 0.01}} if mode.compression else {}
        if mode.splits:
            more["update_on_kvstore"] = False
        self.trainers = [
            gluon.Trainer(net.collect_params(), mode.optimizer, settings, kvstore=kvstore, **more) for net in self.nets
        ]
        if mode.half:
            for trainer in self.trainers:
                mx.amp.init_trainer(trainer)
        if mode.micro > 1:
            for net in self.nets:
                net.collect_params().setattr("grad_req", "add")

    def output(self, net, x):
        if self.mode.layers == "sparse":
            x = nd.abs(x * 7).astype("int32")
        return net(x)

    def backward(self, x, y, then=lambda: None):
        """Compute the gradients of a batch. `then` is called between forward and backward."""
        with autograd.record():
            values = [self.loss(self.output(net, x), y) for net in self.nets]
            with contextlib.ExitStack() as scales:
                if self.mode.half:
                    for value, trainer in zip(list(values), self.trainers, strict=True):
                        values.append(scales.enter_context(mx.amp.scale_loss(value, trainer)))
                    del values[: len(self.nets)]
                then()
                autograd.backward(values)

    def gradients(self):
        return [[p.grad() for p in net.collect_params().values() if p.grad_req != "null"] for net in self.nets]

    def clip(self):
        for arrays in self.gradients():
            gluon.utils.clip_global_norm(arrays, 1.0)

    def step(self, divisor):
        for trainer in self.trainers:
            if self.mode.splits:
                trainer.allreduce_grads()
                self.clip()
                trainer.update(divisor)
            else:
                trainer.step(divisor)
        self.forget()

    def forget(self):
        """Drop accumulated gradients."""
        if self.mode.micro > 1:
            for net in self.nets:
                net.collect_params().zero_grad()

    def weights(self, trained_only=False):
        """Return all values by name."""
        return {
            f"{number}/{name}": param.data().asnumpy()
            for number, net in enumerate(self.nets)
            for name, param in net._collect_params_with_prefix().items()
            if not trained_only or param.grad_req != "null"
        }


def symbol(layers):
    sym = mx.sym
    x = sym.Activation(sym.FullyConnected(sym.Variable("data"), num_hidden=16, name="fc1"), act_type="tanh")
    if layers == "norm":
        x = sym.BatchNorm(x, name="norm")
    if layers == "dropout":
        x = sym.Dropout(x, p=0.3)
    x = sym.FullyConnected(x, num_hidden=9 if layers == "other" else 1, name="fc2")
    if layers == "other":
        x = sym.sum(x, axis=1, keepdims=True)
    unused = sym.BlockGrad(
        sym.Variable("number") * 0
    )  # the numbers of the samples are labels, so that batches have them
    return sym.LinearRegressionOutput(sym.broadcast_add(x, unused.reshape((-1, 1))), sym.Variable("label"))


class ModuleProgram:
    """A Module, with the methods of Program."""

    def __init__(self, mode, kvstore, at_once, kind=mx.mod.Module):
        mx.random.seed(1)
        self.mode = mode
        self.module = kind(symbol(mode.layers), ("data",), ("label", "number"))
        self.rate = {"learning_rate": 0.01} if mode.optimizer == "adam" else {"learning_rate": 0.05, "momentum": 0.9}
        if kvstore is None:  # one process that has all samples
            self.rate["rescale_grad"] = 1.0 / at_once
        if mode.api == "module" or kvstore is None:
            self.module.bind([("data", (BATCH, 8))], [("label", (BATCH, 1)), ("number", (BATCH,))])
            self.module.init_params(mx.init.Xavier())
            self.module.init_optimizer(kvstore, mode.optimizer, self.rate)

    def backward(self, x, y, then=lambda: None):
        self.module.forward(mx.io.DataBatch([x], [y, nd.zeros((len(x),))]), is_train=True)
        then()
        self.module.backward()

    def gradients(self):
        return [[gradients[0] for gradients in self.module.executors.grad_arrays]]

    def step(self, divisor):
        self.module.update()

    def forget(self):
        pass

    def weights(self, trained_only=False):
        trained, averages = self.module.get_params()
        return {name: array.asnumpy() for name, array in {**trained, **({} if trained_only else averages)}.items()}
