"""Attention as one op, and MXNet's products on interleaved projections of queries, keys and values.

An interleaved self-attention projection has the shape (time, batch, heads * 3 * size). That of an encoder, with keys
and values, has the shape (time, batch, heads * 2 * size). Scores have the shape (batch * heads, query, key).
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from ..base import MXNetError, modes
from .random import generator
from .table import FILLED_IN, Ctx, Shapes, op

Tensor = torch.Tensor


def _parts(projection: Tensor, heads: int, count: int, name: str) -> list[Tensor]:
    """Split a projection into its `count` parts, views of shape (batch * heads, time, size) that need no copy."""
    if projection.dim() != 3:
        raise MXNetError(f"{name} must have 3 dimensions, (time, batch, projection)")
    time, batch, width = projection.shape
    if heads < 1 or width % (heads * count):
        raise MXNetError(f"the last dimension of {name} must be divisible by {count} * heads")
    size = width // (heads * count)
    # The parts of a head are adjacent, so (batch, head) is one dimension with a constant stride.
    return [part.transpose(0, 1) for part in projection.reshape(time, batch * heads, count, size).unbind(2)]


def _scores(queries: Tensor, keys: Tensor) -> Tensor:
    return torch.bmm(queries * (1 / math.sqrt(queries.shape[2])), keys.transpose(1, 2))


def _apply(attention: Tensor, values: Tensor, heads: int) -> Tensor:
    rows, time, size = values.shape
    if attention.dim() != 3 or attention.shape[0] != rows or attention.shape[2] != time:
        raise MXNetError(f"attention must have shape ({rows}, queries, {time}), that is (batch * heads, queries, keys)")
    mixed = torch.bmm(attention, values)
    return mixed.transpose(0, 1).reshape(mixed.shape[1], rows // heads, heads * size)


@op("_contrib_interleaved_matmul_selfatt_qk", same_dtype=True)
def selfatt_qk(queries_keys_values: Tensor, *, heads: int) -> Tensor:
    """Scaled self-attention scores from an interleaved projection."""
    queries, keys, _ = _parts(queries_keys_values, heads, 3, "queries_keys_values")
    return _scores(queries, keys)


@op("_contrib_interleaved_matmul_selfatt_valatt", same_dtype=True)
def selfatt_valatt(queries_keys_values: Tensor, attention: Tensor, *, heads: int) -> Tensor:
    """Self-attention values, weighted by `attention`, of shape (time, batch, heads * size)."""
    return _apply(attention, _parts(queries_keys_values, heads, 3, "queries_keys_values")[2], heads)


@op("_contrib_interleaved_matmul_encdec_qk", same_dtype=True)
def encdec_qk(queries: Tensor, keys_values: Tensor, *, heads: int) -> Tensor:
    """Scaled scores of decoder queries and encoder keys."""
    (query,) = _parts(queries, heads, 1, "queries")
    key, _ = _parts(keys_values, heads, 2, "keys_values")
    if query.shape[0] != key.shape[0] or query.shape[2] != key.shape[2]:
        raise MXNetError("keys_values must have the batch size of queries and twice the size of their last dimension")
    return _scores(query, key)


@op("_contrib_interleaved_matmul_encdec_valatt", same_dtype=True)
def encdec_valatt(keys_values: Tensor, attention: Tensor, *, heads: int) -> Tensor:
    """Encoder values, weighted by `attention`, of shape (time, batch, heads * size)."""
    return _apply(attention, _parts(keys_values, heads, 2, "keys_values")[1], heads)


# ---- attention as one op, which MXNet 1.9 does not have ----


def _attention_shapes(shapes: Shapes, outputs: Shapes, attrs: dict[str, Any]) -> tuple[Shapes, Shapes]:
    """Infer that the result has the shape of the queries, and that keys and values have the same shape."""
    query, key, value, *lengths = shapes
    batch = next(((each[0],) for each in (query, key, value) if each is not None), None)
    return [query or outputs[0], key or value, value or key, *[each or batch for each in lengths]], [query]


@op(
    "_contrib_attention",
    takes={"valid_length": lambda a: a["use_valid_length"]},
    infer=_attention_shapes,
)
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    valid_length: Tensor | None = None,
    *,
    head_size: int,
    causal: bool = False,
    dropout: float = 0.0,
    use_valid_length: bool = False,
    ctx: Ctx = FILLED_IN,
) -> Tensor:
    """softmax(query · keyᵀ / √head_size) · value for each head. All arrays have shape (batch, time, heads * head_size).

    If `causal`, no query attends to later keys. `valid_length` is the number of valid keys per example, rounded toward
    zero. All keys are valid if it is larger than their number. In training, a fraction `dropout` of the weights is set
    to 0. The number of heads is the last dimension divided by `head_size`.
    """
    _check_attention(query, key, value, valid_length, head_size, causal, use_valid_length)
    if query.is_meta and not query.requires_grad:  # torch would import its compiler to infer the shape
        return torch.empty_like(query)
    query, key, value = (_heads(each, head_size) for each in (query, key, value))
    mask = _mask(query, key, valid_length, causal)
    dropping = modes.training and dropout > 0
    if dropping and query.is_cpu:
        mixed = _dropping(query, key, value, mask, causal, dropout, ctx)
    else:
        rate = dropout if dropping else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, mask, rate, is_causal=causal and mask is None)
    return mixed.transpose(1, 2).flatten(2)


def _check_attention(
    query: Tensor, key: Tensor, value: Tensor, valid_length: Any, size: int, causal: bool, use_valid_length: bool
) -> None:
    for name, each in (("query", query), ("key", key), ("value", value)):
        if each.dim() != 3 or each.shape[-1] % size:
            raise MXNetError(
                f"expected {name} of shape (batch, time, heads * head_size) with head_size={size}, "
                f"got {tuple(each.shape)}"
            )
    if key.shape != value.shape or key.shape[0] != query.shape[0] or key.shape[2] != query.shape[2]:
        raise MXNetError("expected key and value of the same shape, with the batch size and last dimension of query")
    if causal and query.shape[1] != key.shape[1]:
        raise MXNetError(f"causal=True requires a key for each query, got {key.shape[1]} for {query.shape[1]} queries")
    if use_valid_length and valid_length is None:
        raise MXNetError("use_valid_length=True requires valid_length")
    if valid_length is not None and valid_length.shape != query.shape[:1]:
        raise MXNetError(f"expected valid_length of shape ({query.shape[0]},), got {tuple(valid_length.shape)}")


def _heads(x: Tensor, size: int) -> Tensor:
    return x.unflatten(2, (-1, size)).transpose(1, 2)


def _mask(query: Tensor, key: Tensor, valid_length: Tensor | None, causal: bool) -> Tensor | None:
    """Return which keys each query may attend to, or None if `causal` alone determines it."""
    if valid_length is None:
        return None
    steps = torch.arange(key.shape[2], device=key.device)
    lengths = valid_length.detach()
    if lengths.is_floating_point():
        lengths = lengths.trunc()  # as the conversion to integers does in files for MXNet
    mask = (steps < lengths.unsqueeze(1))[:, None, None, :]
    return mask & (steps <= steps.unsqueeze(1)) if causal else mask


def _dropping(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, rate: float, ctx: Any
) -> Tensor:
    """Attention with dropout. torch's own takes 1.5 times as long on a CPU and uses another random generator."""
    scores = torch.matmul(query * (1 / math.sqrt(query.shape[-1])), key.transpose(2, 3))
    if causal and mask is None:
        mask = torch.ones(scores.shape[2:], dtype=torch.bool, device=scores.device).tril_()
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = torch.softmax(scores, -1)
    if mask is not None:
        weights = weights * mask  # a query without keys, whose weights are all equal, gets zeros
    kept = torch.empty_like(weights, dtype=torch.float32).uniform_(generator=generator(ctx)).lt_(1 - rate)
    return torch.matmul(weights * kept.mul_(1 / (1 - rate)).to(weights.dtype), value)
