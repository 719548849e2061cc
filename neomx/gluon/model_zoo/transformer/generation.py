"""Text generation with a language model: token by token, with cached keys and values."""

from __future__ import annotations

from typing import Any

import torch

from .... import autograd
from ....base import MXNetError
from ....context import Context
from ....ndarray import NDArray
from ....ndarray.distributed import whole
from ....ops.random import generator
from ...nn.basic_layers import check_sizes

Tensor = torch.Tensor


class Memory:
    """The number of tokens processed of each text in a batch, and the layers' caches.

    All texts begin at position 0. A shorter text has padding after its end, which its next tokens overwrite.
    """

    def __init__(self, lengths: Tensor, most: int, layers: int):
        self.lengths = lengths  # tokens processed so far; initially the lengths of the prompts
        self.longest = int(lengths.max())
        self.one_length = bool((lengths == lengths[0]).all())
        self.most = most
        self.layers = [LayerMemory(self) for _ in range(layers)]

    @property
    def is_empty(self) -> bool:
        """Whether the cache is empty. The first call processes whole prompts, later calls one token per text."""
        return self.layers[-1].is_empty

    def places(self, tokens: NDArray) -> NDArray:
        """Return the positions of the next tokens: (1 or batch, time)."""
        if self.is_empty:
            return NDArray(torch.arange(tokens.shape[1], device=self.lengths.device)[None], tokens._ctx)
        return NDArray(self.lengths[:, None], tokens._ctx)

    def last(self, x: NDArray) -> NDArray:
        """Return the state of the last token of each text, from the states (batch, time, units) of the current call."""
        if x.shape[1] == 1:
            return x[:, 0]
        rows = torch.arange(len(self.lengths), device=self.lengths.device)
        return NDArray(x._data[rows, self.lengths - 1], x._ctx)

    def advance(self) -> None:
        """Count one more token for each text."""
        self.lengths, self.longest = self.lengths + 1, self.longest + 1


class LayerMemory:
    """The cached keys and values of one layer: (batch, time, width) each."""

    def __init__(self, texts: Memory):
        self._texts = texts
        self._kept: list[Tensor] = []

    @property
    def is_empty(self) -> bool:
        """Whether the cache is empty."""
        return not self._kept

    def extend(self, *new: NDArray) -> list[NDArray]:
        """Append new keys and values. Return all of them, and also the valid lengths if texts differ in length."""
        texts, ctx = self._texts, new[0]._ctx
        if self.is_empty:
            self._kept = [torch.nn.functional.pad(each._data, (0, 0, 0, texts.most - each.shape[1])) for each in new]
            return list(new)
        rows = torch.arange(len(texts.lengths), device=texts.lengths.device)
        for room, each in zip(self._kept, new, strict=True):
            room[rows, texts.lengths] = each._data[:, 0]
        found = [NDArray(room[:, : texts.longest + 1], ctx) for room in self._kept]
        return found if texts.one_length else [*found, NDArray(texts.lengths + 1, ctx)]


class Choice:
    """Chooses the next tokens, given scores (batch, tokens)."""

    def __init__(self, method: str, temperature: float, top_k: int, top_p: float, seed: int | None):
        if method not in ("greedy", "sample"):
            raise ValueError(f"method must be 'greedy' or 'sample', received {method!r}")
        if method == "greedy" and (temperature, top_k, top_p) != (1, 0, 1):
            raise ValueError("temperature, top_k and top_p require method='sample', received method='greedy'")
        check_sizes(0, top_k=top_k)
        if not temperature > 0 or not 0 < top_p <= 1:
            raise ValueError(f"temperature must be above 0 and top_p in (0, 1], received {temperature!r} and {top_p!r}")
        self._best, self._temperature, self._top_k, self._top_p = method == "greedy", temperature, top_k, top_p
        self._seed = seed
        self._rng: torch.Generator | None = None

    def __call__(self, scores: NDArray) -> Tensor:
        """Return a token for each row. The scores may be sharded over workers."""
        data = whole(scores._data)
        if self._best:
            return data.argmax(-1)
        if self._rng is None:
            ctx, seed = scores._ctx, self._seed
            self._rng = generator(ctx) if seed is None else torch.Generator(ctx.device).manual_seed(seed)
        return torch.multinomial(self.probabilities(data), 1, generator=self._rng)[:, 0]

    def probabilities(self, scores: Tensor) -> Tensor:
        """Return the sampling probability of each token."""
        scores = scores.float() / self._temperature
        if 0 < self._top_k < scores.shape[-1]:
            scores = scores.masked_fill(scores < scores.topk(self._top_k).values[:, -1:], -torch.inf)
        if self._top_p < 1:
            best, order = scores.softmax(-1).sort(-1, descending=True)
            beyond = best.cumsum(-1) - best >= self._top_p  # the tokens before it already reach top_p
            scores = scores.masked_fill(beyond.gather(-1, order.argsort(-1)), -torch.inf)
        return scores.softmax(-1)


