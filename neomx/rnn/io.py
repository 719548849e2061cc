"""Encoding of sentences as integers, and batches of sentences of similar length."""

from __future__ import annotations

import bisect
import logging
import random
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .. import ndarray as nd
from ..base import MXNetError
from ..io import DataBatch, DataDesc, DataIter

__all__ = ["BucketSentenceIter", "encode_sentences"]


def encode_sentences(
    sentences: Iterable[Sequence[str]],
    vocab: dict[str, int] | None = None,
    invalid_label: int = -1,
    invalid_key: str = "\n",
    start_label: int = 0,
    unknown_token: str | None = None,
) -> tuple[list[list[int]], dict[str, int]]:
    """Encode sentences of words as lists of integers, and return them with the vocabulary.

    Without `vocab`, words are numbered from `start_label`, skipping `invalid_label`. With `vocab`, an unknown word is
    an error unless `unknown_token` is given, which then gets a new number.
    """
    grows = vocab is None
    vocab = {invalid_key: invalid_label} if vocab is None else vocab
    label = start_label
    encoded = []
    for sentence in sentences:
        coded = []
        for word in sentence:
            if word not in vocab:
                assert grows or unknown_token, f"Unknown token {word}. Pass unknown_token, or a vocab that contains it"
                label += label == invalid_label
                word = unknown_token or word
                vocab[word] = label
                label += 1
            coded.append(vocab[word])
        encoded.append(coded)
    return encoded, vocab


class BucketSentenceIter(DataIter):
    """Batches of encoded sentences for a language model. All sentences of a batch are in the same bucket.

    A sentence is put into the smallest of `buckets` that is large enough, and padded with `invalid_label`. Labels are
    the following words. Without `buckets`, there is a bucket for every length with at least `batch_size` sentences. The
    order is drawn from `random` and `numpy.random`.
    """

    def __init__(
        self,
        sentences: Sequence[Sequence[int]],
        batch_size: int,
        buckets: Sequence[int] | None = None,
        invalid_label: int = -1,
        data_name: str = "data",
        label_name: str = "softmax_label",
        dtype: Any = "float32",
        layout: str = "NT",
    ):
        super().__init__(batch_size)
        if batch_size < 1 or layout.find("N") not in (0, 1):
            raise ValueError(
                f"BucketSentenceIter: batch_size must be at least 1 and layout 'NT' or 'TN', "
                f"received {batch_size} and {layout!r}"
            )
        self.data_name, self.label_name = data_name, label_name
        self.dtype, self.invalid_label = dtype, invalid_label
        self.layout, self.major_axis = layout, layout.find("N")
        self.buckets = sorted(buckets or self._full_lengths(sentences, batch_size))
        self.data = self._fill(sentences)
        if not self.buckets:
            raise ValueError(
                f"BucketSentenceIter: no sentence length occurs {batch_size} times in the {len(sentences)} sentences. "
                "Pass buckets, or a smaller batch_size"
                if not buckets
                else f"BucketSentenceIter: none of the {len(sentences)} sentences fits in the buckets {list(buckets)}"
            )
        self.default_bucket_key = max(self.buckets)
        self.provide_data = [self._describe(data_name, self.default_bucket_key)]
        self.provide_label = [self._describe(label_name, self.default_bucket_key)]
        self.idx = [
            (i, start) for i, rows in enumerate(self.data) for start in range(0, len(rows) - batch_size + 1, batch_size)
        ]
        self._orders = [np.arange(len(rows)) for rows in self.data]
        self.reset()

    @staticmethod
    def _full_lengths(sentences: Sequence[Sequence[int]], batch_size: int) -> list[int]:
        counts = np.bincount([len(sentence) for sentence in sentences]) if len(sentences) else np.zeros(0)
        return [length for length, count in enumerate(counts) if count >= batch_size]

    def _fill(self, sentences: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """Return an array per non-empty bucket, with a row for each of its sentences."""
        rows: list[list[np.ndarray]] = [[] for _ in self.buckets]
        discarded = 0
        for sentence in sentences:
            bucket = bisect.bisect_left(self.buckets, len(sentence))
            if bucket == len(self.buckets):
                discarded += 1
                continue
            row = np.full((self.buckets[bucket],), self.invalid_label, dtype=self.dtype)
            row[: len(sentence)] = sentence
            rows[bucket].append(row)
        if discarded:
            logging.warning("BucketSentenceIter: discarded %d sentences longer than the largest bucket", discarded)
        self.buckets = [length for length, each in zip(self.buckets, rows, strict=True) if each]
        return [np.asarray(each, dtype=self.dtype) for each in rows if each]

    def _describe(self, name: str, length: int) -> DataDesc:
        shape = (self.batch_size, length) if self.major_axis == 0 else (length, self.batch_size)
        return DataDesc(name, shape, layout=self.layout)

    def reset(self) -> None:
        """Start a new epoch with a new order."""
        if not self._restarts():
            return
        self.curr_idx = 0
        random.shuffle(self.idx)
        for i, rows in enumerate(self.data):
            order = np.arange(len(rows))
            np.random.shuffle(order)
            self._orders[i] = self._orders[i][order]
            rows[:] = rows[order]
        self._make_arrays()

    def _make_arrays(self) -> None:
        self.nddata, self.ndlabel = [], []
        for rows in self.data:
            labels = np.full_like(rows, self.invalid_label)
            labels[:, :-1] = rows[:, 1:]
            self.nddata.append(nd.array(rows, dtype=self.dtype))
            self.ndlabel.append(nd.array(labels, dtype=self.dtype))

    def _position(self) -> dict[str, Any]:
        return {"curr_idx": self.curr_idx, "idx": np.array(self.idx), "orders": list(self._orders)}

    def _go_to(self, state: dict[str, Any]) -> None:
        orders = [np.asarray(order) for order in state["orders"]]
        if [len(order) for order in orders] != [len(rows) for rows in self.data]:
            raise MXNetError(
                f"the position is in buckets of {[len(order) for order in orders]} sentences, but this iterator has "
                f"{[len(rows) for rows in self.data]}. Create the iterator as for the run that saved the position"
            )
        self.curr_idx, self.idx = int(state["curr_idx"]), [(int(i), int(at)) for i, at in state["idx"]]
        for rows, before, order in zip(self.data, self._orders, orders, strict=True):
            rows[:] = rows[np.argsort(before)][order]
        self._orders = orders
        self._make_arrays()

    def next(self) -> DataBatch:
        """Return the next batch. Its `bucket_key` is its sentence length."""
        if not self._note(self.curr_idx < len(self.idx)):
            raise StopIteration
        bucket, start = self.idx[self.curr_idx]
        self.curr_idx += 1
        data, label = (each[bucket][start : start + self.batch_size] for each in (self.nddata, self.ndlabel))
        if self.major_axis == 1:
            data, label = data.T, label.T
        length = self.buckets[bucket]
        return DataBatch(
            [data],
            [label],
            pad=0,
            bucket_key=length,
            provide_data=[self._describe(self.data_name, length)],
            provide_label=[self._describe(self.label_name, length)],
        )
