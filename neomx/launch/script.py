"""`python -m neomx train.py`: runs a script in one process in which `import mxnet` loads neomx."""

from __future__ import annotations

import os
import sys
from collections.abc import Container, Sequence
from typing import NoReturn

from ..comm.jobspec import python_path
from ..programs import STARTUP
from .errors import ConfigurationError


def is_program(argv: Sequence[str], commands: Container[str]) -> bool:
    """Whether the arguments name a script or `-m module` to run rather than one of the `commands`."""
    if not argv:
        return False
    first = argv[0]
    if first == "-m" or first.endswith(".py") or os.path.basename(first) != first:
        return True
    return first not in commands and os.path.exists(first)


def execute(argv: Sequence[str]) -> NoReturn:
    """Replace this process with Python running `argv`, as if `-m neomx` were not on the command line."""
    if sys.flags.ignore_environment or sys.flags.no_site:
        raise ConfigurationError(
            "`import mxnet` can load neomx only if Python reads PYTHONPATH and imports site. Omit -E, -I and "
            "-S, or put `import neomx.compat.mxnet` first in the script and run it with plain Python"
        )
    command = [*command_line(sys.orig_argv, argv), *argv]
    environ = {**os.environ, "PYTHONPATH": python_path(STARTUP, os.environ)}
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *command[1:]], environ)


def command_line(original: Sequence[str], argv: Sequence[str]) -> list[str]:
    """Return the part of Python's `original` command line before `argv`, without `-m neomx` or the path of `neomx`.

    This keeps the options of Python, and a debugger or profiler that runs this module.
    """
    before = list(original[: len(original) - len(argv)])
    return before[:-2] if before[-2:] == ["-m", "neomx"] else before[:-1]
