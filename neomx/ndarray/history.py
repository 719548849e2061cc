"""What recorded arrays were computed from. `autograd.get_symbol` makes a Symbol of it.

Every recorded array remembers the call that computed it, in its `_history`. That keeps no other tensor alive.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

# A recorded call: [what was called, its attributes, where its inputs come from]. What was called is an op, READ, or a
# Symbol that ran as one function. `get_symbol` adds the call's outputs as entries of a graph. It is a list and not an
# object because one is made for every recorded op.
Step = list[Any]

# Where an array comes from: the call that computed it, with the number of the output if there are several; the tensor
# of a variable or of a constant; or None where an optional input was not given.
Source = Step | tuple[Step, int] | weakref.ref[torch.Tensor] | None

READ = "x[key]"


class Read(NamedTuple):
    """The attributes of READ: the key, sorted out or as it was given, and the shapes before and after."""

    key: Any
    shape: Sequence[int]
    result: Sequence[int]


class Inlined(NamedTuple):
    """The attributes of a Symbol: the names of its inputs, and the tensors of the last ones, a Block's parameters."""

    names: Sequence[str]
    parameters: Sequence[torch.Tensor]


def source_of(array: Any) -> Source:
    """Where an array comes from."""
    return array._history or weakref.ref(array._data)


def step(how: Any, attrs: Any, arrays: Sequence[Any]) -> Step:
    """A call on arrays, or None where an optional one was not given."""
    sources: list[Source] = []
    for array in arrays:
        sources.append(None if array is None else array._history or weakref.ref(array._data))
    return [how, attrs, sources]
