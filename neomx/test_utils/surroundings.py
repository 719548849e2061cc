"""Test environment: environment variables, standard error, retries, and platform checks."""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def environment(*args: Any) -> Iterator[None]:
    """Set environment variables inside a `with`: `environment("NAME", "value")` or a dict. None unsets a variable."""
    assert len(args) in (1, 2), f"expected a name and a value, or a dict, received {len(args)} arguments"
    values = args[0] if len(args) == 1 else {args[0]: args[1]}
    before = {name: os.environ.get(name) for name in values}

    def put(variables: dict[str, str | None]) -> None:
        for name, value in variables.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    put(values)
    try:
        yield
    finally:
        put(before)


@contextmanager
def discard_stderr() -> Iterator[None]:
    """Discard output to standard error inside a `with`, including that of compiled code."""
    saved = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(nowhere)
        os.close(saved)


def retry(n: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that runs a randomized test up to `n` times, until it passes."""
    assert n > 0, f"expected at least one try, received {n}"

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        def tried(*args: Any, **kwargs: Any) -> Any:
            for left in reversed(range(n)):
                try:
                    return test(*args, **kwargs)
                except AssertionError:
                    if not left:
                        raise

        return tried

    return decorate


def has_tvm_ops() -> bool:
    """Return whether there are ops compiled by TVM: False."""
    return False


def is_op_runnable() -> bool:
    """Return whether ops compiled by TVM could run: True, as there are none."""
    return True


def is_cd_run() -> bool:
    """Return whether this runs in MXNet's release pipeline: CD_JOB=1."""
    return os.environ.get("CD_JOB") == "1"


def is_aarch64_run() -> bool:
    """Return whether this is a 64-bit ARM processor."""
    return platform.machine() == "aarch64"
