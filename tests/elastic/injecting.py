"""Faults that a worker inflicts on itself, when a method of the package is called or when its program says so."""

import importlib
import json
import multiprocessing
import os
import resource
import signal
import threading
import time
from dataclasses import dataclass

CLOCK = time.time  # the real one
SLOW = 10  # times as long

# Phases that calls of the package mark: where, and whether before or after the call. Those of a step:
CALLS = {
    "ready": ("step.allreduce:AllReduce.ready", "before"),  # in backward, when a gradient is complete
    "announce": ("comm.rounds:Rounds.step", "before"),
    "announced": ("comm.rounds:Rounds.step", "after"),
    "bucket": ("comm.staging:Staging.reduce", "before"),  # in the thread that sums buckets
    "summed": ("comm.staging:Staging.reduce", "after"),
    "exchanged": ("comm.rounds:Rounds.vote", "before"),
    "voting": ("comm.memory:Meeting.late", "in a vote"),  # others see that this worker has voted
    "voted": ("comm.rounds:Rounds.vote", "after"),
    "update": ("step.allreduce:AllReduce.apply", "before"),
    "updated": ("step.allreduce:AllReduce.apply", "after"),
    "commit": ("gluon.data.shard:Epoch.commit", "before"),
    "committed": ("gluon.data.shard:Epoch.commit", "after"),
    "pause": ("comm.rounds:Rounds.pause", "before"),
    "leave": ("comm.rounds:Rounds.leave", "before"),
    # of a step with parameter servers:
    "pushed": ("comm.server.client:Client.commit", "after"),
    "offered": ("comm.server.client:Client.await_offers", "after"),
    "settle": ("comm.server.client:Client.settle", "before"),
    "settled": ("comm.server.client:Client.settle", "after"),
    # of a recovery:
    "call": ("comm.generations:Generations.call", "before"),
    "called": ("comm.generations:Generations.call", "after"),
    "agree": ("comm.generations:Generations.next", "before"),
    "agreed": ("comm.generations:Generations.next", "after"),
    "dealt": ("gluon.data.shard:Epoch.deal_again", "after"),
    "open": ("comm.rounds:Rounds.begin_generation", "before"),
    "opened": ("comm.rounds:Rounds.begin_generation", "after"),
    "regroup": ("comm.server.client:Client.regroup", "before"),
    "regrouped": ("comm.server.client:Client.regroup", "after"),
    "prepared": ("step.allreduce:AllReduce.prepare", "after"),
    # of joining:
    "ask": ("comm.generations:Generations.join", "before"),
    "admitted": ("comm.generations:Generations.join", "after"),
    # to those that follow at first:
    "follow": ("comm.rounds:Rounds.follow", "before"),
    "meet": ("comm.rounds:Rounds.meet_followers", "before"),
    "met": ("comm.rounds:Rounds.meet_followers", "after"),
    "ahead": ("elastic.ahead:Ahead.go_on", "before"),
    "passed on": ("elastic.ahead:Ahead.go_on", "after"),
    # to those that receive the state at once:
    "give": ("elastic.handover:give", "before"),
    "given": ("elastic.handover:give", "after"),
    "take": ("elastic.handover:take", "before"),
    "taken": ("elastic.handover:take", "after"),
}


def kill_server(number=0):
    """Kill a parameter server."""
    from neomx.comm.session import session

    os.kill(session().store.roster()[f"server {number}"]["pid"], signal.SIGKILL)


@dataclass
class Fault:
    """What happens to a worker, and when: at a step of the training, or at once if `step` is None."""

    member: int
    kind: str
    phase: str
    step: int | None = None
    done: bool = False


class Injector:
    """Inflicts the faults of this worker. `steps()` returns the number of committed steps."""

    def __init__(self, faults, folder, member):
        self.faults = [fault for each in faults if (fault := Fault(**each)).member == member]
        self.folder, self.member = folder, member
        self.steps = lambda: -1
        self.pace = 1
        self._voting = threading.local()
        for phase in {fault.phase for fault in self.faults} & CALLS.keys():
            self._watch(phase)

    def _watch(self, phase):
        where, when = CALLS[phase]
        owner, _, name = where.partition(":")
        target = importlib.import_module(f"neomx.{owner}")
        *classes, name = name.split(".")
        for each in classes:
            target = getattr(target, each)
        original = getattr(target, name)
        if when == "in a vote":
            self._watch_votes()

        def watched(*args, **kwargs):
            if when == "before":
                self.at(phase)
            result = original(*args, **kwargs)
            if when == "after" or when == "in a vote" and getattr(self._voting, "now", False):
                self.at(phase)
            return result

        setattr(target, name, watched)

    def _watch_votes(self):
        from neomx.comm.rounds import Rounds

        original = Rounds.vote

        def vote(rounds):
            self._voting.now = True
            try:
                original(rounds)
            finally:
                self._voting.now = False

        Rounds.vote = vote

    def at(self, phase):
        """Inflict the faults of a phase that has begun."""
        for fault in self.faults:
            is_time = fault.step is None or self.steps() >= fault.step
            if fault.phase == phase and is_time and not fault.done:
                fault.done = True
                self._inflict(fault)

    def _inflict(self, fault):
        number = self.faults.index(fault)
        with open(f"{self.folder}/fault-{self.member}-{number}.part", "w") as file:
            json.dump({"time": CLOCK(), "kind": fault.kind, "phase": fault.phase, "steps": self.steps()}, file)
        os.rename(file.name, file.name.replace(".part", ".json"))
        if fault.kind == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault.kind in ("stopped", "continued"):
            os.kill(os.getpid(), signal.SIGSTOP)
        elif fault.kind == "loader killed":
            os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)
        elif fault.kind == "server killed":
            kill_server()
        elif fault.kind == "failed":
            raise RuntimeError("a mistake in the program")
        elif fault.kind == "slowed":
            self.pace = SLOW
        elif fault.kind == "out of memory":
            with open("/proc/self/statm") as file:
                used = int(file.read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used, used))
            _ = bytearray(1 << 28)
        elif fault.kind == "wrong clock":
            time.time = lambda: CLOCK() + 86400.0
        else:
            raise ValueError(fault.kind)
