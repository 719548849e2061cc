"""Faults in elastic jobs, as a table: role x fault x phase x mode, and what must hold after each.

    python tests/elastic/faults.py [--rows 100] [--seed 0] [--seconds 600] [--row follower/killed/voting/plain/3/middle]

A row is one job of small workers. Afterwards: every sample of every committed step was seen exactly once; all workers
that ended have the same weights, which are those of the committed steps computed again in one process, to the bit; no
process, shared memory or file is left. `make faults` runs it.
"""

import argparse
import collections
import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import random
import shlex
import signal
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import torch
import trainings
from cluster import Cluster
from forking import ForkServer
from launching import until
from trainings import BATCH, EPOCHS, MODES, STEPS

from neomx.checkpoint import generators
from neomx.gluon.data.shard import ShardedDataset
from neomx.random import seed as set_seed

HERE = pathlib.Path(__file__).resolve().parent
SCRIPT = HERE.parent / "workers" / "elastic_faulty.py"
PATIENCE = 90.0  # seconds after which a job counts as hanging
COMING = 6.0  # NEOMX_TIMEOUT of jobs in which a worker never connects
SILENCE = 1.5  # NEOMX_SILENCE of jobs in which a process is stopped
PAUSE = 0.004  # seconds between two steps
CRASHES = ("terminate called", "Fatal Python error", "core dumped", "Exception ignored", "Segmentation")

# Phases, as injecting.py and the program mark them.
IN_STEP = ("forward", "backward", "ready", "step", "announce", "announced", "bucket", "summed", "exchanged")
IN_STEP += ("voting", "voted", "update", "updated")
AT_COMMIT = ("commit", "committed", "batch")
AT_START = ("start", "session", "trainer")
AT_END = ("pause", "epoch", "leave", "ended")
IN_RECOVERY = ("call", "called", "agree", "agreed", "dealt", "open", "opened", "prepared")
IN_JOIN = {
    "source": ("agree", "agreed", "give", "given", "open", "opened"),
    "bystander": ("agree", "agreed", "open", "opened"),
    "joiner": ("session", "trainer", "ask", "admitted", "take", "taken", "open", "opened")
    + ("forward", "voting", "committed"),
}
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
    made += [Row("joiner", "differs", "take", mode, n) for mode in MODES for n in sizes]
    made += [Row("loader", "killed", "forward", "loaders", n, when) for n in sizes for when in WHEN]
    return [row for row in made if _makes_sense(row)]


def _makes_sense(row):
    mode = MODES[row.mode]
    if row.phase == "ready" and mode.micro > 1:
        return False  # accumulated gradients are sent at the end
    if row.phase in ("bucket", "summed") and mode.compression:
        return False  # compressed gradients are not staged
    if row.phase in ("update", "updated") and mode.splits:
        return False  # each gradient is updated on its own
    if row.phase == "leave" and row.fault == "failed":
        return False  # the program has ended
    if row.role == "spare" and row.when != "middle":
        return False  # it asks to join the epoch before the one in which the fault occurs, which may be too short
    # A worker that is alone before the first step cannot know whether the program divides by its own samples.
    return not (row.phase in AT_START and row.workers == 2 and not mode.own and row.fault in LOSSES)


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
    if row.role.startswith("second"):
        second = 0 if row.role == "second leader" else 1
        first = fault(follower, "killed", "backward")
        lost = (follower, second) if row.fault in lost_by else (follower,)
        return Plan([first, fault(second)], lost=lost)
    if row.role in IN_JOIN:
        member = {"source": 0, "bystander": 1, "joiner": n}[row.role]
        hold = mode.trainers  # the first step after which the others can be joined
        if row.fault == "differs":
            return Plan([], 1, n + 1, hold, differs=True, lost=(n,))
        step = hold + mode.trainers
        if row.role == "joiner" and row.phase in ("session", "trainer", "ask", "admitted", "take", "taken"):
            step = None
        lost = (member,) if row.fault in lost_by else ()
        return Plan([fault(member, step=step)], 1, n + 1, hold, lost=lost)
    if row.role == "spare":
        faults = [fault(follower, "killed")]
        if row.fault == "killed":
            faults.append({"member": n, "kind": "killed", "phase": "take", "step": None})
        return Plan(faults, 1, n, at, lost=(follower, n) if row.fault == "killed" else (follower,))
    if row.role == "loader":
        return Plan([fault(follower, "loader killed")], lost=(follower,))
    raise ValueError(row)


