"""The models of train_workloads in plain, hand-written torch, with channels_last and a fused optimizer."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from train_workloads import BATCHES, LENGTH, SENTENCES, VOCABULARY, WIDTH


class ResidualUnit(nn.Module):
    def __init__(self, inside, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, channels, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.shortcut = None
        if inside != channels:
            self.shortcut = nn.Sequential(nn.Conv2d(inside, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x):
        out = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(out + (x if self.shortcut is None else self.shortcut(x)))


def resnet18():
    layers, inside = [nn.Conv2d(3, 64, 3, 1, 1, bias=False)], 64
    for channels, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [ResidualUnit(inside, channels, stride), ResidualUnit(channels, channels, 1)]
        inside = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2, 2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2, 2),
        nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10),
    )  # fmt: skip


def mlp(*hidden):
    layers, inside = [], 784
    for units in hidden:
        layers += [nn.Linear(inside, units), nn.ReLU()]
        inside = units
    return nn.Sequential(*layers, nn.Linear(inside, 10))


def classifier(make, batch, *shape):
    def setup(_):
        net = make()
        data = [torch.as_tensor(np.random.uniform(0, 1, (batch, *shape)), dtype=torch.float32) for _ in range(BATCHES)]
        if len(shape) == 3:
            net = net.to(memory_format=torch.channels_last)
            data = [x.contiguous(memory_format=torch.channels_last) for x in data]
        labels = [torch.as_tensor(np.random.randint(0, 10, batch)) for _ in range(BATCHES)]
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, fused=True)
        turn = iter(range(10**9))

        def step():
            at = next(turn) % BATCHES
            loss = F.cross_entropy(net(data[at]), labels[at])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        return step

    return setup


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, 2)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, words, state):
        out, state = self.lstm(self.embedding(words), state)
        return self.head(out), state


def language_model(_):
    net = LanguageModel()
    data = [torch.as_tensor(np.random.randint(0, VOCABULARY, (LENGTH + 1, SENTENCES))) for _ in range(BATCHES)]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, fused=True)
    state = [torch.zeros(2, SENTENCES, WIDTH), torch.zeros(2, SENTENCES, WIDTH)]
    turn = iter(range(10**9))

    def step():
        words = data[next(turn) % BATCHES]
        scores, new = net(words[:-1], (state[0].detach(), state[1].detach()))
        loss = F.cross_entropy(scores.reshape(-1, VOCABULARY), words[1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state[:] = new
        return loss

    return step


MODELS = {
    "MLP 784-256-128, batch 64": classifier(lambda: mlp(256, 128), 64, 784),
    "LeNet, batch 64": classifier(lenet, 64, 1, 28, 28),
    "MLP of 10M, batch 32": classifier(lambda: mlp(2048, 2048, 2048), 32, 784),
    "ResNet-18 on 32x32, batch 32": classifier(resnet18, 32, 3, 32, 32),
    "LSTM language model": language_model,
}
WORKLOADS = {f"{name} ({mode})": setup for name, setup in MODELS.items() for mode in ("imperative", "hybridized")}
