"""What strategies know about a training step: parameters, their gradients and the optimizer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch

from ..comm.buckets import Gradient, Stamp
from ..context import Context
from ..ndarray import NDArray
from ..optimizer import Optimizer, Updater

Key = int | str


class Hook(Protocol):
    """The handle that `register_hook` and similar methods return."""

    def remove(self) -> None:
        """Remove the hook."""


class Trained(ABC):
    """The parameters that a step updates, each with a replica on every context.

    Strategies identify a parameter by its index i in these lists. The lists never change: when a program trains other
    parameters, it gets a new Trained.
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
        self.keys, self.names = list(keys), list(names)  # identifiers for stores and the optimizer; names for messages
        self.weights = [list(each) for each in weights]  # weights[k][i] on context k
        self.gradients = [list(each) for each in gradients]
        self.sparse = set(sparse)  # indices of parameters with row-sparse gradients
        self.late = set(late) if len(self.weights) == 1 else set(range(len(self.keys)))
        """Parameters whose gradients may still change after backward: grad_req='add', or several contexts."""

        self._hooks: list[Hook] = []

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def contexts(self) -> list[Context]:
        """The contexts of the replicas."""
        return [replicas[0].context for replicas in self.weights if replicas]

    @abstractmethod
    def is_fresh(self, i: int, k: int) -> bool:
        """Whether backward has written a gradient on context k since the last update used it."""

    @abstractmethod
    def mark_used(self, i: int, k: int) -> None:
        """Record that an update has used the gradient on context k."""

    def mark_fresh(self, i: int, k: int) -> None:  # noqa: B027
        """Record that the gradient on context k is new, although no local backward has written it."""

    @abstractmethod
    def stamp(self, i: int) -> Stamp:
        """A value that changes when the gradient on the first context is written."""

    @abstractmethod
    def _hook(self, i: int, ready: Callable[[], None]) -> Hook:
        """Call `ready()` during backward when the gradient on the first context is complete."""

    def watch(self, places: Iterable[int], ready: Callable[[int], None]) -> None:
        """Call `ready(i)` during backward for each of these parameters, and for no others."""
        self.unwatch()
        self._hooks = [self._hook(i, lambda i=i: ready(i)) for i in places]  # type: ignore[misc]

    def unwatch(self) -> None:
        """Remove all hooks."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def fresh(self) -> list[int]:
        """The parameters with a new gradient on any context."""
        contexts = range(len(self.weights))
        return [i for i in range(len(self)) if any(self.is_fresh(i, k) for k in contexts)]

    def use_all(self) -> None:
        """Record that all gradients are used."""
        for k in range(len(self.weights)):
            for i in range(len(self)):
                self.mark_used(i, k)

    def array(self, i: int, k: int) -> NDArray:
        """The gradient on context k in the form that stores and updaters expect: row-sparse for those in `sparse`."""
        return self.gradients[k][i]

    def gradient(self, i: int) -> torch.Tensor:
        """A dense gradient, summed over the contexts that have a new one. With one context, no copy is made."""
        contexts = range(len(self.gradients))
        fresh = [k for k in contexts if len(contexts) == 1 or self.is_fresh(i, k)]
        tensors = [self.gradients[k][i]._data for k in fresh or contexts]
        return tensors[0] if len(tensors) == 1 else torch.stack([t.to(tensors[0].device) for t in tensors]).sum(0)

    def rows(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        """A row-sparse gradient, summed over contexts: the values of its rows and their indices in ascending order."""
        contexts = range(len(self.gradients))
        fresh = [k for k in contexts if len(contexts) == 1 or self.is_fresh(i, k)]
        parts = [_parts(self.array(i, k)) for k in fresh or contexts]
        first = parts[0][0].device
        return sum_rows([values.to(first) for values, _ in parts], [numbers.to(first) for _, numbers in parts])

    def put(self, sums: Sequence[NDArray], stale: Sequence[bool]) -> None:
        """Replace the gradients on all contexts with the sums. Stale ones keep their values and count as used."""
        for k, gradients in enumerate(self.gradients):
            for i, (total, gradient) in enumerate(zip(sums, gradients, strict=True)):
                if stale[i]:
                    self.mark_used(i, k)
                    continue
                if total is not gradient:
                    total.copyto(gradient)
                self.mark_fresh(i, k)  # even if another worker or context computed it

    def any_gradient(self, i: int) -> Gradient:
        """The gradient in the form that a bucket holds: rows, or a dense tensor."""
        return self.rows(i) if i in self.sparse else self.gradient(i)


def _parts(array: NDArray) -> tuple[torch.Tensor, torch.Tensor]:
    values, numbers = array.tostype("row_sparse")._parts  # type: ignore[attr-defined]
    return values.detach(), numbers.detach().long()


def sum_rows(values: Sequence[torch.Tensor], numbers: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum of several sets of rows. Rows with the same index are added in the order of the sets."""
    if len(values) == 1:
        return values[0], numbers[0]
    all_values, all_numbers = torch.cat(list(values)), torch.cat(list(numbers))
    rows, places = torch.unique(all_numbers, return_inverse=True)
    return all_values.new_zeros((len(rows), *all_values.shape[1:])).index_add_(0, places, all_values), rows


