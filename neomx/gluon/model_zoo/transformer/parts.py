"""What transformers share: attention, the feed-forward, and a net's stages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .... import initializer
from ....base import MXNetError
from ...block import HybridBlock
from ...nn import Dense, Dropout

INIT = initializer.Normal(0.02)

# How tensor parallelism divides a block: by heads, and by columns of the feed-forward.
BLOCK_PLAN = {
    "blocks.*.attention.query": "column",
    "blocks.*.attention.key": "column",
    "blocks.*.attention.value": "column",
    "blocks.*.attention.out": "row",
    "blocks.*.feedforward.up": "column",
    "blocks.*.feedforward.down": "row",
}


def dense(units: int, in_units: int, init: Any = INIT, **kwargs: Any) -> Dense:
    """A Dense layer on the last axis."""
    return Dense(units, flatten=False, in_units=in_units, weight_initializer=init, **kwargs)


class Attention(HybridBlock):
    """Self-attention of `heads` heads; with `causal` no step looks at later ones."""

    def __init__(
        self,
        units: int,
        heads: int,
        causal: bool,
        dropout: float,
        init: Any = INIT,
        out_init: Any = INIT,
        **kwargs: Any,
    ):
        if units % heads:
            raise ValueError(f"units must divide by heads, received units={units}, heads={heads}")
        super().__init__(**kwargs)
        self._kwargs = {"head_size": units // heads, "dropout": dropout}
        self._causal, self._rate = causal, dropout
        with self.name_scope():
            self.query = dense(units, units, init, prefix="query_")
            self.key = dense(units, units, init, prefix="key_")
            self.value = dense(units, units, init, prefix="value_")
            self.out = dense(units, units, out_init, prefix="out_")
            self.drop = Dropout(dropout)

    def hybrid_forward(self, F: Any, x: Any, valid_length: Any = None) -> Any:
        """(batch, time, units) as it came in."""
        mixed = F.contrib.attention(
            self.query(x),
            self.key(x),
            self.value(x),
            *(() if valid_length is None else (valid_length,)),
            use_valid_length=valid_length is not None,
            causal=self._causal,
            **self._kwargs,
        )
        return self.drop(self.out(mixed))


class FeedForward(HybridBlock):
    """Two Dense layers with an activation between: `gelu` or `gelu_tanh`."""

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
        if activation not in ("gelu", "gelu_tanh"):
            raise ValueError(f"activation must be 'gelu' or 'gelu_tanh', received {activation!r}")
        super().__init__(**kwargs)
        self._activation = activation
        with self.name_scope():
            self.up = dense(hidden, units, init, prefix="up_")
            self.down = dense(units, hidden, out_init, prefix="down_")
            self.drop = Dropout(dropout)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """(batch, time, units) as it came in."""
        x = self.up(x)
        x = F.contrib.gelu_tanh(x) if self._activation == "gelu_tanh" else F.LeakyReLU(x, act_type="gelu")
        return self.drop(self.down(x))


class Stage(HybridBlock):
    """Some children of a net as one Block, which computes what the net does with them."""

    def __init__(self, compute: Callable[[Any, Any], Any], **children: HybridBlock):
        super().__init__(prefix="")
        self._compute = compute
        for name, child in children.items():
            self.register_child(child, name)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """What `compute(F, x)` gives."""
        return self._compute(F, x)


def check_time(tokens: Any, most: int) -> None:
    """Refuse sequences for which there are no positions, and what is no batch of sequences."""
    shape = getattr(tokens, "shape", None)  # a Symbol has none
    if shape is None:
        return
    if len(shape) != 2:
        raise MXNetError(f"expected tokens of shape (batch, time), received {tuple(shape)}")
    if shape[1] > most:
        raise MXNetError(
            f"received sequences of {shape[1]} tokens, and the net has positions for {most}. "
            "Cut them, or make the net with a larger max_length"
        )
