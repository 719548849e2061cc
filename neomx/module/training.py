"""The interface of a Module to the strategies of `step`: its executors' arrays, optimizer and updater."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from ..base import MXNetError
from ..comm.buckets import Stamp
from ..ndarray import NDArray
from ..optimizer import Optimizer, Updater, get_updater
from ..optimizer.states import dumps, loads
from ..step.gradients import stamp
from ..step.trained import Hook, Key, Trained, Training

if TYPE_CHECKING:
    from .executor_group import DataParallelExecutorGroup


class _Listener:
    """A registered `ready` callback for one parameter."""

    def __init__(self, listeners: dict[str, Callable[[], None]], name: str):
        self._listeners, self._name = listeners, name

    def remove(self) -> None:
        """Remove the callback."""
        self._listeners.pop(self._name, None)


class TrainedArrays(Trained):
    """The parameters of executors and their gradient arrays."""

    listeners: dict[str, Callable[[], None]]  # by parameter name; called in backward when the gradient has been written
    present: set[str]  # the parameters of the symbol (e.g. bucket) that ran last

    def is_fresh(self, i: int, k: int) -> bool:
        """Whether a gradient takes part in the update. As in MXNet, all gradients of the symbol that ran last do."""
        return self.names[i] in self.present

    def mark_used(self, i: int, k: int) -> None:
        """Do nothing, because a Module does not check whether gradients are new."""

    def stamp(self, i: int) -> Stamp:
        """Return a stamp that changes when a gradient on the first context is written."""
        return stamp(self.gradients[0][i]._data)

    def array(self, i: int, k: int) -> NDArray:
        """Return the gradient on context k, row-sparse if it is in MXNet, so that optimizers skip the other rows."""
        array = self.gradients[k][i]
        return array.tostype("row_sparse") if i in self.sparse else array

    def _hook(self, i: int, ready: Callable[[], None]) -> Hook:
        self.listeners[self.names[i]] = ready
        return _Listener(self.listeners, self.names[i])


class ArrayTraining(Training):
    """The training state of a Module, and of modules that borrow its optimizer, such as buckets of one model.

    With `by_name`, states are stored by parameter name, as in a KVStore. Otherwise, the index of parameter i on
    context k is i * contexts + k, as in MXNet.
    """

    def __init__(self, names: Sequence[str], contexts: int, optimizer: Optimizer, by_name: bool, sparse: set[str]):
        self.names, self._contexts, self._by_name, self._sparse = list(names), contexts, by_name, sparse
        self._numbers = {name: i for i, name in enumerate(names)}
        self._optimizer = optimizer
        self._updater = get_updater(optimizer)
        self._trained: TrainedArrays | None = None
        self._arrays: list[tuple[NDArray, NDArray]] = []
        self._told: object = None  # the arrays of the executors that `present` describes
        self._seen: object = None  # the arrays of the executors that stepped last
        self._group: DataParallelExecutorGroup | None = None
        self.listeners: dict[str, Callable[[], None]] = {}
        self.batch_size = 1
        self._scale = self._rescaled = optimizer.rescale_grad  # as set by the program; as set by the last step

    def use(self, group: DataParallelExecutorGroup) -> None:
        """Use these executors in the next step."""
        self._group, self.batch_size = group, group.batch_size
        if self._trained is not None and group.param_arrays is not self._told:
            self._trained.present, self._told = set(_rows(group)), group.param_arrays

    def ready(self, name: str) -> None:
        """Report that a gradient has been written in backward."""
        listener = self.listeners.get(name)
        if listener is not None:
            listener()

    # ---- for strategies ----

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer, whose states are in the updater."""
        return self._optimizer

    def trained(self) -> Trained:
        """Return the parameters with gradients. The object is the same while the arrays do not change."""
        group = self._group
        assert group is not None
        if self._trained is None or (group.param_arrays is not self._seen and self._have_changed(group)):
            self._trained, self._told = self._made(group), None
        self._seen = group.param_arrays
        return self._trained

    def _have_changed(self, group: DataParallelExecutorGroup) -> bool:
        """Whether the executors have new arrays, e.g. after `bind` with force_rebind=True."""
        assert self._trained is not None
        mine = dict(zip(self._trained.names, self._arrays, strict=True))
        rows = _rows(group)
        return any(
            name in mine and (mine[name][0] is not weights[0] or mine[name][1] is not gradients[0])
            for name, (weights, gradients) in rows.items()
        ) or any(name not in mine for name in rows)

    def _made(self, group: DataParallelExecutorGroup) -> TrainedArrays:
        rows = _rows(group)
        here = [name for name in self.names if name in rows]
        made = TrainedArrays(
            here,
            here,
            [[rows[name][0][k] for name in here] for k in range(self._contexts)],
            [[rows[name][1][k] for name in here] for k in range(self._contexts)],
            late=[i for i, name in enumerate(here) if group.grad_req[name] != "write"],
            sparse=[i for i, name in enumerate(here) if name in self._sparse],
        )
        made.listeners, made.present = self.listeners, set(here)
        self._arrays = [(rows[name][0][0], rows[name][1][0]) for name in here]
        return made

    def rescale(self, divisor: float) -> None:
        """Make the next update divide gradients by `divisor`, in addition to the program's `rescale_grad`."""
        if self._optimizer.rescale_grad != self._rescaled:  # the program has changed it
            self._scale = self._optimizer.rescale_grad
        self._optimizer.rescale_grad = self._rescaled = self._scale / divisor

    def samples(self, divisor: float) -> float:
        """Return the batch size, or -1 (unknown) if it equals the divisor, which does not depend on the samples."""
        return -1 if self.batch_size == divisor else self.batch_size

    def update(self, places: Sequence[int], sums: Sequence[NDArray]) -> None:
        """Update these parameters on all contexts."""
        trained = self.trained()
        if self._by_name:  # one state for all contexts, as in a KVStore
            first = [trained.weights[0][i] for i in places]
            self._updater([trained.keys[i] for i in places], list(sums), first)
            for replicas in trained.weights[1:]:
                for i, weight in zip(places, first, strict=True):
                    weight.copyto(replicas[i])
            return
        for k, replicas in enumerate(trained.weights):
            weights = [replicas[i] for i in places]
            beside = [total.as_in_context(w.context) for total, w in zip(sums, weights, strict=True)]
            self._updater([self._index(trained.names[i], k) for i in places], beside, weights)

    def update_apart(self, places: Sequence[Sequence[int]]) -> None:
        """Update parameters `places[k]` on context k with the gradients of that context."""
        trained = self.trained()
        for k, mine in enumerate(places):
            if mine:
                indices = [self._index(trained.names[i], k) for i in mine]
                self._updater(indices, [trained.array(i, k) for i in mine], [trained.weights[k][i] for i in mine])

    def _index(self, name: str, k: int) -> Key:
        return name if self._by_name else self._numbers[name] * self._contexts + k

    def everything(self) -> list[torch.Tensor]:
        """Return all parameters and auxiliary states."""
        assert self._group is not None
        rows = [*self._group.param_arrays, *self._group.aux_arrays]
        return [array._data for row in rows for array in row]

    def everything_named(self) -> list[str]:
        """Return the names of the tensors in `everything`."""
        assert self._group is not None
        rows = zip(
            [*self._group.param_names, *self._group.aux_names],
            [*self._group.param_arrays, *self._group.aux_arrays],
            strict=True,
        )
        return [name for name, row in rows for _ in row]

    def updater(self) -> Updater:
        """Return the updater."""
        return self._updater

    def indices(self) -> list[Key]:
        """Return the keys that states in a file may have."""
        return [self._index(name, k) for name in self.names for k in range(self._contexts)]

    @contextmanager
    def own_keys(self, fname: str) -> Iterator[str]:
        """Yield a file with the states of `fname` under this object's keys: names as in a KVStore, or indices."""
        content = pathlib.Path(fname).read_bytes()
        try:
            states, optimizer = loads(content)
        except MXNetError:
            states, optimizer = {}, None  # the reader of the file reports the error
        mine = self._with_own_keys(states) if optimizer is None else states
        if mine.keys() == states.keys():
            yield fname
            return
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, pathlib.Path(fname).name)
            path.write_bytes(dumps(mine, None))
            yield str(path)

    def _with_own_keys(self, states: dict[Key, Any]) -> dict[Key, Any]:
        if states and all(isinstance(key, int) for key in states):
            contexts = max(int(key) for key in states) // len(self.names) + 1  # of the process that wrote them
            if not self._by_name and (contexts == self._contexts or len(states) != len(self.trained()) * contexts):
                return states
            states = {self.names[int(k) // contexts]: value for k, value in states.items() if int(k) % contexts == 0}
        if not self._by_name and states and all(key in self._numbers for key in states):
            return {self._index(str(key), k): value for key, value in states.items() for k in range(self._contexts)}
        return states

    def take_updater(self, updater: Updater) -> None:
        """Replace the updater with one whose states were loaded from a file."""
        self._updater = updater
        self.take_optimizer(updater.optimizer)

    def take_packed(
        self, content: Any, arrays: Mapping[str, NDArray], parts: Mapping[Key, NDArray] | None = None
    ) -> None:
        """Continue with the optimizer and the states of a checkpoint."""
        updater = self._updater.unpacked(content, arrays, dict.fromkeys(self.indices()))
        self._optimizer.become(updater.optimizer)
        updater.optimizer = self._optimizer
        self._updater = updater

    def take_optimizer(self, optimizer: Optimizer) -> None:
        """Replace the optimizer with one that was loaded from a file."""
        self._optimizer = optimizer

    @property
    def scales(self) -> tuple[float, float]:
        """The `rescale_grad` that the program has set, and the one that the last step has set."""
        return self._scale, self._rescaled

    @scales.setter
    def scales(self, scales: tuple[float, float]) -> None:
        self._scale, self._rescaled = scales

    def take_states(self, content: bytes) -> None:
        """Load the optimizer and the states of another worker."""
        self._updater.set_states(content)
        self.take_optimizer(self._updater.optimizer)


def _rows(group: DataParallelExecutorGroup) -> dict[str, tuple[list[NDArray], list[NDArray]]]:
    """Return weights and gradients, one per context, of the parameters with gradients."""
    rows = zip(group.param_names, group.param_arrays, group.grad_arrays or (), strict=True)
    return {name: (weights, gradients) for name, weights, gradients in rows if gradients[0] is not None}
