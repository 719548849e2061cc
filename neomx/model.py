"""Checkpoints of a symbol and its parameters: `prefix-symbol.json` and `prefix-0001.params`."""

from __future__ import annotations

import logging
from collections import namedtuple
from typing import Any

from . import ndarray as nd
from . import symbol as sym
from .base import MXNetError
from .ndarray import NDArray

__all__ = ["BatchEndParam", "load_checkpoint", "load_params", "save_checkpoint"]

BatchEndParam = namedtuple("BatchEndParam", ["epoch", "nbatch", "eval_metric", "locals"])
BatchEndParam.__doc__ = "What callbacks are told after a batch."


def save_checkpoint(
    prefix: str,
    epoch: int,
    symbol: Any,
    arg_params: dict[str, NDArray],
    aux_params: dict[str, NDArray],
    remove_amp_cast: bool = True,
) -> None:
    """Write `prefix`-symbol.json, if there is a symbol, and `prefix`-0003.params for epoch 3."""
    if symbol is not None:
        symbol.save(f"{prefix}-symbol.json", remove_amp_cast=remove_amp_cast)
    path = _params_file(prefix, epoch)
    arrays = {f"arg:{name}": array for name, array in arg_params.items()}
    nd.save(path, {**arrays, **{f"aux:{name}": array for name, array in aux_params.items()}})
    logging.info('Saved checkpoint to "%s"', path)


def load_checkpoint(prefix: str, epoch: int) -> tuple[Any, dict[str, NDArray], dict[str, NDArray]]:
    """The symbol, the arguments and the auxiliary states that `save_checkpoint` wrote."""
    return sym.load(f"{prefix}-symbol.json"), *load_params(prefix, epoch)


def load_params(prefix: str, epoch: int) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
    """The arguments and the auxiliary states alone."""
    kinds: dict[str, dict[str, NDArray]] = {"arg": {}, "aux": {}}
    path = _params_file(prefix, epoch)
    loaded = nd.load(path) or {}
    if not isinstance(loaded, dict):
        raise MXNetError(f"{path} holds arrays without names: expected a file that save_checkpoint wrote")
    for key, array in loaded.items():
        kind, _, name = key.partition(":")
        if kind in kinds:
            kinds[kind][name] = array
    return kinds["arg"], kinds["aux"]


def _params_file(prefix: str, epoch: int) -> str:
    return f"{prefix}-{epoch:04d}.params"
