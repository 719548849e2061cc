"""Attention products on projections that keep queries, keys and values of a head side by side.

A self-attention projection is (time, batch, heads * 3 * size), an encoder's is (time, batch, heads * 2 * size) with
keys and values; scores are (batch * heads, query, key).
"""

from __future__ import annotations

import math

import torch

from ..base import MXNetError
from .table import op

Tensor = torch.Tensor


def _parts(projection: Tensor, heads: int, count: int, name: str) -> list[Tensor]:
    """The `count` parts of each head, (batch * heads, time, size) each; views, so that only the product copies."""
    if projection.dim() != 3:
        raise MXNetError(f"{name} must have 3 dimensions, (time, batch, projection)")
    time, batch, width = projection.shape
    if heads < 1 or width % (heads * count):
        raise MXNetError(f"the last dimension of {name} must divide by {count} * heads")
    size = width // (heads * count)
    # A head's parts lie side by side, so (batch, head) is one dimension of even stride.
    return [part.transpose(0, 1) for part in projection.reshape(time, batch * heads, count, size).unbind(2)]


def _scores(queries: Tensor, keys: Tensor) -> Tensor:
    return torch.bmm(queries * (1 / math.sqrt(queries.shape[2])), keys.transpose(1, 2))


def _apply(attention: Tensor, values: Tensor, heads: int) -> Tensor:
    rows, time, size = values.shape
    if attention.dim() != 3 or attention.shape[0] != rows or attention.shape[2] != time:
        raise MXNetError(f"attention must have shape ({rows}, queries, {time}): batch * heads, then queries by keys")
    mixed = torch.bmm(attention, values)
    return mixed.transpose(0, 1).reshape(mixed.shape[1], rows // heads, heads * size)


@op("_contrib_interleaved_matmul_selfatt_qk", same_dtype=True)
def selfatt_qk(queries_keys_values: Tensor, *, heads: int) -> Tensor:
    """Scaled scores of self-attention, from the joint projection."""
    queries, keys, _ = _parts(queries_keys_values, heads, 3, "queries_keys_values")
    return _scores(queries, keys)


@op("_contrib_interleaved_matmul_selfatt_valatt", same_dtype=True)
def selfatt_valatt(queries_keys_values: Tensor, attention: Tensor, *, heads: int) -> Tensor:
    """Values of self-attention, weighted by `attention`: (time, batch, heads * size)."""
    return _apply(attention, _parts(queries_keys_values, heads, 3, "queries_keys_values")[2], heads)


@op("_contrib_interleaved_matmul_encdec_qk", same_dtype=True)
def encdec_qk(queries: Tensor, keys_values: Tensor, *, heads: int) -> Tensor:
    """Scaled scores of a decoder's queries against an encoder's keys."""
    (query,) = _parts(queries, heads, 1, "queries")
    key, _ = _parts(keys_values, heads, 2, "keys_values")
    if query.shape[0] != key.shape[0] or query.shape[2] != key.shape[2]:
        raise MXNetError("keys_values must have the batch of queries and twice their last dimension")
    return _scores(query, key)


@op("_contrib_interleaved_matmul_encdec_valatt", same_dtype=True)
def encdec_valatt(keys_values: Tensor, attention: Tensor, *, heads: int) -> Tensor:
    """An encoder's values, weighted by `attention`: (time, batch, heads * size)."""
    return _apply(attention, _parts(keys_values, heads, 2, "keys_values")[1], heads)
