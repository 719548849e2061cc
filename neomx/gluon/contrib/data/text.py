"""WikiText: Wikipedia articles as sequences of words, for language modeling."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import numpy as np

from ....base import MXNetError, data_dir
from ....ndarray import NDArray, array
from ...data import dataset
from .archive import unpacked
from .vocabulary import Vocabulary

__all__ = ["WikiText2", "WikiText103"]

_END = "<eos>"
_FILES = {"train": "wiki.train.tokens", "validation": "wiki.valid.tokens", "test": "wiki.test.tokens"}


class _WikiText(dataset._DownloadedDataset):
    """Samples of `seq_len` word indices and the indices of the words that follow, across sentence boundaries.

    The files `wiki.train.tokens` etc. are read from `root`, and downloaded if missing. Without `vocab`, the vocabulary
    consists of the words in the text.
    """

    _namespace = ""
    _archive_file = ("", "")

    def __init__(self, root: str, segment: str = "train", vocab: Vocabulary | None = None, seq_len: int = 35):
        if segment not in _FILES:
            raise KeyError(f"segment must be one of {', '.join(_FILES)}, received {segment!r}")
        self._segment, self._seq_len = segment, seq_len
        self._vocab = vocab
        self._counter: Counter = Counter()
        super().__init__(root, None)

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The vocabulary that maps words to indices."""
        return self._vocab

    @property
    def frequencies(self) -> Counter:
        """The number of occurrences of each word in the text."""
        return self._counter

    def _get_data(self) -> None:
        folder = f"gluon/dataset/{self._namespace}"
        path = unpacked(self._root, _FILES[self._segment], folder, *self._archive_file)
        with open(path, encoding="utf8") as file:
            sentences = [line.split() for line in file]
        words = [word for sentence in sentences if sentence for word in (*sentence, _END)]
        self._counter = Counter(word for word in words if word != _END)
        if self._vocab is None:
            self._vocab = Vocabulary(counter=self._counter, reserved_tokens=[_END])
        self._cut(np.array(self._vocab.to_indices(words), dtype=np.int32), path)

    def _cut(self, numbers: np.ndarray, path: str) -> None:
        """Cut the text into samples. Words that do not fill a sample are dropped."""
        count = (len(numbers) - 1) // self._seq_len
        if count < 1:
            raise MXNetError(f"{path} has {len(numbers)} words, but one sample needs {self._seq_len} and the next")
        shape, end = (count, self._seq_len), count * self._seq_len
        self._data = array(numbers[:end].reshape(shape), dtype=np.int32)
        self._label = array(numbers[1 : end + 1].reshape(shape), dtype=np.int32)

    def __getitem__(self, idx: Any) -> tuple[NDArray, NDArray]:
        return self._data[idx], self._label[idx]

    def __len__(self) -> int:
        return len(self._label)


class WikiText2(_WikiText):
    """WikiText-2, with two million words."""

    _namespace = "wikitext-2"
    _archive_file = "wikitext-2-v1.zip", "3c914d17d80b1459be871a5039ac23e752a53cbe"

    def __init__(
        self,
        root: str = os.path.join(data_dir(), "datasets", "wikitext-2"),
        segment: str = "train",
        vocab: Vocabulary | None = None,
        seq_len: int = 35,
    ):
        super().__init__(root, segment, vocab, seq_len)


class WikiText103(_WikiText):
    """WikiText-103, with a hundred million words."""

    _namespace = "wikitext-103"
    _archive_file = "wikitext-103-v1.zip", "0aec09a7537b58d4bb65362fee27650eeaba625a"

    def __init__(
        self,
        root: str = os.path.join(data_dir(), "datasets", "wikitext-103"),
        segment: str = "train",
        vocab: Vocabulary | None = None,
        seq_len: int = 35,
    ):
        super().__init__(root, segment, vocab, seq_len)
