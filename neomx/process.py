"""State that outlives a call and belongs to no object, per thread or shared by all threads of the process.

This module contains state that one subpackage writes and another one reads, or that must be closed when the process
ends. Other state stays with the class that owns it:

- the current context, name manager, attribute scope and name scope of a thread: `context`, `name`, `attribute`,
  `gluon/scope`, entered by `with`;
- the random generators, one for each context: `ops/random`;
- the session with other workers: `comm/session`;
- registries (ops, optimizers, metrics, sinks, ...), which only grow, and caches.

This module imports neither torch nor any other subpackage.
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

# ---- per thread ----


class Modes(threading.local):
    """Modes of arrays and layers in the current thread."""

    def __init__(self) -> None:
        # Set all attributes here: torch.compile guards on which attributes an object has.
        self.recording = False  # whether ops are recorded for autograd
        self.training = False  # whether layers are in training mode
        self.plain = False  # whether torch's own grad mode applies and no tape is kept
        self.np_array = False  # whether Blocks, losses and datasets create mx.np arrays
        self.np_shape = False  # whether indexing a single element returns a scalar, as mx.util.np_shape requires
        self.tracing: str | None = None  # the function that to_static records; it must not read values of arrays
        self.sample: Any = None  # the random numbers of the sample that a DataLoader creates (ops/random.py)
        self.tape: list[Any] = []  # weak references to the arrays recorded since the last backward
        self.tape_limit = 10_000  # the length of the tape at which dead references are dropped


modes = Modes()

# ---- shared by all threads ----


class Backward:
    """Settings of the running `autograd.backward` or `autograd.grad`, read by hooks and layers.

    All threads share this object, because torch runs the backward pass of GPU tensors in a separate thread.
    """

    train_mode: bool | None = None  # the argument of the call; None while no backward runs
    accumulating = False  # whether gradients go to `.grad`; False for autograd.grad
    again = False  # whether this pass computes what the first left out: running averages are up to date


Listener = Callable[[str, dict[str, Any]], None]


class Closeable(Protocol):
    """An object that runs in the background until it is closed."""

    def close(self) -> None:
        """Write pending output and stop."""


@dataclass(frozen=True)
class Batch:
    """A batch of a loader: step `step` of `steps` in an epoch, `samples` on this worker, `total` on all workers.

    Unknown values are None. `steps` is the maximum over all workers; a worker may have one batch fewer.
    """

    epoch: int
    step: int
    steps: int | None
    samples: int | None
    total: int | None


@dataclass
class State:
    """State shared by all threads."""

    # the listeners of each event by its name; None: of all events (events.py)
    listeners: dict[str | None, list[Listener]] = field(default_factory=dict)
    # objects started by name, such as sinks, which are closed when the program ends (`start` and `stop` below)
    running: dict[str, Closeable] = field(default_factory=dict)
    # what to tell of SIGTERM and SIGUSR1 (checkpoint/preemption.py)
    preemptions: list[Any] = field(default_factory=list)
    # the last files of weights and states that the program wrote since its last training step (comm/rounds.py)
    saved: deque[str] = field(default_factory=lambda: deque(maxlen=3))
    # the current batch of the program; None outside of a loop over a loader (gluon/data/place.py)
    batch: Batch | None = None
    # in a process of a DataLoader's pool: the dataset it makes batches of (gluon/data/pooled.py)
    pool_dataset: Any = None
    # sums a tensor over the workers that share SyncBatchNorm's statistics; None: each worker normalizes on its own
    norm_total: Callable[[torch.Tensor], torch.Tensor] | None = None
    # whether the program read the layout of `neomx run --layout` (parallel/layout.py)
    layout_read: bool = False
    # how the steps of an elastic job survive the loss of workers (comm/transaction.py); None: they do not
    transaction: Any = None
    # deals the samples of iterators to the workers of an elastic job (io/dealt.py); None: it is not elastic
    dealer: Any = None
    # how many workers mx.parallel.launch starts; None: one for each device, or for each core without devices
    devices: int | None = None
    # whether neomx, not the user, limited oneDNN, possibly after oneDNN had read the variable (onednn.py)
    onednn_limited: bool = False
    # the last argument of mx.engine.set_bulk_size, which has no effect
    bulk_size: int = 0


state = State()
_Closeable = TypeVar("_Closeable", bound=Closeable)


def start(name: str, make: Callable[[], _Closeable]) -> _Closeable:
    """Create an object with `make` and run it under a name until the program ends.

    Closes a previous one of that name.
    """
    stop(name)
    made = state.running[name] = make()
    return made


def stop(name: str) -> None:
    """Close the object that runs under a name, if there is one."""
    if name in state.running:
        state.running.pop(name).close()


@atexit.register
def stop_all() -> None:
    """Close all running objects, the most recent first."""
    while state.running:
        state.running.popitem()[1].close()