def steps_of_epoch(mode):
    return STEPS // mode.micro * mode.trainers


# ---- running ----


class Job:
    """What the workers of a row wrote."""

    def __init__(self, row, planned, folder):
        self.row, self.plan, self.folder, self.mode = row, planned, folder, MODES[row.mode]
        self.at_once = BATCH * row.workers
        self.samples = trainings.total(self.mode, row.workers)
        self.codes, self.seconds, self.problems = {}, 0.0, []
        self.lines = {}

    def read(self):
        for path in self.folder.glob("seen-*.jsonl"):
            member = int(path.stem.partition("-")[2])
            text = path.read_text()
            self.lines[member] = [json.loads(line) for line in text.splitlines() if line.endswith("]")]

    def of(self, kind, member=None):
        return [
            (who, line[1:])
            for who, lines in self.lines.items()
            if member in (None, who)
            for line in lines
            if line[0] == kind
        ]

    @property
    def finished(self):
        """The members that completed the training: not one that was cut off and never joined again."""
        return sorted(member for member, (_, admitted, *_) in self.of("done") if admitted)

    def logs(self):
        return {path.stem: path.read_text() for path in sorted(self.folder.glob("worker-*.log"))}

    def faults(self):
        return [json.loads(path.read_text()) for path in sorted(self.folder.glob("fault-*.json"))]

    def tell(self, problem):
        self.problems.append(problem)


def run(row, server, folder, patience=PATIENCE):
    """Run the job of a row in an empty folder, and return it with the problems that were found."""
    planned = plan(row)
    job = Job(row, planned, pathlib.Path(folder))
    (job.folder / "tmp").mkdir()
    said = {
        "path": str(HERE),
        "folder": str(folder),
        "mode": row.mode,
        "faults": planned.faults,
        "holds": [] if planned.hold is None else [planned.hold],
        "pause": PAUSE,
        "samples": job.samples,
        "at_once": job.at_once,
        "differs": planned.differs,
    }
    stops = any(fault["kind"] in ("stopped", "continued") for fault in planned.faults)
    options = {"silence": SILENCE, "NEOMX_SILENCE": str(SILENCE)} if stops else {}
    began = time.monotonic()
    with Cluster(
        SCRIPT,
        [json.dumps(said)],
        row.workers,
        most=planned.most or None,
        output=folder,
        popen=server.popen,
        timeout=COMING if row.phase == "start" else patience,
        TMPDIR=str(job.folder / "tmp"),
        **options,
    ) as cluster:
        for _ in range(planned.joiners):
            cluster.join()
        _accompany(job, cluster, began + patience)
        pids = [process.pid for process in cluster.processes.values()]
    job.codes = {member: process.returncode for member, process in cluster.processes.items()}
    job.seconds = time.monotonic() - began
    job.read()
    check(job)
    if not until(lambda: not processes_of(pids), 5):
        job.tell(f"processes are left: {processes_of(pids)}")
        for pid in processes_of(pids):
            os.kill(pid, signal.SIGKILL)
    if left := [name for name in os.listdir("/dev/shm") if any(str(pid) in name for pid in pids) or "neomx" in name]:
        job.tell(f"files are left in /dev/shm: {left}")
    if left := sorted(map(str, (job.folder / "tmp").rglob("*"))):
        job.tell(f"temporary files are left: {left}")
    return job


