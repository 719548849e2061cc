"""BERT: Devlin et al. 2018, "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding"."""

from __future__ import annotations

from typing import Any

from ...block import HybridBlock
from ...nn import Dense, Dropout, Embedding, HybridSequential, LayerNorm
from ...nn.basic_layers import check_sizes
from .parts import ACTIVATIONS, BLOCK_PLAN, INIT, Attention, FeedForward, Stage, check_time, dense

__all__ = [
    "BERT",
    "BERTClassifier",
    "BERTMaskedLM",
    "bert_base",
    "bert_large",
    "bert_medium",
    "bert_small",
    "bert_tiny",
]


class BERTCell(HybridBlock):
    """One layer: attention and feed-forward, each added to its input and then normalized."""

    def __init__(
        self, units: int, heads: int, hidden: int, activation: str, dropout: float, epsilon: float, **kwargs: Any
    ):
        super().__init__(**kwargs)
        with self.name_scope():
            self.attention = Attention(units, heads, False, dropout, prefix="attention_")
            self.norm1 = LayerNorm(epsilon=epsilon, in_channels=units, prefix="norm1_")
            self.feedforward = FeedForward(units, hidden, activation, dropout, prefix="feedforward_")
            self.norm2 = LayerNorm(epsilon=epsilon, in_channels=units, prefix="norm2_")

    def hybrid_forward(self, F: Any, x: Any, valid_length: Any = None) -> Any:
        """Return the output, with the shape of `x`: (batch, time, units)."""
        x = self.norm1(x + self.attention(x, valid_length))
        return self.norm2(x + self.feedforward(x))


class BERT(HybridBlock):
    """Maps (batch, time) tokens to hidden states (batch, time, units) and the pooled state of the first step.

    `token_types` (batch, time) default to 0. `valid_length` (batch,) has the lengths of the sequences, by default the
    full length. With `pooler=False`, only the hidden states are returned.
    """

    TENSOR_PLAN = {"embed": "vocabulary", **BLOCK_PLAN}

    def __init__(
        self,
        vocab_size: int = 30522,
        units: int = 768,
        layers: int = 12,
        heads: int = 12,
        max_length: int = 512,
        hidden: int | None = None,
        token_types: int = 2,
        activation: str = "gelu",
        dropout: float = 0.1,
        epsilon: float = 1e-12,
        pooler: bool = True,
        **kwargs: Any,
    ):
        check_sizes(1, vocab_size=vocab_size, units=units, layers=layers, heads=heads, max_length=max_length)
        super().__init__(**kwargs)
        self.vocab_size, self.units, self.max_length = vocab_size, units, max_length
        with self.name_scope():
            self.embed = Embedding(vocab_size, units, weight_initializer=INIT, prefix="embed_")
            self.position = Embedding(max_length, units, weight_initializer=INIT, prefix="position_")
            self.token_type = Embedding(token_types, units, weight_initializer=INIT, prefix="type_")
            self.norm = LayerNorm(epsilon=epsilon, in_channels=units, prefix="norm_")
            self.drop = Dropout(dropout)
            self.blocks = HybridSequential(prefix="blocks_")
            with self.blocks.name_scope():
                for i in range(layers):
                    self.blocks.add(
                        BERTCell(units, heads, hidden or 4 * units, activation, dropout, epsilon, prefix=f"{i}_")
                    )
            self.pooler = None
            if pooler:
                self.pooler = Dense(units, "tanh", in_units=units, weight_initializer=INIT, prefix="pooler_")

    def hybrid_forward(self, F: Any, tokens: Any, token_types: Any = None, valid_length: Any = None) -> Any:
        """Return the hidden states of a batch of sequences, and the pooled states."""
        x = self._embedded(F, tokens, token_types)
        for i in range(len(self.blocks)):
            x = self.blocks[i](x, valid_length)
        return self._pooled(F, x)

    def forward(self, tokens: Any, token_types: Any = None, valid_length: Any = None) -> Any:
        """Check the lengths of the sequences, then compute `hybrid_forward`."""
        check_time(tokens, self.max_length)
        return super().forward(tokens, token_types, valid_length)

    def _embedded(self, F: Any, tokens: Any, token_types: Any = None) -> Any:
        steps = F.contrib.arange_like(tokens, axis=1)
        by_step = self.position(steps)
        words = self.embed(tokens)
        if token_types is None:
            by_step = by_step + self.token_type(steps * 0)  # shape (1, time, units), broadcast over the batch
        else:
            words = words + self.token_type(token_types)
        return self.drop(self.norm(F.broadcast_add(words, F.expand_dims(by_step, axis=0))))

    def _pooled(self, F: Any, x: Any) -> Any:
        return x if self.pooler is None else (x, self.pooler(F.slice_axis(x, axis=1, begin=0, end=1)))

    def stages(self) -> list[tuple[str, HybridBlock]]:
        """Return the sequential steps of forward, for tokens only, as (name, Block) pairs. Used by pipelines."""
        first = {"embed": self.embed, "position": self.position, "token_type": self.token_type, "norm": self.norm}
        return [
            ("embed", Stage(self._embedded, **first, drop=self.drop)),
            *((f"blocks.{i}", self.blocks[i]) for i in range(len(self.blocks))),
            *([] if self.pooler is None else [("pooler", Stage(self._pooled, pooler=self.pooler))]),
        ]


