"""Learning from few examples: episodes of small classification tasks, and networks that compare with examples."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base import MXNetError
from ..gluon.block import HybridBlock
from ..gluon.data.dataset import Dataset
from ..ndarray import NDArray
from ..ops.random import rng

Episode = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


class Episodes(Dataset):
    """A dataset of small classification tasks ("N-way K-shot"), drawn from labeled samples.

    Each episode has `ways` classes, with `shots` examples (the support) and `queries` samples to classify of each. An
    item is a tuple (support, support labels, queries, query labels). Labels are numbers from 0 to ways - 1, in the
    order in which the classes were drawn.

    `data` is an array, or a Dataset whose items are samples of one shape. `length` is the number of episodes per epoch.
    Without a `seed`, each epoch of a DataLoader has other episodes. With a seed, they are always the same, which suits
    tests. `mx.dist.shard(Episodes(...))` gives N workers the episodes that one process would have.
    """

    def __init__(
        self, data: Any, labels: Any, ways: int, shots: int, queries: int, length: int, seed: int | None = None
    ):
        for name, value in (("ways", ways), ("shots", shots), ("queries", queries), ("length", length)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, received {value}")
        self._data = data.asnumpy() if isinstance(data, NDArray) else data
        labels = np.asarray(labels.asnumpy() if isinstance(labels, NDArray) else labels)
        if labels.shape != (len(self._data),):
            raise ValueError(f"expected one label for each of {len(self._data)} samples, received shape {labels.shape}")
        self._members = {label: np.flatnonzero(labels == label) for label in np.unique(labels)}
        if len(self._members) < ways:
            raise ValueError(f"an episode needs {ways} classes, but the labels have only {len(self._members)}")
        label = min(self._members, key=lambda each: len(self._members[each]))
        if len(self._members[label]) < shots + queries:
            raise ValueError(
                f"an episode needs {shots} + {queries} samples of each class, but class {label} has only "
                f"{len(self._members[label])}. Use fewer shots or queries, or leave the class out"
            )
        self._ways, self._shots, self._queries, self._length, self._seed = ways, shots, queries, length, seed

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, idx: int) -> Episode:
        if not 0 <= idx < self._length:
            raise IndexError(f"episode {idx} of {self._length}")
        random = rng() if self._seed is None else np.random.Generator(np.random.PCG64([self._seed, idx]))
        classes = random.choice(list(self._members), self._ways, replace=False)
        drawn = [random.choice(self._members[each], self._shots + self._queries, replace=False) for each in classes]
        support, query = np.split(np.stack(drawn), [self._shots], axis=1)
        numbers = np.arange(self._ways, dtype="float32")
        return (
            self._samples(support.ravel()),
            numbers.repeat(self._shots),
            self._samples(query.ravel()),
            numbers.repeat(self._queries),
        )

    def _samples(self, indices: np.ndarray) -> np.ndarray:
        if isinstance(self._data, np.ndarray):
            return self._data[indices]
        samples = (self._data[int(i)] for i in indices)
        return np.stack([each.asnumpy() if isinstance(each, NDArray) else np.asarray(each) for each in samples])


class _Comparing(HybridBlock):
    """Classifies queries by comparing their embeddings with those of labeled examples."""

    def __init__(self, embedding: HybridBlock, ways: int, **kwargs: Any):
        super().__init__(**kwargs)
        if ways < 1:
            raise ValueError(f"ways must be at least 1, received {ways}")
        self.embedding = embedding
        self._ways = ways

    def forward(self, x: Any, *args: Any) -> Any:
        if isinstance(x, NDArray):
            self._check(x, *args)
        return super().forward(x, *args)

    def _check(self, support: NDArray, label: NDArray, query: NDArray) -> None:
        per_episode = support.shape[:1] == query.shape[:1] and support.shape[2:] == query.shape[2:]
        if label.ndim != 2 or support.shape[:2] != label.shape or not per_episode:
            raise MXNetError(
                "expected the support (episodes, examples, ...), its labels (episodes, examples) and the queries "
                f"(episodes, queries, ...), received the shapes {support.shape}, {label.shape} and {query.shape}"
            )
        for found in map(np.unique, label.asnumpy()):
            if not np.array_equal(found, np.arange(self._ways)):
                raise MXNetError(
                    f"the support of each episode must have examples of all classes from 0 to {self._ways - 1}, "
                    f"and no others, received the labels {found.tolist()}"
                )

    def _embedded(self, F: Any, x: Any) -> Any:
        """Return the embeddings of a batch of episodes: (episodes, samples, features)."""
        vectors = self.embedding(F.reshape(x, shape=(-3, -2)))
        return F.reshape_like(vectors, x, lhs_begin=0, lhs_end=1, rhs_begin=0, rhs_end=2)


class PrototypicalNet(_Comparing):
    """Prototypical network: the class of a query is that of the nearest prototype, the mean embedding of its examples.

    `embedding` is a Block that maps samples to vectors. Call the network with a batch of episodes: the support of shape
    (episodes, examples, ...), its labels of shape (episodes, examples), and the queries of shape
    (episodes, queries, ...). The result has the shape (episodes, queries, ways): the negative squared distance of each
    query to each prototype. `SoftmaxCrossEntropyLoss` of it and the labels of the queries is one loss per episode.
    """

    def hybrid_forward(self, F: Any, support: Any, label: Any, query: Any) -> Any:
        chosen = F.one_hot(label, self._ways)
        share = F.broadcast_div(chosen, F.sum(chosen, axis=1, keepdims=True))
        prototypes = F.batch_dot(share, self._embedded(F, support), transpose_a=True)
        points = self._embedded(F, query)
        squares = F.sum(F.square(points), axis=2, keepdims=True)
        others = F.expand_dims(F.sum(F.square(prototypes), axis=2), axis=1)
        return 2 * F.batch_dot(points, prototypes, transpose_b=True) - F.broadcast_add(squares, others)


class MatchingNet(_Comparing):
    """Matching network: the examples vote for their classes, weighted by their similarity to the query.

    The weights are the softmax of `scale` times the cosine similarity of embeddings. The original has a scale of 1,
    with which probabilities stay far from 0 and 1. Call it like a `PrototypicalNet`. The result is the logarithm of the
    probability of each class, which `SoftmaxCrossEntropyLoss` accepts too.
    """

    def __init__(self, embedding: HybridBlock, ways: int, scale: float = 10.0, **kwargs: Any):
        super().__init__(embedding, ways, **kwargs)
        if not scale > 0:
            raise ValueError(f"scale must be positive, received {scale!r}")
        self._scale = scale

    def hybrid_forward(self, F: Any, support: Any, label: Any, query: Any) -> Any:
        examples, points = (F.L2Normalization(self._embedded(F, x), mode="spatial") for x in (support, query))
        similar = F.batch_dot(points, examples, transpose_b=True)
        votes = F.batch_dot(F.softmax(similar * self._scale, axis=2), F.one_hot(label, self._ways))
        return F.log(votes + 1e-12)
