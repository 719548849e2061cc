"""Layers with parameters of their own: recurrent layers and attention."""

from __future__ import annotations

from collections.abc import Sequence

from ..gluon import rnn
from ..gluon.model_zoo.transformer import MultiHeadAttention as _MultiHeadAttention
from ..symbol import Symbol
from .common import check_counts, check_number, check_symbols, finished, name_of, sym

DeConvolution = sym.Deconvolution


def Leading(symbols: Symbol | Sequence[Symbol]) -> Symbol:
    """Return a finished network: the symbol itself, or for several symbols the group of their outputs."""
    return symbols if isinstance(symbols, Symbol) else sym.Group(symbols)


def LSTM(
    data: Symbol,
    num_hidden: int,
    num_layers: int = 1,
    bidirectional: bool = False,
    dropout: float = 0.0,
    layout: str = "NTC",
    state_outputs: bool = False,
    name: str | None = None,
) -> Symbol:
    """Return the outputs of LSTM layers at all steps: (batch, time, any) to (batch, time, num_hidden).

    The outputs of both directions are concatenated. `layout="TNC"` has the time first. With `state_outputs`, the result
    is a group of the outputs and the last two states, each (layers * directions, batch, num_hidden).
    """
    check_symbols("LSTM", "gluon.rnn.LSTM", data=data)
    check_counts("LSTM", num_hidden=num_hidden, num_layers=num_layers)
    check_number("LSTM", "dropout", dropout, 0, 1)
    if layout not in ("NTC", "TNC"):
        raise ValueError(f"LSTM: layout must be 'NTC' (batch, time, channels) or 'TNC', received {layout!r}")
    name = name_of(name, "lstm")
    layer = rnn.LSTM(num_hidden, num_layers, layout, dropout, bidirectional, prefix=f"{name}_")
    if not state_outputs:
        return finished(layer(data), name)
    outputs, states = layer(data, layer.begin_state(0, func=sym.zeros))
    return sym.Group([outputs, *states])


def SelfAttention(
    data: Symbol,
    num_heads: int,
    key_dim: int,
    units: int | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    valid_length: Symbol | None = None,
    name: str | None = None,
) -> Symbol:
    """Return the attention of each step to all steps: (batch, time, any) to (batch, time, units).

    `key_dim` is the size of a head, and `units` is num_heads * key_dim by default. With `causal`, steps do not attend
    to later steps. `valid_length` (batch,) has the lengths of the sequences.
    """
    check_symbols("SelfAttention", "gluon.model_zoo.transformer.MultiHeadAttention", data=data)
    name = name_of(name, "selfattention")
    return _attention(
        "SelfAttention", (data, data, data), num_heads, key_dim, units, causal, dropout, valid_length, name
    )


def MultiHeadAttention(
    query: Symbol,
    key: Symbol,
    value: Symbol,
    num_heads: int,
    key_dim: int,
    units: int | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    valid_length: Symbol | None = None,
    name: str | None = None,
) -> Symbol:
    """Return the attention of a query to keys and values: (batch, time, any) to (batch, time of query, units).

    `key_dim` is the size of a head, and `units` is num_heads * key_dim by default. `valid_length` (batch,) has the
    numbers of valid keys. `causal` requires a key for each query.
    """
    given = {"query": query, "key": key, "value": value}
    check_symbols("MultiHeadAttention", "gluon.model_zoo.transformer.MultiHeadAttention", **given)
    name, inputs = name_of(name, "multiheadattention"), (query, key, value)
    return _attention("MultiHeadAttention", inputs, num_heads, key_dim, units, causal, dropout, valid_length, name)


def _attention(
    builder: str,
    inputs: tuple[Symbol, Symbol, Symbol],
    heads: int,
    size: int,
    units: int | None,
    causal: bool,
    dropout: float,
    valid_length: Symbol | None,
    name: str,
) -> Symbol:
    check_counts(builder, num_heads=heads, key_dim=size)
    units = heads * size if units is None else units
    check_counts(builder, units=units)
    check_number(builder, "dropout", dropout, 0, 1)
    if valid_length is not None:
        check_symbols(builder, valid_length=valid_length)
    # Its weights have no initializer of their own, so that the one of the program applies.
    layer = _MultiHeadAttention(
        units, heads, size, causal=causal, dropout=dropout, init=None, out_init=None, prefix=f"{name}_"
    )
    return finished(layer(*inputs, *(() if valid_length is None else (valid_length,))), name)
