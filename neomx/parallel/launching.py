"""`mx.parallel.launch`: start workers from a program, as `neomx run` does from a shell."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from .. import dist
from ..base import MXNetError
from ..comm import session
from ..context import num_gpus
from ..process import state

_WITH_VALUE = ("-W", "-X")  # options of Python that are followed by a value
_INTERRUPTED = 130  # the exit code after Ctrl-C


def num_devices() -> int:
    """Return how many workers the next `launch` starts: one for each device, or for each core without devices.

    `set_num_devices` changes the number. In a job of several workers it is their number.
    """
    workers = session.world().size
    if workers > 1:
        return workers
    return state.devices or num_gpus() or _cores()


def set_num_devices(n: int) -> None:
    """Set how many workers the next `launch` starts. It has no effect on a job that runs already."""
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ValueError(f"set_num_devices expects a positive integer, received {n!r}")
    workers = session.world().size
    if workers > 1 and n != workers:
        session.warn_once(
            f"set_num_devices({n}) has no effect in a job that has started with {workers} workers. Pass the number to "
            "the launcher"
        )
    state.devices = n


def launch(
    program: str | os.PathLike[str] | Callable[..., Any],
    *args: Any,
    n: int | None = None,
    servers: int = 0,
    timeout: float | None = None,
) -> list[Any] | None:
    """Run a program on `n` new workers on this machine, by default `num_devices()`, and return when all have ended.

    `launch("python", "-u", "train.py", "--epochs", "3")` starts a command as `neomx run` does, with the interpreter of
    this program; "python" may be left out. An MXNetError is raised if a worker fails. `launch(function, *args)` calls a
    function on each worker and returns the results in rank order, as `mx.dist.launch` does.
    """
    _refuse_in_worker()
    count = num_devices() if n is None else n
    if callable(program):
        return dist.launch(program, count, args, servers, timeout)
    options, command = _split([os.fspath(each) for each in (program, *map(_word, args))])
    cli: Any = import_module("neomx.launch.cli")  # imported lazily, because it imports this package
    limit = [] if timeout is None else ["--timeout", str(timeout)]
    job = cli.read_job(["run", "-n", str(count), "-s", str(servers), *limit, *command])
    status: int = cli.run(dataclasses.replace(job, interpreter=tuple(options)))
    if status == _INTERRUPTED:
        raise KeyboardInterrupt
    if status:
        raise MXNetError(f"launch: {' '.join(command)} failed with exit code {status}. Its output has the reason")
    return None


def _word(argument: Any) -> str | os.PathLike[str]:
    return argument if isinstance(argument, (str, os.PathLike)) else str(argument)


def _refuse_in_worker() -> None:
    """Raise if a launcher has started this process: the program would start itself again and again."""
    world = session.world()
    if world.size > 1 or world.store is not None:
        raise MXNetError(
            f"launch: this process is already {world.name} of a job with {world.size} worker(s), so it cannot launch "
            "another one. Call launch in a program of its own, which `python` starts"
        )


def _split(command: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the options of Python, and the script or `-m module` with its arguments."""
    words = list(command)
    if not words[0].endswith(".py") and words[0] != "-m":
        _check_interpreter(words.pop(0))
    options: list[str] = []
    while words and words[0].startswith("-") and words[0] != "-m":
        if words[0] in ("-", "-c"):
            raise ValueError(f"launch needs a script or -m module after the options of Python, received {words[0]!r}")
        options += [words.pop(0)]
        if options[-1] in _WITH_VALUE and words:
            options += [words.pop(0)]
    if not words or words == ["-m"]:
        raise ValueError(f"launch needs a script or -m module, such as 'train.py', received {' '.join(command)!r}")
    return options, words


def _check_interpreter(word: str) -> None:
    """Raise unless the first word of a command means the interpreter that runs this program."""
    version = f"3.{sys.version_info.minor}"
    if folder := os.path.dirname(word):  # of another virtual environment, it may be a link to the same file
        beside = os.path.abspath(folder) == os.path.dirname(os.path.abspath(sys.executable))
        is_this = beside and os.path.exists(word) and os.path.samefile(word, sys.executable)
    else:
        is_this = bool(re.fullmatch(rf"python(3|{re.escape(version)})?", word))
    if not is_this:
        raise ValueError(
            f"launch runs Python programs with this interpreter, {sys.executable}, so a command begins with 'python', "
            f"a script or -m; received {word!r}"
        )


def _cores() -> int:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return usable or 1
