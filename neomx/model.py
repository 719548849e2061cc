"""Checkpoints of a symbol and its parameters, and helpers for training a symbol with a KVStore.

A checkpoint consists of `prefix-symbol.json` and `prefix-0001.params`.
"""

from __future__ import annotations

import logging
from collections import namedtuple
from collections.abc import Sequence
from typing import Any

from . import kvstore as kvs
from . import ndarray as nd
from . import symbol as sym
from .base import MXNetError
from .kvstore import KVStore, KVStoreBase
from .ndarray import NDArray
from .process import state
from .step.choose import Asked, updates_in

__all__ = ["BatchEndParam", "load_checkpoint", "load_params", "save_checkpoint"]

BatchEndParam = namedtuple("BatchEndParam", ["epoch", "nbatch", "eval_metric", "locals"])
BatchEndParam.__doc__ = "The argument of callbacks that are called after a batch."

ContextArrays = Sequence[Sequence[Any]]  # for each parameter, one array per context


def __getattr__(name: str) -> Any:
    if name == "FeedForward":  # imported lazily, because the module package imports this file
        from .module.feedforward import FeedForward

        return FeedForward
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def save_checkpoint(
    prefix: str,
    epoch: int,
    symbol: Any,
    arg_params: dict[str, NDArray],
    aux_params: dict[str, NDArray],
    remove_amp_cast: bool = True,
) -> None:
    """Write the parameters to `prefix`-0003.params (for epoch 3) and the symbol, if any, to `prefix`-symbol.json."""
    if symbol is not None:
        symbol.save(f"{prefix}-symbol.json", remove_amp_cast=remove_amp_cast)
    path = _params_file(prefix, epoch)
    state.saved.append(path)
    arrays = {f"arg:{name}": array for name, array in arg_params.items()}
    nd.save(path, {**arrays, **{f"aux:{name}": array for name, array in aux_params.items()}})
    logging.info('Saved checkpoint to "%s"', path)


def load_checkpoint(prefix: str, epoch: int) -> tuple[Any, dict[str, NDArray], dict[str, NDArray]]:
    """Load the symbol, the arguments and the auxiliary states of a checkpoint written by `save_checkpoint`."""
    return sym.load(f"{prefix}-symbol.json"), *load_params(prefix, epoch)


def load_params(prefix: str, epoch: int) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
    """Load the arguments and the auxiliary states of a checkpoint."""
    kinds: dict[str, dict[str, NDArray]] = {"arg": {}, "aux": {}}
    path = _params_file(prefix, epoch)
    loaded = nd.load(path) or {}
    if not isinstance(loaded, dict):
        raise MXNetError(f"{path} contains arrays without names, expected a file written by save_checkpoint")
    for key, array in loaded.items():
        kind, colon, name = key.partition(":")
        if not colon:
            raise ValueError(
                f"{path} contains {key!r}, but names must begin with arg: or aux:, as in files of save_checkpoint and "
                "export. Use Block.load_parameters to load a file written by Block.save_parameters"
            )
        if kind in kinds:
            kinds[kind][name] = array
    return kinds["arg"], kinds["aux"]


def _params_file(prefix: str, epoch: int) -> str:
    return f"{prefix}-{epoch:04d}.params"


def _multiple_callbacks(callbacks: Any, *args: Any, **kwargs: Any) -> None:
    """Call a callback, or each callback of a list. None is ignored."""
    if callbacks is not None:
        for callback in callbacks if isinstance(callbacks, list) else [callbacks]:
            callback(*args, **kwargs)


# ---- KVStore helpers, for programs that define their own Module ----


def _create_kvstore(kvstore: Any, num_device: int, arg_params: dict[str, NDArray]) -> tuple[KVStoreBase | None, bool]:
    """Return the KVStore given by name or as an object, or None if none is needed, and whether it runs the optimizer.

    If MXNET_UPDATE_ON_KVSTORE=0 is set in the environment, contexts and workers run the optimizer.
    """
    asked = Asked(kvstore)
    if kvstore is None or (num_device == 1 and not asked.is_between_workers):
        return None, False
    store = kvs.create(kvstore) if isinstance(kvstore, str) else kvstore
    return store, updates_in(store, asked, max((array.size for array in arg_params.values()), default=0))


