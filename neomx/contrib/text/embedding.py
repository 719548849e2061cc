"""Word embeddings: GloVe, fastText, or vectors from a user's file."""

from __future__ import annotations

import array as flat
import json
import logging
import os
import pathlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TextIO

import numpy as np

from ... import ndarray as nd
from ... import registry
from ...base import data_dir
from ...gluon.contrib.data.archive import unpacked
from ...gluon.contrib.data.vocabulary import UNKNOWN_INDEX, Vocabulary
from ...ndarray import NDArray

__all__ = [
    "CompositeEmbedding",
    "CustomEmbedding",
    "FastText",
    "GloVe",
    "create",
    "get_pretrained_file_names",
    "register",
]

_ROOT = os.path.join(data_dir(), "embeddings")
# For each kind: {file: (its SHA-1, the archive that contains it, the archive's SHA-1)}
_PUBLISHED = json.loads(pathlib.Path(__file__).with_name("pretrained.json").read_text())
Maker = Callable[..., NDArray]


class _TokenEmbedding(Vocabulary):
    """A vocabulary with a vector for each token; tokens without a vector get that of the unknown token."""

    pretrained_file_name_sha1: dict[str, str] = {}

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self._idx_to_vec: NDArray | None = None

    @classmethod
    def _get_pretrained_file(cls, embedding_root: str, pretrained_file_name: str) -> str:
        """Return the path of a published file, downloading it if it does not exist."""
        kind = cls.__name__.lower()
        if pretrained_file_name not in cls.pretrained_file_name_sha1:
            raise KeyError(
                f"Cannot find pretrained file {pretrained_file_name} for token embedding {kind}. "
                f"Valid pretrained files for embedding {kind}: {', '.join(cls.pretrained_file_name_sha1)}"
            )
        _, archive, sha1 = _PUBLISHED[kind][pretrained_file_name]
        root = os.path.join(embedding_root, kind)
        return unpacked(root, pretrained_file_name, f"gluon/embeddings/{kind}", archive, sha1)

    def _load_embedding(
        self, pretrained_file_path: str, elem_delim: str, init_unknown_vec: Maker, encoding: str = "utf8"
    ) -> None:
        """Load the tokens and vectors of a file; if a token occurs twice, its first vector is used."""
        path = os.path.expanduser(pretrained_file_path)
        if not os.path.isfile(path):
            raise ValueError(
                f"`pretrained_file_path` must be a valid path to the pre-trained token embedding file, received {path}"
            )
        logging.info("Loading pre-trained token embedding vectors from %s", path)
        reader = _VectorFile(path, elem_delim, encoding)
        vectors = reader.vectors()
        for token in reader.rows:
            if token not in self._token_to_idx:
                self._token_to_idx[token] = len(self._idx_to_token)
                self._idx_to_token.append(token)
        made = np.empty((len(self), vectors.shape[1]), np.float32)
        if self.unknown_token in reader.rows:
            made[:] = vectors[reader.rows[self.unknown_token]]
        else:
            made[:] = init_unknown_vec(shape=vectors.shape[1]).asnumpy()
        known = [(index, reader.rows[token]) for token, index in self._token_to_idx.items() if token in reader.rows]
        places, rows = zip(*known, strict=True)
        made[list(places)] = vectors[list(rows)]
        self._idx_to_vec = nd.array(made)

    def _adopt(self, vocabulary: Vocabulary, embeddings: Sequence[_TokenEmbedding]) -> None:
        """Take the tokens of a vocabulary, and concatenate each token's vectors of all embeddings."""
        vectors = [each.get_vecs_by_tokens(vocabulary.idx_to_token[1:]) for each in embeddings]
        unknown = nd.concat(*[each.idx_to_vec[UNKNOWN_INDEX] for each in embeddings], dim=0).expand_dims(0)
        rest = nd.concat(*vectors, dim=1) if len(vocabulary) > 1 else None
        self._idx_to_vec = unknown if rest is None else nd.concat(unknown, rest, dim=0)
        self._unknown_token = vocabulary.unknown_token
        self._reserved_tokens = vocabulary.reserved_tokens
        self._idx_to_token = list(vocabulary.idx_to_token)
        self._token_to_idx = dict(vocabulary.token_to_idx)

    @property
    def vec_len(self) -> int:
        """The length of a vector."""
        return self.idx_to_vec.shape[1]

    @property
    def idx_to_vec(self) -> NDArray:
        """The vectors, in the order of the token indices."""
        assert self._idx_to_vec is not None, f"{type(self).__name__} has not loaded any vectors yet"
        return self._idx_to_vec

    def get_vecs_by_tokens(self, tokens: str | list[str], lower_case_backup: bool = False) -> NDArray:
        """Return the vector of a token, or an array for a list; `lower_case_backup` retries unknown tokens."""
        wanted = [tokens] if not isinstance(tokens, list) else tokens
        if lower_case_backup:
            wanted = [token if token in self._token_to_idx else token.lower() for token in wanted]
        found = nd.array(self.to_indices(wanted), dtype="int32")
        vectors = nd.take(self.idx_to_vec, found, axis=0)
        return vectors if isinstance(tokens, list) else vectors[0]

    def update_token_vectors(self, tokens: str | list[str], new_vectors: NDArray) -> None:
        """Replace the vectors of known tokens."""
        names = tokens if isinstance(tokens, list) else [tokens]
        dims = (1, 2) if len(names) == 1 else (2,)
        if not isinstance(new_vectors, NDArray) or len(new_vectors.shape) not in dims:
            kind = "1-D or 2-D NDArray if `tokens` is a singleton" if len(dims) == 2 else "2-D NDArray for many tokens"
            raise AssertionError(f"`new_vectors` must be a {kind}, received {new_vectors!r:.80}")
        vectors = new_vectors.reshape((1, -1)) if len(new_vectors.shape) == 1 else new_vectors
        if vectors.shape != (len(names), self.vec_len):
            raise AssertionError(
                f"new_vectors must have shape {(len(names), self.vec_len)}, (number of tokens, vector length); "
                f"received {new_vectors.shape}"
            )
        for token in names:
            if token not in self._token_to_idx:
                raise ValueError(
                    f"Token {token} is unknown. To update the embedding vector for an unknown token, please specify it "
                    f"explicitly as the `unknown_token` {self.unknown_token} in `tokens`."
                )
        self.idx_to_vec[nd.array(self.to_indices(names), dtype="int32")] = vectors


