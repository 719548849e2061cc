"""Faults in elastic jobs, as a table: role x fault x phase x mode, and what must hold after each.

    python tests/elastic/faults.py [--rows 100] [--seed 0] [--seconds 600] [--row follower/killed/voting/plain/3/middle]

A row is one job of small workers. Afterwards: every sample of every committed step was seen exactly once; all workers
that ended have the same weights, which are those of the committed steps computed again in one process, to the bit; no
process, socket, shared memory or file is left. `make faults` runs it.
"""

import argparse
import collections
import json
import pathlib
import shlex
import signal
import statistics
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[1:1] = [str(HERE.parents[1]), str(HERE.parent)]

import torch  # noqa: E402
import trainings  # noqa: E402
from cluster import Cluster  # noqa: E402
from forking import ForkServer  # noqa: E402
from holding import Job, check_open, check_training, conclude  # noqa: E402
from processes import check_left, is_stopped, where  # noqa: E402
from rows import LOSSES, Row, choose, plan  # noqa: E402

SCRIPT = HERE.parent / "workers" / "elastic_faulty.py"
PATIENCE = 90.0  # seconds after which a job counts as hanging
COMING = 6.0  # NEOMX_TIMEOUT of jobs in which a worker never connects
SILENCE = 1.5  # NEOMX_SILENCE of jobs in which a process is stopped
SERVERS_END = 20.0  # seconds until the servers have ended after the workers
PAUSE = 0.004  # seconds between two steps


def cluster_of(job, mode, server, faults=(), holds=(), differs=False, **options):
    """Return the cluster of a job, whose folder is empty."""
    (job.folder / "tmp").mkdir()
    trainings.write_files(job.mode, job.samples, job.folder)
    said = {
        "path": str(HERE),
        "folder": str(job.folder),
        "mode": mode,
        "faults": faults,
        "holds": holds,
        "pause": PAUSE,
        "epochs": job.epochs,
        "samples": job.samples,
        "at_once": job.at_once,
        "differs": differs,
    }
    options = {"output": str(job.folder), "popen": server.popen, "TMPDIR": str(job.folder / "tmp"), **options}
    return Cluster(SCRIPT, [json.dumps(said)], job.workers, **options)


def run(row, server, folder, patience=PATIENCE):
    """Run the job of a row in an empty folder, and return it with the problems that were found."""
    planned = plan(row)
    job = Job(row.mode, row.workers, folder)
    stops = any(fault["kind"] in ("stopped", "continued") for fault in planned.faults)
    options = {"silence": SILENCE, "NEOMX_SILENCE": str(SILENCE)} if stops else {}
    options |= {"servers": job.mode.servers, "replicas": job.mode.replicas}
    is_absent = row.phase in ("start", "session") and row.role in ("leader", "follower")
    options |= {"timeout": COMING if is_absent else patience, "most": planned.most or None}
    holds = [] if planned.hold is None else [planned.hold]
    began = time.monotonic()
    with cluster_of(job, row.mode, server, planned.faults, holds, planned.differs, **options) as cluster:
        for _ in range(planned.joiners):
            cluster.join()
        _accompany(job, planned, cluster, began + patience)
        for number, code in cluster.wait_for_servers(SERVERS_END).items():
            if code != 0:
                job.tell(f"server {number} ended with code {code}")
        started = *cluster.processes.values(), *cluster.server_processes.values()
        pids = [process.pid for process in started]
    job.codes = {member: process.returncode for member, process in cluster.processes.items()}
    job.seconds = time.monotonic() - began
    job.read()
    check_ends(job, row, planned)
    check_training(job)
    if not planned.joiners:
        check_open(job)
    check_left(job, pids)
    return job


def _accompany(job, planned, cluster, limit):
    """Let those go on that wait for workers that join, continue stopped ones, and wait for the end."""
    go, continued = planned.hold if planned.joiners else None, set()
    faulty = {fault["member"]: fault["kind"] for fault in planned.faults}
    while True:
        now = time.monotonic()
        running = {member for member, process in cluster.processes.items() if process.poll() is None}
        if now > limit:
            job.tell(f"timed out: workers {sorted(running)} still run. {where(cluster, running)}")
            return
        if go is not None and (_have_asked(cluster, planned) or _is_dead(cluster, job)):
            (job.folder / f"go-{go}").touch()
            go = None
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
            for member in stopped - continued:
                cluster.kill(member)
            if not running:
                return
        time.sleep(0.005)


def _have_asked(cluster, planned):
    """Whether all workers that join have asked for it."""
    return int(cluster.store.get("elastic/joiners") or 0) >= planned.joiners


def _is_dead(cluster, job):
    """Whether a worker that should join has ended already."""
    return any(cluster.processes[n].poll() is not None for n in range(job.workers, len(cluster.processes)))


def check_ends(job, row, planned):
    """Check how the workers have ended. Problems are added to the job."""
    if len(job.faults()) < len(planned.faults):
        job.tell(f"only these faults occurred: {job.faults()}, of {planned.faults}")
    wanted = set(range(job.workers + planned.joiners)) - set(planned.lost)
    unneeded = {m for m in range(job.workers, job.workers + planned.joiners) if not job.of("try", m)}
    for member, code in sorted(job.codes.items()):
        done = member in job.finished or member in unneeded or member in planned.back
        done |= bool(job.mode.layout) and bool(planned.lost)  # a partner of a lost worker, which ends normally
        if member in wanted | set(planned.back) and (code or not done):
            job.tell(f"worker {member} ended with code {code}")
        if member in planned.lost and not code and row.fault == "killed":
            job.tell(f"worker {member} ended with code 0 despite the fault")
    for name, text in job.logs().items():
        if name.partition("-")[2] in map(str, wanted) and "Traceback" in text:
            job.tell(f"{name} shows a traceback")


def recovery(job):
    """Return the seconds from the last loss to the next committed step of those that go on, or None."""
    times = [fault["time"] for fault in job.faults() if fault["kind"] in (*LOSSES, "out of memory")]
    if not times:
        return None
    lost = [line[-1] for _, line in job.of("generation") if line[2] and line[-1] > max(times)]
    ends = [line[-1] for _, line in job.of("end") if (line[2] or 0) > line[1] and lost and line[-1] > min(lost)]
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
    parser.add_argument("--skip", type=int, default=0, help="leave out this many rows: they were run before")
    parser.add_argument("--keep", action="store_true", help="keep the folders of rows that fail")
    given = parser.parse_args()
    rows = [Row.read(text) for text in given.row] or choose(1 << 30, given.seed)
    rows = [row for row in rows if given.only in str(row)]
    rows = rows if given.row else rows[given.skip : given.skip + given.rows]
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
                f"{given.skip + number + 1} {row}: {job.seconds:.1f} s{said} {'FAILED' if job.problems else ''}",
                flush=True,
            )
            if job.problems:
                failed.append(row)
            conclude(job, folder, job.problems and given.keep)
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
