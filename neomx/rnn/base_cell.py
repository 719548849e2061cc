"""The base class of the cells of `mx.rnn`: one step of a recurrent network as a symbol, repeated by `unroll`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import ndarray as nd
from .. import symbol
from ..base import MXNetError
from ..ndarray import NDArray
from ..symbol import Symbol
from . import sequence

Arrays = dict[str, NDArray]


class RNNParams:
    """Variables by name, created on first use. Cells that share an RNNParams share their weights."""

    def __init__(self, prefix: str = ""):
        self._prefix = prefix
        self._params: dict[str, Symbol] = {}

    def get(self, name: str, **kwargs: Any) -> Symbol:
        """Return the variable `prefix + name`, creating it with `mx.sym.Variable(..., **kwargs)` if it is new."""
        name = self._prefix + name
        if name not in self._params:
            self._params[name] = symbol.Variable(name, **kwargs)
        return self._params[name]


class BaseRNNCell:
    """One step: `output, states = cell(input, states)`. Subclasses describe their states in `state_info`."""

    _gate_names: Any = ()

    def __init__(self, prefix: str = "", params: RNNParams | None = None):
        self._prefix = prefix
        self._params = RNNParams(prefix) if params is None else params
        self._modified = False
        self.reset()

    def reset(self) -> None:
        """Reset the counters of steps and of named states."""
        self._init_counter = -1
        self._counter = -1

    def __call__(self, inputs: Symbol, states: list) -> tuple[Any, list]:
        """Return the output and the new states of one step."""
        raise NotImplementedError(f"{type(self).__name__} must define __call__")

    @property
    def params(self) -> RNNParams:
        """The variables of this cell."""
        return self._params

    @property
    def state_info(self) -> list[dict]:
        """Shape and layout of each state. A dimension of 0 is the batch size."""
        raise NotImplementedError(f"{type(self).__name__} must define state_info")

    @property
    def state_shape(self) -> list[tuple[int, ...]]:
        """The shape of each state."""
        return [info["shape"] for info in self.state_info]

    def begin_state(self, func: Callable[..., Any] = symbol.zeros, **kwargs: Any) -> list:
        """Return the initial states, each created by `func(name=..., shape=..., **kwargs)`."""
        self._refuse_modified()
        states = []
        for info in self.state_info:
            self._init_counter += 1
            states.append(func(name=f"{self._prefix}begin_state_{self._init_counter}", **{**kwargs, **(info or {})}))
        return sequence.known(states)

    def _refuse_modified(self) -> None:
        if self._modified:
            raise AssertionError(
                "After applying modifier cells (e.g. DropoutCell) the base cell cannot be called directly. "
                "Call the modifier cell instead."
            )

    def unroll(
        self, length: int, inputs: Any, begin_state: Any = None, layout: str = "NTC", merge_outputs: bool | None = None
    ) -> tuple[Any, list]:
        """Run the cell on each step of `inputs`, and return the outputs and the last states.

        `inputs` is one symbol in `layout` or a list of steps. Outputs are one symbol if `merge_outputs` is True, a list
        if it is False. If it is None, the cell chooses.
        """
        self.reset()
        steps = sequence.split_steps(length, sequence.checked(length, inputs, layout), layout)
        states = self.begin_state() if begin_state is None else begin_state
        outputs = []
        for step in steps:
            output, states = self(step, states)
            outputs.append(output)
        return sequence.formatted(length, outputs, layout, merge_outputs), states

    def _next_step(self, states: Sequence[Any]) -> str:
        """Begin a step, and return the name prefix of its nodes."""
        self._counter += 1
        expected = len(self.state_info)
        if not isinstance(states, (list, tuple)) or len(states) < expected:
            received = len(states) if isinstance(states, (list, tuple)) else type(states).__name__
            raise MXNetError(
                f"{type(self).__name__} expects a list of {expected} state(s), as returned by begin_state; "
                f"received {received}"
            )
        return f"{self._prefix}t{self._counter}_"

    def _get_activation(self, inputs: Symbol, activation: Any, **kwargs: Any) -> Symbol:
        """Apply an activation given by name or as a function."""
        if isinstance(activation, str):
            return symbol.Activation(inputs, act_type=activation, **kwargs)
        return activation(inputs, **kwargs)

    def unpack_weights(self, args: Arrays) -> Arrays:
        """Return the parameters with this cell's weights and biases split by gate."""
        args = dict(args)
        if not self._gate_names:
            return args
        for group in ("i2h", "h2h"):
            whole = {kind: take(args, f"{self._prefix}{group}_{kind}") for kind in ("weight", "bias")}
            for i, gate in enumerate(self._gate_names):
                for kind, array in whole.items():
                    args[f"{self._prefix}{group}{gate}_{kind}"] = self._gate(array, i).copy()
        return args

    def _gate(self, array: NDArray, i: int) -> NDArray:
        rows, over = divmod(array.shape[0], len(self._gate_names))
        if over:
            raise MXNetError(
                f"{type(self).__name__}: cannot split {array.shape[0]} rows into {len(self._gate_names)} gates"
            )
        return array[i * rows : (i + 1) * rows]

    def pack_weights(self, args: Arrays) -> Arrays:
        """Reverse `unpack_weights`."""
        args = dict(args)
        if not self._gate_names:
            return args
        for group in ("i2h", "h2h"):
            for kind in ("weight", "bias"):
                parts = [take(args, f"{self._prefix}{group}{gate}_{kind}") for gate in self._gate_names]
                args[f"{self._prefix}{group}_{kind}"] = nd.concat(*parts, dim=0)
        return args


def take(args: Arrays, name: str) -> NDArray:
    """Remove a parameter and return it."""
    if name not in args:
        raise KeyError(f"parameter {name!r} is missing, received {sorted(args)}")
    return args.pop(name)