class _VectorFile:
    """A text file with a token and its vector on each line."""

    def __init__(self, path: str, elem_delim: str, encoding: str):
        self.path, self.elem_delim, self.encoding = path, elem_delim, encoding
        self.rows: dict[str, int] = {}  # by token
        self.length = 0

    def vectors(self) -> np.ndarray:
        """Return all vectors, one row for each token in `rows`."""
        numbers = flat.array("f")
        with open(self.path, encoding=self.encoding) as file:
            for number, line in enumerate(self._lines(file), 1):
                token, *words = line.rstrip().split(self.elem_delim)
                if not token and not words:
                    continue
                vector = self._numbers(number, token, words)
                if len(vector) == 1:  # the numbers of lines and columns: a header
                    self._skip(number, f"token {token} with 1-dimensional vector {vector} is likely a header")
                elif token in self.rows:
                    self._skip(number, f"token {token} has a vector already")
                else:
                    self._check_length(number, token, vector)
                    numbers.extend(vector)
                    self.rows[token] = len(self.rows)
        if not self.rows:
            raise ValueError(f"{self.path} has no line with a token and a vector separated by {self.elem_delim!r}")
        return np.frombuffer(numbers, np.float32).reshape(len(self.rows), self.length)

    def _lines(self, file: TextIO) -> Iterator[str]:
        try:
            yield from file
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.path} is not {self.encoding} text: {error}") from error

    def _skip(self, number: int, why: str) -> None:
        warnings.warn(f"At line {number} of {self.path}: {why}; it is skipped", stacklevel=5)

    def _numbers(self, number: int, token: str, words: list[str]) -> list[float]:
        """Parse the vector on a line; also called for skipped lines, to validate them."""
        if not words:
            raise AssertionError(f"At line {number} of {self.path}: token {token} has no vector")
        try:
            return [float(word) for word in words]
        except ValueError as error:
            raise ValueError(f"At line {number} of {self.path}: the vector of token {token}: {error}") from None

    def _check_length(self, number: int, token: str, vector: list[float]) -> None:
        self.length = self.length or len(vector)
        if len(vector) != self.length:
            raise AssertionError(
                f"At line {number} of {self.path}: the vector of token {token} has {len(vector)} values, "
                f"expected {self.length} as in the previous lines"
            )


