"""What tests run in: variables of the environment, standard error, second chances; and where they run."""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def environment(*args: Any) -> Iterator[None]:
    """`with environment("NAME", "value"):` or a dict: variables are so inside, and as before after. None: unset."""
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
    """What is written to standard error inside, also by compiled code, is lost."""
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
    """Decorator: a test by chance may fail `n` - 1 times."""
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
    """Whether there are ops compiled by TVM: no."""
    return False


def is_op_runnable() -> bool:
    """Whether TVM's ops could run: always, as none has to."""
    return True


def is_cd_run() -> bool:
    """Whether MXNet's own release pipeline runs this: CD_JOB=1."""
    return os.environ.get("CD_JOB") == "1"


def is_aarch64_run() -> bool:
    """Whether this is a 64-bit ARM processor."""
    return platform.machine() == "aarch64"
