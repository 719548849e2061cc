"""GPT-2: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"."""

from __future__ import annotations

import math
from typing import Any

from .... import initializer
from .... import ndarray as nd
from ....ndarray import NDArray
from ...block import HybridBlock
from ...nn import Dense, Dropout, Embedding, HybridSequential, LayerNorm
from ...nn.basic_layers import check_sizes
from .generation import Choice, LayerMemory, Memory, generate
from .parts import BLOCK_PLAN, INIT, Attention, FeedForward, Stage, check_time

__all__ = ["GPT2", "gpt2_large", "gpt2_medium", "gpt2_small", "gpt2_tiny", "gpt2_xl"]


class GPT2Cell(HybridBlock):
    """One layer: attention and feed-forward, each applied after normalization and added to its input."""

    def __init__(
        self,
        units: int,
        heads: int,
        hidden: int,
        activation: str,
        dropout: float,
        epsilon: float,
        out_init: Any,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        with self.name_scope():
            self.norm1 = LayerNorm(epsilon=epsilon, in_channels=units, prefix="norm1_")
            self.attention = Attention(units, heads, True, dropout, out_init=out_init, prefix="attention_")
            self.norm2 = LayerNorm(epsilon=epsilon, in_channels=units, prefix="norm2_")
            self.feedforward = FeedForward(units, hidden, activation, dropout, out_init=out_init, prefix="feedforward_")

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Return the output, with the shape of `x`: (batch, time, units)."""
        return self._added(x, self.attention(self.norm1(x)))

    def forward(self, x: Any, *memory: LayerMemory) -> Any:
        """Like `hybrid_forward`. Given a memory, `x` continues the cached sequence."""
        return self._added(x, self.attention(self.norm1(x), *memory)) if memory else super().forward(x)

    def _added(self, x: Any, mixed: Any) -> Any:
        x = x + mixed
        return x + self.feedforward(self.norm2(x))


class GPT2(HybridBlock):
    """Returns scores of the next token at each step: (batch, time) tokens to (batch, time, vocab_size).

    With `head=False`, returns the normalized hidden states of the last layer instead. The head shares its weight with
    the embedding.
    """

    TENSOR_PLAN: dict[str, str]

    def __init__(
        self,
        vocab_size: int = 50257,
        units: int = 768,
        layers: int = 12,
        heads: int = 12,
        max_length: int = 1024,
        hidden: int | None = None,
        activation: str = "gelu_tanh",
        dropout: float = 0.1,
        epsilon: float = 1e-5,
        head: bool = True,
        **kwargs: Any,
    ):
        check_sizes(1, vocab_size=vocab_size, units=units, layers=layers, heads=heads, max_length=max_length)
        super().__init__(**kwargs)
        self.TENSOR_PLAN = {"embed": "vocabulary", **BLOCK_PLAN, **({"head": "logits"} if head else {})}
        self.vocab_size, self.units, self.max_length = vocab_size, units, max_length
        # Each layer adds to the residual stream twice. Scale the initial weights so that the sum keeps its magnitude.
        out_init = initializer.Normal(0.02 / math.sqrt(2 * layers))
        with self.name_scope():
            self.embed = Embedding(vocab_size, units, weight_initializer=INIT, prefix="embed_")
            self.position = Embedding(max_length, units, weight_initializer=INIT, prefix="position_")
            self.drop = Dropout(dropout)
            self.blocks = HybridSequential(prefix="blocks_")
            with self.blocks.name_scope():
                for i in range(layers):
                    self.blocks.add(
                        GPT2Cell(
                            units, heads, hidden or 4 * units, activation, dropout, epsilon, out_init, prefix=f"{i}_"
                        )
                    )
            self.norm = LayerNorm(epsilon=epsilon, in_channels=units, prefix="norm_")
            self.head = None
            if head:
                self.head = Dense(vocab_size, use_bias=False, flatten=False, in_units=units, params=self.embed.params)

    def hybrid_forward(self, F: Any, tokens: Any) -> Any:
        """Return the scores, or hidden states, for a batch of token sequences."""
        return self._scores(F, self.blocks(self._embedded(F, tokens)))

    def forward(self, tokens: Any, *memory: Memory) -> Any:
        """Like `hybrid_forward`. Given a memory, return scores (batch, vocab_size) of the token after the cached ones.

        Generation calls the Blocks in the usual way, so that torch's hooks on them run as well.
        """
        check_time(tokens, self.max_length)
        return self._next(tokens, *memory) if memory else super().forward(tokens)

    def _next(self, tokens: NDArray, memory: Memory) -> NDArray:
        places = memory.places(tokens)
        x = self.drop(nd.broadcast_add(self.embed(tokens), self.position(places)))
        for i, layer in enumerate(memory.layers):
            x = self.blocks[i](x, layer)
        return self._scores(nd, memory.last(x))

    def _embedded(self, F: Any, tokens: Any) -> Any:
        positions = self.position(F.contrib.arange_like(tokens, axis=1))
        return self.drop(F.broadcast_add(self.embed(tokens), F.expand_dims(positions, axis=0)))

    def _scores(self, F: Any, x: Any) -> Any:
        return self.norm(x) if self.head is None else self.head(self.norm(x))

    def generate(
        self,
        tokens: Any,
        max_new_tokens: int,
        method: str = "greedy",
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        eos: int | None = None,
        seed: int | None = None,
    ) -> Any:
        """Continue prompts by `max_new_tokens` tokens, or fewer if all texts have reached the token `eos`.

        `tokens` is an array (batch, time), as is the result, in which finished texts are padded with `eos`. Or `tokens`
        is a list of prompts of any lengths, and the result is a list of lists, each ending with its `eos`. Method
        'greedy' takes the most likely token. 'sample' draws from the scores divided by `temperature`, restricted to the
        `top_k` most likely tokens and to the smallest set with a total probability of `top_p`. `seed` makes the result
        reproducible, as `mx.random.seed` does.
        """
        return generate(self, tokens, max_new_tokens, Choice(method, temperature, top_k, top_p, seed), eos)

    def stages(self) -> list[tuple[str, HybridBlock]]:
        """Return the sequential steps of forward as (name, Block) pairs with one input each. Used by pipelines.

        The Blocks share the parameters of the net. The embedding weight is in both the first and the last stage.
        """
        last = {"norm": self.norm} if self.head is None else {"norm": self.norm, "head": self.head}
        return [
            ("embed", Stage(self._embedded, embed=self.embed, position=self.position, drop=self.drop)),
            *((f"blocks.{i}", self.blocks[i]) for i in range(len(self.blocks))),
            ("head", Stage(self._scores, **last)),
        ]


def gpt2_tiny(vocab_size: int = 256, **kwargs: Any) -> GPT2:
    """2 layers of 128 units, for experiments: 0.45 M parameters with 256 tokens and 128 positions."""
    return GPT2(vocab_size, **({"units": 128, "layers": 2, "heads": 4, "max_length": 128} | kwargs))


def gpt2_small(**kwargs: Any) -> GPT2:
    """The published GPT-2 small: 12 layers of 768 units, 124 M parameters."""
    return GPT2(**({"units": 768, "layers": 12, "heads": 12} | kwargs))


def gpt2_medium(**kwargs: Any) -> GPT2:
    """24 layers of 1024 units, 355 M parameters."""
    return GPT2(**({"units": 1024, "layers": 24, "heads": 16} | kwargs))


def gpt2_large(**kwargs: Any) -> GPT2:
    """36 layers of 1280 units, 774 M parameters."""
    return GPT2(**({"units": 1280, "layers": 36, "heads": 20} | kwargs))


def gpt2_xl(**kwargs: Any) -> GPT2:
    """48 layers of 1600 units, 1.5 B parameters."""
    return GPT2(**({"units": 1600, "layers": 48, "heads": 25} | kwargs))
