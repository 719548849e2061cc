"""Updater: an optimizer together with the states of all the weights it has met."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..base import MXNetError
from ..context import Context
from ..ndarray import NDArray
from .base import Index, Optimizer
from .fused import Fused
from .states import dumps, loads


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
                self.states[i] = self._fitting(i, w, self.sync_state_context(self.states[i], w.context))
            self.states_synced[i] = True

    def _fitting(self, index: Index, weight: NDArray, state: Any) -> Any:
        """A loaded state, if it is like one that the optimizer makes; None where the optimizer wants none."""
        fresh = self.optimizer.create_state_multi_precision(index, weight)
        if fresh is None:
            return None
        if _describe(state) == _describe(fresh):
            return state
        raise MXNetError(
            f"the state loaded for weight {index!r} is {_describe(state)}; {type(self.optimizer).__name__} with its "
            f"settings needs {_describe(fresh)}. Load it with the optimizer and the model it was saved from"
        )

    def _update_by_method(self, indices: Any, grads: Any, weights: Any) -> None:
        """Through the optimizer's own method: one by one, or as many at once, of one dtype, as it wants."""
        if not self.aggregate_updates:
            for i, g, w in zip(indices, grads, weights, strict=True):
                self.optimizer.update_multi_precision(i, w, g, self.states[i])
            return
        rows: dict[Any, list[tuple[Index, NDArray, NDArray, Any]]] = {}
        for i, g, w in zip(indices, grads, weights, strict=True):
            rows.setdefault(w.dtype, []).append((i, w, g, self.states[i]))
        size = min(self.optimizer.aggregate_num, len(indices))
        for same in rows.values():
            for start in range(0, len(same), size):
                self.optimizer.update_multi_precision(*map(list, zip(*same[start : start + size], strict=True)))

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

    def restored(self, fname: str, weights: Mapping[Index, NDArray | None]) -> Updater:
        """A new Updater that goes on from the states in a file, which must be of these weights.

        A weight may be None, not known yet; without any weights nothing is checked before the first update.
        """
        other = Updater(self.optimizer)
        with open(fname, "rb") as file:
            content = file.read()
        try:
            other.set_states(content)
            other._check_states(weights)
        except MXNetError as error:
            raise MXNetError(f"{fname}: {error}") from error
        except (AttributeError, TypeError, ValueError) as error:  # of an optimizer made from damaged bytes
            raise MXNetError(f"{fname}: its optimizer does not work: {type(error).__name__}: {error}") from error
        return other

    def _check_states(self, weights: Mapping[Index, NDArray | None]) -> None:
        foreign = [index for index in self.states if index not in weights] if weights else []
        if foreign:
            raise MXNetError(
                f"it has states for {len(self.states)} weights, {foreign[:5]} not among the {len(weights)} that are "
                "trained here. Load it with the model it was saved from"
            )
        known = {index: weight for index, weight in weights.items() if index in self.states and weight is not None}
        self._prepare_states(known, known.values())

    def set_states(self, states: bytes) -> None:
        """Take the states, and the optimizer if it is there, from what `get_states` gave here or in MXNet."""
        self.states, optimizer = loads(states)
        if optimizer is not None:
            self.optimizer = optimizer
            self.aggregate_updates = optimizer.aggregate_num > 0
        self.states_synced = dict.fromkeys(self.states, False)
        self._fused = Fused()


def _check_lengths(indices: Any, grads: Any, weights: Any) -> None:
    if not len(indices) == len(grads) == len(weights):
        raise ValueError(
            "an update needs as many gradients and weights as indices, received "
            f"{len(indices)} indices, {len(grads)} gradients and {len(weights)} weights"
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
