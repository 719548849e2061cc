"""Vocabulary: that of `mx.contrib.text`, which also encodes and decodes texts and is saved as JSON."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ....base import MXNetError
from ....formats.atomic import replacing
from ...contrib.data import vocabulary as contrib


class Vocabulary(contrib.Vocabulary):
    """Maps words to indices, as `mx.contrib.text.vocab.Vocabulary` does, and encodes, decodes, saves and loads."""

    @classmethod
    def of(cls, sentences: Iterable[Iterable[str]], **kwargs: Any) -> Vocabulary:
        """Return the vocabulary of the words in `sentences`. `kwargs` are those of the constructor but `counter`."""
        counter: Counter = Counter()
        for words in sentences:
            if isinstance(words, str):
                raise TypeError(f"each sentence must be a list of words, received {words!r:.80}. Use its split()")
            counter.update(words)
        return cls(counter, **kwargs)

    @property
    def special_indices(self) -> list[int]:
        """The indices of the unknown token and of the reserved tokens."""
        return list(range(1 + len(self.reserved_tokens or ())))

    @property
    def starts_word(self) -> np.ndarray:
        """Whether each token starts a word: all of them do."""
        return np.ones(len(self), bool)

    def encode(self, text: str | Sequence[str]) -> list[int]:
        """Return the indices of a list of words, or of the words of a text that are separated by white space."""
        return self.to_indices(text.split() if isinstance(text, str) else list(text))

    def decode(self, indices: Iterable[int]) -> str:
        """Return the words of the indices, separated by spaces."""
        return " ".join(map(str, self.to_tokens([int(index) for index in indices])))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the vocabulary to a JSON file. All of its tokens must be strings."""
        if other := next((token for token in self.idx_to_token if not isinstance(token, str)), None):
            raise MXNetError(f"a file contains only tokens of type str, but the vocabulary has the token {other!r}")
        known = 1 + len(self.reserved_tokens or ())
        content = {
            "unknown_token": self.unknown_token,
            "reserved_tokens": self.reserved_tokens,
            "tokens": self.idx_to_token[known:],
        }
        with replacing(path) as file:
            file.write((json.dumps(content, ensure_ascii=False, indent=0) + "\n").encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Vocabulary:
        """Return the vocabulary of a file that `save` has written."""
        try:
            with open(path, encoding="utf-8") as file:
                content = json.load(file)
            unknown, reserved, tokens = (content[name] for name in ("unknown_token", "reserved_tokens", "tokens"))
            if not all(isinstance(token, str) for token in (unknown, *(reserved or ()), *tokens)):
                raise TypeError("a token is not a string")
            made = cls(unknown_token=unknown, reserved_tokens=reserved)
        except (KeyError, TypeError, ValueError, AssertionError, RecursionError) as error:
            raise MXNetError(
                f"{os.fspath(path)} is not a vocabulary that Vocabulary.save has written: {error}"
            ) from None
        made._idx_to_token += tokens
        made._token_to_idx = {token: index for index, token in enumerate(made._idx_to_token)}
        if len(made._token_to_idx) != len(made):
            raise MXNetError(f"{os.fspath(path)} contains a token twice")
        return made
