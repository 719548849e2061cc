"""Reads files damaged by a seeded mutator with every reader: `python tests/fuzz/files.py --cases 10000 --seed 1`.

A case fails if it raises any exception except MXNetError, ends the process, takes longer than a few seconds, or uses
more memory than allowed. Failing files are saved; `--replay FILE` reads one again.
"""

import argparse
import collections
import mmap
import os
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
import zlib

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
os.environ["OMP_NUM_THREADS"] = "1"  # cases run in forked processes, which lack torch's threads

from formats import Format, formats

from neomx.base import MXNetError

MEMORY = 1 << 30  # bytes of address space that a case may use in addition
GROWTH = 300 << 10  # KiB of resident memory
SLOW, STUCK = 4.0, 60.0  # seconds: processor time of a case, and its timeout
PIXELS = 1 << 20  # the pixel limit here: the cost of an image is proportional to it
KEPT = 3  # files kept per location of failures


class Run:
    """Runs the cases of one format in a process that is restarted after each failure."""

    def __init__(self, name: str, kind: Format, seed: int, folder: str, save: str):
        self.name, self.kind, self.seed, self.folder, self.save = name, kind, seed, folder, save
        self.failures: collections.Counter[str] = collections.Counter()
        self.done = 0
        self._shared = mmap.mmap(-1, 16)  # number of the current case, and its start time

    def go(self, first: int, last: int, until: float) -> None:
        """Run the cases [first, last), as far as time allows."""
        number = first
        while number < last and time.monotonic() < until:
            number = self._in_a_process(number, last, until)
        self.done = number - first

    def _in_a_process(self, first: int, last: int, until: float) -> int:
        """Run cases in a new process and return the number of the next case."""
        self._shared[:] = struct.pack("<qd", first, time.monotonic())
        reader, writer = os.pipe()
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            os.close(reader)
            status = 1
            try:
                self._work(first, last, until, writer)
                status = 0
            finally:
                os._exit(status)
        os.close(writer)
        ended = self._watch(child)
        with os.fdopen(reader, encoding="utf-8", errors="replace") as pipe:
            for line in pipe:
                self.failures[line.rstrip("\n")] += 1
        number = struct.unpack("<qd", self._shared[:])[0]
        if ended is None:
            return number
        self.failures[self._kept(number, f"{self.name}: {ended}", ended)] += 1
        return number + 1

    def _watch(self, child: int) -> str | None:
        """Describe how the process ended, if it failed."""
        while True:
            found, status = os.waitpid(child, os.WNOHANG)
            if found:
                return None if status == 0 else f"the process ended with {os.waitstatus_to_exitcode(status)}"
            if time.monotonic() - struct.unpack("<qd", self._shared[:])[1] > STUCK:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return f"not done after {STUCK} s"
            time.sleep(0.02)

    def _work(self, first: int, last: int, until: float, out: int) -> None:
        """In the process: read one file after the other."""
        with open("/proc/self/statm") as file:
            limit = int(file.read().split()[0]) * os.sysconf("SC_PAGESIZE") + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, 2)  # hide what libraries print about damaged images
        for number in range(first, last):
            begun = time.monotonic()
            if begun > until:
                last = number
                break
            self._shared[:] = struct.pack("<qd", number, begun)
            data = self.kind.case(self.seed, self.name, number)
            before, started = _memory(), time.process_time()
            failure = attempt(self.kind, data, self.folder)
            taken = time.process_time() - started  # excludes waiting on a busy machine
            if failure is None and taken > SLOW:
                failure = f"took {taken:.1f} s", ""
            if failure is None and _memory() - before > GROWTH:
                failure = f"took {(_memory() - before) >> 10} MiB", ""
            if failure is not None:
                line = self._kept(number, f"{self.name}: {failure[0]}", failure[1])
                os.write(out, line.replace("\n", " ").encode(errors="replace") + b"\n")
        self._shared[:] = struct.pack("<qd", last, time.monotonic())

    def _kept(self, number: int, what: str, details: str) -> str:
        """Describe the failure in one line. Save its file unless there are enough of the kind."""
        what = what[:300]
        self.failures[what] += 0
        path = os.path.join(self.save, f"{self.name}-{self.seed}-{number}")
        marks = os.path.join(self.save, f"{zlib.crc32(what.encode(errors='replace'))}.count")
        os.makedirs(self.save, exist_ok=True)
        with open(marks, "ab") as file:
            file.write(b"x")
            if file.tell() <= KEPT:
                with open(path, "wb") as case, open(path + ".txt", "w", errors="replace") as text:
                    case.write(self.kind.case(self.seed, self.name, number))
                    text.write(f"{what}\n{details}\n")
        return what


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def attempt(kind: Format, data: bytes, folder: str) -> tuple[str, str] | None:
    """Read a file. Return what is wrong in one line and in full, or None."""
    try:
        kind.read(data, folder)
    except MXNetError:
        return None
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{os.path.basename(frame.filename)}:{frame.lineno}"
        return f"{type(error).__name__} at {place}: {error!s:.150}", traceback.format_exc()
    return None


def main(argv: list[str] | None = None) -> int:
    """Run the cases. The exit code is 1 if some failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=2000, help="number of cases for each format")
    parser.add_argument("--seconds", type=float, default=600.0, help="time limit for all formats together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--only", help="formats, separated by commas")
    parser.add_argument("--save", default="fuzz-failures", help="folder for files that fail")
    parser.add_argument("--replay", help="read this file, whose name begins with its format")
    options = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    os.environ["NEOMX_MAX_PIXELS"] = str(PIXELS)
    folder = tempfile.mkdtemp(prefix="neomx-fuzz-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    try:
        known = formats(folder)
        if options.replay:
            with open(options.replay, "rb") as file:
                known[os.path.basename(options.replay).partition("-")[0]].read(file.read(), folder)
            return 0
        names = options.only.split(",") if options.only else list(known)
        runs = [Run(name, known[name], options.seed, folder, options.save) for name in names]
        for run in runs:
            for data in run.kind.seeds:
                run.kind.read(data, folder)  # undamaged files can be read, and readers load what they need
        return _report(runs, options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _report(runs: list[Run], options: argparse.Namespace) -> int:
    end, failed = time.monotonic() + options.seconds, 0
    for position, run in enumerate(runs):
        begun = time.monotonic()
        share = (end - begun) / (len(runs) - position)
        run.go(options.first, options.first + options.cases, begun + share)
        found = sum(run.failures.values())
        failed += found
        rate = run.done / max(time.monotonic() - begun, 1e-9)
        print(f"{run.name:12} {run.done:9} cases, {rate:6.0f} a second, {found} failed", flush=True)
        for what, count in run.failures.most_common(20):
            if count:
                print(f"    {count:6} x {what}", flush=True)
    print(f"{'all':12} {sum(run.done for run in runs):9} cases, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