def generate(net: Any, tokens: Any, max_new_tokens: int, choose: Choice, eos: int | None) -> Any:
    """Implement `GPT2.generate`."""
    _check(net, max_new_tokens, eos)
    prompts, lengths, ctx = _prompts(net, tokens, max_new_tokens)
    memory = Memory(lengths, prompts.shape[1] + max_new_tokens, len(net.blocks))
    with autograd.pause(train_mode=False), torch.no_grad():
        text = _continued(net, prompts, memory, choose, eos, ctx)
    if not isinstance(tokens, (list, tuple)):
        return text if isinstance(tokens, Tensor) else NDArray(text.int(), ctx)
    ends = (memory.lengths + 1).tolist()
    return [
        _until(eos, row[:end], start) for row, start, end in zip(text.tolist(), lengths.tolist(), ends, strict=True)
    ]


def _continued(net: Any, prompts: Tensor, memory: Memory, choose: Choice, eos: int | None, ctx: Context) -> Tensor:
    """Return the prompts with their continuations. `memory` has the resulting lengths, except for the last token."""
    text = torch.nn.functional.pad(prompts, (0, memory.most - prompts.shape[1]))
    rows = torch.arange(len(text), device=text.device)
    ended = torch.zeros_like(rows, dtype=torch.bool)
    scores = net(NDArray(prompts, ctx), memory)
    while True:
        chosen = choose(scores)
        if eos is not None:
            chosen = chosen.masked_fill(ended, eos)
            ended |= chosen == eos
        text[rows, memory.lengths] = chosen
        if memory.longest + 1 == memory.most or bool(ended.all()):
            return text[:, : memory.longest + 1]
        scores = net(NDArray(chosen[:, None], ctx), memory)
        memory.advance()


def _until(eos: int | None, row: list[int], start: int) -> list[int]:
    """Cut a text after the first `eos` that follows its prompt."""
    return row[: row.index(eos, start) + 1] if eos in row[start:] else row


def _check(net: Any, max_new_tokens: int, eos: int | None) -> None:
    if net.head is None:
        raise MXNetError("generate needs token scores: create the net with head=True")
    check_sizes(1, max_new_tokens=max_new_tokens)
    if eos is not None and not 0 <= eos < net.vocab_size:
        raise ValueError(f"eos must be one of the {net.vocab_size} tokens, received {eos!r}")


def _prompts(net: Any, tokens: Any, more: int) -> tuple[Tensor, Tensor, Context]:
    """Return the padded prompts, their lengths, and the context of the net."""
    ctx = net.embed.weight.list_ctx()[0]
    if isinstance(tokens, (list, tuple)):
        rows = [_numbers(row) for row in tokens]
        if not rows or any(row.dim() != 1 for row in rows):
            raise MXNetError(f"expected a list of prompts, each a list of tokens, received {tokens!r:.80}")
        padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        lengths = torch.tensor([len(row) for row in rows])
    else:
        padded = _numbers(tokens)
        if padded.dim() != 2 or not len(padded):
            raise MXNetError(
                f"expected tokens of shape (batch, time), or a list of prompts, received {tuple(padded.shape)}"
            )
        lengths = torch.full((len(padded),), padded.shape[1])
    if not int(lengths.min()):
        raise MXNetError("a prompt must have at least one token")
    if int(padded.min()) < 0 or int(padded.max()) >= net.vocab_size:
        raise MXNetError(f"prompts contain a token outside the range from 0 to {net.vocab_size - 1}")
    if padded.shape[1] + more > net.max_length:
        raise MXNetError(
            f"{padded.shape[1]} tokens and {more} new ones exceed the {net.max_length} positions of the net"
        )
    return padded.to(ctx.device), lengths.to(ctx.device), ctx


def _numbers(tokens: Any) -> Tensor:
    try:
        return (tokens._data if isinstance(tokens, NDArray) else torch.as_tensor(tokens)).detach().long()
    except (TypeError, ValueError, RuntimeError) as error:
        raise MXNetError(f"expected integer tokens, received {tokens!r:.80}") from error
