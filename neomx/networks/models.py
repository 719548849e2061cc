"""The networks of Gluon's model zoo as symbols."""

from __future__ import annotations

from typing import Any

from ..gluon.model_zoo import transformer
from ..gluon.model_zoo.vision import get_resnet, get_vgg
from ..gluon.model_zoo.vision.resnet import resnet_spec
from ..gluon.model_zoo.vision.vgg import vgg_spec
from ..symbol import Symbol
from .common import check_counts, check_number, check_symbols, finished, name_of, sym

HEAD_SIZE = 64  # of all published BERTs and GPT-2s


def Resnet(
    data: Symbol,
    depth: int = 50,
    num_classes: int = 1000,
    version: int = 1,
    thumbnail: bool = False,
    name: str | None = None,
) -> Symbol:
    """Return the scores of a ResNet with 18, 34, 50, 101 or 152 layers: (batch, channels, height, width) to classes.

    `version` is 1 or 2. `thumbnail` is for small images, such as those of CIFAR.
    """
    check_symbols("Resnet", "gluon.model_zoo.vision.get_resnet", data=data)
    _check_choice("Resnet", "depth", depth, resnet_spec)
    _check_choice("Resnet", "version", version, (1, 2))
    check_counts("Resnet", num_classes=num_classes)
    name = name_of(name, "resnet")
    net = get_resnet(version, depth, classes=num_classes, thumbnail=thumbnail, prefix=f"{name}_")
    return finished(net(data), name)


def VGG(
    data: Symbol, version: int = 16, num_classes: int = 1000, batch_norm: bool = False, name: str | None = None
) -> Symbol:
    """Return the scores of a VGG with 11, 13, 16 or 19 layers: (batch, channels, height, width) to classes."""
    check_symbols("VGG", "gluon.model_zoo.vision.get_vgg", data=data)
    _check_choice("VGG", "version", version, vgg_spec)
    check_counts("VGG", num_classes=num_classes)
    name = name_of(name, "vgg")
    net = get_vgg(version, classes=num_classes, batch_norm=batch_norm, prefix=f"{name}_")
    return finished(net(data), name)


def Bert(
    data: Symbol,
    num_hidden: int = 768,
    num_layers: int = 12,
    num_heads: int | None = None,
    vocab_size: int = 30522,
    max_length: int = 512,
    dropout: float = 0.1,
    token_types: Symbol | None = None,
    valid_length: Symbol | None = None,
    pooler: bool = False,
    name: str | None = None,
) -> Symbol:
    """Return the hidden states of BERT for tokens: (batch, time) to (batch, time, num_hidden).

    Heads have 64 units by default. `token_types` (batch, time) default to 0. `valid_length` (batch,) has the lengths of
    the sequences. With `pooler`, the result is a group of the hidden states and the pooled state of the first step.
    """
    given = {"token_types": token_types, "valid_length": valid_length}
    given = {key: each for key, each in given.items() if each is not None}
    check_symbols("Bert", "gluon.model_zoo.transformer.BERT", data=data, **given)
    heads = _heads("Bert", "num_hidden", num_hidden, num_heads, num_layers, dropout, vocab_size, max_length)
    name = name_of(name, "bert")
    net = transformer.BERT(
        vocab_size, num_hidden, num_layers, heads, max_length, dropout=dropout, pooler=pooler, prefix=f"{name}_"
    )
    outputs = net(data, token_types, valid_length)
    return sym.Group(outputs) if pooler else finished(outputs, name)


def GPT2(
    data: Symbol,
    num_layers: int = 12,
    hidden_size: int = 768,
    vocab_size: int = 50257,
    num_heads: int | None = None,
    max_length: int = 1024,
    dropout: float = 0.1,
    head: bool = True,
    name: str | None = None,
) -> Symbol:
    """Return GPT-2's scores of the next token at each step: (batch, time) tokens to (batch, time, vocab_size).

    Heads have 64 units by default. With `head=False`, the result is the hidden states (batch, time, hidden_size).
    """
    check_symbols("GPT2", "gluon.model_zoo.transformer.GPT2", data=data)
    heads = _heads("GPT2", "hidden_size", hidden_size, num_heads, num_layers, dropout, vocab_size, max_length)
    name = name_of(name, "gpt2")
    net = transformer.GPT2(
        vocab_size, hidden_size, num_layers, heads, max_length, dropout=dropout, head=head, prefix=f"{name}_"
    )
    return finished(net(data), name)


def _check_choice(builder: str, name: str, value: Any, choices: Any) -> None:
    if isinstance(value, bool) or value not in list(choices):
        raise ValueError(f"{builder}: {name} must be one of {', '.join(map(str, choices))}, received {value!r}")


def _heads(
    builder: str, width: str, units: int, heads: int | None, layers: int, dropout: float, words: int, length: int
) -> int:
    """Check the sizes of a transformer. Return the number of its heads."""
    check_counts(builder, **{width: units}, num_layers=layers, vocab_size=words, max_length=length)
    check_number(builder, "dropout", dropout, 0, 1)
    if heads is None:
        heads = units // HEAD_SIZE if units % HEAD_SIZE == 0 else 1
    check_counts(builder, num_heads=heads)
    if units % heads:
        raise ValueError(f"{builder}: {width} must be a multiple of num_heads, received {width}={units}, {heads} heads")
    return heads
