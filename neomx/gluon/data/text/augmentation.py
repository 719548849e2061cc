"""Random changes of a list of tokens. Draw from `mx.random.rng()`, so that a sample does not depend on its worker.

Each transform takes a list of tokens and returns a new list: `dataset.transform_first(TokenDropout(0.1))`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....ops.random import rng

_KEYBOARD = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_OFFSETS = (0.0, 0.25, 0.75)  # of the rows, in widths of a key


def _neighbors() -> dict[str, str]:
    """Return the keys next to each letter of the keyboard."""
    places = {
        key: (column + offset, float(row))
        for row, (keys, offset) in enumerate(zip(_KEYBOARD, _OFFSETS, strict=True))
        for column, key in enumerate(keys)
    }
    return {
        key: "".join(other for other, (u, v) in places.items() if 0 < (x - u) ** 2 + (y - v) ** 2 < 1.6)
        for key, (x, y) in places.items()
    }


NEIGHBORS = _neighbors()


def check_probabilities(**values: float) -> None:
    """Raise if a value is not from 0 to 1."""
    for name, value in values.items():
        if not 0 <= value <= 1:
            raise ValueError(f"{name} must be from 0 to 1, received {value!r}")


@dataclass(frozen=True)
class SynonymReplacement:
    """Replaces each word that is in `synonyms` with one of its synonyms, with probability `p`."""

    synonyms: Mapping[str, Sequence[str]]
    p: float = 0.1

    def __post_init__(self) -> None:
        check_probabilities(p=self.p)
        if wrong := next(
            (word for word, others in self.synonyms.items() if isinstance(others, str) or not others), None
        ):
            raise ValueError(
                f"synonyms must map words to lists of words, received {self.synonyms[wrong]!r} for {wrong!r}"
            )

    def __call__(self, tokens: Sequence[str]) -> list[str]:
        draw = rng()
        made = list(tokens)
        for place in np.flatnonzero(draw.random(len(made)) < self.p):
            if others := self.synonyms.get(made[place]):
                made[place] = others[int(draw.integers(len(others)))]
        return made


@dataclass(frozen=True)
class TokenDropout:
    """Removes each token with probability `p`, but never all of them."""

    p: float = 0.1

    def __post_init__(self) -> None:
        check_probabilities(p=self.p)

    def __call__(self, tokens: Sequence[Any]) -> list[Any]:
        drawn = rng().random(len(tokens))
        kept = drawn >= min(self.p, drawn.max(initial=0.0))
        return [token for token, keep in zip(tokens, kept, strict=True) if keep]


@dataclass(frozen=True)
class TokenSwap:
    """Exchanges each token, with probability `p`, with one at a random position."""

    p: float = 0.1

    def __post_init__(self) -> None:
        check_probabilities(p=self.p)

    def __call__(self, tokens: Sequence[Any]) -> list[Any]:
        draw = rng()
        made = list(tokens)
        for place in np.flatnonzero(draw.random(len(made)) < self.p):
            other = draw.integers(len(made))
            made[place], made[other] = made[other], made[place]
        return made


@dataclass(frozen=True)
class LocalShuffle:
    """Permutes the tokens so that none moves by more than `distance` positions."""

    distance: int = 3

    def __post_init__(self) -> None:
        if self.distance < 0:
            raise ValueError(f"distance must not be negative, received {self.distance!r}")

    def __call__(self, tokens: Sequence[Any]) -> list[Any]:
        order = np.argsort(np.arange(len(tokens)) + rng().uniform(0, self.distance + 1, len(tokens)), kind="stable")
        return [tokens[place] for place in order]


@dataclass(frozen=True)
class BackTranslationNoise:
    """Noise for the source side of back-translated text, as in Edunov et al. 2018.

    Removes words with probability `drop`, replaces words with `blank_token` with probability `blank`, and moves the
    others by at most `distance` positions.
    """

    drop: float = 0.1
    blank: float = 0.1
    distance: int = 3
    blank_token: Any = "<blank>"

    def __post_init__(self) -> None:
        check_probabilities(drop=self.drop, blank=self.blank)
        LocalShuffle(self.distance)

    def __call__(self, tokens: Sequence[Any]) -> list[Any]:
        kept = TokenDropout(self.drop)(tokens)
        blanks = rng().random(len(kept)) < self.blank
        filled = [self.blank_token if blank else token for token, blank in zip(kept, blanks, strict=True)]
        return LocalShuffle(self.distance)(filled)


@dataclass(frozen=True)
class CharacterNoise:
    """Adds typing errors to words: changes each character with probability `p`.

    A changed character is replaced with a neighbor on the keyboard (a QWERTY keyboard, unless `neighbors` maps each
    lower-case letter to those next to it), removed, doubled, or exchanged with the next one. No word becomes empty.
    """

    p: float = 0.05
    neighbors: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        check_probabilities(p=self.p)

    def __call__(self, tokens: Sequence[str]) -> list[str]:
        draw = rng()
        return [self._typed(word, draw) for word in tokens]

    def _typed(self, word: str, draw: np.random.Generator) -> str:
        letters = list(word)
        for place in np.flatnonzero(draw.random(len(word)) < self.p):
            match draw.integers(4):
                case 0:
                    letters[place] = self._neighbor(letters[place], draw)
                case 1 if any(letters[:place] + letters[place + 1 :]):
                    letters[place] = ""
                case 2:
                    letters[place] *= 2
                case 3 if place + 1 < len(letters):
                    letters[place], letters[place + 1] = letters[place + 1], letters[place]
        return "".join(letters)

    def _neighbor(self, letter: str, draw: np.random.Generator) -> str:
        known = NEIGHBORS if self.neighbors is None else self.neighbors
        if not (keys := known.get(letter.lower())):
            return letter
        key = keys[int(draw.integers(len(keys)))]
        return key.upper() if letter.isupper() else key
