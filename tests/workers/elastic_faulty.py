"""Trains in an elastic job in which faults happen: elastic_faulty.py SPECIFICATION, JSON of tests/elastic/faults.py.

Before and after each step, it writes which samples the step has and how many steps are committed.
"""

import contextlib
import dataclasses
import faulthandler
import functools
import json
import multiprocessing
import os
import re
import signal
import sys
import time

import numpy as np

spec = json.loads(sys.argv[1])
sys.path.insert(0, spec["path"])
import injecting  # noqa: E402

me, out = int(os.environ["RANK"]), spec["folder"]
faulthandler.register(signal.SIGUSR2)  # the test asks where a worker hangs
injector = injecting.Injector(spec["faults"], out, me)
injector.at("start")

import replicas  # noqa: E402
import trainings  # noqa: E402

import neomx as mx  # noqa: E402
from neomx.comm.session import session  # noqa: E402
from neomx.elastic import ahead  # noqa: E402
from neomx.events import subscribe_each  # noqa: E402
from neomx.gluon.data.place import current_batch  # noqa: E402

mode = trainings.MODES[spec["mode"]]
if spec["differs"] and os.environ.get("NEOMX_JOINS"):
    mode = dataclasses.replace(mode, layers="other")
replicas.Trap.at = injector.at
transaction = mx.process.state.transaction
ahead.FIRST = ahead.FEWEST = 1  # these networks are small: send them in several parts
log = open(f"{out}/seen-{me}.jsonl", "a", buffering=1)  # noqa: SIM115


def write(*words):
    log.write(json.dumps([*words, injecting.CLOCK()]) + "\n")


def hold(step):
    """Wait until the test goes on, so that workers that join are known before this step."""
    if step in spec["holds"] and not os.environ.get("NEOMX_JOINS"):
        limit = time.monotonic() + 60
        while not os.path.exists(f"{out}/go-{step}") and time.monotonic() < limit:
            time.sleep(0.01)
        time.sleep(0.25)  # longer than the time between two looks for workers that wait


def fail(*_):
    raise RuntimeError("a mistake in the program")


signal.signal(signal.SIGUSR1, fail)
held, rejoined = set(), []
generations = []  # those in which this worker was
loaders = set()


def tell_loaders():
    """Write the process ids of new loader processes."""
    found = {child.pid for child in multiprocessing.active_children()}
    if found - loaders:
        write("loaders", sorted(found - loaders))
        loaders.update(found)


def count_open():
    """Write how many sockets and regions of shared memory this process has."""
    sockets = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            sockets += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    with open("/proc/self/maps") as file:
        regions = len(re.findall("/memfd:neomx-", file.read()))
    write("open", sockets, regions)


def told(number, members, lost, joined, seconds):
    if generations and number > generations[-1] + 1:
        rejoined.append(number)  # the others had another one in the meantime
    generations.append(number)
    write("generation", number, members, lost, joined, seconds)


subscribe_each(generation=told)
injector.at("session")


def begin_batch():
    tell_loaders()
    if transaction.steps not in held:
        held.add(transaction.steps)
        hold(transaction.steps)
    time.sleep(spec["pause"] * injector.pace)
    injector.at("forward")


def step(epoch, samples, update):
    """Write which samples a step has, make it, and write whether it is committed."""
    injector.at("step")
    before, generation = transaction.steps, session().generations.number
    joins = not session().generations.admitted  # then the batch is only computed
    if not joins:
        generations.append(generation)
        write("try", generation, before, epoch, samples)
    update()
    now = session().generations
    cut = not now.admitted or any(number > generation for number in rejoined)  # the others went on
    if not joins:
        write("end", generation, before, None if cut else transaction.steps)  # None: only the others know it
    injector.at("batch")


def end_epoch():
    injector.at("epoch")
    if session().generations.admitted:
        count_open()


def listed(numbers):
    return numbers.asnumpy().astype(int).tolist()


def begin():
    """Note that the program has created what it trains."""
    injector.at("trainer")
    injector.steps = lambda: transaction.steps
    if mode.drops:
        mx.random.seed(100 + me)
    if session().generations.admitted:
        write("members", session().generations.number, list(session().generations.current.members))


def data_of_program(program):
    """Return a function whose result iterates over the batches of an epoch."""
    source = trainings.iterator(mode, spec["samples"], out, mx.kv.create("dist_sync"))
    if mode.layout:
        source = program.layout.share(source.dataset, shuffle=True, seed=5)
    if mode.source == "shard":
        loader = mx.gluon.data.DataLoader(source, trainings.BATCH, num_workers=mode.loaders, thread_pool=mode.threads)
        return lambda: loader

    def batches():
        source.reset()
        for batch in source:
            yield batch.data[0], *batch.label

    return batches


def loop():
    """Train in a loop of the program."""
    program = trainings.program_of(mode, "dist_sync", spec["at_once"])
    begin()
    data = data_of_program(program)
    for epoch in mx.elastic.epochs(spec["epochs"]):
        samples = []
        for x, y, numbers in data():
            begin_batch()
            program.backward(x, y, lambda: injector.at("backward"))
            samples.append(listed(numbers))
            if len(samples) < mode.micro:
                continue
            if mode.calls:
                mx.dist.all_reduce(mx.nd.ones((3,)))
            divisor = current_batch().total if mode.own else spec["at_once"] * mode.micro
            if mode.layout:
                divisor = len(x) if mode.own else trainings.BATCH
                samples = samples if program.has_share else []
            step(epoch, samples, functools.partial(program.step, divisor))
            samples = []
        end_epoch()
    return program


class Fitted(mx.mod.Module):
    """A Module whose `fit` says what it does."""

    def init_optimizer(self, *args, **kwargs):
        super().init_optimizer(*args, **kwargs)
        begin()

    def forward(self, data_batch, is_train=None):
        if not is_train:
            super().forward(data_batch, is_train)
            return
        begin_batch()
        self.samples = [listed(data_batch.label[1])]
        super().forward(data_batch, is_train)

    def backward(self, out_grads=None):
        injector.at("backward")
        super().backward(out_grads)

    def update(self):
        step(self.epoch, self.samples, super().update)


def fit():
    """Train with `fit`."""
    program = trainings.ModuleProgram(mode, "dist_sync", spec["at_once"], Fitted)
    module, data = program.module, trainings.iterator(mode, spec["samples"], out, mx.kv.create("dist_sync"))

    def enter(loader, number, **fields):
        module.epoch = number

    subscribe_each(epoch=enter)
    module.fit(
        data,
        trainings.iterator(mode, spec["samples"], out, mx.kv.create("dist_sync")) if mode.scores else None,
        kvstore="dist_sync",
        eval_metric=mx.metric.MSE(label_names=["label"]),
        optimizer=mode.optimizer,
        optimizer_params=program.rate,
        initializer=mx.init.Xavier(),
        num_epoch=spec["epochs"],
        epoch_end_callback=lambda *_: end_epoch(),
    )
    return program


program = fit() if mode.api == "fit" else loop()
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
injector.at("ended")
if mode.layout:
    program.save(out)
np.savez(f"{out}/weights-{me}.npz", **program.weights())
write("done", transaction.steps, session().generations.admitted)
