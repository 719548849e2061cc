"""The table of faults in elastic jobs: role x fault x phase x mode, and what is planned for a row."""

import collections
import dataclasses
import itertools
import random
from dataclasses import dataclass

from trainings import EPOCHS, MODES, replica_of, steps_of_epoch

# Phases, as injecting.py and the program mark them.
IN_STEP = ("forward", "backward", "ready", "step", "announce", "announced", "bucket", "summed", "exchanged")
IN_STEP += ("voting", "voted", "update", "updated")
AT_COMMIT = ("commit", "committed", "batch")
AT_START = ("start", "session", "trainer")
AT_END = ("pause", "epoch", "leave", "ended")
IN_RECOVERY = ("call", "called", "agree", "agreed", "dealt", "open", "opened", "prepared")
ON_SERVERS = ("forward", "backward", "pushed", "offered", "voting", "voted", "settle", "settled", "committed", "batch")
WITH_SERVERS = ("agree", "agreed", "regroup", "regrouped", "open", "opened")  # in a recovery
IN_JOIN = {
    "source": ("agree", "agreed", "give", "given", "meet", "met", "ahead", "passed on", "voting", "updated")
    + ("open", "opened"),
    "bystander": ("agree", "agreed", "meet", "met", "ahead", "passed on", "voting", "updated", "open", "opened"),
    "joiner": ("session", "trainer", "ask", "admitted", "take", "taken", "follow", "ahead", "passed on", "agreed")
    + ("open", "opened", "regroup", "regrouped", "forward", "voting", "committed"),
    "one of two joiners": ("ask", "admitted", "follow", "ahead", "passed on", "voting"),
}
AT_ONCE = ("give", "given", "take", "taken")  # if the whole state is sent at once
AHEAD = ("follow", "meet", "met", "ahead", "passed on")
WHEN = ("first", "middle", "last")  # which step of an epoch
LOSSES = ("killed", "stopped", "revived", "failed")  # the others go on without the worker
HARMLESS = ("continued", "slowed", "wrong clock")  # all workers complete the training


@dataclass(frozen=True)
class Row:
    """A job and a fault in it."""

    role: str
    fault: str
    phase: str
    mode: str = "plain"
    workers: int = 3
    when: str = "middle"

    def __str__(self):
        return "/".join(map(str, dataclasses.astuple(self)))

    @staticmethod
    def read(text):
        role, fault, phase, mode, workers, when = text.split("/")
        return Row(role, fault, phase, mode, int(workers), when)


def all_rows():
    """Return all rows that make sense."""
    made = []
    sizes = (2, 3, 4)
    plain = [(mode, workers, when) for mode in MODES for workers in sizes for when in WHEN]
    for role, phase in itertools.product(("leader", "follower"), IN_STEP + AT_COMMIT):
        made += [Row(role, "killed", phase, *rest) for rest in plain]
        made += [Row(role, fault, phase, *rest) for rest in plain for fault in ("stopped", "revived", "continued")]
    for role, phase in itertools.product(("leader", "follower"), ("forward", "backward", "step", "batch")):
        made += [
            Row(role, fault, phase, *rest)
            for rest in plain
            for fault in ("failed", "slowed", "out of memory", "wrong clock")
        ]
    for role, phase in itertools.product(("leader", "follower"), AT_START):
        made += [Row(role, fault, phase, mode, n, "first") for mode in MODES for n in sizes for fault in LOSSES]
    for role, phase in itertools.product(("leader", "follower"), AT_END):
        made += [Row(role, fault, phase, mode, n, "last") for mode in MODES for n in sizes for fault in LOSSES]
    for phase in IN_STEP + AT_COMMIT:
        made += [Row("two", "killed", phase, mode, n, when) for mode, n, when in plain if n > 2]
    for role, phase in itertools.product(("second leader", "second follower"), IN_RECOVERY):
        faults = ("killed", "stopped", "continued")
        made += [Row(role, f, phase, mode, n, when) for mode, n, when in plain if n > 2 for f in faults]
    for role, phases in IN_JOIN.items():
        joins = [(mode, n, "middle") for mode in MODES for n in sizes if n > 2 or role != "bystander"]
        made += [
            Row(role, fault, phase, *rest) for rest in joins for phase in phases for fault in ("killed", "continued")
        ]
    for phase in ("forward", "voting", "update"):
        made += [Row("spare", fault, phase, *rest) for rest in plain for fault in ("takes over", "killed")]
    for phase in ON_SERVERS:
        made += [Row("server", "killed", phase, *rest) for rest in plain]
    for phase in WITH_SERVERS:
        made += [Row("second server", "killed", phase, mode, n, when) for mode, n, when in plain if n > 2]
        faults = ("killed", "stopped", "continued")
        made += [Row("second follower", f, phase, mode, n, when) for mode, n, when in plain if n > 2 for f in faults]
    for role, phase in itertools.product(("leader", "follower"), ON_SERVERS):
        made += [Row(role, fault, phase, *rest) for rest in plain for fault in ("killed", "stopped", "revived")]
    made += [Row("joiner", "differs", "take", mode, n) for mode in MODES for n in sizes]
    made += [Row("loader", "killed", "forward", "loaders", n, when) for n in sizes for when in WHEN]
    layouts = [(mode, when) for mode in MODES if MODES[mode].layout for when in WHEN]
    for role, phase in itertools.product(("leader", "follower"), ("inside", "inside backward")):
        made += [Row(role, fault, phase, mode, 4, when) for mode, when in layouts for fault in ("killed", "failed")]
    return [row for row in dict.fromkeys(made) if _makes_sense(row)]


