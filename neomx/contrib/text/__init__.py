"""`mx.contrib.text`: words as numbers, and vectors for words."""

from . import embedding, utils, vocab

__all__ = ["embedding", "utils", "vocab"]
