"""`neomx run --detach`: the job goes on in the background, without the terminal and the process that started it."""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import traceback
from typing import NoReturn

from ..base import MXNetError
from ..comm.jobspec import new_job
from ..comm.output import say
from . import background
from .errors import ConfigurationError
from .job import Job
from .run import grace_of, run

_STARTED = b"started"
_ENDING = 10.0  # seconds that a job needs to end, in addition to the time for a checkpoint


def start(job: Job) -> int:
    """Run a job in a process of its own session, and return when that process has begun."""
    record = background.create(new_job())
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _become_daemon(job, record, writer)
    os.close(writer)
    os.waitpid(child, 0)
    with open(reader, "rb") as file:
        told = file.read()
    if told != _STARTED:
        raise ConfigurationError(f"the job cannot run in the background: {told.decode() or 'its process was killed'}")
    say(f"job {record.name} runs in the background")
    say(f"neomx attach {record.name} shows its output, neomx attach {record.name} --stop ends it")
    return 0


def _become_daemon(job: Job, record: background.Record, writer: int) -> NoReturn:
    """Leave the session of the terminal and run the job. This process never returns to the caller."""
    code = 1
    try:
        os.setsid()
        if os.fork() != 0:  # the session leader ends, so that no terminal can become that of the job
            os._exit(0)
        try:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            _redirect(record.log)
            workers = str(job.most) if job.least == job.most else f"{job.least}:{job.most}"
            state = background.here(job.command, workers, grace_of(job) + _ENDING)
            record.write(state)
            os.write(writer, _STARTED)
        except OSError as error:
            os.write(writer, str(error).encode())
            raise
        os.close(writer)
        code = _run(dataclasses.replace(job, detach=False, name=record.name))
        record.write(dataclasses.replace(state, code=code))
    finally:
        os._exit(code)


def _redirect(log: str) -> None:
    """Read nothing, and write all output to the log."""
    sys.stdout.flush()
    sys.stderr.flush()
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_EXCL, 0o600)
    for fd, number in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(fd, number)
    os.close(nothing)
    os.close(output)


def _run(job: Job) -> int:
    try:
        return run(job)
    except MXNetError as error:
        say(str(error))
        return 2
    except KeyboardInterrupt:  # before anything was started
        return 130
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
