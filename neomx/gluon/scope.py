"""Automatic names of Blocks and their parameters, such as `hybridsequential0_dense1_weight`."""

from __future__ import annotations

import threading
from typing import Any

from .. import name as naming
from .parameter_dict import ParameterDict


class _Local(threading.local):
    scope: BlockScope | None = None


_local = _Local()


class BlockScope:
    """The context manager of `Block.name_scope()`: Blocks and symbols created inside get the Block's prefix."""

    def __init__(self, block: Any):
        self._block = block
        self._counter: dict[str, int] = {}
        self._outer: list[tuple[BlockScope | None, naming.NameManager]] = []

    @staticmethod
    def create(prefix: str | None, params: ParameterDict | None, hint: str) -> tuple[str, ParameterDict]:
        """Return the prefix of a new Block and the dictionary for its parameters."""
        scope = _local.scope
        if scope is None:
            if prefix is None:
                prefix = naming.current().get(None, hint) + "_"
            own = ParameterDict(prefix) if params is None else ParameterDict(params.prefix, params)
            return prefix, own
        if prefix is None:
            number = scope._counter.get(hint, 0)
            scope._counter[hint] = number + 1
            prefix = f"{hint}{number}_"
        if params is None:
            parent = scope._block.params
            own = ParameterDict(parent.prefix + prefix, parent._shared)
        else:
            own = ParameterDict(params.prefix, params)
        return scope._block.prefix + prefix, own

    def __enter__(self) -> BlockScope:
        if not self._block._empty_prefix:
            manager = naming.Prefix(self._block.prefix)
            self._outer.append((_local.scope, manager))
            _local.scope = self
            manager.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        if not self._block._empty_prefix:
            _local.scope, manager = self._outer.pop()
            manager.__exit__(*exc)
