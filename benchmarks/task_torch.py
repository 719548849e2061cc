"""The workloads of `task_workloads.py` written by hand in plain torch."""

from __future__ import annotations

from typing import Any

import task_workloads as ours
import torch
from task_workloads import Workload
from torch import Tensor, nn
from torch.nn import functional


class Translator(nn.Module):
    def __init__(self, source: int, target: int, units: int = 96):
        super().__init__()
        self.embed_source, self.embed_target = nn.Embedding(source, units), nn.Embedding(target, units)
        self.encoder = nn.GRU(units, units // 2, batch_first=True, bidirectional=True)
        self.decoder = nn.GRU(units, units, batch_first=True)
        self.mix, self.out = nn.Linear(2 * units, units), nn.Linear(units, target)

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        states, _ = self.encoder(self.embed_source(source))
        written, _ = self.decoder(self.embed_target(target))
        beyond = torch.arange(source.shape[1]) >= lengths[:, None]
        weights = (written @ states.transpose(1, 2)).masked_fill(beyond[:, None], -torch.inf).softmax(-1)
        return self.out(torch.tanh(self.mix(torch.cat([written, weights @ states], -1))))


def translation() -> Workload:
    def loss(net: Any, x: Tensor, lengths: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(net(x, lengths, y[:, :-1]).flatten(0, 1), y[:, 1:].long().flatten())

    return Workload(ours.translation_arrays(), 32, Translator(33, 37), loss)


class Tagger(nn.Module):
    def __init__(self, words: int, tags: int, units: int = 48):
        super().__init__()
        self.embed = nn.Embedding(words, units)
        self.lstm = nn.LSTM(units + 2, units, bidirectional=True, batch_first=True)
        self.score = nn.Linear(2 * units, tags)
        self.follow = nn.Parameter(torch.zeros(tags, tags))

    def forward(self, words: Tensor, spelling: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        hidden, _ = self.lstm(torch.cat([self.embed(words.long()), spelling], -1))
        scores, tags = self.score(hidden), tags.long()
        chosen = (scores.gather(2, tags[:, :, None])[:, :, 0] * mask).sum(1)
        moved = (self.follow[tags[:, :-1], tags[:, 1:]] * mask[:, 1:]).sum(1)
        total = scores[:, 0]
        for at in range(1, scores.shape[1]):
            reached = torch.logsumexp(total[:, :, None] + self.follow, 1) + scores[:, at]
            total = torch.where(mask[:, at, None] > 0, reached, total)
        return torch.logsumexp(total, 1) - chosen - moved


def tagging() -> Workload:
    return Workload(ours.tagging_arrays(), 32, Tagger(120, 7), lambda net, *batch: net(*batch).mean())


THEIRS = {"translation": translation, "tagging": tagging}
