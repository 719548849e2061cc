"""State that outlives a call and belongs to no object: what each thread has, and what all threads of the process share.

Everything here is read in one room and written in another, or must end with the process. What has a class of its own
stays with that class:

- the current context, name manager, attribute scope and name scope of a thread: `context`, `name`, `attribute`,
  `gluon/scope`, entered by `with`;
- the random generators, one for each context: `ops/random`;
- the session with other workers: `comm/session`;
- registries (ops, optimizers, metrics, sinks, ...), which only grow, and caches.

This file imports neither torch nor any other room.
"""

from __future__ import annotations

import atexit
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import torch

# ---- of each thread ----


class Modes(threading.local):
    """How arrays and layers behave in this thread."""

    def __init__(self) -> None:
        # All are the thread's own from the start: torch.compile guards on which attributes there are.
        self.recording = False  # whether ops are recorded for autograd
        self.training = False  # whether layers behave as in training
        self.plain = False  # whether torch drives: its grad mode holds, and no tape is kept
        self.np_array = False  # whether Blocks, losses and datasets make mx.np arrays
        self.np_shape = False  # whether an index to one element gives a scalar, as mx.util.np_shape asks
        self.tape: list[Any] = []  # weak references to the arrays recorded since the last backward
        self.tape_limit = 10_000  # the length of the tape at which dead references are dropped


modes = Modes()

# ---- of all threads ----


class Backward:
    """What the running `autograd.backward` or `autograd.grad` tells hooks and layers.

    All threads share it: the part of a backward that runs on a GPU has a thread of its own.
    """

    train_mode: bool | None = None  # as it was given; None while none runs
    accumulating = False  # whether gradients go to `.grad`: not those of autograd.grad
    again = False  # whether it runs for the second time, for what the first left out: averages have taken their step


Listener = Callable[[str, dict[str, Any]], None]


class Closeable(Protocol):
    """What runs beside the program until it is closed."""

    def close(self) -> None:
        """Write what is left, and end."""


@dataclass(frozen=True)
class Batch:
    """A batch that a loader gave: step `step` of an epoch's `steps`, with `samples` here and `total` on all workers.

    None stands for what is unknown. A worker's own batches may be one fewer than `steps`, which counts all workers'.
    """

    epoch: int
    step: int
    steps: int | None
    samples: int | None
    total: int | None


@dataclass
class State:
    """What all threads share."""

    # who listens to an event, by its name; None: to all events (events.py)
    listeners: dict[str | None, list[Listener]] = field(default_factory=dict)
    # what was started by name, such as sinks, and is closed when the program ends (`start` and `stop` below)
    running: dict[str, Closeable] = field(default_factory=dict)
    # the last files of weights and states that the program has written since its last training step (comm/rounds.py)
    saved: deque[str] = field(default_factory=lambda: deque(maxlen=3))
    # the batch that the program works on; None outside of a loader's loop (gluon/data/place.py)
    batch: Batch | None = None
    # the dataset of which this process, one of a DataLoader's pool, makes batches (gluon/data/pooled.py)
    pool_dataset: Any = None
    # sums a tensor over the workers whose batches SyncBatchNorm normalises together; None: those of each by themselves
    norm_total: Callable[[torch.Tensor], torch.Tensor] | None = None
    # whether we, and not the user, limited oneDNN, perhaps after it had read the variable (onednn.py)
    onednn_limited: bool = False
    # what mx.engine.set_bulk_size was told last, which changes nothing
    bulk_size: int = 0


state = State()
_Closeable = TypeVar("_Closeable", bound=Closeable)


def start(name: str, make: Callable[[], _Closeable]) -> _Closeable:
    """Run what `make` returns under a name until the program ends. What ran under that name is closed before."""
    stop(name)
    made = state.running[name] = make()
    return made


def stop(name: str) -> None:
    """Close what runs under a name, if anything does."""
    if name in state.running:
        state.running.pop(name).close()


@atexit.register
def stop_all() -> None:
    """Close all that runs, the latest first."""
    while state.running:
        state.running.popitem()[1].close()