class _Headed(HybridBlock):
    """A `bert` with a head on its output."""

    TENSOR_PLAN = {f"bert.{pattern}": style for pattern, style in BERT.TENSOR_PLAN.items()}
    bert: BERT

    def hybrid_forward(self, F: Any, tokens: Any, token_types: Any = None, valid_length: Any = None) -> Any:
        """Return the scores of the head for a batch of sequences."""
        return self._scores(F, self.bert(tokens, token_types, valid_length))

    def _scores(self, F: Any, states: Any) -> Any:
        """Compute the scores from the output of `bert`."""
        raise NotImplementedError

    def _after_blocks(self, F: Any, x: Any) -> Any:
        return self._scores(F, self.bert._pooled(F, x))

    def stages(self) -> list[tuple[str, HybridBlock]]:
        """Return the sequential steps of forward, for tokens only, as (name, Block) pairs. Used by pipelines."""
        after = {name: child for name, child in self._children.items() if child is not self.bert}
        if self.bert.pooler is not None:
            after["pooler"] = self.bert.pooler
        before = [(f"bert.{name}", stage) for name, stage in self.bert.stages() if name != "pooler"]
        return [*before, ("head", Stage(self._after_blocks, **after))]


class BERTClassifier(_Headed):
    """Computes scores of `classes` classes for each sequence, from the pooled state of `bert`. Call it like `bert`."""

    def __init__(self, bert: BERT, classes: int = 2, dropout: float = 0.1, **kwargs: Any):
        if bert.pooler is None:
            raise ValueError("BERTClassifier needs the pooled state of bert: create bert with pooler=True")
        super().__init__(**kwargs)
        self.bert = bert
        with self.name_scope():
            self.drop = Dropout(dropout)
            self.head = Dense(classes, in_units=bert.units, weight_initializer=INIT, prefix="head_")

    def _scores(self, F: Any, states: Any) -> Any:
        return self.head(self.drop(states[1]))


class BERTMaskedLM(_Headed):
    """Computes scores of all tokens at each step: (batch, time, vocab_size). Shares the embedding of `bert`."""

    TENSOR_PLAN = {**_Headed.TENSOR_PLAN, "head": "logits"}

    def __init__(self, bert: BERT, activation: str = "gelu", epsilon: float = 1e-12, **kwargs: Any):
        super().__init__(**kwargs)
        self.bert = bert
        self._activate = ACTIVATIONS[activation]
        with self.name_scope():
            self.transform = dense(bert.units, bert.units, prefix="transform_")
            self.norm = LayerNorm(epsilon=epsilon, in_channels=bert.units, prefix="norm_")
            self.head = Dense(bert.vocab_size, flatten=False, in_units=bert.units, params=bert.embed.params)

    def _scores(self, F: Any, states: Any) -> Any:
        x = states if self.bert.pooler is None else states[0]
        return self.head(self.norm(self._activate(F, self.transform(x))))


def bert_tiny(vocab_size: int = 256, **kwargs: Any) -> BERT:
    """2 layers of 128 units, for experiments."""
    return BERT(vocab_size, **({"units": 128, "layers": 2, "heads": 2, "max_length": 128} | kwargs))


def bert_small(**kwargs: Any) -> BERT:
    """4 layers of 512 units, 29 M parameters."""
    return BERT(**({"units": 512, "layers": 4, "heads": 8} | kwargs))


def bert_medium(**kwargs: Any) -> BERT:
    """8 layers of 512 units, 41 M parameters."""
    return BERT(**({"units": 512, "layers": 8, "heads": 8} | kwargs))


def bert_base(**kwargs: Any) -> BERT:
    """The published BERT base: 12 layers of 768 units, 110 M parameters."""
    return BERT(**({"units": 768, "layers": 12, "heads": 12} | kwargs))


def bert_large(**kwargs: Any) -> BERT:
    """24 layers of 1024 units, 335 M parameters."""
    return BERT(**({"units": 1024, "layers": 24, "heads": 16} | kwargs))