def _accompany(job, cluster, limit):
    """Let those go on that wait for workers that join, continue stopped ones, and wait for the end."""
    planned, went, continued = job.plan, planned_hold(job.plan), set()
    faulty = {fault["member"]: fault["kind"] for fault in planned.faults}
    while True:
        now = time.monotonic()
        running = {member for member, process in cluster.processes.items() if process.poll() is None}
        if now > limit:
            job.tell(f"timed out: workers {sorted(running)} still run. {where(cluster, running)}")
            return
        if went is not None and (
            int(cluster.store.get("elastic/joiners") or 0) >= planned.joiners or _is_dead(cluster, job)
        ):
            (job.folder / f"go-{went}").touch()
            went = None
        stopped = {member for member in running if is_stopped(cluster.processes[member].pid)}
        for member in stopped - continued:
            generation = cluster.generation() or {"members": [member]}
            soon = faulty.get(member) == "continued"
            if soon or member in planned.back and member not in generation["members"]:
                if soon:
                    time.sleep(0.3)
                continued.add(member)
                cluster.kill(member, signal.SIGCONT)
        if not running - (stopped - continued):
            if stopped - continued and not (job.plan.back and _over(cluster)):
                for member in stopped - continued:
                    cluster.kill(member)
            if not running:
                return
        time.sleep(0.005)


def planned_hold(planned):
    return planned.hold if planned.joiners else None


def _is_dead(cluster, job):
    """Whether a worker that should join has ended already."""
    return any(cluster.processes[n].poll() is not None for n in range(job.row.workers, len(cluster.processes)))


def _over(cluster):
    return False


def where(cluster, running):
    """Describe where the workers are that hang."""
    import subprocess

    said = []
    for member in sorted(running):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            command = ["/tmp/spy/bin/py-spy", "dump", "--pid", str(cluster.processes[member].pid)]
            found = subprocess.run(command, capture_output=True, text=True, timeout=20)
            said.append(f"worker {member}:\n{found.stdout or found.stderr}")
    return "\n".join(said)


