"""The recurrences of Elman, LSTM and GRU cells, given the products of inputs and states with their weights."""

from __future__ import annotations

from typing import Any

from .. import symbol
from ..symbol import Symbol
from .base_cell import BaseRNNCell


class GatedCell(BaseRNNCell):
    """A cell with a weight and a bias for the input and for the state, each with several gates."""

    _activation: Any = "tanh"
    _states = 1

    def _state(self) -> dict:
        """Return shape and layout of a state."""
        raise NotImplementedError

    @property
    def state_info(self) -> list[dict]:
        """Shape and layout of each state. A dimension of 0 is the batch size."""
        return [self._state() for _ in range(self._states)]

    def _products(self, inputs: Symbol, state: Symbol, name: str) -> tuple[Symbol, Symbol]:
        """Return the products of the input and of the state with their weights."""
        raise NotImplementedError

    def _split(self, gates: Symbol, name: str) -> Any:
        return symbol.SliceChannel(gates, num_outputs=len(self._gate_names), name=name)


class Elman(GatedCell):
    """The Elman recurrence: h' = act(i2h + h2h)."""

    _gate_names = ("",)

    def __call__(self, inputs: Symbol, states: list) -> tuple[Any, list]:
        """Return the output and the new states of one step."""
        name = self._next_step(states)
        i2h, h2h = self._products(inputs, states[0], name)
        output = self._get_activation(i2h + h2h, self._activation, name=f"{name}out")
        return output, [output]


class LongShortTermMemory(GatedCell):
    """The LSTM recurrence. Its states are the output and the memory cell."""

    _gate_names = ("_i", "_f", "_c", "_o")
    _states = 2

    def __call__(self, inputs: Symbol, states: list) -> tuple[Any, list]:
        """Return the output and the new states of one step."""
        name = self._next_step(states)
        i2h, h2h = self._products(inputs, states[0], name)
        i, f, c, o = self._split(i2h + h2h, f"{name}slice")
        i = symbol.Activation(i, act_type="sigmoid", name=f"{name}i")
        f = symbol.Activation(f, act_type="sigmoid", name=f"{name}f")
        c = self._get_activation(c, self._activation, name=f"{name}c")
        o = symbol.Activation(o, act_type="sigmoid", name=f"{name}o")
        cell = symbol.elemwise_add(f * states[1], i * c, name=f"{name}state")
        output = symbol.elemwise_mul(o, self._get_activation(cell, self._activation), name=f"{name}out")
        return output, [output, cell]


class GatedRecurrentUnit(GatedCell):
    """The GRU recurrence, with the reset gate after the product, as in cuDNN."""

    _gate_names = ("_r", "_z", "_o")

    def __call__(self, inputs: Symbol, states: list) -> tuple[Any, list]:
        """Return the output and the new states of one step."""
        name, before = self._next_step(states), states[0]
        i2h, h2h = self._products(inputs, before, name)
        i2h_r, i2h_z, i2h = self._split(i2h, f"{name}_i2h_slice")
        h2h_r, h2h_z, h2h = self._split(h2h, f"{name}_h2h_slice")
        r = symbol.Activation(i2h_r + h2h_r, act_type="sigmoid", name=f"{name}_r_act")
        z = symbol.Activation(i2h_z + h2h_z, act_type="sigmoid", name=f"{name}_z_act")
        new = self._get_activation(i2h + r * h2h, self._activation, name=f"{name}_h_act")
        output = symbol.elemwise_add((1.0 - z) * new, z * before, name=f"{name}out")
        return output, [output]
