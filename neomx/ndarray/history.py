"""The history of recorded arrays, from which `autograd.get_symbol` builds a Symbol.

Every recorded array stores the call that computed it in `_history`. The history does not keep other tensors alive.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

# A recorded call: [callee, its attributes, sources of its inputs]. The callee is an op, READ, or a Symbol that ran as
# one function. `get_symbol` appends the call's outputs as entries of a graph. It is a list, not an object, for speed:
# one is created for every recorded op.
Step = list[Any]

# The source of an array: the call that computed it, with the index of the output if there are several; the tensor of
# a variable or of a constant; or None for an optional input that was not given.
Source = Step | tuple[Step, int] | weakref.ref[torch.Tensor] | None

READ = "x[key]"


class Read(NamedTuple):
    """The attributes of READ: the key, normalized or as given, and the shapes before and after."""

    key: Any
    shape: Sequence[int]
    result: Sequence[int]


class Inlined(NamedTuple):
    """The attributes of a Symbol call: the names of its inputs, and a Block's parameters, which are its last inputs."""

    names: Sequence[str]
    parameters: Sequence[torch.Tensor]


def source_of(array: Any) -> Source:
    """Return the source of an array."""
    return array._history or weakref.ref(array._data)


def step(how: Any, attrs: Any, arrays: Sequence[Any]) -> Step:
    """Return the record of a call on arrays. None stands for an optional input that was not given."""
    sources: list[Source] = []
    for array in arrays:
        sources.append(None if array is None else array._history or weakref.ref(array._data))
    return [how, attrs, sources]