OF_ALL_REDUCE = ("ready", "bucket", "summed", "update", "updated", "prepared")  # phases
OF_SERVERS = ("pushed", "offered", "settle", "settled", "regroup", "regrouped")


def _makes_sense(row):
    mode = MODES[row.mode]
    if row.phase in (OF_ALL_REDUCE if mode.servers else OF_SERVERS):
        return False
    if row.phase in ("offered", "settle", "settled") and mode.splits:
        return False  # the servers do not update
    if "server" in row.role and mode.replicas == 1:
        return False
    if mode.layout:
        # The loss of two workers of four may leave no replica. A spare takes a place only after a loss.
        if row.workers != 4 or row.role in ("two", "second leader", "second follower", "spare"):
            return False
        if row.phase in ("ready", "bucket", "summed") and "shard" in mode.layout:
            return False  # gradients are summed in backward
        if row.phase == "inside" and row.fault == "failed" and "pipeline" in mode.layout:
            return False  # torch's schedule wraps the error
    if row.phase == "ready" and mode.micro > 1:
        return False  # accumulated gradients are sent at the end
    if row.phase in ("bucket", "summed") and mode.compression:
        return False  # compressed gradients are not staged
    if row.phase in ("update", "updated") and mode.splits:
        return False  # each gradient is updated on its own
    # An epoch has too few steps to follow them if gradients are accumulated.
    at_once = mode.splits or mode.micro > 1 or mode.layout or mode.servers
    if row.role == "joiner" and row.phase == "agreed" and at_once:
        return False
    if row.phase in AT_ONCE and not at_once and row.fault != "differs" or row.phase in AHEAD and at_once:
        return False
    if mode.rest and (row.role, row.workers, row.when) == ("leader", 2, "last") and row.phase in ("update", "updated"):
        return False  # nobody else has data in this step, who would write that it is committed
    if row.phase == "leave" and row.fault == "failed":
        return False  # the program has ended
    # A spare asks to join the epoch before the one in which the fault occurs, which may be too short.
    return row.role != "spare" or row.when == "middle"


def choose(count, seed):
    """Return rows in random order, as different as possible: each role, fault and phase before any comes again."""
    rng = random.Random(seed)
    kinds = collections.defaultdict(list)
    for row in all_rows():
        kinds[row.role, row.fault, row.phase].append(row)
    for rows in kinds.values():
        rng.shuffle(rows)
    found = []
    while len(found) < count and any(kinds.values()):
        ones = [rows.pop() for rows in kinds.values() if rows]
        rng.shuffle(ones)
        found += ones
    return found[:count]


@dataclass
class Plan:
    """What happens in the job of a row."""

    faults: list
    joiners: int = 0
    most: int = 0
    hold: int | None = None  # the step before which workers wait for those that join
    differs: bool = False  # whether those that join run another program
    lost: tuple = ()  # members that the others go on without
    back: tuple = ()  # those of them that are continued, and join again
    survives: bool = True


def plan(row):
    """Return what happens in the job of a row."""
    mode, n = MODES[row.mode], row.workers
    each = steps_of_epoch(mode)
    at = {"first": each, "middle": each + each // 2, "last": 2 * each - mode.trainers}[row.when]
    if mode.rest and row.when == "last" and row.role != "leader":
        at -= 1  # the last worker has no batch in the last step
    step = None if row.phase in AT_START and row.role != "joiner" else at
    if row.phase in AT_END:
        step = 2 * each if row.phase in ("pause", "epoch") else EPOCHS * each
    leader, follower = 0, n - 1

    def fault(member, kind=row.fault, phase=row.phase, step=step):
        return {"member": member, "kind": "stopped" if kind == "revived" else kind, "phase": phase, "step": step}

    lost_by = (*LOSSES, "out of memory")
    members = {"leader": (leader,), "follower": (follower,), "two": (leader, follower)}.get(row.role)
    if members:
        lost = members if row.fault in lost_by else ()
        return Plan([fault(m) for m in members], lost=lost, back=members if row.fault == "revived" else ())
    if row.role == "server":
        return Plan([fault(leader, "server killed")])
    if row.role == "second server":
        return Plan([fault(follower, "killed", "backward"), fault(1, "server killed")], lost=(follower,))
    if row.role.startswith("second"):
        second = 0 if row.role == "second leader" else 1
        first = fault(follower, "killed", "backward")
        lost = (follower, second) if row.fault in lost_by else (follower,)
        return Plan([first, fault(second)], lost=lost)
    if row.role in IN_JOIN:
        member = {"source": 0, "bystander": 1}.get(row.role, n)
        hold = mode.trainers  # the first step after which the others can be joined
        more = replica_of(mode)  # a replica joins as a whole
        if row.fault == "differs":
            return Plan([], more, n + more, hold, differs=True, lost=tuple(range(n, n + more)))
        step = hold + mode.trainers
        before = ("session", "trainer", "ask", "admitted", "open", "opened", *AT_ONCE, *AHEAD)
        if member == n and row.phase in before:
            step = None
        lost = (member,) if row.fault in lost_by else ()
        more *= 2 if row.role == "one of two joiners" else 1
        return Plan([fault(member, step=step)], more, n + more, hold, lost=lost)
    if row.role == "spare":
        faults = [fault(follower, "killed")]
        if row.fault == "killed":
            faults.append({"member": n, "kind": "killed", "phase": "admitted", "step": None})
        return Plan(faults, 1, n, at, lost=(follower, n) if row.fault == "killed" else (follower,))
    if row.role == "loader":
        return Plan([fault(follower, "loader killed")], lost=(follower,))
    raise ValueError(row)
