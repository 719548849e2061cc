"""Common parts of transformers: attention, feed-forward layers and pipeline stages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .... import initializer
from .... import ndarray as nd
from ....base import MXNetError
from ...block import Block, HybridBlock
from ...nn import Dense, Dropout
from .generation import LayerMemory

INIT = initializer.Normal(0.02)


def gelu(F: Any, x: Any) -> Any:
    """GELU: x times the cumulative distribution function of the standard normal distribution at x."""
    return F.LeakyReLU(x, act_type="gelu")


def gelu_tanh(F: Any, x: Any) -> Any:
    """GELU in the tanh approximation."""
    return F.contrib.gelu_tanh(x)


def relu(F: Any, x: Any) -> Any:
    """max(x, 0)."""
    return F.relu(x)


# How tensor parallelism shards a block: by heads, and by columns of the feed-forward layer.
BLOCK_PLAN = {
    "blocks.*.attention.query": "column",
    "blocks.*.attention.key": "column",
    "blocks.*.attention.value": "column",
    "blocks.*.attention.out": "row",
    "blocks.*.feedforward.up": "column",
    "blocks.*.feedforward.down": "row",
}

# Functions of (F, x), not lambdas, so that a Block that holds one can be copied.
ACTIVATIONS = {"gelu": gelu, "gelu_tanh": gelu_tanh, "relu": relu}


def dense(units: int, in_units: int, init: Any = INIT, **kwargs: Any) -> Dense:
    """Return a Dense layer that transforms the last axis."""
    return Dense(units, flatten=False, in_units=in_units, weight_initializer=init, **kwargs)


class MultiHeadAttention(HybridBlock):
    """Attention of a query to keys and values with `heads` heads: (batch, time, any) to (batch, time of query, units).

    The default size of a head is units / heads. With `causal`, steps do not attend to later steps.
    """

    def __init__(
        self,
        units: int,
        heads: int,
        head_size: int | None = None,
        causal: bool = False,
        dropout: float = 0.0,
        in_units: int = 0,
        init: Any = INIT,
        out_init: Any = INIT,
        **kwargs: Any,
    ):
        if head_size is None and units % heads:
            raise ValueError(f"units must be a multiple of heads, received units={units}, heads={heads}")
        super().__init__(**kwargs)
        head_size = head_size or units // heads
        self.heads = heads  # read by tensor parallelism before it shards the heads
        self._kwargs = {"head_size": head_size, "dropout": dropout}
        self._causal = causal
        inner = heads * head_size
        with self.name_scope():
            self.query = dense(inner, in_units, init, prefix="query_")
            self.key = dense(inner, in_units, init, prefix="key_")
            self.value = dense(inner, in_units, init, prefix="value_")
            self.out = dense(units, inner, out_init, prefix="out_")
            self.drop = Dropout(dropout)

    def hybrid_forward(self, F: Any, query: Any, key: Any, value: Any, valid_length: Any = None) -> Any:
        """Return the attention output. `valid_length` (batch,) has the number of valid keys, by default all."""
        return self._mixed(F, self._causal, self.query(query), self.key(key), self.value(value), valid_length)

    def _mixed(self, F: Any, causal: bool, query: Any, key: Any, value: Any, valid_length: Any = None) -> Any:
        lengths = () if valid_length is None else (valid_length,)
        mixed = F.contrib.attention(
            query, key, value, *lengths, use_valid_length=bool(lengths), causal=causal, **self._kwargs
        )
        return self.drop(self.out(mixed))


class Attention(MultiHeadAttention):
    """Self-attention with `heads` heads. With `causal`, steps do not attend to later steps."""

    def __init__(self, units: int, heads: int, causal: bool, dropout: float, **kwargs: Any):
        super().__init__(units, heads, causal=causal, dropout=dropout, **({"in_units": units} | kwargs))

    def hybrid_forward(self, F: Any, x: Any, valid_length: Any = None) -> Any:  # type: ignore[override]
        """Return the attention output, with the shape of `x`: (batch, time, units)."""
        return super().hybrid_forward(F, x, x, x, valid_length)

    def forward(self, x: Any, *args: Any) -> Any:
        """Like `hybrid_forward`. Given a LayerMemory, `x` continues the cached sequence."""
        if not args or not isinstance(args[0], LayerMemory):
            return super().forward(x, *args)
        (memory,) = args
        causal = memory.is_empty
        return self._mixed(nd, causal, self.query(x), *memory.extend(self.key(x), self.value(x)))


class FeedForward(HybridBlock):
    """Two Dense layers with an activation in between: `gelu`, `gelu_tanh` or `relu`."""

    def __init__(
        self,
        units: int,
        hidden: int,
        activation: str,
        dropout: float,
        init: Any = INIT,
        out_init: Any = INIT,
        **kwargs: Any,
    ):
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, received {activation!r}")
        super().__init__(**kwargs)
        self._activate = ACTIVATIONS[activation]
        with self.name_scope():
            self.up = dense(hidden, units, init, prefix="up_")
            self.down = dense(units, hidden, out_init, prefix="down_")
            self.drop = Dropout(dropout)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Return the output, with the shape of `x`: (batch, time, units)."""
        return self.drop(self.down(self._activate(F, self.up(x))))


class Stage(HybridBlock):
    """A Block of some children of a net, which performs their part of the net's computation."""

    def __init__(self, compute: Callable[[Any, Any], Any], **children: Block):
        super().__init__(prefix="")
        self._compute = compute
        for name, child in children.items():
            self.register_child(child, name)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Return `compute(F, x)`."""
        return self._compute(F, x)


def check_time(tokens: Any, most: int) -> None:
    """Raise unless `tokens` is a batch of sequences that are not longer than the number of positions."""
    shape = getattr(tokens, "shape", None)  # a Symbol has no shape
    if shape is None:
        return
    if len(shape) != 2:
        raise MXNetError(f"expected tokens of shape (batch, time), received {tuple(shape)}")
    if shape[1] > most:
        raise MXNetError(
            f"received sequences of {shape[1]} tokens, but the net has {most} positions. "
            "Truncate them, or create the net with a larger max_length"
        )
