"""The precision that each op computes in, and casts of arrays to that precision."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..base import suggest
from ..dtype import NAME_OF_TORCH, to_torch
from ..ndarray.invoke import apply
from ..ops.cross_entropy import CROSS_ENTROPY
from ..ops.rnn import RNN_OF_PARTS
from ..ops.table import OPS, Op
from . import lists

WIDEST = "widest"
CASTABLE = (torch.float16, torch.bfloat16, torch.float32)
# Faster ops that replace ops in the lists.
_STAND_FOR = {RNN_OF_PARTS: "RNN", CROSS_ENTROPY: "log_softmax"}
Wanted = torch.dtype | str | None  # a dtype, WIDEST, or None for the dtype of the arrays
Conditional = Sequence[tuple[str, str, Sequence[str]]]


@dataclass(frozen=True)
class Policy:
    """The ops that compute in `target`, in float32 (some only for certain attributes), or in the widest dtype."""

    target: torch.dtype
    low: frozenset[Op]
    high: frozenset[Op]
    widest: frozenset[Op]
    conditional: dict[Op, list[tuple[str, frozenset[str]]]]

    @classmethod
    def of(cls, target: torch.dtype, low: Any, high: Any, conditional: Any) -> Policy:
        """Create a policy from MXNet's lists for `target`. Given lists replace them."""
        when: dict[Op, list[tuple[str, frozenset[str]]]] = {}
        for name, attribute, values in lists.list_conditional_fp32_ops(target) if conditional is None else conditional:
            for op in _rows([name]):
                when.setdefault(op, []).append((attribute, frozenset(map(str, values))))
        return cls(
            target,
            _rows(lists.list_lp16_ops(target) if low is None else low),
            _rows(lists.list_fp32_ops(target) if high is None else high),
            _rows(lists.list_widest_type_cast(target)),
            when,
        )

    def wanted(self, op: Op, attrs: dict[str, Any]) -> Wanted:
        """Return the dtype to which the inputs of a call of `op` are cast."""
        if op in self.low:
            return self.target
        if op in self.high or self._is_conditional(op, attrs):
            return torch.float32
        return WIDEST if op in self.widest else None

    def _is_conditional(self, op: Op, attrs: dict[str, Any]) -> bool:
        rules = self.conditional.get(op, ())
        return any(str(attrs.get(name, op.defaults.get(name))) in values for name, values in rules)

    def ops(self) -> set[Op]:
        """Return all ops whose inputs may be cast."""
        return {*self.low, *self.high, *self.widest, *self.conditional}


def _rows(names: Iterable[str]) -> frozenset[Op]:
    """Return the ops with these names and their faster replacements. Names that only MXNet has are ignored."""
    names = list(names)
    unknown = [name for name in names if name not in OPS and name not in lists.ALL]
    if unknown:
        raise AttributeError(f"mixed precision: unknown op {unknown[0]!r}.{suggest(unknown[0], OPS)}")
    found = {OPS[name] for name in names if name in OPS}
    return frozenset(found | {row for row, name in _STAND_FOR.items() if OPS[name] in found})


# ---- calls on arrays ----


def on_arrays(policy: Policy, op: Op) -> Callable[[Sequence[Any], dict[str, Any]], tuple[Sequence[Any], dict]]:
    """Return a function that casts the arrays of each call of `op`, except those that the op changes in place."""
    fixed = {i for i, name in enumerate(op.inputs) if name in op.mutates}

    def cast(arrays: Sequence[Any], attrs: dict[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
        wanted = policy.wanted(op, attrs)
        if wanted is WIDEST:
            wanted = _widest(arrays)
        if not isinstance(wanted, torch.dtype):
            return arrays, attrs
        return [each if i in fixed else _as(each, wanted) for i, each in enumerate(arrays)], attrs

    return cast


def _widest(arrays: Sequence[Any]) -> torch.dtype | None:
    present = {to_torch(array.dtype) for array in arrays if array is not None} & set(CASTABLE)
    return torch.float32 if len(present) > 1 else None


def _as(array: Any, wanted: torch.dtype) -> Any:
    if array is None or array._sparse or array._data.dtype is wanted or array._data.dtype not in CASTABLE:
        return array
    return apply(OPS["amp_cast"], (array,), {"dtype": NAME_OF_TORCH[wanted]}, None, array._kind)
