"""A model as stored in files: a symbol, and its arrays by name."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from .. import ndarray as nd
from .. import symbol as sym
from ..base import MXNetError
from ..ndarray import NDArray
from ..symbol import Symbol

_SYMBOL = "-symbol.json"
_KINDS = ("arg", "aux")


@dataclass
class Checkpoint:
    """A symbol with the arrays of its arguments and auxiliary states; `epoch` is taken from the file name."""

    symbol: Symbol
    arguments: dict[str, NDArray]
    states: dict[str, NDArray]
    epoch: int = 0

    @property
    def arrays(self) -> dict[str, NDArray]:
        """All arrays by name."""
        return {**self.arguments, **self.states}

    def inputs(self, symbol: Symbol | None = None) -> list[str]:
        """Return the names of the variables without an array: the inputs of the model."""
        known = self.arrays
        return [name for name in (self.symbol if symbol is None else symbol).list_inputs() if name not in known]


def load(model: str, params: str | None = None, epoch: int | None = None) -> Checkpoint:
    """Load a checkpoint from a prefix (newest epoch, or `epoch`), or from a symbol's JSON file and its parameters."""
    if model.endswith(".json"):
        prefix = model.removesuffix(_SYMBOL) if model.endswith(_SYMBOL) else model.removesuffix(".json")
        file = model
    else:
        prefix, file = model, model + _SYMBOL
    if not os.path.isfile(file):
        raise MXNetError(f"{file}: no such file. Expected the PREFIX of PREFIX{_SYMBOL}, or a symbol's .json file")
    params, epoch = _params_of(prefix, params, epoch)
    symbol = sym.load(file)
    return Checkpoint(symbol, *sorted_arrays(read_arrays(params), symbol), epoch)


def _params_of(prefix: str, params: str | None, epoch: int | None) -> tuple[str, int]:
    """Return the path of the parameter file and its epoch."""
    if params is not None:
        found = re.search(r"-(\d{4,})\.params$", params)
        return params, epoch if epoch is not None else int(found[1]) if found else 0
    if epoch is not None:
        return f"{prefix}-{epoch:04d}.params", epoch
    epochs = [
        int(path[len(prefix) + 1 : -7]) for path in glob.glob(glob.escape(prefix) + "-" + "[0-9]" * 4 + ".params")
    ]
    if not epochs:
        raise MXNetError(f"{prefix}-0000.params: no such file, and none of another epoch. Pass the .params file too")
    return f"{prefix}-{max(epochs):04d}.params", max(epochs)


def read_arrays(path: str) -> dict[str, NDArray]:
    """Return the named arrays of a .params file."""
    loaded = nd.load(path) or {}
    if not isinstance(loaded, dict):
        raise MXNetError(f"{path} contains {len(loaded)} arrays without names. Expected named parameters of a symbol")
    return loaded


def sorted_arrays(loaded: Mapping[str, NDArray], symbol: Symbol) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
    """Split arrays into arguments and auxiliary states of `symbol`. The name prefixes arg: and aux: are optional."""
    states = set(symbol.list_auxiliary_states())
    found: dict[str, dict[str, NDArray]] = {kind: {} for kind in _KINDS}
    for key, array in loaded.items():
        kind, colon, name = key.partition(":")
        if not colon or kind not in _KINDS:
            kind, name = "aux" if key in states else "arg", key
        found[kind][name] = array
    return found["arg"], found["aux"]


def cast(checkpoint: Checkpoint, dtype: str) -> Checkpoint:
    """Cast the checkpoint for inputs of `dtype`: arrays get the dtype that the graph infers, float32 for BatchNorm."""
    wanted = _wanted_types(checkpoint, dtype)

    def changed(arrays: Mapping[str, NDArray]) -> dict[str, NDArray]:
        return {
            name: array.astype(wanted.get(name, dtype)) if _is_floating(array) else array
            for name, array in arrays.items()
        }

    return Checkpoint(checkpoint.symbol, changed(checkpoint.arguments), changed(checkpoint.states), checkpoint.epoch)


def _wanted_types(checkpoint: Checkpoint, dtype: str) -> dict[str, Any]:
    """Return the dtype that the graph infers for each variable when its inputs have `dtype`."""
    fed = {name: dtype for name in checkpoint.inputs() if name in checkpoint.symbol.list_arguments()}
    arguments, _, states = checkpoint.symbol.infer_type_partial(**fed)
    names = (*checkpoint.symbol.list_arguments(), *checkpoint.symbol.list_auxiliary_states())
    inferred = zip(names, (*(arguments or ()), *(states or ())), strict=False)
    return {name: found for name, found in inferred if found is not None}


def _is_floating(array: NDArray) -> bool:
    return array.stype == "default" and array._data.is_floating_point()


def tensors(arrays: Mapping[str, NDArray]) -> dict[str, torch.Tensor]:
    """Return the arrays as dense torch tensors."""
    return {name: array.tostype("default")._data.detach() for name, array in arrays.items()}


def check_complete(checkpoint: Checkpoint, symbol: Symbol, fed: Iterable[str]) -> None:
    """Raise MXNetError if variables other than those in `fed` have no array."""
    missing = [name for name in checkpoint.inputs(symbol) if name not in set(fed)]
    if missing:
        raise MXNetError(
            f"the parameters have no array for {', '.join(missing)}. If these are inputs, pass their shapes, as in "
            f"--shape {missing[0]}:1,3,224,224"
        )
