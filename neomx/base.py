"""Errors and the two modes (recording, training) that every room shares, and what programs import from mxnet.base."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from typing import Any

import numpy as np

# What programs and libraries import from mxnet.base.
string_types = (str,)
integer_types = (int, np.int32, np.int64)
numeric_types = (float, int, np.generic)
mx_real_t = np.float32


class _NullType:
    """The type of _Null, MXNet's placeholder for an argument that was not given."""

    def __repr__(self) -> str:
        return "_Null"


_Null = _NullType()


def data_dir() -> str:
    """Where datasets and models are kept: MXNET_HOME, or .mxnet in the home directory."""
    return os.environ.get("MXNET_HOME", os.path.join(os.path.expanduser("~"), ".mxnet"))


def py_str(text: Any) -> str:
    """Bytes as a string."""
    return text.decode("utf-8")


def _as_list(value: Any) -> Any:
    """A list or a tuple as it is, anything else in a list."""
    return value if isinstance(value, (list, tuple)) else [value]


class MXNetError(RuntimeError):
    """What neomx raises for anything a program did wrong. A RuntimeError, as in MXNet."""


class NotImplementedForSymbol(MXNetError):
    """A Symbol was asked for what only an NDArray has: values."""


class Modes(threading.local):
    """Whether this thread records for autograd, and whether layers behave as in training."""

    def __init__(self) -> None:
        # All are the thread's own from the start: torch.compile guards on which attributes there are.
        self.recording = False
        self.training = False
        self.plain = False  # whether torch drives: its grad mode holds, and no tape is kept
        self.np_shape = False  # whether an index to one element gives a scalar, as mx.util.np_shape asks
        self.entering: Any = None  # the Block that is being called by way of its twin
        self.tape: list[Any] = []  # weak references to the arrays recorded since the last backward
        self.tape_limit = 10_000  # where to look for those that are gone


modes = Modes()


class Backward:
    """What the running `autograd.backward` or `autograd.grad` tells hooks and layers.

    One for all threads: the part of a backward that runs on a GPU has a thread of its own.
    """

    train_mode: bool | None = None  # as it was given; None while none runs
    accumulating = False  # whether gradients go to `.grad`: not those of autograd.grad
    again = False  # whether it runs for the second time, for what the first left out: averages have taken their step


def suggest(name: str, known: Iterable[str]) -> str:
    """' Did you mean ...?' for a name that is close to a known one, else ''."""
    import difflib

    close = difflib.get_close_matches(name, list(known), n=3)
    return f" Did you mean {' or '.join(close)}?" if close else ""
