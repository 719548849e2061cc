"""Trains with `hvd.elastic`, and writes what happened: run by tests of elastic jobs, and with plain `neomx run`."""

import json
import os
import pathlib
import signal
import sys
import time

import numpy as np

import neomx as mx
import neomx.horovod as hvd
from neomx import autograd, gluon, nd

EPOCHS, BATCHES, SAMPLES, RATE = 2, 6, 4, 0.05


def network():
    """A network whose last layer gets its shape at the first forward."""
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(8, activation="tanh", in_units=5), gluon.nn.Dense(1))
    net.initialize(mx.init.Xavier())
    return net


def batch_of(epoch, batch, rank):
    """The samples of one worker."""
    random = np.random.default_rng([epoch, batch, rank])
    return nd.array(random.standard_normal((SAMPLES, 5))), nd.array(random.standard_normal((SAMPLES, 1)))


def main(out, phase, step):
    me = int(os.environ.get("RANK", "0"))

    def tell(**what):
        with open(f"{out}/log-{me}.jsonl", "a") as log:
            log.write(json.dumps(what) + "\n")

    def may_die(at):
        if os.environ.get("DIES") == str(me) and (at, hvd.size()) == (phase, 2) and len(steps) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    hvd.init()
    mx.random.seed(1 + me)  # the workers begin with different weights
    net, loss_of, steps = network(), gluon.loss.L2Loss(), []
    trainer = hvd.DistributedTrainer(net.collect_params(), "adam", {"learning_rate": RATE * hvd.size()})
    state = hvd.elastic.MXNetState(net, trainer, epoch=0, batch=0, total=nd.zeros(1), notes={"seen": []})

    def on_reset():
        trainer.set_learning_rate(RATE * hvd.size())
        tell(reset=hvd.size())

    state.register_reset_callbacks([on_reset])

    @hvd.elastic.run
    def train(state, word, *, twice):
        tell(call=word * twice, size=hvd.size(), rank=hvd.rank(), epoch=state.epoch, batch=state.batch)
        for state.epoch in range(state.epoch, EPOCHS):  # noqa: B020
            for state.batch in range(state.batch, BATCHES):  # noqa: B020
                x, y = batch_of(state.epoch, state.batch, hvd.rank())
                with autograd.record():
                    loss = loss_of(net(x), y)
                loss.backward()
                may_die("step")
                try:
                    trainer.step(SAMPLES)
                    may_die("allreduce")
                    state.total += hvd.allreduce(loss.mean(), name="loss")
                except hvd.HorovodInternalError as error:
                    tell(error=str(error))
                    raise
                steps.append([state.epoch, state.batch])
                tell(step=steps[-1], size=hvd.size(), rank=hvd.rank())
                if state.batch % 2:
                    state.batch += 1
                    state.notes["seen"].append([state.epoch, state.batch, hvd.size()])
                    if os.environ.get("WAITS") and hvd.size() == 1:
                        while not pathlib.Path(out, "go").exists():
                            time.sleep(0.02)
                    state.commit()
            state.batch = 0
        return "ended"

    result = train(state, "x", twice=2)
    net.save_parameters(f"{out}/weights-{me}.params")
    tell(end=result, total=state.total.asscalar().item(), rate=trainer.learning_rate, notes=state.notes)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
