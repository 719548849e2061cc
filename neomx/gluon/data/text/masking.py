"""Masked language modeling: which tokens a model has to predict, and what it sees instead of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....ops.random import rng
from .augmentation import check_probabilities
from .subwords import SubwordTokenizer
from .vocabulary import Vocabulary


class MaskTokens:
    """Chooses tokens of a sequence of indices at random, for a model to predict, as in BERT.

    Returns the inputs, the labels and the weights, each as long as the sequence. About `p` of the tokens are chosen, at
    least one, and never special ones. The inputs have the mask token in place of 80 % of the chosen tokens, a random
    token in place of 10 %, and do not change the others. The labels are the original tokens, and the weights are 1 for
    chosen tokens and 0 for all others. With `whole_words`, all sub-words of a word are chosen together.
    """

    def __init__(
        self,
        vocabulary: SubwordTokenizer | Vocabulary,
        mask_token: str = "[MASK]",
        p: float = 0.15,
        whole_words: bool = False,
    ):
        check_probabilities(p=p)
        if mask_token not in vocabulary.token_to_idx:
            raise ValueError(f"mask_token {mask_token!r} is not in the vocabulary of {len(vocabulary)} tokens")
        self._p, self._mask = p, vocabulary.token_to_idx[mask_token]
        self._special = np.zeros(len(vocabulary), bool)
        self._special[[self._mask, *vocabulary.special_indices]] = True
        self._ordinary = np.flatnonzero(~self._special)
        self._starts = vocabulary.starts_word if whole_words else None

    def __call__(self, tokens: Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        labels = np.asarray(tokens, np.int32)
        if labels.size and not 0 <= labels.min() <= labels.max() < len(self._special):
            raise ValueError(
                f"expected indices of a vocabulary of {len(self._special)} tokens, received indices from "
                f"{labels.min()} to {labels.max()}"
            )
        draw = rng()
        chosen = self._chosen(labels, draw)
        inputs, how = labels.copy(), draw.random(len(chosen))
        inputs[chosen[how < 0.8]] = self._mask
        replaced = chosen[how >= 0.9]
        if len(self._ordinary):
            inputs[replaced] = draw.choice(self._ordinary, len(replaced))
        weights = np.zeros(len(labels), np.float32)
        weights[chosen] = 1
        return inputs, labels, weights

    def _chosen(self, labels: np.ndarray, draw: np.random.Generator) -> np.ndarray:
        """Return the positions of the chosen tokens."""
        places = np.flatnonzero(~self._special[labels])
        if not len(places):
            return places
        count = max(1, round(self._p * len(places)))
        if self._starts is None:
            return draw.choice(places, count, replace=False)
        # A word also ends where a special token is: its positions are not in `places`.
        begins = self._starts[labels[places]] | (np.diff(places, prepend=-2) > 1)
        word = np.cumsum(begins) - 1
        order = draw.permutation(word[-1] + 1)
        before = np.cumsum(np.bincount(word)[order]) - np.bincount(word)[order]
        return places[np.isin(word, order[before < count])]
