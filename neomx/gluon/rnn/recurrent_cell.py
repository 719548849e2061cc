"""The base of all recurrent cells, which compute one step; `unroll` repeats it over a sequence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import ndarray
from ..block import Block, HybridBlock
from ..nn import LeakyReLU
from . import sequence


class RecurrentCell(Block):
    """One step of a recurrent network: `output, states = cell(input, states)`. Subclasses define `state_info`."""

    _children: dict[str, Any]

    def __init__(self, prefix: str | None = None, params: Any = None):
        super().__init__(prefix=prefix, params=params)
        self._modified = False
        self.reset()

    def reset(self) -> None:
        """Reset the counters of steps and states before a new sequence, also in the children."""
        self._init_counter = -1
        self._counter = -1
        for child in self._children.values():
            child.reset()

    def state_info(self, batch_size: int = 0) -> list[dict]:
        """Return the shape and layout of each state."""
        raise NotImplementedError

    def begin_state(self, batch_size: int = 0, func: Callable[..., Any] = ndarray.zeros, **kwargs: Any) -> list:
        """Return the initial states, created with `func(name=..., shape=..., **kwargs)`."""
        if self._modified:
            raise AssertionError(
                "After applying modifier cells (such as ZoneoutCell), the wrapped cell's begin_state cannot be called. "
                "Call begin_state of the modifier cell"
            )
        states = []
        for info in self.state_info(batch_size):
            self._init_counter += 1
            name = f"{self._prefix}begin_state_{self._init_counter}"
            states.append(func(name=name, **{**(info or {}), **kwargs}))
        return sequence.known(states)

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Any = None,
    ) -> tuple[Any, list]:
        """Run the cell over `inputs`, an array of `layout` or a list of steps. Return the outputs and the last states.

        The outputs are one array if `merge_outputs` is True, and a list if it is False or None. With `valid_length`,
        outputs are 0 after the end of each sequence, the states are those at its end, and None means one array.
        """
        self.reset()
        steps = sequence.split_steps(length, inputs, layout)
        states = sequence.first_states(self, steps, layout, begin_state)
        outputs, history = [], []
        for step in steps:
            output, states = self(step, states)
            outputs.append(output)
            history.append(states)
        if valid_length is None:
            return sequence.formatted(length, outputs, layout, merge_outputs), states
        F = sequence.front_end(outputs[0])
        last = [
            F.SequenceLast(F.stack(*each, axis=0), sequence_length=valid_length, use_sequence_length=True, axis=0)
            for each in zip(*history, strict=True)
        ]
        return sequence.formatted(length, sequence.masked(outputs, valid_length, layout), layout, merge_outputs), last

    def _get_activation(self, F: Any, inputs: Any, activation: Any, **kwargs: Any) -> Any:
        """Apply an activation given by name, as a LeakyReLU block, or as a function."""
        if isinstance(activation, str):
            if activation in ("tanh", "relu", "sigmoid", "softsign"):
                return getattr(F, activation)(inputs, **kwargs)
            return F.Activation(inputs, act_type=activation, **kwargs)
        if isinstance(activation, LeakyReLU):
            return F.LeakyReLU(inputs, act_type="leaky", slope=activation._alpha, **kwargs)
        return activation(inputs, **kwargs)

    def forward(self, inputs: Any, states: Any) -> tuple[Any, list]:
        """Compute one step. Return the output and the new states."""
        self._counter += 1
        return super().forward(inputs, states)


class HybridRecurrentCell(RecurrentCell, HybridBlock):
    """A recurrent cell that computes its step in `hybrid_forward(F, inputs, states, ...)`."""

    def hybrid_forward(self, F: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Compute one step. Subclasses must override this method."""
        raise NotImplementedError
