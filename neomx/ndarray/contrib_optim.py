"""AdamW and LAMB of `mx.nd.contrib`, which accept lists of arrays and a gradient scale that is a number or an array.

The underlying ops take the arrays of all weights in one flat list, and the scale as an array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..base import MXNetError
from ..ops.table import get_op
from .invoke import make_function
from .ndarray import NDArray


def _function(name: str, arrays: str, numbers: str, renamed: dict[str, str], doc: str) -> Callable[..., Any]:
    """Return a function of `arrays` (single arrays or lists of them) and `numbers`, by position or by name."""
    op = make_function(get_op("_" + name), name, NDArray)
    kinds, names = arrays.split(), arrays.split() + numbers.split()

    def step(*args: Any, **kwargs: Any) -> Any:
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        missing = [each for each in names if each not in given]
        if missing or len(args) > len(names):
            raise MXNetError(f"{name}: expected {', '.join(names)}; missing: {', '.join(missing) or 'nothing'}")
        lists = [given.pop(kind) for kind in kinds]
        if name.startswith("multi"):
            if len({len(each) for each in lists}) != 1 or not lists[0]:
                counts = dict(zip(kinds, map(len, lists), strict=True))
                raise MXNetError(f"{name}: all lists of arrays must have the same length, received {counts}")
            count = "num_tensors" if "lamb" in name else "num_weights"
            given[count] = given.pop("size", 0) or given.get(count) or len(lists[0])
            lists = [array for row in zip(*lists, strict=True) for array in row]
        if "adamw" in name:
            lists.append(_scale(given.pop("rescale_grad"), lists[0]))
        return op(*lists, **{renamed.get(key, key): value for key, value in given.items()})

    step.__name__ = step.__qualname__ = name
    step.__doc__ = f"{doc}\n\n{name}({', '.join(names)}, **attributes of the op)"
    return step


def _scale(rescale_grad: float | NDArray, like: NDArray) -> NDArray:
    if isinstance(rescale_grad, NDArray):
        return rescale_grad
    return NDArray(torch.full((1,), rescale_grad, device=like._data.device), like._ctx)


_ONE, _MANY = "weight grad mean var", "weights grads mean var"
_LAMB = {"lrs": "learning_rates"}

adamw_update = _function("adamw_update", _ONE, "rescale_grad lr eta", {}, "Perform a step of AdamW.")
mp_adamw_update = _function(
    "mp_adamw_update",
    f"{_ONE} weight32",
    "rescale_grad lr eta",
    {},
    "Perform a step of AdamW on a float16 weight and its float32 copy.",
)
multi_adamw_update = _function(
    "multi_adamw_update", _MANY, "rescale_grad lrs wds etas", {}, "Perform a step of AdamW on many weights."
)
multi_mp_adamw_update = _function(
    "multi_mp_adamw_update",
    f"{_MANY} weights32",
    "rescale_grad lrs wds etas",
    {},
    "Perform a step of AdamW on many float16 weights and their float32 copies.",
)
multi_lamb_update = _function(
    "multi_lamb_update", _MANY, "step_count lrs wds", _LAMB, "Perform a step of LAMB on many weights."
)
multi_mp_lamb_update = _function(
    "multi_mp_lamb_update",
    f"{_MANY} weights32",
    "step_count lrs wds",
    _LAMB,
    "Perform a step of LAMB on many float16 weights and their float32 copies.",
)