def is_stopped(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in ("T", "t")
    except OSError:
        return False


def processes_of(sessions):
    """Return the workers and their children in these sessions that run."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, IndexError):
            with open(f"/proc/{name}/stat") as file:
                words = file.read().rpartition(")")[2].split()
            with open(f"/proc/{name}/cmdline") as file:
                is_worker = "forking.py" in file.read()  # another process may have got the id of a session
            if is_worker and int(words[3]) in sessions and words[0] not in "ZX":
                found.append(int(name))
    return found


# ---- what must hold ----


def check(job):
    """Check a job that has ended. Problems are added to it."""
    check_ends(job)
    if not job.lines:
        job.tell("no worker wrote anything")
        return
    committed = check_steps(job)
    check_samples(job, committed)
    check_weights(job, committed)


def check_ends(job):
    planned = job.plan
    if len(job.faults()) < len(planned.faults):
        job.tell(f"only these faults occurred: {job.faults()}, of {planned.faults}")
    wanted = set(range(job.row.workers + planned.joiners)) - set(planned.lost)
    unneeded = {m for m in range(job.row.workers, job.row.workers + planned.joiners) if not job.of("try", m)}
    for member, code in sorted(job.codes.items()):
        done = member in job.finished or member in unneeded or member in planned.back
        if member in wanted | set(planned.back) and (code or not done):
            job.tell(f"worker {member} ended with code {code}")
        if member in planned.lost and not code and job.row.fault == "killed":
            job.tell(f"worker {member} ended with code 0 despite the fault")
    for name, text in job.logs().items():
        if any(word in text for word in CRASHES):
            job.tell(f"{name} crashed")
        if name.partition("-")[2] in map(str, wanted) and "Traceback" in text:
            job.tell(f"{name} shows a traceback")


def members_of(job):
    """Return the members of each generation."""
    found = {}
    for _, (number, members, *_) in job.of("generation") + job.of("members"):
        if found.setdefault(number, members) != members:
            job.tell(f"workers disagree about generation {number}: {members} and {found[number]}")
    return found


def check_steps(job):
    """Return the committed steps: {number: (generation, epoch, {member: samples})}."""
    every = job.mode.trainers
    tries = collections.defaultdict(dict)
    for member, (generation, before, epoch, samples, _) in job.of("try"):
        tries[generation, before][member] = epoch, samples
    result = collections.defaultdict(dict)
    for member, (generation, before, after, _) in job.of("end"):
        result[generation, before][member] = after - before
    committed = {}
    for key, by in sorted(result.items()):
        if any(made not in (0, every) for made in by.values()):
            job.tell(f"step {key} was committed partly: {by}")
        if len(set(by.values())) > 1:
            job.tell(f"workers disagree whether step {key} is committed: {by}")
        if not any(by.values()):
            continue
        generation, before = key
        if before in committed:
            job.tell(f"step {before} was committed twice, in generations {committed[before][0]} and {generation}")
        epochs = {epoch for epoch, _ in tries[key].values()}
        if len(epochs) > 1:
            job.tell(f"step {key} is in several epochs: {tries[key]}")
        committed[before] = generation, epochs.pop(), {m: samples for m, (_, samples) in tries[key].items()}
    expected = list(range(0, EPOCHS * steps_of_epoch(job.mode), every))
    if sorted(committed) != expected:
        job.tell(f"these steps were committed: {sorted(committed)}, expected {len(expected)}")
    return committed


def check_samples(job, committed):
    """Every sample exactly once in each epoch, in the steps in which one process would have them."""
    shard = ShardedDataset(trainings.data(job.samples), shuffle=True, seed=5)
    for epoch in range(EPOCHS):
        seen = collections.Counter()
        done = 0
        for step in sorted(step for step, (_, number, _) in committed.items() if number == epoch):
            here = [sample for batches in committed[step][2].values() for batch in batches for sample in batch]
            seen.update(here)
            wanted = shard.order(epoch)[done : done + job.at_once * job.mode.micro].tolist()
            done += job.at_once * job.mode.micro
            if sorted(here) != sorted(wanted):
                job.tell(f"step {step} has the samples {sorted(here)}, expected {sorted(wanted)}")
        wrong = {sample: seen[sample] for sample in range(job.samples) if seen[sample] != 1}
        if wrong:
            job.tell(f"epoch {epoch}: samples were not seen once, but so often: {wrong}")


def check_weights(job, committed):
    """The same weights on all workers; those of the committed steps in one process."""
    found = {member: dict(np.load(job.folder / f"weights-{member}.npz")) for member in job.finished}
    if not found:
        job.tell("no worker completed the training")
        return
    first = found[job.finished[0]]
    for member, values in found.items():
        for name in first:
            if "running" not in name and not np.array_equal(first[name], values[name]):
                job.tell(f"workers {job.finished[0]} and {member} have different values of {name}")
    reseeded = job.mode.drops and (job.plan.joiners or job.plan.back)  # a worker that joins has other random numbers
    if job.problems or not job.mode.is_replayed or reseeded:
        return
    expected = replay(job, committed)
    for name, values in expected.items():
        if not np.array_equal(values, first[name]):
            difference = np.abs(values - first[name]).max()
            job.tell(f"{name} differs from the same steps in one process by up to {difference:g}")


def replay(job, committed):
    """Make the committed steps in one process: the gradients of all workers, summed in the order of their ranks."""
    members = members_of(job)
    program = trainings.Program(job.mode, None)
    randoms = {}
    if job.mode.drops:
        for member in range(job.row.workers):
            set_seed(100 + member)
            randoms[member] = generators.tensors_of(generators.raw_states())
    data = trainings.data(job.samples)
    for _, (generation, _, shares) in sorted(committed.items()):
        sums = None
        for member in members[generation]:
            if member not in shares:
                continue  # it had no data
            if randoms:
                generators.restore(randoms[member])
            program.forget()
            for batch in shares[member]:
                x, y = (trainings.nd.array(part[batch], dtype=part.dtype) for part in data._data[:2])
                program.backward(x, y)
            if randoms:
                randoms[member] = generators.tensors_of(generators.raw_states())
            mine = [[array.copy() for array in arrays] for arrays in program.gradients()]
            if sums is None:
                sums = mine
            else:
                sums = [[a + b for a, b in zip(*pair, strict=True)] for pair in zip(sums, mine, strict=True)]
        for arrays, totals in zip(program.gradients(), sums, strict=True):
            for array, total in zip(arrays, totals, strict=True):
                array[:] = total
        here = sum(len(batch) for batches in shares.values() for batch in batches)
        program.step(here if job.mode.own else job.at_once * job.mode.micro)
    return program.weights(trained_only=True)


def recovery(job):
    """Return the seconds from the last loss to the next committed step of those that go on, or None."""
    times = [fault["time"] for fault in job.faults() if fault["kind"] in (*LOSSES, "out of memory")]
    if not times:
        return None
    lost = [line[-1] for _, line in job.of("generation") if line[2] and line[-1] > max(times)]
    ends = [line[-1] for _, line in job.of("end") if line[2] > line[1] and lost and line[-1] > min(lost)]
    return min(ends) - max(times) if ends else None


# ---- all rows ----


def main():
    torch.set_num_threads(1)  # as in the workers: sums of more threads have another order
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--row", action="append", default=[], help="run only this row; may be repeated")
    parser.add_argument("--only", default="", help="run only rows whose description contains this text")
    parser.add_argument("--keep", action="store_true", help="keep the folders of rows that fail")
    given = parser.parse_args()
    rows = [Row.read(text) for text in given.row] or choose(1 << 30, given.seed)
    rows = [row for row in rows if given.only in str(row)]
    rows = rows if given.row else rows[: given.rows]
    began, done, failed = time.monotonic(), [], []
    with ForkServer() as server:
        for number, row in enumerate(rows):
            if time.monotonic() - began > given.seconds:
                break
            folder = tempfile.mkdtemp(prefix="neomx-faults-")
            job = run(row, server, folder)
            seconds = recovery(job)
            done.append((row, job, seconds))
            said = "" if seconds is None else f", next step after {seconds:.2f} s"
            print(
                f"{number + 1}/{len(rows)} {row}: {job.seconds:.1f} s{said} {'FAILED' if job.problems else ''}",
                flush=True,
            )
            for problem in job.problems:
                print(f"    {problem}", flush=True)
            if job.problems:
                failed.append(row)
                if given.keep:
                    print(f"    {folder}")
            if not (job.problems and given.keep):
                import shutil

                shutil.rmtree(folder)
    summary(done)
    for row in failed:
        print(f"failed: {shlex.join(['python', 'tests/elastic/faults.py', '--row', str(row)])}")
    print(f"{len(done)} rows, {len(failed)} failed, {time.monotonic() - began:.0f} s, seed {given.seed}")
    return 1 if failed else 0


def summary(done):
    groups = collections.defaultdict(list)
    for row, job, seconds in done:
        groups[row.role, row.fault, row.phase].append((job, seconds))
    print(f"{'role':16} {'fault':14} {'phase':10} {'rows':>5} {'held':>5} {'next step: median':>18} {'longest':>8}")
    for (role, fault, phase), found in sorted(groups.items()):
        times = [seconds for _, seconds in found if seconds is not None]
        held = sum(not job.problems for job, _ in found)
        said = f"{statistics.median(times):17.2f}s {max(times):7.2f}s" if times else ""
        print(f"{role:16} {fault:14} {phase:10} {len(found):5} {held:5} {said}")


if __name__ == "__main__":
    sys.exit(main())
