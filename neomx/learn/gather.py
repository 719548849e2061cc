"""The rows of all workers as one array, through which gradients flow back to the worker of each row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable

from ..base import MXNetError
from ..comm.session import session, world
from ..ndarray import NDArray
from ..ndarray.invoke import apply
from ..ops.table import Op
from ..symbol import Symbol
from ..symbol.build import create

if TYPE_CHECKING:
    from ..comm.group import Group

Tensor = torch.Tensor


class _Gathered(torch.autograd.Function):
    """Concatenates the rows of all workers. Backward returns to each worker the sum of the gradients of its rows."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, group: Group) -> Any:
        parts = group.all_gather(rows, what="rows of mx.learn.gather")
        ctx.group, ctx.counts = group, [len(part) for part in parts]
        start = torch.tensor(sum(ctx.counts[: group.rank]))
        ctx.mark_non_differentiable(start)
        return torch.cat(parts), start

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor, _: Any) -> Any:
        received, counts = ctx.group.all_to_all(grad.contiguous(), ctx.counts, what="gradients of mx.learn.gather")
        return received.view(len(counts), counts[0], *grad.shape[1:]).sum(0), None


def gathered(rows: Tensor) -> tuple[Tensor, int]:
    """Return the rows of all workers in rank order, and the position of this worker's first row among them."""
    if rows.dim() < 1:
        raise MXNetError("gather needs an array of at least one dimension, received a scalar")
    if world().size == 1 or rows.is_meta:
        return rows, 0
    everyone, start = _Gathered.apply(rows, _group())
    return everyone, int(start)


def _group() -> Group:
    """Return the workers of this session in a group of their own, whose calls do not mix with those of a Trainer."""
    opened = session()
    if "learn" not in opened.kept:
        group = opened.kept["learn"] = opened.group.clone("learn")
        opened.at_close.append(group.close)
    return opened.kept["learn"]


def _rows(data: Tensor) -> Tensor:
    return gathered(data)[0]


_GATHER = Op(_rows, ("_learn_gather",), same_dtype=False, may_alias=True, mutates=())


def gather(x: Any) -> Any:
    """Return the rows of `x` on all workers, in rank order, as one array. Autograd records the call.

    Backward adds up the gradients that all workers compute for a row, and returns them to the worker of that row. If
    each worker calls `backward` on its share of a loss, their gradients together are those of the whole loss. All
    workers must call `gather` equally often, and `backward` too. The numbers of rows may differ. With one worker,
    return the same values. In a hybridized Block, `x` may be a symbol.
    """
    return call(_GATHER, x)


def call(op: Op, *inputs: Any, **attrs: Any) -> Any:
    """Apply an op that is not in the op table to arrays or to symbols."""
    first = inputs[0]
    if isinstance(first, Symbol):
        return create(op, op.name.removeprefix("_learn_"), inputs, attrs, type(first))
    if not isinstance(first, NDArray):
        raise TypeError(f"{op.name.removeprefix('_learn_')} expects an array or a symbol, received {first!r:.80}")
    return apply(op, inputs, op.converted(attrs), None, first._kind)
