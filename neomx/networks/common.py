"""What all networks use: names of their nodes and parameters, and checks of their arguments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any

from .. import name as naming
from .. import symbol
from ..symbol import Symbol

sym: Any = symbol  # most of its functions are made from the op table


def name_of(name: str | None, hint: str) -> str:
    """Return the name of a new network: the given one, or the hint with the next number."""
    if name is not None and not isinstance(name, str):
        raise TypeError(f"{hint}: name must be a string, received {name!r}")
    return naming.current().get(name, hint)


@contextmanager
def named(name: str | None, hint: str) -> Iterator[str]:
    """Prefix the names of all nodes that the block creates. Yields the name of the network."""
    whole = name_of(name, hint)
    with naming.Prefix(f"{whole}_"):
        yield whole


def finished(symbol: Symbol, name: str) -> Symbol:
    """Give the last node of a network the network's name, so that its output is `<name>_output`. Return the symbol."""
    symbol._outputs[0][0].name = name
    return symbol


def check_symbols(builder: str, instead: str = "", **inputs: Any) -> None:
    """Raise unless each input is a Symbol with one output. `instead` says what to use for arrays."""
    for name, value in inputs.items():
        if not isinstance(value, Symbol):
            remedy = f". For arrays, use {instead}" if instead else ""
            raise TypeError(f"{builder}: {name} must be a Symbol, received {type(value).__name__}{remedy}")
        if len(value) != 1:
            raise ValueError(f"{builder}: {name} must have one output, received {len(value)}. Choose one with [index]")


def check_number(builder: str, name: str, value: Any, least: float, most: float) -> None:
    """Raise unless `value` is a number within the bounds."""
    if isinstance(value, bool) or not isinstance(value, Real) or not least <= float(value) <= most:
        raise ValueError(f"{builder}: {name} must be a number from {least} to {most}, received {value!r}")


def check_counts(builder: str, least: int = 1, **values: Any) -> None:
    """Raise unless each value is an integer of at least `least`."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
            raise ValueError(f"{builder}: {name} must be an integer of at least {least}, received {value!r}")
