"""The states of all random generators of a process, as tensors by name."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from ..ops import random as own


class Raw(NamedTuple):
    """The states of all generators as they return them: quick to take."""

    torch: dict[str, torch.Tensor]
    numpy: Any
    python: Any


def raw_states() -> Raw:
    """Return the states of the generators of torch, numpy, Python and `mx.random`."""
    found = {"torch": torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        found |= {f"torch.cuda.{i}": state for i, state in enumerate(torch.cuda.get_rng_state_all())}
    found |= {f"mx.{name}": state for name, state in own.named_states().items()}
    return Raw(found, np.random.get_state(), random.getstate())


def tensors_of(raw: Raw) -> dict[str, torch.Tensor]:
    """Return states as tensors by name."""
    _, keys, position, has_gauss, gauss = raw.numpy
    version, numbers, spare = raw.python
    return {
        **raw.torch,
        "numpy": torch.tensor([*keys.tolist(), position, has_gauss], dtype=torch.int64),
        "numpy.gauss": torch.tensor([gauss], dtype=torch.float64),
        "python": torch.tensor([version, *numbers], dtype=torch.int64),
        "python.gauss": torch.tensor([] if spare is None else [spare], dtype=torch.float64),
    }


def restore(states: Mapping[str, torch.Tensor]) -> None:
    """Restore the generators to the result of `tensors_of`."""
    torch.set_rng_state(states["torch"])
    for name, state in states.items():
        kind, _, rest = name.partition(".")
        if kind == "torch" and rest.startswith("cuda.") and int(rest[5:]) < torch.cuda.device_count():
            torch.cuda.set_rng_state(state, int(rest[5:]))
    *keys, position, has_gauss = states["numpy"].tolist()
    gauss = float(states["numpy.gauss"][0])
    np.random.set_state(("MT19937", np.array(keys, dtype=np.uint32), position, has_gauss, gauss))
    version, *numbers = states["python"].tolist()
    spare: list[Any] = states["python.gauss"].tolist()
    random.setstate((version, tuple(numbers), spare[0] if spare else None))
    own.set_named_states({name[3:]: state for name, state in states.items() if name.startswith("mx.")})


def reseed(states: Mapping[str, torch.Tensor], rank: int) -> None:
    """Seed all generators for a worker that did not exist when the states were saved."""
    words = states["torch"][:4096].to(torch.int64)
    base = int((words * torch.arange(1, len(words) + 1)).sum())
    seed = int(np.random.SeedSequence([base, rank]).generate_state(1)[0])
    random.seed(seed)
    np.random.seed(seed)
    own.seed(seed)
