"""`neomx attach`: lists the jobs in the background, follows the output of one, or ends it."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import sys
import time

from ..base import MXNetError
from ..comm.output import say, write_through
from ..comm.wire import printable
from . import background
from .background import Record, State

EPILOG = """examples:
  neomx attach                 list the jobs that neomx run --detach has started
  neomx attach 1a2b3c4d        follow the output of a job until it ends; Ctrl-C only stops following
  neomx attach 1a2b3c4d --stop    end the job; workers with --checkpoint save before they end

The exit code is that of the job.
"""
_SHOWN = 1 << 16  # bytes of earlier output that are shown
_POLL = 0.2  # seconds between two looks at a job


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("job", nargs="?", metavar="JOB", help="the name of a job; without it, all jobs are listed")
    parser.add_argument("--stop", action="store_true", help="end the job")


def main(options: argparse.Namespace) -> int:
    """Run the command."""
    if options.job is None:
        if options.stop:
            raise MXNetError("--stop needs the name of a job: neomx attach JOB --stop")
        return _list()
    record = background.find(options.job)
    state = None if record is None else record.read()
    if record is None or state is None:
        raise MXNetError(f"there is no job {options.job!r} in the background; neomx attach lists all jobs")
    if state.is_elsewhere:
        raise MXNetError(f"job {record.name} runs on {state.host}: run neomx attach there")
    return _stop(record, state) if options.stop else _follow(record)


def _list() -> int:
    found = background.records()
    if not found:
        say("there are no jobs in the background; neomx run --detach starts one")
        return 0
    rows: list[tuple[str, ...]] = [("job", "state", "since", "workers", "command")]
    for record, state in found.items():
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(state.since))
        entry = (record.name, state.told(), since, state.workers, shlex.join(state.command))
        rows.append(tuple(map(printable, entry)))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        print(*(text.ljust(width) for text, width in zip(row, widths, strict=False)), row[4], sep="  ")
    return 0


def _follow(record: Record) -> int:
    try:
        with open(background.open_own(record.log), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > _SHOWN:
                file.seek(size - _SHOWN)
                file.readline()
                say(f"earlier output is in {record.log}")
            while True:
                state = record.read()
                ends = state is None or not state.is_running
                while data := file.read(1 << 16):
                    write_through(sys.stdout, data)
                if ends:
                    return _result(record, state)
                time.sleep(_POLL)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise MXNetError(f"cannot read the output of job {record.name}: {error.strerror or error}") from error
    except KeyboardInterrupt:
        say(f"job {record.name} continues: neomx attach {record.name} follows it again")
        return 128 + signal.SIGINT


def _result(record: Record, state: State | None) -> int:
    """Return the exit code of a job that has ended."""
    if state is not None and state.code is not None:
        return state.code & 0xFF
    raise MXNetError(
        f"job {record.name} was killed, or its machine was restarted, before it ended: its result is unknown"
    )


def _stop(record: Record, state: State) -> int:
    if not state.is_running:
        say(f"job {record.name} has ended already")
        return _result(record, state)
    with contextlib.suppress(ProcessLookupError):
        process = os.pidfd_open(state.pid)
        if background.began(state.pid) == state.began:  # the descriptor is of this process, whatever its ID is later
            signal.pidfd_send_signal(process, signal.SIGTERM)
        os.close(process)
    limit = time.monotonic() + state.patience
    while time.monotonic() < limit:
        now = record.read()
        if now is None or not now.is_running:
            said = "was killed" if now is None or now.code is None else f"ended with exit code {now.code}"
            say(f"job {record.name} {said}")
            return 0
        time.sleep(_POLL)
    say(f"job {record.name} has not ended within {state.patience:g} s: repeat the command to end it immediately")
    return 1
