"""The two models of `layouts.py`, as a Gluon Block and as a torch module with the same sizes and weights."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from neomx import gluon, nd
from neomx.gluon.model_zoo.transformer import GPT2

WIDTH, LAYERS, CLASSES = 1024, 6, 1000
VOCABULARY, UNITS, BLOCKS, HEADS, TIME = 8192, 256, 6, 8, 64


class TorchAttention(nn.Module):
    """Causal self-attention; the number of local heads follows from the width of the input."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(UNITS, UNITS) for _ in range(4))

    def forward(self, x: Any) -> Any:
        def by_heads(y: Any) -> Any:
            return y.view(*y.shape[:2], -1, UNITS // HEADS).transpose(1, 2)

        parts = by_heads(self.query(x)), by_heads(self.key(x)), by_heads(self.value(x))
        mixed = F.scaled_dot_product_attention(*parts, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class TorchFeedForward(nn.Module):
    """Two layers with GELU in between."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(UNITS, 4 * UNITS), nn.Linear(4 * UNITS, UNITS)

    def forward(self, x: Any) -> Any:
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class TorchCell(nn.Module):
    """A layer of GPT-2."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(UNITS), TorchAttention()
        self.norm2, self.feedforward = nn.LayerNorm(UNITS), TorchFeedForward()

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.norm1(x))
        return x + self.feedforward(self.norm2(x))


class TorchEmbedding(nn.Module):
    """Embeddings of tokens and positions."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.position = nn.Embedding(VOCABULARY, UNITS), nn.Embedding(TIME, UNITS)

    def forward(self, tokens: Any) -> Any:
        return self.embed(tokens) + self.position(torch.arange(tokens.shape[1]))


class TorchHead(nn.Module):
    """Scores of the next token."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.LayerNorm(UNITS), nn.Linear(UNITS, VOCABULARY, bias=False)

    def forward(self, x: Any) -> Any:
        return self.head(self.norm(x))


def torch_gpt2() -> nn.Sequential:
    """Return embeddings, layers and a head that shares the weight of the embedding."""
    net = nn.Sequential(TorchEmbedding(), *(TorchCell() for _ in range(BLOCKS)), TorchHead())
    tie(net)
    return net


def tie(net: Any) -> None:
    """Share one weight between embedding and head."""
    net[-1].head.weight = net[0].embed.weight


def torch_mlp() -> nn.Sequential:
    """Return layers of equal width, and an output layer."""
    hidden = [each for _ in range(LAYERS - 1) for each in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(WIDTH, CLASSES))


def gluon_mlp() -> Any:
    """Return the same model as a Block."""
    net = gluon.nn.HybridSequential()
    for _ in range(LAYERS - 1):
        net.add(gluon.nn.Dense(WIDTH, in_units=WIDTH), gluon.nn.Activation("relu"))
    net.add(gluon.nn.Dense(CLASSES, in_units=WIDTH))
    return net


def gluon_gpt2() -> Any:
    """Return the GPT-2 of the model zoo."""
    return GPT2(VOCABULARY, UNITS, BLOCKS, HEADS, TIME, dropout=0.0)


def as_torch(net: nn.Module) -> nn.Module:
    """Set small random weights from a fixed seed."""
    torch.manual_seed(0)
    for param in net.parameters():
        param.data.normal_(0, 0.02) if param.dim() > 1 else param.data.fill_(0.01)
    for module in net.modules():
        if isinstance(module, nn.LayerNorm):
            module.weight.data.fill_(1)
    return net


def as_block(net: Any, source: nn.Module) -> Any:
    """Return a Block with the weights of a torch module, whose parameters are in the same order."""
    net.initialize()
    order = list(source.parameters())
    if isinstance(net, GPT2):
        cells = [param for block in net.blocks for param in block_order(block)]
        own = [net.embed.weight, net.position.weight, *cells, net.norm.gamma, net.norm.beta]
    else:
        own = [param for layer in net for param in layer.collect_params().values()]
    for mine, theirs in zip(own, order, strict=True):
        mine.set_data(nd.array(theirs.detach().numpy()))
    return net


def block_order(block: Any) -> list[Any]:
    """Return the parameters of a cell in the order of TorchCell."""
    attention, feedforward = block.attention, block.feedforward
    layers = [attention.query, attention.key, attention.value, attention.out]
    found = [block.norm1.gamma, block.norm1.beta, *(p for layer in layers for p in (layer.weight, layer.bias))]
    found += [block.norm2.gamma, block.norm2.beta]
    return found + [p for layer in (feedforward.up, feedforward.down) for p in (layer.weight, layer.bias)]


def batch(model: str, samples: int, share: int) -> tuple[Any, Any]:
    """Return a worker's share of a batch, as torch tensors."""
    torch.manual_seed(1 + share)
    if model == "mlp":
        return torch.randn(samples, WIDTH), torch.randint(0, CLASSES, (samples,))
    return torch.randint(0, VOCABULARY, (samples, TIME)), torch.randint(0, VOCABULARY, (samples, TIME))


def arrays(*tensors: Any) -> list[Any]:
    """Convert tensors to NDArrays."""
    return [nd.array(tensor.float().numpy()) for tensor in tensors]


MAKERS = {"mlp": (torch_mlp, gluon_mlp), "gpt2": (torch_gpt2, gluon_gpt2)}
TORCH_PLAN = {
    "0.embed": "vocabulary",
    "*.attention.query": "column",
    "*.attention.key": "column",
    "*.attention.value": "column",
    "*.attention.out": "row",
    "*.feedforward.up": "column",
    "*.feedforward.down": "row",
    f"{BLOCKS + 1}.head": "logits",
}
