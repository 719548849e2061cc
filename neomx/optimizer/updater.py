"""Updater: an optimizer with the states of all weights that it has updated."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..base import MXNetError
from ..context import Context
from ..ndarray import NDArray
from ..ops.table import OP_ERRORS
from .base import Index, Optimizer
from .fused import Fused
from .part import Part, in_step
from .states import dumps, loads, owners, pack, unpack
from .whole import Gather, as_part, cut_state, cut_states, gather_states, marked


class Updater:
    """`updater(index, grad, weight)` updates one weight, or lists of them. The first update creates the states."""

    def __init__(self, optimizer: Optimizer):
        self.optimizer = optimizer
        self.states: dict[Index, Any] = {}
        self.states_synced: dict[Index, bool] = {}
        self.aggregate_updates = optimizer.aggregate_num > 0
        self._fused = Fused()
        self._lent: Callable[[], object] | None = None

    def lend(self, wait: Callable[[], object]) -> None:
        """Call `wait` before the next update changes the states, which a thread is reading until it returns."""
        self._lent = wait

    def __call__(self, index: Any, grad: Any, weight: Any) -> None:
        """Update the weights in place."""
        if not isinstance(index, (list, tuple)):
            index, grad, weight = [index], [grad], [weight]
        _check_lengths(index, grad, weight)
        if not weight:
            return
        if self._lent is not None:
            wait, self._lent = self._lent, None
            wait()
        self.optimizer._set_current_context(weight[0].context.device_id)
        if not (all(map(self.states_synced.get, index)) and all(map(self.states.__contains__, index))):
            self._prepare_states(index, weight)
        rest = self._fused.update(self.optimizer, self.states, index, grad, weight)
        if rest:
            self._update_by_method(*([each[i] for i in rest] for each in (index, grad, weight)))

    def _prepare_states(self, indices: Any, weights: Any) -> None:
        """Create the states of new weights, and fit loaded states to their weights."""
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
        """Return a loaded state if it has the structure that the optimizer needs, or None if it needs none."""
        fresh = self.optimizer.create_state_multi_precision(index, weight)
        if fresh is None:
            return None
        if _describe(state) == _describe(fresh):
            return marked(state, fresh)
        raise MXNetError(
            f"the state loaded for weight {index!r} is {_describe(state)}, but {type(self.optimizer).__name__} with "
            f"its settings needs {_describe(fresh)}. Load it with the optimizer and the model it was saved from"
        )

    def _update_by_method(self, indices: Any, grads: Any, weights: Any) -> None:
        """Call the optimizer's own method, for one weight at a time or for several of the same dtype."""
        rows = self._rows(indices, grads, weights)
        if any(isinstance(weight, Part) for weight in weights):
            _refuse_sparse(indices, grads, weights)
            self._refuse_parts(indices, weights)
            if "_steps" in vars(type(self.optimizer)):  # a subclass may override update
                in_step(self.optimizer._steps_multi_precision(*row) for row in rows)
                return
        for row in rows:
            self.optimizer.update_multi_precision(*row)

    def _refuse_parts(self, indices: Any, weights: Any) -> None:
        """Raise for Parts if a custom optimizer needs whole weights but has no `_steps`."""
        kind = type(self.optimizer)
        if not kind.needs_whole_weights or hasattr(kind, "_steps"):
            return
        for i, weight in zip(indices, weights, strict=True):
            if isinstance(weight, Part) and weight.shape != weight.whole_shape:
                raise MXNetError(
                    f"{kind.__name__} needs whole weights, but weight {i!r} of shape {weight.whole_shape} is sharded "
                    "over ranks. Use a layout that does not shard weights, or another optimizer"
                )

    def _rows(self, indices: Any, grads: Any, weights: Any) -> Iterator[Any]:
        """Return the arguments of each call of that method: (index, weight, gradient, state), or lists of each."""
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
        """Return a state with its arrays in a context."""
        if isinstance(state, NDArray):
            return state.as_in_context(context)
        if isinstance(state, (tuple, list)):
            return type(state)(self.sync_state_context(each, context) for each in state)
        return state

    def get_states(self, dump_optimizer: bool = False) -> bytes:
        """Return the states, and with `dump_optimizer` the optimizer, as bytes for a file."""
        return dumps(self.states, self.optimizer if dump_optimizer else None)

    def packed(self, parts: Mapping[Index, NDArray] | None = None) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """Return the states and the optimizer as JSON values and named arrays, in the same order on all workers.

        With `parts`, only the states of these weights are included, and the arrays that are split like them are Parts.
        A schedule that is a function of the program is left out.
        """
        ordered = sorted(self.states.items(), key=lambda item: (isinstance(item[0], str), item[0]))
        states = {index: state for index, state in ordered if parts is None or index in parts}
        content, arrays = pack(states, self.optimizer.without_function())
        if parts:
            index_of = owners(content)
            arrays = {name: as_part(array, parts.get(index_of.get(name, -1))) for name, array in arrays.items()}
        return content, arrays

    def unpacked(self, content: Any, arrays: Mapping[str, NDArray], weights: Mapping[Index, NDArray | None]) -> Updater:
        """Return a new Updater that continues from the result of `packed`, which must match these weights.

        Arrays for Parts may be those of whole weights, or of the Parts.
        """
        other = Updater(self.optimizer)
        other._set(*unpack(content, arrays))
        try:
            other.check_states(weights)
        except (AttributeError, *OP_ERRORS) as error:  # from an optimizer restored from corrupt data
            raise MXNetError(f"its optimizer is not usable: {type(error).__name__}: {error!s:.200}") from error
        return other

    def gathered(self, weights: Mapping[Index, NDArray], gather: Gather) -> Updater:
        """Return an Updater with the states of whole weights, whose `get_states` equals that of a single process.

        All ranks of the weights must call it. `gather(tensor, part)` returns the whole tensor for this rank's part.
        """
        other = Updater(copy.copy(self.optimizer))
        other.states = gather_states(self.states, weights, gather)
        for name in self.optimizer._arrays_by_index:
            setattr(other.optimizer, name, gather_states(getattr(self.optimizer, name, {}), weights, gather))
        return other

    def restored(self, fname: str, weights: Mapping[Index, NDArray | None]) -> Updater:
        """Return a new Updater that continues from the states in a file, which must match these weights.

        A weight may be None if it is not known yet. Without weights, the states are checked at the first update.
        """
        other = Updater(self.optimizer)
        with open(fname, "rb") as file:
            content = file.read()
        try:
            other.set_states(content)
            other.check_states(weights)
        except MXNetError as error:
            raise MXNetError(f"{fname}: {error}") from error
        except (AttributeError, *OP_ERRORS) as error:  # from an optimizer restored from corrupt data
            raise MXNetError(f"{fname}: its optimizer is not usable: {type(error).__name__}: {error!s:.200}") from error
        return other

    def check_states(self, weights: Mapping[Index, NDArray | None]) -> None:
        """Raise for states that do not match these weights, as far as known, and fit the others to them."""
        foreign = [index for index in self.states if index not in weights] if weights else []
        if foreign:
            raise MXNetError(
                f"it has states for {len(self.states)} weights, of which {foreign[:5]} are not among the "
                f"{len(weights)} weights in training. Load it with the model it was saved from"
            )
        known = {index: weight for index, weight in weights.items() if index in self.states and weight is not None}
        self._prepare_states(known, known.values())

    def set_states(self, states: bytes) -> None:
        """Set the states, and the optimizer if included, from the result of `get_states`, here or in MXNet.

        They are states of whole weights. For Parts, they are split at the first update.
        """
        self._set(*loads(states))

    def _set(self, states: dict[Index, Any], optimizer: Optimizer | None) -> None:
        self.states = states
        if optimizer is not None:
            self.optimizer = optimizer
            self.aggregate_updates = optimizer.aggregate_num > 0
        self.bring_again()

    def bring_again(self) -> None:
        """Fit the states to their weights again at the next update. Those of whole weights are split for Parts."""
        self.states_synced = dict.fromkeys(self.states, False)
        self._fused = Fused()


def _check_lengths(indices: Any, grads: Any, weights: Any) -> None:
    if not len(indices) == len(grads) == len(weights):
        raise ValueError(
            "expected as many gradients and weights as indices, received "
            f"{len(indices)} indices, {len(grads)} gradients and {len(weights)} weights"
        )


def _refuse_sparse(indices: Any, grads: Any, weights: Any) -> None:
    for i, grad, weight in zip(indices, grads, weights, strict=True):
        if isinstance(weight, Part) and grad._sparse:
            raise MXNetError(
                f"weight {i!r} is sharded over ranks and requires a dense gradient, but its gradient is {grad.stype}. "
                "Create the layer with sparse_grad=False, or keep it whole on every rank"
            )


def _describe(state: Any) -> str:
    if isinstance(state, NDArray):
        return f"an array of shape {state.shape}"
    if isinstance(state, (list, tuple)):
        return f"({', '.join(map(_describe, state))})"
    return "nothing" if state is None else f"a {type(state).__name__}"


def get_updater(optimizer: Optimizer) -> Updater:
    """Return a callable `updater(index, grad, weight)` that updates weights with this optimizer."""
    return Updater(optimizer)