register = registry.get_register_func(_TokenEmbedding, "token embedding")
register.__doc__ = "Register a class of embeddings for `create`. Use as a decorator."
_create = registry.get_create_func(_TokenEmbedding, "token embedding")


def create(embedding_name: str, **kwargs: Any) -> Any:
    """Return an embedding by name, 'glove', 'fasttext' or a registered one: `create('glove', ...)`."""
    return _create(embedding_name, **kwargs)


def get_pretrained_file_names(embedding_name: str | None = None) -> Any:
    """Return the names of the published files of an embedding; without a name, {embedding: files}."""
    kinds = registry.get_registry(_TokenEmbedding)
    files = {name: list(kind.pretrained_file_name_sha1) for name, kind in kinds.items()}  # type: ignore[attr-defined]
    if embedding_name is None:
        return files
    if embedding_name not in files:
        raise KeyError(f"Cannot find `embedding_name` {embedding_name}. Valid names: {', '.join(sorted(files))}")
    return files[embedding_name]


class _Published(_TokenEmbedding):
    """Vectors of a published file, stored in the subfolder of its embedding in `embedding_root`."""

    def __init__(
        self,
        pretrained_file_name: str,
        embedding_root: str = _ROOT,
        init_unknown_vec: Maker = nd.zeros,
        vocabulary: Vocabulary | None = None,
        **kwargs: Any,
    ):
        path = self._get_pretrained_file(embedding_root, pretrained_file_name)
        super().__init__(**kwargs)
        self._load_embedding(path, " ", init_unknown_vec)
        if vocabulary is not None:
            self._adopt(vocabulary, [self])


@register
class GloVe(_Published):
    """GloVe vectors, from nlp.stanford.edu/projects/glove."""

    pretrained_file_name_sha1 = {file: sha1 for file, (sha1, _, _) in _PUBLISHED["glove"].items()}

    def __init__(
        self,
        pretrained_file_name: str = "glove.840B.300d.txt",
        embedding_root: str = _ROOT,
        init_unknown_vec: Maker = nd.zeros,
        vocabulary: Vocabulary | None = None,
        **kwargs: Any,
    ):
        super().__init__(pretrained_file_name, embedding_root, init_unknown_vec, vocabulary, **kwargs)


@register
class FastText(_Published):
    """fastText vectors, from fasttext.cc."""

    pretrained_file_name_sha1 = {file: sha1 for file, (sha1, _, _) in _PUBLISHED["fasttext"].items()}

    def __init__(
        self,
        pretrained_file_name: str = "wiki.simple.vec",
        embedding_root: str = _ROOT,
        init_unknown_vec: Maker = nd.zeros,
        vocabulary: Vocabulary | None = None,
        **kwargs: Any,
    ):
        super().__init__(pretrained_file_name, embedding_root, init_unknown_vec, vocabulary, **kwargs)


class CustomEmbedding(_TokenEmbedding):
    """Vectors of a text file with a token and its values on each line, separated by `elem_delim`."""

    def __init__(
        self,
        pretrained_file_path: str,
        elem_delim: str = " ",
        encoding: str = "utf8",
        init_unknown_vec: Maker = nd.zeros,
        vocabulary: Vocabulary | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self._load_embedding(pretrained_file_path, elem_delim, init_unknown_vec, encoding)
        if vocabulary is not None:
            self._adopt(vocabulary, [self])


class CompositeEmbedding(_TokenEmbedding):
    """The concatenated vectors of one or several embeddings for each token of a vocabulary."""

    def __init__(self, vocabulary: Vocabulary, token_embeddings: Any):
        embeddings = list(token_embeddings) if isinstance(token_embeddings, (list, tuple)) else [token_embeddings]
        if not isinstance(vocabulary, Vocabulary):
            raise AssertionError(f"`vocabulary` must be a Vocabulary, received {vocabulary!r:.80}")
        if not embeddings or not all(isinstance(each, _TokenEmbedding) for each in embeddings):
            raise AssertionError(
                f"`token_embeddings` must be an embedding or a list of embeddings, received {embeddings!r:.80}"
            )
        super().__init__()
        self._adopt(vocabulary, embeddings)
