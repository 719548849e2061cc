"""The default plan of a net: transformers define their own, and pairs of Dense layers are split."""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatchcase

import torch

from ..base import MXNetError
from ..gluon import nn
from .styles import kind_of, layer_of

_SEQUENTIAL = (nn.Sequential, nn.HybridSequential, torch.nn.Sequential)
# Layers that may be between the two layers of a pair: elementwise and without weights.
_BETWEEN = (
    *(nn.Activation, nn.LeakyReLU, nn.ELU, nn.SELU, nn.GELU, nn.Swish, nn.Dropout),
    *(torch.nn.ReLU, torch.nn.GELU, torch.nn.SiLU, torch.nn.ELU, torch.nn.SELU, torch.nn.LeakyReLU, torch.nn.Tanh),
    *(torch.nn.Sigmoid, torch.nn.Softplus, torch.nn.Mish, torch.nn.Dropout, torch.nn.Identity),
)
_TORCH_LAYERS = (torch.nn.TransformerEncoderLayer, torch.nn.TransformerDecoderLayer)
Found = list[tuple[str, str]]


def automatic_plan(modules: dict[str, torch.nn.Module], degree: int) -> Found:
    """Return (name, style) of all layers that can be split automatically."""
    found: Found = []
    passed: list[str] = []
    for name, module in modules.items():
        plan = getattr(layer_of(module), "TENSOR_PLAN", None)
        if isinstance(plan, dict):
            found += _own_plan(name, plan, modules)
        elif isinstance(layer_of(module), _SEQUENTIAL):
            pairs = list(_pairs(name, module))
            found += _fitting(pairs, modules, degree, passed)
        elif isinstance(module, _TORCH_LAYERS):
            found += _fitting([(f"{name}.linear1".lstrip("."), f"{name}.linear2".lstrip("."))], modules, degree, passed)
    if not found:
        why = f"; the pairs {', '.join(passed)} cannot be divided by {degree}" if passed else ""
        raise MXNetError(
            "plan 'auto' found no layers to split: expected a transformer with its own plan, or Dense, activation, "
            f"Dense in a sequential Block{why}. Pass a plan, {{name pattern: style}}"
        )
    return list(dict.fromkeys(found))


def _own_plan(name: str, plan: dict[str, str], modules: dict[str, torch.nn.Module]) -> Found:
    """Return the plan that a Block defines for its layers. Patterns that match no layer are ignored."""
    prefix = f"{name}." if name else ""
    return [
        (each, chosen)
        for pattern, chosen in plan.items()
        for each in modules
        if each.startswith(prefix) and fnmatchcase(each[len(prefix) :], pattern)
    ]


def _pairs(name: str, sequential: torch.nn.Module) -> list[tuple[str, str]]:
    """Pairs of Dense layers with only activations and Dropout between them."""
    pairs, first = [], None
    for child, module in sequential._modules.items():
        whole = ".".join(filter(None, (name, child)))
        if module is not None and kind_of(module) == "dense":
            if first is None:
                first = whole
            else:
                pairs.append((first, whole))
                first = None
        elif not isinstance(layer_of(module) if module is not None else None, _BETWEEN):
            first = None
    return pairs


def _fitting(
    pairs: list[tuple[str, str]], modules: dict[str, torch.nn.Module], degree: int, passed: list[str]
) -> Found:
    """Return the pairs that can be split. Pairs whose inner width is not divisible are added to `passed`."""
    found: Found = []
    uses = Counter(id(tensor) for module in modules.values() for tensor in module._parameters.values())
    for first, second in pairs:
        tensors = [tensor for name in (first, second) for tensor in modules[name]._parameters.values()]
        if any(uses[id(tensor)] > 1 for tensor in tensors if tensor is not None):
            continue  # a shared weight: it is unknown how the other layer would split it
        if _flattens(modules[second]) and not _flattens(modules[first]):
            continue  # it flattens its input, of which a worker has only some features
        width = modules[first]._parameters["weight"].shape[0]  # type: ignore[union-attr]
        if width % degree:
            passed.append(f"{first} and {second} (width {width})")
        else:
            found += [(first, "column"), (second, "row")]
    return found


def _flattens(dense: torch.nn.Module) -> bool:
    return bool(getattr(layer_of(dense), "_flatten", False))
