"""Numbers for the words of a text."""

from ...gluon.contrib.data.vocabulary import Vocabulary

__all__ = ["Vocabulary"]
