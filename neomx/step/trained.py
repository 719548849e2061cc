"""What a training step updates, as strategies see it: parameters, their gradients, the optimizer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import torch

from ..comm.buckets import Gradient, Stamp
from ..context import Context
from ..ndarray import NDArray
from ..optimizer import Optimizer, Updater

Key = int | str


class Hook(Protocol):
    """What `register_hook` and its like return."""

    def remove(self) -> None:
        """Call it no more."""


class Trained(ABC):
    """The parameters that a step updates, each with a replica on every context.

    Strategies refer to a parameter by its position i in these lists, which never change: when a program changes what it
    trains, there is a new Trained.
    """

    def __init__(
        self,
        keys: Sequence[Key],
        names: Sequence[str],
        weights: Sequence[Sequence[NDArray]],
        gradients: Sequence[Sequence[NDArray]],
        *,
        late: Iterable[int] = (),
        sparse: Iterable[int] = (),
    ):
        self.keys, self.names = list(keys), list(names)  # what stores and the optimizer call them; what people do
        self.weights = [list(each) for each in weights]  # weights[k][i] on context k
        self.gradients = [list(each) for each in gradients]
        self.sparse = set(sparse)  # those with row-sparse gradients
        self.late = set(late) if len(self.weights) == 1 else set(range(len(self.keys)))
        """Those whose gradients may still grow after backward: with grad_req='add', or on several contexts."""

        self._hooks: list[Hook] = []

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def contexts(self) -> list[Context]:
        """Where the replicas are."""
        return [replicas[0].context for replicas in self.weights if replicas]

    @abstractmethod
    def is_fresh(self, i: int, k: int) -> bool:
        """Whether backward has written a gradient on context k since the last update used it."""

    @abstractmethod
    def mark_used(self, i: int, k: int) -> None:
        """An update has used a gradient on context k."""

    def mark_fresh(self, i: int, k: int) -> None:  # noqa: B027
        """A gradient on context k is new, though no backward here has written it."""

    @abstractmethod
    def stamp(self, i: int) -> Stamp:
        """Changes when a gradient on the first context is written."""

    @abstractmethod
    def _hook(self, i: int, ready: Callable[[], None]) -> Hook:
        """Have `ready()` called in backward when the gradient on the first context is complete."""

    def watch(self, places: Iterable[int], ready: Callable[[int], None]) -> None:
        """Have `ready(i)` called in backward for each of these parameters, and for no others."""
        self.unwatch()
        self._hooks = [self._hook(i, lambda i=i: ready(i)) for i in places]  # type: ignore[misc]

    def unwatch(self) -> None:
        """Have nothing called in backward."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def fresh(self) -> list[int]:
        """The parameters with a new gradient on any context."""
        contexts = range(len(self.weights))
        return [i for i in range(len(self)) if any(self.is_fresh(i, k) for k in contexts)]

    def use_all(self) -> None:
        """All gradients are used now."""
        for k in range(len(self.weights)):
            for i in range(len(self)):
                self.mark_used(i, k)

    def array(self, i: int, k: int) -> NDArray:
        """The gradient on context k as a store or an updater takes it: row-sparse for those in `sparse`."""
        return self.gradients[k][i]

    def gradient(self, i: int) -> torch.Tensor:
        """A dense gradient, summed over the contexts that have a new one; on one context, its own memory."""
        contexts = range(len(self.gradients))
        fresh = [k for k in contexts if len(contexts) == 1 or self.is_fresh(i, k)]
        tensors = [self.gradients[k][i]._data for k in fresh or contexts]
        return tensors[0] if len(tensors) == 1 else torch.stack([t.to(tensors[0].device) for t in tensors]).sum(0)

    def rows(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        """A row-sparse gradient, summed over contexts: the values of its rows, and their numbers in rising order."""
        contexts = range(len(self.gradients))
        fresh = [k for k in contexts if len(contexts) == 1 or self.is_fresh(i, k)]
        parts = [_parts(self.array(i, k)) for k in fresh or contexts]
        first = parts[0][0].device
        return sum_rows([values.to(first) for values, _ in parts], [numbers.to(first) for _, numbers in parts])

    def put(self, sums: Sequence[NDArray], stale: Sequence[bool]) -> None:
        """Put sums in place of the gradients on all contexts; those that nobody computed stay, and count as used."""
        for k, gradients in enumerate(self.gradients):
            for i, (total, gradient) in enumerate(zip(sums, gradients, strict=True)):
                if stale[i]:
                    self.mark_used(i, k)
                    continue
                if total is not gradient:
                    total.copyto(gradient)
                self.mark_fresh(i, k)  # also where another worker or context computed it

    def any_gradient(self, i: int) -> Gradient:
        """What a bucket takes of a parameter: its rows, or its dense gradient."""
        return self.rows(i) if i in self.sparse else self.gradient(i)


def _parts(array: NDArray) -> tuple[torch.Tensor, torch.Tensor]:
    values, numbers = array.tostype("row_sparse")._parts  # type: ignore[attr-defined]
    return values.detach(), numbers.detach().long()


def sum_rows(values: Sequence[torch.Tensor], numbers: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of several addends, those of one number summed in the order of the addends."""
    if len(values) == 1:
        return values[0], numbers[0]
    all_values, all_numbers = torch.cat(list(values)), torch.cat(list(numbers))
    rows, places = torch.unique(all_numbers, return_inverse=True)
    return all_values.new_zeros((len(rows), *all_values.shape[1:])).index_add_(0, places, all_values), rows


class Training(ABC):
    """What a strategy is given: who trains, with which optimizer, and what the program says of its batches.

    A Trainer and a Module each have one.
    """

    @property
    @abstractmethod
    def optimizer(self) -> Optimizer:
        """The optimizer, whose states the updaters hold."""

    @abstractmethod
    def trained(self) -> Trained:
        """What is trained now: the same object while nothing changes."""

    @abstractmethod
    def rescale(self, divisor: float) -> None:
        """Have the next update divide gradients by this number."""

    @abstractmethod
    def samples(self, divisor: float) -> float:
        """How many samples this worker has in the step, -1 if that is unknown."""

    @abstractmethod
    def update(self, places: Sequence[int], sums: Sequence[NDArray]) -> None:
        """Update these parameters on all contexts, each replica by the same gradient."""

    @abstractmethod
    def update_apart(self, places: Sequence[Sequence[int]]) -> None:
        """Update the parameters `places[k]` on context k, each replica by its own gradient."""

    @abstractmethod
    def everything(self) -> list[torch.Tensor]:
        """All weights and running averages, trained or not, that workers must have alike."""

    @abstractmethod
    def updater(self) -> Updater:
        """The updater of the first context, with the states that go to files and to other workers."""

    @abstractmethod
    def indices(self) -> list[Key]:
        """What the states in a file may belong to: all parameters, trained here or not."""

    @abstractmethod
    def take_updater(self, updater: Updater) -> None:
        """Go on with an updater whose states came from a file."""

    @abstractmethod
    def take_optimizer(self, optimizer: Optimizer) -> None:
        """Go on with an optimizer that came from a file."""

    @abstractmethod
    def take_states(self, content: bytes) -> None:
        """Go on from the optimizer and the states of another worker."""

    def refuse_stale(self, i: int, k: int) -> None:
        """Raise what the program expects if a parameter has no new gradient on context k and may not be left out."""
        raise UserWarning(
            f"Gradient of Parameter `{self.trained().names[i]}` on context {self.trained().contexts[k]} has not been "
            "updated by backward since last `step`. Perhaps this iteration used a part of the model only. If that is "
            "meant, call step with ignore_stale_grad=True, which leaves the Parameters with stale gradients as they are"
        )

    def overflowed(self, gradients: Iterable[NDArray]) -> bool:
        """Whether a scaled loss has overflowed, so that the step is to be left out."""
        return False

    @property
    def looks_at_all(self) -> bool:
        """Whether an update needs all gradients first, as a check for overflow does."""
        return False

    def take_over_scale(self, broadcast: Callable[[torch.Tensor], object]) -> None:  # noqa: B027
        """Go on from the loss scale of another worker, if there is one; `broadcast` puts its numbers in place."""
