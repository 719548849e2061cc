"""Activation checkpointing: Blocks that keep only their inputs, and compute the rest again in backward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar

import torch
from torch.distributed._composable import checkpoint

from ..base import MXNetError, modes, suggest
from ..context import cpu
from ..gluon import Block
from ..gluon.twin import Twin
from ..ops import random
from .model import Model, module_of
from .stages import parts_of

Net = TypeVar("Net", bound=Model)
Which: TypeAlias = Literal[True] | str | Sequence[str]
Checkpointed: TypeAlias = Which | Literal[False] | None  # what `apply` and `train_step` are told


def checkpoint_blocks(net: Net, which: Which = True) -> Net:
    """Have parts of a Block, or of a torch module, compute their activations again in backward instead of keeping them.

    `which` is a pattern of names ('blocks.*'), or several. True means the pieces that a pipeline would cut the model
    into, as far as they have children: transformer layers, residual blocks; where none has, those with parameters.
    Random numbers are drawn again as they were: Dropout has the same mask.
    """
    for module in chosen_by(net, which):
        if not hasattr(module, "_is_checkpointed"):
            checkpoint(module, context_fn=partial(_contexts, module))
            module._is_checkpointed = True  # type: ignore[assignment]
    return net


def chosen_by(net: Model, which: Which) -> list[torch.nn.Module]:
    """The parts that `which` means."""
    return _pieces(net) if which is True else _matching(net, [which] if isinstance(which, str) else which)


def _pieces(net: Model) -> list[torch.nn.Module]:
    parts = [part for _, part in parts_of(net) if isinstance(part, (Block, torch.nn.Module))]
    modules = [module_of(part) for part in parts] if parts != [net] else list(module_of(net).children())
    made = [each for each in modules if any(True for _ in each.children())]
    return made or [each for each in modules if any(True for _ in each.parameters())]


def _matching(net: Model, patterns: Sequence[str]) -> list[torch.nn.Module]:
    """The parts that match; of those inside each other, the outer ones."""
    modules = {name: module for name, module in module_of(net).named_modules() if name}
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in modules):
            raise MXNetError(
                f"checkpoint: {pattern!r} matches no part of the model.{suggest(pattern, modules)} Its parts are "
                f"{', '.join(list(modules)[:20])}"
            )
    chosen: dict[str, torch.nn.Module] = {}
    for name, module in modules.items():
        inside = any(name.startswith(f"{outer}.") for outer in chosen)
        if not inside and any(fnmatchcase(name, pattern) for pattern in patterns):
            chosen[name] = module
    return list(chosen.values())


def _contexts(module: torch.nn.Module) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """What holds while a part runs for the first time, and again."""
    random.generator(cpu())  # the first to draw would make it
    called_as_block = isinstance(module, Twin) and module.entered
    return nullcontext(), _again(module, random.states(), modes.training if called_as_block else module.training)


@contextmanager
def _again(module: torch.nn.Module, states: random.States, training: bool) -> Iterator[None]:
    """Draw the same random numbers, in the same mode; after it, go on as if nothing had been."""
    now = random.states()
    was_training, module.training = module.training, training
    random.set_states(states)
    try:
        yield
    finally:
        module.training = was_training
        random.set_states(now)