class Training(ABC):
    """The interface through which a strategy sees its Trainer or Module: parameters, optimizer and batches."""

    @property
    @abstractmethod
    def optimizer(self) -> Optimizer:
        """The optimizer, whose states the updaters hold."""

    @abstractmethod
    def trained(self) -> Trained:
        """The currently trained parameters. Returns the same object while nothing changes."""

    @abstractmethod
    def rescale(self, divisor: float) -> None:
        """Set the divisor of gradients for the next update."""

    @abstractmethod
    def samples(self, divisor: float) -> float:
        """The number of samples that this worker has in the step, or -1 if unknown."""

    @abstractmethod
    def update(self, places: Sequence[int], sums: Sequence[NDArray]) -> None:
        """Update these parameters on all contexts, each replica with the same gradient."""

    @abstractmethod
    def update_apart(self, places: Sequence[Sequence[int]]) -> None:
        """Update the parameters `places[k]` on context k, each replica with its own gradient."""

    @abstractmethod
    def everything(self) -> list[torch.Tensor]:
        """All weights and running averages, trained or not, that must be equal on all workers."""

    @abstractmethod
    def updater(self) -> Updater:
        """The updater of the first context, whose states are saved and sent to other workers."""

    @abstractmethod
    def indices(self) -> list[Key]:
        """The keys that states in a file may have: all parameters, trained here or not."""

    @abstractmethod
    def take_updater(self, updater: Updater) -> None:
        """Continue with an updater that was read from a file."""

    @abstractmethod
    def take_packed(
        self, content: Any, arrays: Mapping[str, NDArray], parts: Mapping[Key, NDArray] | None = None
    ) -> None:
        """Continue with the optimizer and the states of `Updater.packed`; with `parts`, those of these weights."""

    @abstractmethod
    def take_optimizer(self, optimizer: Optimizer) -> None:
        """Continue with an optimizer that was read from a file."""

    @abstractmethod
    def take_states(self, content: bytes) -> None:
        """Continue with the optimizer and states of another worker."""

    def refuse_stale(self, i: int, k: int) -> None:
        """Raise the error that MXNet programs expect for a parameter without a new gradient on context k."""
        raise UserWarning(
            f"Gradient of Parameter `{self.trained().names[i]}` on context {self.trained().contexts[k]} has not been "
            "updated by backward since last `step`. This iteration may have used only part of the model. If this is "
            "intended, call step with ignore_stale_grad=True, which skips Parameters with stale gradients"
        )

    def overflowed(self, gradients: Iterable[NDArray]) -> bool:
        """Whether a scaled loss has overflowed, so that the step must be skipped."""
        return False

    @property
    def looks_at_all(self) -> bool:
        """Whether an update needs all gradients first, as an overflow check does."""
        return False

    def take_over_scale(self, broadcast: Callable[[torch.Tensor], object]) -> None:  # noqa: B027
        """Copy the loss scale of another worker, if there is one; `broadcast` overwrites a tensor in place."""
