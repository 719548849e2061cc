"""What must hold after an elastic job in which workers failed: steps, samples, weights, and what is open."""

import collections
import json
import pathlib
import shutil

import numpy as np
import replicas
import trainings
from trainings import BATCH, EPOCHS, MODES, steps_of_epoch

from neomx.checkpoint import generators
from neomx.random import seed as set_seed

CRASHES = ("terminate called", "Fatal Python error", "core dumped", "Exception ignored", "Segmentation")

NEAR = 1e-4  # how much weights differ if the same sums are made in another order
MORE_SOCKETS = 2  # connections to the store that threads open when they ask it at the same time


class Job:
    """What the workers of a job wrote, and the problems that were found."""

    def __init__(self, mode, workers, folder, epochs=EPOCHS):
        self.mode, self.workers, self.folder, self.epochs = MODES[mode], workers, pathlib.Path(folder), epochs
        shares = trainings.shares_of(self.mode, workers)
        self.at_once = BATCH * shares
        self.samples = trainings.total(self.mode, shares)
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

    @property
    def has_joiners(self):
        """Whether workers have joined, which have random numbers of their own."""
        return any(joined for _, (_, _, _, joined, *_) in self.of("generation"))

    def logs(self):
        return {path.stem: path.read_text() for path in sorted(self.folder.glob("worker-*.log"))}

    def faults(self):
        return [json.loads(path.read_text()) for path in sorted(self.folder.glob("fault-*.json"))]

    def tell(self, problem):
        self.problems.append(problem)


def check_training(job):
    """Check the steps, samples and weights of a job that has ended. Problems are added to it."""
    for name, text in job.logs().items():
        if any(word in text for word in CRASHES):
            job.tell(f"{name} crashed")
    if not job.lines:
        job.tell("no worker wrote anything")
        return
    committed = check_steps(job)
    check_samples(job, committed)
    check_weights(job, committed)


def check_open(job):
    """Check that workers that formed new generations closed what belonged to the earlier ones."""
    for member in job.finished:
        counts = [line[:-1] for _, line in job.of("open", member)]
        if counts and any(s > counts[0][0] + MORE_SOCKETS or regions > counts[0][1] for s, regions in counts):
            job.tell(f"worker {member} had these numbers of sockets and shared regions at the ends of epochs: {counts}")


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
        if after is not None:  # the worker knows it: the others have not gone on without it
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
    expected = list(range(0, job.epochs * steps_of_epoch(job.mode), every))
    if sorted(committed) != expected:
        job.tell(f"these steps were committed: {sorted(committed)}, expected {len(expected)}")
    return committed


def check_samples(job, committed):
    """Every sample exactly once in each epoch, in the steps in which one process would have them."""
    for epoch in range(job.epochs):
        seen = collections.Counter()
        done = 0
        for step in sorted(step for step, (_, number, _) in committed.items() if number == epoch):
            here = [sample for batches in committed[step][2].values() for batch in batches for sample in batch]
            seen.update(here)
            order = trainings.order(job.mode, job.samples, epoch)
            wanted = order[done : done + job.at_once * job.mode.micro].tolist()
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
        for name in first.keys() & values.keys():
            if "running" not in name and "moving" not in name and not np.array_equal(first[name], values[name]):
                job.tell(f"workers {job.finished[0]} and {member} have different values of {name}")
    if job.problems or not job.mode.is_replayed or job.mode.drops and job.has_joiners:
        return
    expected = replay(job, committed)
    if job.mode.layout:
        _check_near(job, expected, replicas.whole(job.mode, job.folder))
        return
    for name, values in expected.items():
        if not np.array_equal(values, first[name]):
            difference = np.abs(values - first[name]).max()
            job.tell(f"{name} differs from the same steps in one process by up to {difference:g}")


def _check_near(job, expected, found):
    """Check weights whose sums have another order in one process."""
    for name, values in expected.items():
        difference = np.abs(values - found[name]).max()
        if difference > NEAR:
            job.tell(f"{name} differs from the same steps in one process by up to {difference:g}")


def replay(job, committed):
    """Make the committed steps in one process: the gradients of all workers, summed in the order of their ranks."""
    members = members_of(job)
    program = trainings.program_of(job.mode, None, job.at_once)
    randoms = {}
    if job.mode.drops:
        for member in range(job.workers):
            set_seed(100 + member)
            randoms[member] = generators.tensors_of(generators.raw_states())
    for _, (generation, _, shares) in sorted(committed.items()):
        sums = None
        for member in members[generation]:
            if not shares.get(member):
                continue  # it had no data
            if randoms:
                generators.restore(randoms[member])
            program.forget()
            for batch in shares[member]:
                program.backward(*trainings.samples(job.mode, job.samples, batch))
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


def conclude(job, folder, keep):
    """Print the problems of a job, and remove its folder unless it is to be kept."""
    for problem in job.problems:
        print(f"    {problem}", flush=True)
    if keep:
        print(f"    {folder}")
    else:
        shutil.rmtree(folder)
