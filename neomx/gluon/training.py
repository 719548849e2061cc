"""The Trainer's implementation of the `step` interface: Parameters, gradients and updaters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch

from ..comm.buckets import Stamp
from ..context import Context
from ..ndarray import NDArray
from ..optimizer import Optimizer, Updater, get_updater
from ..step.gradients import is_fresh, leaf_of, mark_fresh, mark_used, stamp_of
from ..step.trained import Hook, Trained, Training
from .data.place import current_batch
from .parameter import Parameter
from .placement import has_values


class Scaler(Protocol):
    """Scales losses for mixed precision and checks gradients for overflow, as `amp.LossScaler` does."""

    def overflowed(self, gradients: Sequence[NDArray], agree: Callable[[bool], bool] | None = None) -> bool:
        """Return whether any gradient is not finite. With `agree`, check the gradients of all ranks."""

    def take_over(self, broadcast: Callable[[torch.Tensor], object]) -> None:
        """Copy the state of another worker."""

    def state(self) -> dict[str, float]:
        """Return the state as numbers by name, for a checkpoint."""

    def load_state(self, state: dict[str, float]) -> None:
        """Restore a state that `state` returned."""


class TrainedParameters(Trained):
    """Parameters that are leaves of torch's autograd graph."""

    def is_fresh(self, i: int, k: int) -> bool:
        """Return whether backward has written a gradient since the last update used it."""
        return is_fresh(self.weights[k][i])

    def mark_used(self, i: int, k: int) -> None:
        """Record that an update has used the gradient."""
        mark_used(self.weights[k][i])

    def mark_fresh(self, i: int, k: int) -> None:
        """Record that the gradient is new, although no local backward has written it."""
        mark_fresh(self.weights[k][i])

    def stamp(self, i: int) -> Stamp:
        """Return a value that changes when the gradient on the first context is written."""
        return stamp_of(self.weights[0][i])

    def _hook(self, i: int, ready: Callable[[], None]) -> Hook:
        def call(leaf: torch.Tensor) -> None:
            if leaf.grad is not None:
                ready()

        leaf = leaf_of(self.weights[0][i])
        hook: Hook = leaf.register_post_accumulate_grad_hook(call)  # type: ignore[no-untyped-call]
        return hook


