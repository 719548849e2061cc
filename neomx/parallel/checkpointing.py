"""Activation checkpointing: Blocks that keep only their inputs and recompute activations in backward."""

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
Checkpointed: TypeAlias = Which | Literal[False] | None  # the argument of `apply` and `train_step`


def checkpoint_blocks(net: Net, which: Which = True) -> Net:
    """Make parts of a Block or a torch module recompute their activations in backward instead of keeping them.

    `which` is a pattern of names ('blocks.*') or several patterns. True selects the pieces into which a pipeline would
    cut the model, if they have children, such as transformer layers and residual blocks. If none has children, it
    selects those with parameters. The recomputation uses the same random numbers, so Dropout has the same mask.
    """
    for module in chosen_by(net, which):
        if not hasattr(module, "_is_checkpointed"):
            checkpoint(module, context_fn=partial(_contexts, module))
            module._is_checkpointed = True  # type: ignore[assignment]
    return net


def chosen_by(net: Model, which: Which) -> list[torch.nn.Module]:
    """Return the parts that `which` selects."""
    return _pieces(net) if which is True else _matching(net, [which] if isinstance(which, str) else which)


def _pieces(net: Model) -> list[torch.nn.Module]:
    parts = [part for _, part in parts_of(net) if isinstance(part, (Block, torch.nn.Module))]
    modules = [module_of(part) for part in parts] if parts != [net] else list(module_of(net).children())
    made = [each for each in modules if any(True for _ in each.children())]
    return made or [each for each in modules if any(True for _ in each.parameters())]


def _matching(net: Model, patterns: Sequence[str]) -> list[torch.nn.Module]:
    """Return the parts that match. Of nested parts, only the outermost."""
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
    """Return the contexts for the first run of a part and for its recomputation."""
    random.generator(cpu())  # creates the generator before its state is saved
    called_as_block = isinstance(module, Twin) and module.entered
    return nullcontext(), _again(module, random.states(), modes.training if called_as_block else module.training)


@contextmanager
def _again(module: torch.nn.Module, states: random.States, training: bool) -> Iterator[None]:
    """Restore the random states and the mode of the first run, and undo this afterwards."""
    now = random.states()
    was_training, module.training = module.training, training
    random.set_states(states)
    try:
        yield
    finally:
        module.training = was_training
        random.set_states(now)
