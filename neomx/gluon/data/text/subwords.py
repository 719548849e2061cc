"""Sub-words: byte-level BPE and WordPiece, by the library tokenizers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ....base import MXNetError
from ....formats.atomic import replacing

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def _library() -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise MXNetError('sub-words need the package tokenizers: pip install "neomx[text]"') from error
    return tokenizers


class SubwordTokenizer:
    """Splits texts into sub-words and maps them to indices. Create it with `train` or `load`.

    `tokenizer` is a `tokenizers.Tokenizer`.
    """

    def __init__(self, tokenizer: Any):
        self.tokenizer = tokenizer

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        vocab_size: int = 8000,
        model: str = "bpe",
        special_tokens: Sequence[str] = SPECIAL,
        unknown_token: str = "[UNK]",
        lowercase: bool = False,
        min_frequency: int = 2,
    ) -> SubwordTokenizer:
        """Return a tokenizer with sub-words that are frequent in `texts`.

        `model` is 'bpe', byte-level BPE as in GPT-2, or 'wordpiece', as in BERT. The special tokens have the first
        indices, in their order. Only WordPiece uses the `unknown_token`, for words with characters that are not in
        `texts`. `min_frequency` is that of a pair that is merged. The result depends only on the arguments, so that
        every worker may train its own.
        """
        if model not in ("bpe", "wordpiece"):
            raise ValueError(f"model must be 'bpe' or 'wordpiece', received {model!r}")
        if isinstance(texts, str):
            raise TypeError("texts must be an iterable of texts, received a single str. Use [text] or its splitlines()")
        train = _byte_level_bpe if model == "bpe" else _wordpiece
        return cls(train(texts, vocab_size, list(special_tokens), unknown_token, lowercase, min_frequency))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SubwordTokenizer:
        """Return the tokenizer of a JSON file: one that `save` has written, or a published `tokenizer.json`."""
        library = _library()
        with open(path, "rb") as file:
            content = file.read()
        try:
            return cls(library.Tokenizer.from_buffer(content))
        except Exception as error:  # the library raises no class of its own
            raise MXNetError(f"{os.fspath(path)} is not a JSON file of the library tokenizers: {error}") from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tokenizer to a JSON file."""
        with replacing(path) as file:
            file.write(self.tokenizer.to_str(pretty=True).encode())

    def __len__(self) -> int:
        return self.tokenizer.get_vocab_size()

    @cached_property
    def token_to_idx(self) -> dict[str, int]:
        """The index of each token."""
        return self.tokenizer.get_vocab()

    @cached_property
    def idx_to_token(self) -> list[str]:
        """The tokens in the order of their indices."""
        return sorted(self.token_to_idx, key=self.token_to_idx.__getitem__)

    @cached_property
    def special_indices(self) -> list[int]:
        """The indices of the special tokens."""
        return sorted(index for index, token in self.tokenizer.get_added_tokens_decoder().items() if token.special)

    @cached_property
    def starts_word(self) -> np.ndarray:
        """Whether each token starts a word, by its index."""
        prefix = getattr(self.tokenizer.model, "continuing_subword_prefix", None)
        if prefix:  # WordPiece marks tokens that continue a word; BPE those that follow a space
            starts = np.array([not token.startswith(prefix) for token in self.idx_to_token])
        else:
            starts = np.array([token.startswith(("Ġ", "▁")) for token in self.idx_to_token])
        starts[self.special_indices] = True
        return starts

    def tokens(self, text: str) -> list[str]:
        """Return the sub-words of a text."""
        return self.tokenizer.encode(text, add_special_tokens=False).tokens

    def encode(self, text: str) -> list[int]:
        """Return the indices of the sub-words of a text. A special token in the text gets its index."""
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, indices: Iterable[int], skip_special: bool = True) -> str:
        """Return the text of the indices, by default without special tokens."""
        text = self.tokenizer.decode([int(index) for index in indices], skip_special_tokens=skip_special)
        return text.removeprefix(" ")  # byte-level BPE adds a space before the first word

    def to_indices(self, tokens: Any) -> Any:
        """Return the index of a token, or the indices of a list of tokens."""
        if isinstance(tokens, list):
            return [self.to_indices(token) for token in tokens]
        if tokens not in self.token_to_idx:
            raise ValueError(f"{tokens!r} is not one of the {len(self)} tokens. Use encode for texts")
        return self.token_to_idx[tokens]

    def to_tokens(self, indices: Any) -> Any:
        """Return the token of an index, or the tokens of a list of indices."""
        if isinstance(indices, list):
            return [self.to_tokens(index) for index in indices]
        if not 0 <= indices < len(self):
            raise ValueError(f"the index {indices} is invalid: there are {len(self)} tokens")
        return self.idx_to_token[indices]


def _byte_level_bpe(
    texts: Iterable[str], size: int, special: list[str], unknown: str, lowercase: bool, min_frequency: int
) -> Any:
    library = _library()
    alphabet = library.pre_tokenizers.ByteLevel.alphabet()
    _check_size(size, len(special) + len(alphabet), "the special tokens and 256 bytes")
    made = library.Tokenizer(library.models.BPE())
    if lowercase:
        made.normalizer = library.normalizers.Lowercase()
    made.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=True)
    made.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=min_frequency,
        special_tokens=special,
        initial_alphabet=alphabet,
        show_progress=False,
    )
    made.train_from_iterator(texts, trainer)
    return made


def _wordpiece(
    texts: Iterable[str], size: int, special: list[str], unknown: str, lowercase: bool, min_frequency: int
) -> Any:
    library = _library()
    if unknown not in special:
        raise ValueError(f"special_tokens must contain the unknown_token {unknown!r}, received {special}")
    made = library.Tokenizer(library.models.WordPiece(unk_token=unknown))
    made.normalizer = library.normalizers.BertNormalizer(lowercase=lowercase)
    made.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
    made.decoder = library.decoders.WordPiece()
    texts = list(texts)
    letters, continuing = _letters(texts, made)
    least = len(special) + len(letters) + len(continuing)
    _check_size(size, least, f"the special tokens and {len(letters)} characters, at the start of words and inside")
    # The library numbers continuing characters in the order of a hash table, which differs between processes, and
    # breaks ties by these numbers. As special tokens, they get their numbers first.
    trainer = library.trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=min_frequency,
        special_tokens=special + [f"##{letter}" for letter in continuing],
        initial_alphabet=letters,
        show_progress=False,
    )
    made.train_from_iterator(texts, trainer)
    content = json.loads(made.to_str())
    content["added_tokens"] = [token for token in content["added_tokens"] if token["content"] in special]
    return library.Tokenizer.from_str(json.dumps(content))


def _letters(texts: list[str], tokenizer: Any) -> tuple[list[str], list[str]]:
    """Return the characters of all words, and those that do not only occur at the start of a word."""
    spaced = set().union(*(tokenizer.normalizer.normalize_str(text).split() for text in texts))
    words = {word for part in spaced for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(part)}
    return sorted(set().union(*words)), sorted(set().union(*(word[1:] for word in words)))


def _check_size(size: int, least: int, what: str) -> None:
    if size < least:
        raise ValueError(f"vocab_size must be at least {least}, for {what}, received {size}")
