"""The vocabulary: indices for the tokens of a text."""

from ...gluon.contrib.data.vocabulary import Vocabulary

__all__ = ["Vocabulary"]
