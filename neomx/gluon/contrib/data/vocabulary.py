"""Vocabulary: maps the tokens of a text to indices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

UNKNOWN_INDEX = 0


class Vocabulary:
    """Maps tokens to indices: 0 is the unknown token, followed by reserved tokens and those of `counter` by frequency.

    `most_freq_count` limits the number of tokens taken from the counter, and `min_freq` is their minimum frequency.
    Tokens with the same frequency are sorted alphabetically.
    """

    def __init__(
        self,
        counter: Counter | None = None,
        most_freq_count: int | None = None,
        min_freq: int = 1,
        unknown_token: Any = "<unk>",
        reserved_tokens: Sequence[Any] | None = None,
    ):
        if min_freq < 1:
            raise AssertionError(f"`min_freq` must be set to a positive value, received {min_freq}")
        reserved = list(reserved_tokens or ())
        if unknown_token in reserved:
            raise AssertionError(f"`reserved_tokens` cannot contain `unknown_token`, which is {unknown_token!r}")
        if len(set(reserved)) != len(reserved):
            raise AssertionError(f"`reserved_tokens` cannot contain duplicate reserved tokens, received {reserved}")
        if counter is not None and not isinstance(counter, Counter):
            raise AssertionError(
                f"`counter` must be an instance of collections.Counter, received {type(counter).__name__}"
            )
        self._unknown_token = unknown_token
        self._reserved_tokens = None if reserved_tokens is None else reserved
        self._idx_to_token = [unknown_token, *reserved]
        if counter is not None:
            self._idx_to_token += self._frequent(counter, most_freq_count, min_freq)
        self._token_to_idx = {token: index for index, token in enumerate(self._idx_to_token)}

    def _frequent(self, counter: Counter, most: int | None, min_freq: int) -> list[Any]:
        """The tokens of the counter that are not indexed yet, most frequent first."""
        known = set(self._idx_to_token)
        ordered = sorted(sorted(counter.items()), key=lambda item: item[1], reverse=True)
        return [token for token, count in ordered if count >= min_freq and token not in known][:most]

    def __len__(self) -> int:
        return len(self._idx_to_token)

    @property
    def token_to_idx(self) -> dict[Any, int]:
        """The index of each token."""
        return self._token_to_idx

    @property
    def idx_to_token(self) -> list[Any]:
        """The tokens in the order of their indices."""
        return self._idx_to_token

    @property
    def unknown_token(self) -> Any:
        """The token that represents all tokens without an index."""
        return self._unknown_token

    @property
    def reserved_tokens(self) -> list[Any] | None:
        """The tokens that are always included, regardless of the counter."""
        return self._reserved_tokens

    def to_indices(self, tokens: Any) -> Any:
        """Return the index of a token, or the indices of a list of tokens. Unknown tokens have index 0."""
        if isinstance(tokens, list):
            return [self._token_to_idx.get(token, UNKNOWN_INDEX) for token in tokens]
        return self._token_to_idx.get(tokens, UNKNOWN_INDEX)

    def to_tokens(self, indices: Any) -> Any:
        """Return the token of an index, or the tokens of a list of indices."""
        tokens = [self._token(index) for index in (indices if isinstance(indices, list) else [indices])]
        return tokens if isinstance(indices, list) else tokens[0]

    def _token(self, index: Any) -> Any:
        if isinstance(index, str):
            raise TypeError(f"to_tokens expects indices, received {index!r}. Use to_indices for tokens")
        try:
            return self._idx_to_token[index]
        except (IndexError, TypeError):
            raise ValueError(
                f"Token index {index} in the provided `indices` is invalid: there are {len(self)} tokens"
            ) from None
