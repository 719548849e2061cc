"""Transformer networks for text: GPT-2 and BERT.

    net = transformer.gpt2_small()                    # or get_transformer("gpt2_small"); then net.initialize()
    net = transformer.load_huggingface("folder")      # with published weights
    net.generate([[464, 3290]], 20, "sample", temperature=0.8, top_k=40)
    net = transformer.BERTClassifier(transformer.bert_base(), classes=3)
    scores = net(tokens, token_types, valid_length)   # the last two arguments are optional

All of them run on arrays, as graphs when hybridized, and on torch tensors with `net.torch()`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....base import suggest
from ...block import HybridBlock
from .bert import BERT, BERTClassifier, BERTMaskedLM, bert_base, bert_large, bert_medium, bert_small, bert_tiny
from .gpt2 import GPT2, gpt2_large, gpt2_medium, gpt2_small, gpt2_tiny, gpt2_xl
from .huggingface import load_huggingface
from .parts import MultiHeadAttention

__all__ = [
    "BERT",
    "BERTClassifier",
    "BERTMaskedLM",
    "GPT2",
    "MultiHeadAttention",
    "bert_base",
    "bert_large",
    "bert_medium",
    "bert_small",
    "bert_tiny",
    "get_transformer",
    "gpt2_large",
    "gpt2_medium",
    "gpt2_small",
    "gpt2_tiny",
    "gpt2_xl",
    "load_huggingface",
]

_models: dict[str, Callable[..., HybridBlock]] = {
    each.__name__: each
    for each in (
        *(bert_tiny, bert_small, bert_medium, bert_base, bert_large),
        *(gpt2_tiny, gpt2_small, gpt2_medium, gpt2_large, gpt2_xl),
    )
}


def get_transformer(name: str, **kwargs: Any) -> HybridBlock:
    """Return the network of this name ("gpt2_small", "bert_base", ...). `kwargs` are passed to its class."""
    if name not in _models:
        raise ValueError(f"unknown transformer {name!r}.{suggest(name, _models)} Available: {', '.join(_models)}")
    return _models[name](**kwargs)
