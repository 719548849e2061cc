"""Updater: an optimizer together with the states of all the weights it has met."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from ..base import MXNetError
from ..context import Context
from ..ndarray import NDArray
from ..ops.table import OP_ERRORS
from .base import Index, Optimizer
from .fused import Fused
from .part import Part, in_step
from .states import dumps, loads
from .whole import Gather, cut_state, cut_states, gather_states, marked


class Updater:
    """`updater(index, grad, weight)` updates a weight, or each of lists, with states made at their first update."""

    def __init__(self, optimizer: Optimizer):
        self.optimizer = optimizer
        self.states: dict[Index, Any] = {}
        self.states_synced: dict[Index, bool] = {}
        self.aggregate_updates = optimizer.aggregate_num > 0
        self._fused = Fused()

    def __call__(self, index: Any, grad: Any, weight: Any) -> None:
        """Update the weights in place."""
        if not isinstance(index, (list, tuple)):
            index, grad, weight = [index], [grad], [weight]
        _check_lengths(index, grad, weight)
        if not weight:
            return
        self.optimizer._set_current_context(weight[0].context.device_id)
        if not (all(map(self.states_synced.get, index)) and all(map(self.states.__contains__, index))):
            self._prepare_states(index, weight)
        rest = self._fused.update(self.optimizer, self.states, index, grad, weight)
        if rest:
            self._update_by_method(*([each[i] for i in rest] for each in (index, grad, weight)))

    def _prepare_states(self, indices: Any, weights: Any) -> None:
        """Make the states of new weights, and bring those from a file to their weights."""
        for i, w in zip(indices, weights, strict=True):
            if i not in self.states:
                self.states[i] = self.optimizer.create_state_multi_precision(i, w)
            elif not self.states_synced.get(i, True):
                state = cut_state(self.sync_state_context(self.states[i], w.context), w)
                self.states[i] = self._fitting(i, w, state)
                for held in (getattr(self.optimizer, name, {}) for name in self.optimizer._arrays_by_index):
                    held.update(cut_states({i: held[i]} if i in held else {}, {i: w}))
            self.states_synced[i] = True

    def _fitting(self, index: Index, weight: NDArray, state: Any) -> Any:
        """A loaded state, if it is like one that the optimizer makes; None where the optimizer wants none."""
        fresh = self.optimizer.create_state_multi_precision(index, weight)
        if fresh is None:
            return None
        if _describe(state) == _describe(fresh):
            return marked(state, fresh)
        raise MXNetError(
            f"the state loaded for weight {index!r} is {_describe(state)}; {type(self.optimizer).__name__} with its "
            f"settings needs {_describe(fresh)}. Load it with the optimizer and the model it was saved from"
        )

    def _update_by_method(self, indices: Any, grads: Any, weights: Any) -> None:
        """Through the optimizer's own method: one by one, or as many at once, of one dtype, as it wants."""
        rows = self._rows(indices, grads, weights)
        if any(isinstance(weight, Part) for weight in weights):
            _refuse_sparse(indices, grads, weights)
            self._refuse_parts(indices, weights)
            if "_steps" in vars(type(self.optimizer)):  # a subclass may have changed what an update is
                in_step(self.optimizer._steps_multi_precision(*row) for row in rows)
                return
        for row in rows:
            self.optimizer.update_multi_precision(*row)

    def _refuse_parts(self, indices: Any, weights: Any) -> None:
        """An optimizer of a program's own that needs whole weights cannot update Parts: it has no `_steps`."""
        kind = type(self.optimizer)
        if not kind.needs_whole_weights or hasattr(kind, "_steps"):
            return
        for i, weight in zip(indices, weights, strict=True):
            if isinstance(weight, Part) and weight.shape != weight.whole_shape:
                raise MXNetError(
                    f"{kind.__name__} needs whole weights, and weight {i!r} of shape {weight.whole_shape} is divided "
                    "among ranks. Use a layout that leaves weights whole, or another optimizer"
                )

    def _rows(self, indices: Any, grads: Any, weights: Any) -> Iterator[Any]:
        """The arguments for each call of that method: (index, weight, gradient, state), or lists of each."""
        rows = [(i, w, g, self.states[i]) for i, g, w in zip(indices, grads, weights, strict=True)]
        if not self.aggregate_updates:
            yield from rows
            return
        by_dtype: dict[Any, list[Any]] = {}
        for row in rows:
            by_dtype.setdefault(row[1].dtype, []).append(row)
        size = min(self.optimizer.aggregate_num, len(indices))
        for same in by_dtype.values():
            for start in range(0, len(same), size):
                yield map(list, zip(*same[start : start + size], strict=True))

    def sync_state_context(self, state: Any, context: Context) -> Any:
        """A state with its arrays on this context."""
        if isinstance(state, NDArray):
            return state.as_in_context(context)
        if isinstance(state, (tuple, list)):
            return type(state)(self.sync_state_context(each, context) for each in state)
        return state

    def get_states(self, dump_optimizer: bool = False) -> bytes:
        """The states, and if told the optimizer, as bytes for a file."""
        return dumps(self.states, self.optimizer if dump_optimizer else None)

    def gathered(self, weights: Mapping[Index, NDArray], gather: Gather) -> Updater:
        """An Updater with the states of whole weights, whose `get_states` is that of one process.

        All ranks of the weights call it; `gather(tensor, part)` makes the whole of this rank's part of a tensor.
        """
        other = Updater(copy.copy(self.optimizer))
        other.states = gather_states(self.states, weights, gather)
        for name in self.optimizer._arrays_by_index:
            setattr(other.optimizer, name, gather_states(getattr(self.optimizer, name, {}), weights, gather))
        return other

    def restored(self, fname: str, weights: Mapping[Index, NDArray | None]) -> Updater:
        """A new Updater that goes on from the states in a file, which must be of these weights.

        A weight may be None, not known yet; without any weights nothing is checked before the first update.
        """
        other = Updater(self.optimizer)
        with open(fname, "rb") as file:
            content = file.read()
        try:
            other.set_states(content)
            other.check_states(weights)
        except MXNetError as error:
            raise MXNetError(f"{fname}: {error}") from error
        except (AttributeError, *OP_ERRORS) as error:  # of an optimizer made from damaged bytes
            raise MXNetError(f"{fname}: its optimizer does not work: {type(error).__name__}: {error!s:.200}") from error
        return other

    def check_states(self, weights: Mapping[Index, NDArray | None]) -> None:
        """Refuse states that are not of these weights, as far as they are known, and bring the others to them."""
        foreign = [index for index in self.states if index not in weights] if weights else []
        if foreign:
            raise MXNetError(
                f"it has states for {len(self.states)} weights, {foreign[:5]} not among the {len(weights)} that are "
                "trained here. Load it with the model it was saved from"
            )
        known = {index: weight for index, weight in weights.items() if index in self.states and weight is not None}
        self._prepare_states(known, known.values())

    def set_states(self, states: bytes) -> None:
        """Take the states, and the optimizer if it is there, from what `get_states` gave here or in MXNet.

        They are those of whole weights; for Parts they are cut when these are first updated.
        """
        self.states, optimizer = loads(states)
        if optimizer is not None:
            self.optimizer = optimizer
            self.aggregate_updates = optimizer.aggregate_num > 0
        self.bring_again()

    def bring_again(self) -> None:
        """Have the states brought to their weights at the next update; those of whole weights are cut for Parts."""
        self.states_synced = dict.fromkeys(self.states, False)
        self._fused = Fused()


def _check_lengths(indices: Any, grads: Any, weights: Any) -> None:
    if not len(indices) == len(grads) == len(weights):
        raise ValueError(
            "an update needs as many gradients and weights as indices, received "
            f"{len(indices)} indices, {len(grads)} gradients and {len(weights)} weights"
        )


def _refuse_sparse(indices: Any, grads: Any, weights: Any) -> None:
    for i, grad, weight in zip(indices, grads, weights, strict=True):
        if isinstance(weight, Part) and grad._sparse:
            raise MXNetError(
                f"weight {i!r} is shared among ranks, and its gradient is {grad.stype}: such weights take dense "
                "gradients only. Make the layer with sparse_grad=False, or leave it whole on every rank"
            )


def _describe(state: Any) -> str:
    if isinstance(state, NDArray):
        return f"an array of shape {state.shape}"
    if isinstance(state, (list, tuple)):
        return f"({', '.join(map(_describe, state))})"
    return "nothing" if state is None else f"a {type(state).__name__}"


def get_updater(optimizer: Optimizer) -> Updater:
    """A function `updater(index, grad, weight)` that updates weights with this optimizer."""
    return Updater(optimizer)
