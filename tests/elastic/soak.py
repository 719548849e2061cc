"""Elastic jobs under a random killer: `python tests/elastic/soak.py [--seconds 1200] [--seed 0]`, or `make soak`.

Jobs of 4 to 8 small workers run one after the other. In each, workers are killed, stopped (some continue later) or fail
with an exception, sometimes several at once, while others join and spares wait. One worker that has the state of the
training always goes on. Afterwards the same must hold as in faults.py: every sample exactly once in each epoch, the
weights of the committed steps in one process, and nothing left.
"""

import argparse
import collections
import pathlib
import random
import signal
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[1:1] = [str(HERE.parents[1]), str(HERE.parent)]

import torch  # noqa: E402
from faults import PATIENCE, SILENCE, cluster_of  # noqa: E402
from forking import ForkServer  # noqa: E402
from holding import Job, check_open, check_training, conclude  # noqa: E402
from processes import check_left, is_stopped, where  # noqa: E402
from trainings import MODES  # noqa: E402

EPOCHS = 40
LONGEST = 300.0  # seconds after which the killer stops, so that a job ends
BETWEEN = 0.1, 1.5  # seconds between two faults
FAULTS = {"killed": 6, "failed": 2, "stopped": 1, "continued": 2}  # how often each happens, in proportion
SIGNALS = {"killed": signal.SIGKILL, "failed": signal.SIGUSR1, "stopped": signal.SIGSTOP, "continued": signal.SIGSTOP}


class Killer:
    """Inflicts random faults on the workers of a cluster, and starts others in their places."""

    def __init__(self, cluster, job, rng, most):
        self._cluster, self._job, self._rng, self._most = cluster, job, rng, most
        self._at = time.monotonic() + 1.0
        self._stopped = {}  # until when workers are stopped
        self.lost = set()  # workers that must not end well
        self.done = collections.Counter()

    def act(self):
        """Inflict a fault if it is time for one."""
        now = time.monotonic()
        self._let_go_on(now)
        self._fill()
        if now < self._at:
            return
        self._at = now + self._rng.uniform(*BETWEEN)
        able = self._able()
        for member in self._rng.sample(able, min(len(able) - 1, self._rng.choice((1, 1, 1, 2, 3)))) if able else ():
            kind = self._rng.choices([*FAULTS], [*FAULTS.values()])[0]
            self.done[kind] += 1
            if kind == "continued":
                self._stopped[member] = now + self._rng.uniform(0.1, 3 * SILENCE)
            else:
                self.lost.add(member)
            self._cluster.kill(member, SIGNALS[kind])

    def end(self):
        """Inflict no more faults, and let stopped workers continue that shall end well."""
        for member in self._stopped:
            self._cluster.kill(member, signal.SIGCONT)
        self._stopped.clear()

    def _able(self):
        """Return the members that have committed a step in the current generation and run."""
        generation = self._cluster.generation()
        if generation is None:
            return []
        self._job.read()
        having = {
            member
            for member, (number, before, after, _) in self._job.of("end")
            if number == generation["number"] and after is not None and after > before
        }
        return [member for member in generation["members"] if member in having and self._runs(member)]

    def _runs(self, member):
        process = self._cluster.processes[member]
        return process.poll() is None and member not in self.lost and not is_stopped(process.pid)

    def _let_go_on(self, now):
        for member in [member for member, until in self._stopped.items() if now > until]:
            del self._stopped[member]
            self._cluster.kill(member, signal.SIGCONT)

    def _fill(self):
        """Start workers that join: as many as are missing, and sometimes a spare."""
        running = sum(self._runs(member) or member in self._stopped for member in self._cluster.processes)
        spare = self._rng.random() < 0.01
        if running < self._most + spare and self._rng.random() < 0.05:
            self.done["joins"] += 1
            self._cluster.join()


def run(mode, workers, server, folder, rng, epochs=EPOCHS, limit=LONGEST):
    """Run a job under a random killer. Return it with the problems that were found, and the killer."""
    job = Job(mode, workers, folder, epochs)
    options = {"silence": SILENCE, "NEOMX_SILENCE": str(SILENCE), "timeout": PATIENCE, "most": workers}
    began = time.monotonic()
    with cluster_of(job, mode, server, **options) as cluster:
        killer = Killer(cluster, job, rng, workers)
        while any(cluster.processes[n].poll() is None and n not in killer.lost for n in cluster.processes):
            if time.monotonic() > began + limit + PATIENCE:
                running = [n for n, process in cluster.processes.items() if process.poll() is None]
                job.tell(f"timed out: workers {running} still run. {where(cluster, set(running) - killer.lost)}")
                break
            if time.monotonic() > began + limit or cluster.store.get("elastic/over"):
                killer.end()
            else:
                killer.act()
            time.sleep(0.02)
        for process in cluster.processes.values():
            process.kill()
        codes = {member: process.wait(PATIENCE) for member, process in cluster.processes.items()}
        pids = [process.pid for process in cluster.processes.values()]
    job.seconds = time.monotonic() - began
    job.read()
    for member in sorted(set(codes) - killer.lost):
        if codes[member]:
            job.tell(f"worker {member} ended with code {codes[member]}")
    check_training(job)
    check_open(job)
    check_left(job, pids)
    return job, killer


def main():
    torch.set_num_threads(1)  # as in the workers: sums of more threads have another order
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1200, help="no job starts after them")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--job", type=int, default=0, help="the number of the first job")
    parser.add_argument("--jobs", type=int, default=1 << 30)
    parser.add_argument("--keep", action="store_true", help="keep the folders of all jobs")
    given = parser.parse_args()
    began, total, failed = time.monotonic(), collections.Counter(), []
    with ForkServer() as server:
        for number in range(given.job, given.job + given.jobs):
            if time.monotonic() - began > given.seconds:
                break
            rng = random.Random(f"{given.seed}/{number}")
            mode, workers = rng.choice([*MODES]), rng.randint(4, 8)
            folder = tempfile.mkdtemp(prefix="neomx-soak-")
            job, killer = run(mode, workers, server, folder, rng)
            total.update({"jobs": 1, "seconds": round(job.seconds)})
            total.update(killer.done)
            generations = len({line[0] for _, line in job.of("generation")})
            said = ", ".join(f"{count} {kind}" for kind, count in sorted(killer.done.items()))
            print(
                f"job {number}, {mode}, {workers} workers: {job.seconds:.1f} s, {generations} generations, {said}"
                f"{' FAILED' if job.problems else ''}",
                flush=True,
            )
            if job.problems:
                failed.append(number)
            conclude(job, folder, job.problems or given.keep)
    print(", ".join(f"{count} {kind}" for kind, count in total.items()))
    for number in failed:
        print(f"failed: python tests/elastic/soak.py --seed {given.seed} --job {number} --jobs 1")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
