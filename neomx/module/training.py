"""A Module as strategies of `step` see it: the arrays of its executors, its optimizer and updater."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
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
    """A call of `ready` for one parameter, until it is removed."""

    def __init__(self, listeners: dict[str, Callable[[], None]], name: str):
        self._listeners, self._name = listeners, name

    def remove(self) -> None:
        """Call it no more."""
        self._listeners.pop(self._name, None)


class TrainedArrays(Trained):
    """The parameters of executors, with gradients in arrays of their own."""

    listeners: dict[str, Callable[[], None]]  # by parameter, called when its gradient has been written in backward
    present: set[str]  # the parameters of the symbol that ran last, which may be one of several buckets

    def is_fresh(self, i: int, k: int) -> bool:
        """A Module's update uses all gradients of the symbol that ran, as in MXNet."""
        return self.names[i] in self.present

    def mark_used(self, i: int, k: int) -> None:
        """A Module does not ask whether gradients are new."""

    def stamp(self, i: int) -> Stamp:
        """Changes when a gradient on the first context is written."""
        return stamp(self.gradients[0][i]._data)

    def array(self, i: int, k: int) -> NDArray:
        """The gradient on context k. MXNet keeps some by rows, so that optimizers leave other rows as they are."""
        array = self.gradients[k][i]
        return array.tostype("row_sparse") if i in self.sparse else array

    def _hook(self, i: int, ready: Callable[[], None]) -> Hook:
        self.listeners[self.names[i]] = ready
        return _Listener(self.listeners, self.names[i])


class ArrayTraining(Training):
    """What a Module trains, and the modules that borrow its optimizer: buckets of one model.

    With `by_name` states are kept by the names of parameters, as a store keeps them. Else parameter i on context k is
    number i * contexts + k, as in MXNet.
    """

    def __init__(self, names: Sequence[str], contexts: int, optimizer: Optimizer, by_name: bool, sparse: set[str]):
        self.names, self._contexts, self._by_name, self._sparse = list(names), contexts, by_name, sparse
        self._numbers = {name: i for i, name in enumerate(names)}
        self._optimizer = optimizer
        self._updater = get_updater(optimizer)
        self._trained: TrainedArrays | None = None
        self._arrays: list[tuple[NDArray, NDArray]] = []
        self._told: object = None  # the arrays of the executors whose parameters are `present`
        self._seen: object = None  # those of the executors that stepped last
        self._group: DataParallelExecutorGroup | None = None
        self.listeners: dict[str, Callable[[], None]] = {}
        self.batch_size = 1
        self._scale = self._rescaled = optimizer.rescale_grad  # as the program set it; as the last step did

    def use(self, group: DataParallelExecutorGroup) -> None:
        """The next step is of these executors."""
        self._group, self.batch_size = group, group.batch_size
        if self._trained is not None and group.param_arrays is not self._told:
            self._trained.present, self._told = set(_rows(group)), group.param_arrays

    def ready(self, name: str) -> None:
        """A gradient has been written in backward."""
        listener = self.listeners.get(name)
        if listener is not None:
            listener()

    # ---- for strategies ----

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer, whose states the updater holds."""
        return self._optimizer

    def trained(self) -> Trained:
        """The parameters with gradients: the same object while the arrays stay."""
        group = self._group
        assert group is not None
        if self._trained is None or (group.param_arrays is not self._seen and self._have_changed(group)):
            self._trained, self._told = self._made(group), None
        self._seen = group.param_arrays
        return self._trained

    def _have_changed(self, group: DataParallelExecutorGroup) -> bool:
        """Whether the executors have other arrays, after `bind` with force_rebind=True."""
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
        """Have the next update divide gradients by this number, beside what the program's `rescale_grad` does."""
        if self._optimizer.rescale_grad != self._rescaled:  # the program has set another one
            self._scale = self._optimizer.rescale_grad
        self._optimizer.rescale_grad = self._rescaled = self._scale / divisor

    def samples(self, divisor: float) -> float:
        """The batch size; unknown if it is the divisor, which is constant here and says nothing of samples."""
        return -1 if self.batch_size == divisor else self.batch_size

    def update(self, places: Sequence[int], sums: Sequence[NDArray]) -> None:
        """Update these parameters on all contexts."""
        trained = self.trained()
        if self._by_name:  # one state for all contexts, as in a store
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
        """Update the parameters `places[k]` on context k by the gradients there."""
        trained = self.trained()
        for k, mine in enumerate(places):
            if mine:
                indices = [self._index(trained.names[i], k) for i in mine]
                self._updater(indices, [trained.array(i, k) for i in mine], [trained.weights[k][i] for i in mine])

    def _index(self, name: str, k: int) -> Key:
        return name if self._by_name else self._numbers[name] * self._contexts + k

    def everything(self) -> list[torch.Tensor]:
        """All parameters and auxiliary states."""
        assert self._group is not None
        rows = [*self._group.param_arrays, *self._group.aux_arrays]
        return [array._data for row in rows for array in row]

    def everything_named(self) -> list[str]:
        """What `everything` gives, by name."""
        assert self._group is not None
        rows = zip(
            [*self._group.param_names, *self._group.aux_names],
            [*self._group.param_arrays, *self._group.aux_arrays],
            strict=True,
        )
        return [name for name, row in rows for _ in row]

    def updater(self) -> Updater:
        """The one updater."""
        return self._updater

    def indices(self) -> list[Key]:
        """What the states in a file may belong to."""
        return [self._index(name, k) for name in self.names for k in range(self._contexts)]

    @contextmanager
    def own_keys(self, fname: str) -> Iterator[str]:
        """A file with the states of `fname` under the keys that are used here: a store's are names, others numbers."""
        content = pathlib.Path(fname).read_bytes()
        try:
            states, optimizer = loads(content)
        except MXNetError:
            states, optimizer = {}, None  # who reads it says what is wrong with it
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
            contexts = max(int(key) for key in states) // len(self.names) + 1  # of who wrote them
            if not self._by_name and (contexts == self._contexts or len(states) != len(self.trained()) * contexts):
                return states
            states = {self.names[int(k) // contexts]: value for k, value in states.items() if int(k) % contexts == 0}
        if not self._by_name and states and all(key in self._numbers for key in states):
            return {self._index(str(key), k): value for key, value in states.items() for k in range(self._contexts)}
        return states

    def take_updater(self, updater: Updater) -> None:
        """Go on with an updater whose states came from a file."""
        self._updater = updater
        self.take_optimizer(updater.optimizer)

    def take_optimizer(self, optimizer: Optimizer) -> None:
        """Go on with an optimizer that came from a file."""
        self._optimizer = optimizer

    def take_states(self, content: bytes) -> None:
        """Go on from the optimizer and the states of another worker."""
        self._updater.set_states(content)
        self.take_optimizer(self._updater.optimizer)


def _rows(group: DataParallelExecutorGroup) -> dict[str, tuple[list[NDArray], list[NDArray]]]:
    """Weights and gradients, one for each context, of the parameters that have gradients."""
    rows = zip(group.param_names, group.param_arrays, group.grad_arrays or (), strict=True)
    return {name: (weights, gradients) for name, weights, gradients in rows if gradients[0] is not None}
