"""GPT-2: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"."""

from __future__ import annotations

import math
from typing import Any

from .... import initializer
from ...block import HybridBlock
from ...nn import Dense, Dropout, Embedding, HybridSequential, LayerNorm
from .parts import BLOCK_PLAN, INIT, Attention, FeedForward, Stage, check_time

__all__ = ["GPT2", "gpt2_large", "gpt2_medium", "gpt2_small", "gpt2_tiny", "gpt2_xl"]


class GPT2Cell(HybridBlock):
    """One layer: attention and feed-forward, each after a norm and added to what came in."""

    def __init__(
        self, units: int, heads: int, hidden: int, dropout: float, epsilon: float, out_init: Any, **kwargs: Any
    ):
        super().__init__(**kwargs)
        with self.name_scope():
            self.norm1 = LayerNorm(epsilon=epsilon, in_channels=units, prefix="norm1_")
            self.attention = Attention(units, heads, True, dropout, out_init=out_init, prefix="attention_")
            self.norm2 = LayerNorm(epsilon=epsilon, in_channels=units, prefix="norm2_")
            self.feedforward = FeedForward(
                units, hidden, "gelu_tanh", dropout, out_init=out_init, prefix="feedforward_"
            )

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """(batch, time, units) as it came in."""
        x = x + self.attention(self.norm1(x))
        return x + self.feedforward(self.norm2(x))


class GPT2(HybridBlock):
    """Scores of the next token at each step: (batch, time) tokens to (batch, time, vocab_size).

    `head=False` gives the hidden states of the last layer, normed, instead. The head's weight is the embedding's.
    """

    TENSOR_PLAN = {"embed": "vocabulary", **BLOCK_PLAN, "head": "logits"}

    def __init__(
        self,
        vocab_size: int = 50257,
        units: int = 768,
        layers: int = 12,
        heads: int = 12,
        max_length: int = 1024,
        hidden: int | None = None,
        dropout: float = 0.1,
        epsilon: float = 1e-5,
        head: bool = True,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self._max_length = max_length
        # Each layer adds twice to what it passes on; the sum shall start as large as one of them.
        out_init = initializer.Normal(0.02 / math.sqrt(2 * layers))
        with self.name_scope():
            self.embed = Embedding(vocab_size, units, weight_initializer=INIT, prefix="embed_")
            self.position = Embedding(max_length, units, weight_initializer=INIT, prefix="position_")
            self.drop = Dropout(dropout)
            self.blocks = HybridSequential(prefix="blocks_")
            with self.blocks.name_scope():
                for i in range(layers):
                    self.blocks.add(
                        GPT2Cell(units, heads, hidden or 4 * units, dropout, epsilon, out_init, prefix=f"{i}_")
                    )
            self.norm = LayerNorm(epsilon=epsilon, in_channels=units, prefix="norm_")
            self.head = None
            if head:
                self.head = Dense(vocab_size, use_bias=False, flatten=False, in_units=units, params=self.embed.params)

    def hybrid_forward(self, F: Any, tokens: Any) -> Any:
        """The scores, or hidden states, of a batch of sequences of tokens."""
        return self._scores(F, self.blocks(self._embedded(F, tokens)))

    def forward(self, tokens: Any) -> Any:
        """As `hybrid_forward`, for sequences that are not too long."""
        check_time(tokens, self._max_length)
        return super().forward(tokens)

    def _embedded(self, F: Any, tokens: Any) -> Any:
        positions = self.position(F.contrib.arange_like(tokens, axis=1))
        return self.drop(F.broadcast_add(self.embed(tokens), F.expand_dims(positions, axis=0)))

    def _scores(self, F: Any, x: Any) -> Any:
        return self.norm(x) if self.head is None else self.head(self.norm(x))

    def stages(self) -> list[tuple[str, HybridBlock]]:
        """What forward does one after the other, for pipelines: (name, Block) of one array each.

        The Blocks share the net's parameters; the embedding's weight is in the first stage and in the last.
        """
        last = {"norm": self.norm} if self.head is None else {"norm": self.norm, "head": self.head}
        return [
            ("embed", Stage(self._embedded, embed=self.embed, position=self.position, drop=self.drop)),
            *((f"blocks.{i}", self.blocks[i]) for i in range(len(self.blocks))),
            ("head", Stage(self._scores, **last)),
        ]


def gpt2_tiny(vocab_size: int = 256, **kwargs: Any) -> GPT2:
    """2 layers of 128 units: to try things with. 0.45 M parameters with 256 tokens and 128 positions."""
    return GPT2(vocab_size, **({"units": 128, "layers": 2, "heads": 4, "max_length": 128} | kwargs))


def gpt2_small(**kwargs: Any) -> GPT2:
    """The published GPT-2: 12 layers of 768 units, 124 M parameters."""
    return GPT2(**({"units": 768, "layers": 12, "heads": 12} | kwargs))


def gpt2_medium(**kwargs: Any) -> GPT2:
    """24 layers of 1024 units, 355 M parameters."""
    return GPT2(**({"units": 1024, "layers": 24, "heads": 16} | kwargs))


def gpt2_large(**kwargs: Any) -> GPT2:
    """36 layers of 1280 units, 774 M parameters."""
    return GPT2(**({"units": 1280, "layers": 36, "heads": 20} | kwargs))


def gpt2_xl(**kwargs: Any) -> GPT2:
    """48 layers of 1600 units, 1.5 G parameters."""
    return GPT2(**({"units": 1600, "layers": 48, "heads": 25} | kwargs))
