"""Updates of many dense weights in a few calls, with torch's fused kernels.

A rule does the same as the optimizer's `update` for a list of float32 weights with the same learning rate, weight decay
and update count. For half precision weights, it updates their float32 copies and copies the results to the weights.
Other cases (sparse, half precision without a copy, subclasses) are left to `update`.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Generator, Iterable, Sequence
from inspect import isgeneratorfunction
from operator import is_
from typing import Any

import torch

from ..base import MXNetError
from ..ndarray import NDArray
from .base import Index, Optimizer
from .moment import Moment
from .part import Part, Steps, in_step

Tensors = list[torch.Tensor]
Sums = Generator[torch.Tensor, torch.Tensor, None]
# (optimizer, weights, gradients, states, learning rate, weight decay, update count). A rule that needs sums over whole
# weights is a generator: it yields a row of this rank's shares for each weight, and receives a row of the sums.
Rule = Callable[..., Sums | None]
RULES: dict[type[Optimizer], tuple[Rule, bool]] = {}


def kept(moments: Iterable[NDArray], factor: float) -> Tensors:
    """Return the stored tensors of moments, after rescaling them to `factor`."""
    arrays: list[Any] = list(moments)
    if any(moment._factor != factor for moment in arrays):
        torch._foreach_mul_([moment._kept for moment in arrays], [moment._factor / factor for moment in arrays])
        for moment in arrays:
            moment._factor = factor
    return [moment._kept for moment in arrays]


def rule(optimizer: type[Optimizer], moments: bool = False) -> Callable[[Rule], Rule]:
    """Declare the rule of this class, but not of subclasses, which may override update. `moments`: it needs Moments."""

    def declare(function: Rule) -> Rule:
        RULES[optimizer] = function, moments
        return function

    return declare


class FusedPlan:
    """The weights that a rule can update, grouped by learning rate, weight decay and update count."""

    def __init__(self, optimizer: Optimizer, indices: Sequence[Index], grads: Any, weights: Any, states: list[Any]):
        for array in (*weights, *grads):
            if not isinstance(array, NDArray):
                raise AssertionError(f"expected NDArrays to update, received a {type(array).__name__}")
        self.arrays = [weakref.ref(array) for array in (*weights, *grads)]
        self.all_states = states
        formats = [_format_of(weight) for weight in weights]
        splits = [optimizer._split_state(weight, state) for weight, state in zip(weights, states, strict=True)]
        rows = zip(weights, grads, splits, formats, strict=True)
        plain = [form is not None and _is_plain(weight, grad, *split) for weight, grad, split, form in rows]
        self.rest = [i for i, is_plain in enumerate(plain) if not is_plain]
        self.positions = [i for i, is_plain in enumerate(plain) if is_plain]
        self.indices = [indices[i] for i in self.positions]
        self.masters = [splits[i][0] for i in self.positions]
        self.states = [splits[i][1] for i in self.positions]
        self.formats: list[Any] = [formats[i] for i in self.positions]
        for form, *parts in zip(self.formats, self.masters, self.states, strict=True):
            for part in parts:
                _lay_out(part, form)
        self.keys: list[Any] = []
        self.groups: list[tuple[Any, list[int]]] = []

    def is_of(self, grads: Any, weights: Any, states: list[Any]) -> bool:
        """Return whether the plan was made for these arrays in their current memory format, which kernels rely on."""
        made_for = [reference() for reference in self.arrays]
        if not all(map(is_, made_for, (*weights, *grads))) or not all(map(is_, self.all_states, states)):
            return False
        memory = zip([weights[i]._data for i in self.positions], self.formats, strict=True)
        return all(tensor.is_contiguous(memory_format=form) for tensor, form in memory)

    def group(self, optimizer: Optimizer) -> list[tuple[Any, list[int]]]:
        """Return pairs of ((lr_mult, wd, number of missed updates, whether the state is None), positions)."""
        counts, newest = optimizer._index_update_count, optimizer.num_update
        keys = list(
            zip(
                optimizer._multipliers(self.indices, "lr_mult"),
                optimizer._get_wds(self.indices),
                [newest - counts[i] for i in self.indices],
                [state is None for state in self.states],
                strict=True,
            )
        )
        if keys != self.keys:
            groups: dict[Any, list[int]] = {}
            for position, key in enumerate(keys):
                groups.setdefault(key, []).append(position)
            self.keys, self.groups = keys, list(groups.items())
        return self.groups


def _format_of(weight: NDArray) -> torch.memory_format | None:
    """Return the memory format of a weight, or None if its state cannot have the same."""
    tensor = weight._data
    if tensor.is_contiguous():
        return torch.contiguous_format
    if tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last):
        return torch.channels_last
    return None


def _parts(state: Any) -> tuple[Any, ...]:
    return state if isinstance(state, tuple) else () if state is None else (state,)


def _memory(array: NDArray) -> torch.Tensor:
    """Return the tensor of an array, or the stored tensor of a Moment."""
    return array._kept if isinstance(array, Moment) else array._data


def _lay_out(state: Any, form: torch.memory_format) -> None:
    """Convert a state to the memory format of its weight."""
    for array in _parts(state):
        tensor = _memory(array)
        if not tensor.is_contiguous(memory_format=form):
            if isinstance(array, Moment):
                array._kept = tensor.contiguous(memory_format=form)
            else:
                array._data = tensor.contiguous(memory_format=form)


def _is_plain(weight: NDArray, grad: NDArray, master: NDArray | None, state: Any) -> bool:
    arrays = [weight if master is None else master, *_parts(state)]
    if any(not isinstance(array, NDArray) or array._sparse for array in (weight, grad, *arrays)):
        return False
    memory = weight._data
    tensors = list(map(_memory, arrays))
    return (
        all(tensor.dtype is torch.float32 for tensor in tensors)
        and grad._data.dtype in (memory.dtype, torch.float32)
        and all(tensor.shape == memory.shape and tensor.device == memory.device for tensor in (*tensors, grad._data))
    )


class Fused:
    """The plans of an updater, by the indices that it was called with."""

    def __init__(self) -> None:
        self.plans: dict[tuple[Index, ...], FusedPlan] = {}

    def update(
        self, optimizer: Optimizer, states: dict[Index, Any], indices: Any, grads: Any, weights: Any
    ) -> Sequence[int]:
        """Update the weights that a rule can update, and return the positions of the others."""
        step, moments = RULES.get(type(optimizer), (None, False))
        if step is None or optimizer.rescale_grad <= 0 or not _in_step(optimizer, indices):
            return range(len(indices))
        plan = self._plan(optimizer, states, indices, grads, weights, moments)
        if plan.rest and isgeneratorfunction(step):
            _refuse_scattered([indices[i] for i in plan.rest], [weights[i] for i in plan.rest])
        if not plan.indices:
            return plan.rest
        optimizer._update_count(plan.indices)
        lr = optimizer.current_rate
        # `.data` bypasses torch's version counter: backward may still need the leaf, as in MXNet.
        leaves = [weights[i]._data.data for i in plan.positions]
        copies = [None if master is None else master._data for master in plan.masters]
        memory = [leaf if copy is None else copy for leaf, copy in zip(leaves, copies, strict=True)]
        slopes = [_ordered(grads[i]._data, form) for i, form in zip(plan.positions, plan.formats, strict=True)]
        stopped = []
        with torch.no_grad():
            for (lr_mult, wd, behind, _), group in plan.group(optimizer):
                rows = ([of[i] for i in group] for of in (memory, slopes, plan.states))
                sums = step(optimizer, *rows, lr * lr_mult, wd, optimizer.num_update - behind)
                if sums is not None:
                    stopped.append(_for_each(sums, [weights[plan.positions[i]] for i in group]))
            in_step(stopped)
            halves = [i for i, copy in enumerate(copies) if copy is not None]
            if halves:
                torch._foreach_copy_([leaves[i] for i in halves], [memory[i] for i in halves])
        return plan.rest

    def _plan(
        self, optimizer: Optimizer, states: dict[Index, Any], indices: Any, grads: Any, weights: Any, moments: bool
    ) -> FusedPlan:
        key = tuple(indices)
        plan = self.plans.get(key)
        if plan is None or not plan.is_of(grads, weights, [states[i] for i in indices]):
            if moments:
                states.update({i: _with_moments(states[i]) for i in indices})
            plan = self.plans[key] = FusedPlan(optimizer, indices, grads, weights, [states[i] for i in indices])
        return plan


def _refuse_scattered(indices: list[Index], weights: list[NDArray]) -> None:
    """Raise for noncontiguous Parts, which could not be summed together with those of other ranks."""
    for i, weight in zip(indices, weights, strict=True):
        if isinstance(weight, Part) and _format_of(weight) is None:
            raise MXNetError(
                f"this rank's part of weight {i!r}, of shape {weight.shape}, is not contiguous in memory. An optimizer "
                "that needs norms of whole weights requires this. Create the Part from a contiguous tensor"
            )


def _for_each(sums: Sums, weights: list[NDArray]) -> Steps:
    """Run a rule that needs sums over all Parts of each weight."""
    shares = next(sums)
    if len({weight._total if isinstance(weight, Part) else None for weight in weights}) == 1:
        (totals,) = yield [(weights[0], shares)]
    else:
        totals = torch.stack((yield list(zip(weights, shares.unbind(), strict=True))))
    with contextlib.suppress(StopIteration):
        sums.send(totals)


def _ordered(grad: torch.Tensor, form: torch.memory_format) -> torch.Tensor:
    """Return a gradient in float32, in the memory format of its weight."""
    if grad.dtype is not torch.float32:
        return grad.to(torch.float32, memory_format=form)
    return grad if grad.is_contiguous(memory_format=form) else grad.contiguous(memory_format=form)


def _in_step(optimizer: Optimizer, indices: Sequence[Index]) -> bool:
    """Return whether all have the same learning rate: with a schedule, it depends on the update count."""
    counts = optimizer._index_update_count
    return optimizer.lr_scheduler is None or len(set(map(counts.get, indices))) == 1


def _with_moments(state: Any) -> Any:
    """Return a state with its arrays, for example from a file, replaced by Moments with separate memory.

    A float32 copy of the weight is unchanged.
    """
    if isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], tuple):
        return state[0], _with_moments(state[1])
    if isinstance(state, tuple) and all(type(each) is NDArray for each in state):
        return tuple(Moment(each._data.clone(), each._ctx) for each in state)
    return state


def clipped(optimizer: Optimizer, grads: Tensors) -> Tensors:
    """Return new gradients, rescaled and clipped."""
    return clamp_(list(torch._foreach_mul(grads, optimizer.rescale_grad)), optimizer.clip_gradient)


def clamp_(tensors: Tensors, limit: float | None) -> Tensors:
    """Clip tensors in place if there is a limit, and return them."""
    if limit:
        torch._foreach_clamp_min_(tensors, -limit)
        torch._foreach_clamp_max_(tensors, limit)
    return tensors
