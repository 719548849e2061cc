"""Random numbers: one generator for each context, so that each can be seeded and repeated by itself."""

from __future__ import annotations

import torch

from ..context import Context

_generators: dict[Context, torch.Generator] = {}
_seed_of_all: int | None = None


def generator(ctx: Context) -> torch.Generator:
    """The generator of a context. Contexts seeded by one `seed` still give different numbers."""
    made = _generators.get(ctx)
    if made is None:
        made = _generators[ctx] = torch.Generator(device=ctx.device)
        if _seed_of_all is None:
            made.seed()
        else:
            made.manual_seed(_seed_of_all + ctx.device_id)
    return made


def seed(value: int, ctx: Context | None = None) -> None:
    """Start the generator of one context, or of all, anew."""
    global _seed_of_all
    if ctx is not None:
        generator(ctx).manual_seed(value)
        return
    _seed_of_all = value
    for each, made in _generators.items():
        made.manual_seed(value + each.device_id)