def _create_sparse_kvstore(kvstore: Any) -> tuple[KVStoreBase, bool]:
    """Return the KVStore given by name or as an object. It runs the optimizer, as it owns row-sparse parameters."""
    if isinstance(kvstore, KVStoreBase):
        return kvstore, True
    if isinstance(kvstore, str):
        return kvs.create(kvstore), True
    raise TypeError(f"Cannot create '{kvstore}' KVStore with row_sparse parameters. The type must be KVStore or str.")


def _initialize_kvstore(
    kvstore: Any,
    param_arrays: ContextArrays,
    arg_params: dict[str, NDArray],
    param_names: Sequence[str],
    update_on_kvstore: bool,
) -> None:
    """Initialize the keys of a KVStore. Pull the values back if it runs the optimizer or is shared between workers."""
    names, values = list(param_names), [arg_params[name] for name in param_names]
    if isinstance(kvstore, KVStore):
        kvstore.init(names, values)
        if update_on_kvstore or kvstore.begins_alike:
            kvstore.pull(names, [list(row) for row in param_arrays])
        return
    for name, value, row in zip(names, values, param_arrays, strict=True):
        kvstore.broadcast(name, value, out=list(row))


def _update_params_on_kvstore(
    param_arrays: ContextArrays, grad_arrays: ContextArrays, kvstore: Any, param_names: Sequence[str]
) -> None:
    """Push gradients to a KVStore that runs the optimizer, and pull the updated parameters."""
    if isinstance(kvstore, KVStore):  # accepts all keys in one call
        _update_params_on_kvstore_nccl(param_arrays, grad_arrays, kvstore, param_names)
        return
    for i, (name, grads, weights) in enumerate(zip(param_names, grad_arrays, param_arrays, strict=True)):
        if grads[0] is not None:
            kvstore.pushpull(name, grads, out=weights, priority=-i)


def _update_params_on_kvstore_nccl(
    param_arrays: ContextArrays, grad_arrays: ContextArrays, kvstore: Any, param_names: Sequence[str]
) -> None:
    """Like `_update_params_on_kvstore`, with one call for all parameters."""
    rows = [row for row in zip(param_names, grad_arrays, param_arrays, strict=True) if row[1][0] is not None]
    if rows:
        names, grads, weights = (list(each) for each in zip(*rows, strict=True))
        kvstore.pushpull(names, grads, out=weights, priority=0)


def _update_params(
    param_arrays: ContextArrays,
    grad_arrays: ContextArrays,
    updater: Any,
    num_device: int,
    kvstore: Any = None,
    param_names: Sequence[str] | None = None,
) -> None:
    """Update parameters on their contexts, after a KVStore, if given, has summed the gradients.

    The updater sees parameter i on context k as index i * num_device + k.
    """
    trained = [i for i, grads in enumerate(grad_arrays) if grads[0] is not None]
    if kvstore is not None and trained:
        if param_names is None:
            raise TypeError("_update_params: param_names (the keys in the store) is required when kvstore is given")
        _sum_grads([param_names[i] for i in trained], [grad_arrays[i] for i in trained], kvstore)
    for k in range(num_device):
        rows = [(i * num_device + k, grad_arrays[i][k], param_arrays[i][k]) for i in trained]
        if rows:
            updater(*zip(*rows, strict=True))


def _sum_grads(names: list[str], grads: list[Any], kvstore: Any) -> None:
    """Replace gradients with their sums over contexts and workers, using a KVStore."""
    if isinstance(kvstore, KVStore):
        kvstore.pushpull(names, [list(row) for row in grads])
        return
    for priority, (name, row) in enumerate(zip(names, grads, strict=True)):
        kvstore.pushpull(name, list(row), priority=-priority)
