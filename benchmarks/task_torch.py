"""The workloads of `task_workloads.py` written by hand in plain torch."""

from __future__ import annotations

from typing import Any

import torch
from task_workloads import DATA, Workload
from torch import Tensor, nn
from torch.nn import functional


def several_labels() -> Workload:
    net = nn.Sequential(
        *(nn.Conv2d(1, 16, 5, stride=2, padding=2), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU()),
        *(nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(64, 10, 5), nn.AdaptiveMaxPool2d(1), nn.Flatten()),
    )
    return Workload(net, lambda net, x, y: functional.binary_cross_entropy_with_logits(net(x), y))


class UNet(nn.Module):
    def __init__(self, channels: tuple[int, ...] = (12, 24, 48, 96), classes: int = 11):
        super().__init__()
        self.stages = nn.ModuleList()
        for number, (before, after) in enumerate(zip((1, *channels), channels, strict=False)):
            layers = [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.Conv2d(after, after, 3, padding=1)]
            self.stages.append(nn.Sequential(*([nn.MaxPool2d(2)] if number else []), *layers, nn.ReLU()))
        pairs = list(zip(channels, channels[1:], strict=False))[::-1]
        self.combine = nn.ModuleList(nn.Conv2d(a + b, a, 3, padding=1) for a, b in pairs)
        self.scores = nn.Conv2d(channels[0], classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        found = []
        for stage in self.stages:
            x = stage(x)
            found.append(x)
        for combine, features in zip(self.combine, found[-2::-1], strict=True):
            x = torch.relu(combine(torch.cat([functional.interpolate(x, scale_factor=2), features], 1)))
        return self.scores(x)


def segmentation() -> Workload:
    return Workload(UNet(), lambda net, x, y: functional.cross_entropy(net(x), y.long()))


class VAE(nn.Module):
    def __init__(self, hidden: int = 16):
        super().__init__()
        self.encoder = nn.Sequential(
            *(nn.Conv2d(1, 16, 4, stride=2, padding=1), nn.SiLU(), nn.Conv2d(16, 32, 4, stride=2, padding=1)),
            *(nn.SiLU(), nn.Flatten(), nn.Linear(7 * 7 * 32, 128), nn.SiLU(), nn.Linear(128, 2 * hidden)),
        )
        self.decoder = nn.Sequential(
            *(nn.Linear(hidden, 128), nn.SiLU(), nn.Linear(128, 7 * 7 * 32), nn.SiLU(), nn.Unflatten(1, (32, 7, 7))),
            *(nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1), nn.SiLU()),
            nn.ConvTranspose2d(16, 1, 4, stride=2, padding=1),
        )

    def forward(self, x: Tensor, noise: Tensor) -> Tensor:
        mean, log_variance = self.encoder(x).chunk(2, 1)
        scores = self.decoder(mean + (log_variance / 2).exp() * noise)
        picture = functional.binary_cross_entropy_with_logits(scores, x, reduction="none").sum((1, 2, 3))
        return picture + ((mean**2 + log_variance.exp() - log_variance - 1) / 2).sum(1)


def generation() -> Workload:
    return Workload(VAE(), lambda net, x, noise: net(x, noise).mean())


class TextCNN(nn.Module):
    def __init__(self, words: int, units: int = 64):
        super().__init__()
        self.embed, self.out = nn.Embedding(words, units), nn.Linear(3 * units, 2)
        self.convs = nn.ModuleList(nn.Conv1d(units, units, width, padding=width - 1) for width in (2, 3, 4))

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        x = self._masked(self.embed(tokens), lengths).transpose(1, 2)
        found = [self._masked(torch.relu(conv(x)).transpose(1, 2), lengths) for conv in self.convs]
        return self.out(torch.cat([each.amax(1) for each in found], 1))

    @staticmethod
    def _masked(x: Tensor, lengths: Tensor) -> Tensor:
        return x * (torch.arange(x.shape[1]) < lengths[:, None])[:, :, None]


def text_classification() -> Workload:
    def loss(net: Any, x: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(net(x, torch.full((len(x),), x.shape[1])), y.long())

    return Workload(TextCNN(400), loss)


def next_word(net: nn.Module) -> Workload:
    def loss(net: Any, x: Tensor) -> Tensor:
        return functional.cross_entropy(net(x[:, :-1]).flatten(0, 1), x[:, 1:].long().flatten())

    return Workload(net, loss)


class LSTM(nn.Module):
    def __init__(self, words: int, units: int = 128):
        super().__init__()
        self.embed, self.lstm = nn.Embedding(words, units), nn.LSTM(units, units, batch_first=True)
        self.out = nn.Linear(units, words)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.lstm(self.embed(tokens))[0])


class GPT2Cell(nn.Module):
    def __init__(self, units: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(units), nn.LayerNorm(units)
        self.into, self.out = nn.Linear(units, 3 * units), nn.Linear(units, units)
        self.up, self.down = nn.Linear(units, 4 * units), nn.Linear(4 * units, units)

    def forward(self, x: Tensor) -> Tensor:
        parts = (y.unflatten(2, (self.heads, -1)).transpose(1, 2) for y in self.into(self.norm1(x)).chunk(3, 2))
        mixed = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, words: int, units: int, layers: int, heads: int, length: int):
        super().__init__()
        self.embed, self.position = nn.Embedding(words, units), nn.Embedding(length, units)
        self.cells = nn.Sequential(*(GPT2Cell(units, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(units), nn.Linear(units, words, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens) + self.position(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.cells(x)))


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

    return Workload(Translator(33, 37), loss)


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
    return Workload(Tagger(120, 7), lambda net, *batch: net(*batch).mean())


class Factorization(nn.Module):
    def __init__(self, users: int, items: int, groups: int, genres: int, mean: float, width: int = 12):
        super().__init__()
        self.user, self.item, self.group, self.genre = (
            nn.Embedding(count, width, sparse=True) for count in (users, items, groups, genres)
        )
        self.user_bias, self.item_bias = (nn.Embedding(count, 1, sparse=True) for count in (users, items))
        self.mean = mean

    def forward(self, user: Tensor, item: Tensor, group: Tensor, genre: Tensor) -> Tensor:
        product = (self.user(user) + self.group(group)) * (self.item(item) + self.genre(genre))
        return product.sum(1, keepdim=True) + self.user_bias(user) + self.item_bias(item) + self.mean


def recommendation() -> Workload:
    def loss(net: Any, *batch: Tensor) -> Tensor:
        return functional.mse_loss(net(*(each.long() for each in batch[:4])), batch[4]) / 2

    return Workload(Factorization(1000, 600, 8, 12, 3.0), loss)


MAKERS = (several_labels, segmentation, generation, text_classification)
LANGUAGE = (lambda: next_word(LSTM(200)), lambda: next_word(GPT2(200, 96, layers=2, heads=4, length=128)))
THEIRS = dict(zip(DATA, (*MAKERS, *LANGUAGE, translation, tagging, recommendation), strict=True))