class ParameterTraining(Training):
    """The Parameters of a Trainer and their optimizer, with an updater for each context."""

    def __init__(self, params: list[Parameter], contexts: list[Context], optimizer: Optimizer):
        self.params, self.contexts = params, contexts
        self.scale = optimizer.rescale_grad  # an additional factor of the gradients
        self.scaler: Scaler | None = None
        self.agree: Callable[[bool], bool] | None = None  # whether the gradients overflowed on any rank
        self.count_samples: Callable[[float], float] = _samples_of_batch
        self.use(optimizer)
        self._known: tuple[list[object], list[object], TrainedParameters] | None = None

    # ---- the optimizer ----

    def use(self, optimizer: Optimizer) -> None:
        """Replace the optimizer. The new one starts without states."""
        self._optimizer = optimizer
        self._optimizer.param_dict = dict(enumerate(self.params))
        self.updaters = [get_updater(optimizer) for _ in self.contexts]

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer, whose states the updaters hold."""
        return self._optimizer

    def updater(self) -> Updater:
        """Return the updater of the first context."""
        return self.updaters[0]

    def take_updaters(self, updaters: list[Updater]) -> None:
        """Continue with these updaters and the optimizer of the first one."""
        for updater in updaters:
            updater.optimizer = updaters[0].optimizer
        self.updaters = updaters
        self.take_optimizer(updaters[0].optimizer)

    def indices(self) -> list[int | str]:
        """Return the indices of all Parameters."""
        return list(range(len(self.params)))

    def take_updater(self, updater: Updater) -> None:
        """Continue with an updater whose states were read from a file."""
        self.take_updaters([updater])

    def take_packed(
        self, content: Any, arrays: Mapping[str, NDArray], parts: Mapping[int | str, NDArray] | None = None
    ) -> None:
        """Continue with the optimizer and the states of a checkpoint."""
        weights = self.known_weights() if parts is None else [parts]
        updaters = [each.unpacked(content, arrays, mine) for each, mine in zip(self.updaters, weights, strict=True)]
        self._optimizer.become(updaters[0].optimizer)
        updaters[0].optimizer = self._optimizer
        self.take_updaters(updaters)

    def known_weights(self) -> list[Mapping[int | str, NDArray | None]]:
        """Return the weights by index, for each context. A weight is None if it is not initialized yet."""
        return [
            {i: param.data(ctx) if has_values(param) else None for i, param in enumerate(self.params)}
            for ctx in self.contexts
        ]

    def take_optimizer(self, optimizer: Optimizer) -> None:
        """Continue with an optimizer that was read from a file or received from another worker."""
        self._optimizer = optimizer
        self._optimizer.param_dict = dict(enumerate(self.params))

    def take_states(self, content: bytes) -> None:
        """Continue with the states and the optimizer of another worker."""
        for updater in self.updaters:
            updater.set_states(content)
        self.take_updaters(self.updaters)

    def rescale(self, divisor: float) -> None:
        """Set the divisor of gradients for the next update."""
        try:
            scale = self.scale / divisor
        except (ZeroDivisionError, TypeError):
            raise ValueError(f"batch_size must be a nonzero number, received {divisor!r}") from None
        self._optimizer.rescale_grad = scale

    def update(self, places: Sequence[int], sums: Sequence[NDArray]) -> None:
        """Update these parameters on all contexts, each replica with the same gradient."""
        trained = self.trained()
        indices = [trained.keys[i] for i in places]
        for updater, weights in zip(self.updaters, trained.weights, strict=True):
            mine = [weights[i] for i in places]
            updater(indices, [_beside(total, weight) for total, weight in zip(sums, mine, strict=True)], mine)

    def update_apart(self, places: Sequence[Sequence[int]]) -> None:
        """Update the parameters `places[k]` on context k, each replica with its own gradient."""
        trained = self.trained()
        for k, (updater, mine) in enumerate(zip(self.updaters, places, strict=True)):
            if mine:
                whole = len(mine) == len(trained)  # then pass the same list objects each time
                gradients, weights = trained.gradients[k], trained.weights[k]
                updater(
                    trained.keys if whole else [trained.keys[i] for i in mine],
                    gradients if whole else [gradients[i] for i in mine],
                    weights if whole else [weights[i] for i in mine],
                )
                for i in mine:
                    trained.mark_used(i, k)

    # ---- parameters ----

    def trained(self) -> Trained:
        """Return the trained Parameters of this worker. Returns the same object while nothing changes."""
        for param in self.params:
            param._follow()
        arrays: list[object] = [param._arrays for param in self.params]
        kinds: list[object] = [
            (param.grad_req, [param.placement.identity(array) for array in (param._arrays or {}).values()])
            for param in self.params
        ]
        if self._known is None or self._known[1] != kinds or _differ(self._known[0], arrays):
            here = [(i, p) for i, p in enumerate(self.params) if p.grad_req != "null" and p.placement.is_here]
            weights = [[param._local(ctx) for _, param in here] for ctx in self.contexts]
            made = TrainedParameters(
                [i for i, _ in here],
                [param.name for _, param in here],
                weights,
                [[weight._grad for weight in replicas] for replicas in weights],  # type: ignore[misc]
                late=[at for at, (_, param) in enumerate(here) if param.grad_req != "write"],
                sparse=[at for at, (_, param) in enumerate(here) if param.grad_stype != "default"],
            )
            self._known = arrays, kinds, made
        return self._known[2]

    def everything(self) -> list[torch.Tensor]:
        """Return the values of all Parameters, trained or not."""
        return [array._data for param in self.params for array in param.list_data()]

    # ---- batches ----

    def samples(self, divisor: float) -> float:
        """Return the number of samples that this worker has in the step, or -1 if unknown."""
        return self.count_samples(divisor)

    def overflowed(self, gradients: Iterable[NDArray]) -> bool:
        """Return whether gradients of a scaled loss are not finite."""
        return self.scaler is not None and self.scaler.overflowed(list(gradients), self.agree)

    @property
    def looks_at_all(self) -> bool:
        """Whether an update needs all gradients first, to check them for overflow."""
        return self.scaler is not None

    def take_over_scale(self, broadcast: Callable[[torch.Tensor], object]) -> None:
        """Copy the loss scale of another worker."""
        if self.scaler is not None:
            self.scaler.take_over(broadcast)


def _samples_of_batch(divisor: float) -> float:
    batch = current_batch()
    return -1 if batch is None or batch.samples is None else batch.samples


def _differ(before: list[object], now: list[object]) -> bool:
    return len(before) != len(now) or any(a is not b for a, b in zip(before, now, strict=True))


def _beside(total: NDArray, weight: NDArray) -> NDArray:
    """Move a sum to the device of its weight."""
    return total if total.context.device == weight.context.device else total.as_in_context(weight.context)
