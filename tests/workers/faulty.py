"""Trains until a fault: each --fault happens to one worker in one step, between backward and the update.

    faulty.py FOLDER KVSTORE,... [--fault WHAT@RANK:STEP ...] [--forgiving RANK]

Events and their times are written to FOLDER as NAME-RANK.json. An error is caught, the weights are saved, and it is
raised again, unless this worker is forgiving. Step 0 is before a worker joins its job.
"""

import argparse
import contextlib
import json
import os
import signal
import sys
import time

STEPS, PACE, SLOW = 12, 0.05, 0.2
RANK = int(os.environ["RANK"])


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("stores")
    parser.add_argument("--fault", action="append", default=[])
    parser.add_argument("--forgiving", type=int, default=-1)
    return parser.parse_args()


def note(name, **more):
    """Write an event with the current time."""
    path = f"{given.folder}/{name}-{RANK}.json"
    with open(path + ".part", "w") as file:
        json.dump({"time": time.time(), **more}, file)
    os.rename(path + ".part", path)


def faults_of(step):
    """The faults on this worker in this step."""
    told = [fault.partition("@") for fault in given.fault]
    return [what for what, _, place in told if place == f"{RANK}:{step}"]


def await_others():
    """Wait until all have imported the library, which takes seconds on a busy machine."""
    while not all(os.path.exists(f"{given.folder}/imported-{r}.json") for r in range(int(os.environ["WORLD_SIZE"]))):
        time.sleep(0.05)


def happen(what):
    note("fault", what=what)
    if what == "raise":
        raise RuntimeError("a mistake in the script")
    if what == "exit":
        sys.exit(3)
    if what == "raise-exit":
        raise SystemExit(3)
    if what == "raise-success":
        raise SystemExit(0)
    if what == "catch-exit":
        with contextlib.suppress(SystemExit):
            sys.exit(3)
    if what == "outlast":
        limit = time.monotonic() + 60  # worker 0 does not finish earlier if it waits for this one
        while not os.path.exists(f"{given.folder}/done-0.json") and time.monotonic() < limit:
            time.sleep(0.05)
    if what == "absent":
        time.sleep(3600)
    if what in ("kill", "stop"):
        os.kill(os.getpid(), {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[what])
    if what == "interrupt":
        os.kill(os.getppid(), signal.SIGINT)  # as the launcher's terminal would
    if what in ("server-kill", "server-stop"):
        os.kill(members()["server 0"]["pid"], {"server-kill": signal.SIGKILL, "server-stop": signal.SIGSTOP}[what])


def members():
    from neomx.comm.session import session

    return session().store.roster()


def network():
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(16, in_units=8, activation="tanh"), gluon.nn.Dense(3, in_units=16))
    net.initialize()
    return net


def create(name):
    """Create a store; 'dist_stale:1' has a staleness of one step."""
    name, _, staleness = name.partition(":")
    return mx.kv.create(name, **({"staleness": int(staleness)} if staleness else {}))


def train(nets, trainers):
    """Run all steps, or fewer if this worker leaves. Return when each update began and ended."""
    began, ended, pace = [], [], PACE
    x = nd.ones((4, 8)) * (RANK + 1)
    for step in range(1, STEPS + 1):
        for net in nets:
            with autograd.record():
                loss = (net(x) ** 2).sum()
            loss.backward()
        for what in faults_of(step):
            if what == "leave":
                note("fault", what=what)
                return began, ended
            if what == "slow":
                pace = SLOW
            happen(what)
        began.append(time.time())
        for trainer in trainers:
            trainer.step(8)
        ended.append(time.time())
        time.sleep(pace)
    return began, ended


def main():
    nets = []
    try:
        stores = [create(name) for name in given.stores.split(",")]
        nets += [network() for _ in stores]
        trainers = [
            gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01}, kvstore=store)
            for net, store in zip(nets, stores, strict=True)
        ]
        stores[0].barrier()  # all start together
        note("roster", pids=[member["pid"] for name, member in members().items() if not name.startswith("node")])
        began, ended = train(nets, trainers)
    except mx.MXNetError as error:
        note("caught", kind=type(error).__name__, message=str(error))
        for number, net in enumerate(nets):
            net.save_parameters(f"{given.folder}/weights-{RANK}-{number}.params")
        if given.forgiving == RANK:
            return
        raise
    note("done", began=began, ended=ended)


given = options()
note("started", pids=[os.getpid()])

import neomx as mx  # noqa: E402
from neomx import autograd, gluon, nd  # noqa: E402

note("imported")
for what in faults_of(0):
    await_others()
    happen(what)
main()
