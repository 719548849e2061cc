"""ParameterDict: the Parameters of a Block by name, created on first access."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .. import initializer
from .. import ndarray as nd
from ..context import Context
from ..dtype import to_torch
from .loading import load_into, named, save_from, without_kind
from .parameter import Constant, Parameter, _as_array, _as_shape, _shapes_agree
from .utils import _indent, contexts

__all__ = ["ParameterDict"]


class ParameterDict:
    """A dictionary of Parameters by full name. `get` creates missing ones, with the prefix added to their names."""

    def __init__(self, prefix: str = "", shared: ParameterDict | None = None):
        self._prefix, self._shared = prefix, shared
        self._params: dict[str, Parameter] = {}

    def __repr__(self) -> str:
        name = self._prefix + " " if self._prefix else ""
        lines = "\n".join("  " + _indent(repr(p), 2) for p in self.values())
        return f"{name}(\n{lines}\n)"

    def __getitem__(self, key: str) -> Parameter:
        return self._params[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._params)

    def __len__(self) -> int:
        return len(self._params)

    def __contains__(self, key: str) -> bool:
        return key in self._params

    def items(self) -> Any:
        """Return the (name, Parameter) pairs."""
        return self._params.items()

    def keys(self) -> Any:
        """Return the names."""
        return self._params.keys()

    def values(self) -> Any:
        """Return the Parameters."""
        return self._params.values()

    @property
    def prefix(self) -> str:
        """The prefix that `get` adds to names."""
        return self._prefix

    def _get_impl(self, name: str) -> Parameter | None:
        if name in self._params:
            return self._params[name]
        if self._shared is not None and name in self._shared._params:
            self._params[name] = self._shared._params[name]
            return self._params[name]
        return None

    def get(self, name: str, **kwargs: Any) -> Parameter:
        """Return the Parameter `prefix + name`. Create it with `kwargs` if missing; otherwise they must match it."""
        name = self._prefix + name
        param = self._get_impl(name)
        if param is None:
            param = Parameter(name, **kwargs)
            self._params[name] = param
            return param
        for key, value in kwargs.items():
            existing = getattr(param, key, None)
            if key == "shape" and value is not None:
                value = _as_shape(value)
                if existing is not None and _shapes_agree(existing, value):
                    existing = None  # the assignment below merges the known dimensions
            if existing is None:
                setattr(param, key, value)
            elif value is not None and not _same(key, value, existing):
                raise AssertionError(
                    f"Cannot retrieve Parameter {name!r} because desired attribute does not match with stored for "
                    f"attribute {key!r}: desired '{value}' vs stored '{existing}'."
                )
        return param

    def get_constant(self, name: str, value: Any = None) -> Constant:
        """Return the Constant `prefix + name`, created with `value` if missing."""
        name = self._prefix + name
        param = self._get_impl(name)
        if param is None:
            if value is None:
                raise KeyError(
                    f"No constant named {name!r}. Please specify value if you want to create a new constant."
                )
            param = Constant(name, value)
            self._params[name] = param
            return param
        if not isinstance(param, Constant):
            raise AssertionError(f"Parameter {name!r} already exists but it is not a constant.")
        if value is not None:
            given = _as_array(value)
            if given.shape != param.value.shape or not np.array_equal(given.asnumpy(), param.value.asnumpy()):
                raise AssertionError(f"Constant {name!r} already exists but it's value doesn't match new value")
        return param

    def update(self, other: Mapping[str, Parameter] | ParameterDict) -> None:
        """Add other Parameters. Different Parameters must not have the same name."""
        for key, value in other.items():
            if self._params.setdefault(key, value) is not value:
                raise AssertionError(
                    f"Cannot update self with other because they have different Parameters with the same name {key!r}"
                )

    def initialize(
        self,
        init: Any = None,
        ctx: Context | Sequence[Context] | None = None,
        verbose: bool = False,
        force_reinit: bool = False,
    ) -> None:
        """Initialize all Parameters. Those without their own initializer use `init`."""
        init = initializer.create(initializer.Uniform() if init is None else init)
        if verbose:
            init.set_verbosity(verbose=verbose)
        for each in contexts(ctx):
            each.check()
        for param in self.values():
            param.initialize(None, ctx, init, force_reinit=force_reinit)

    def zero_grad(self) -> None:
        """Set all gradients to zero."""
        for param in self.values():
            param.zero_grad()

    def reset_ctx(self, ctx: Context | Sequence[Context]) -> None:
        """Move all Parameters to other contexts."""
        for each in contexts(ctx):
            each.check()
        for param in self.values():
            param.reset_ctx(ctx)

    def list_ctx(self) -> list[Context]:
        """Return all contexts on which at least one Parameter is."""
        return list(dict.fromkeys(each for param in self.values() for each in param.list_ctx()))

    def setattr(self, name: str, value: Any) -> None:
        """Set an attribute of all Parameters, as in `setattr('grad_req', 'null')`."""
        for param in self.values():
            setattr(param, name, value)

    def save(self, filename: str, strip_prefix: str = "") -> None:
        """Write all Parameters to a `.params` file, with `strip_prefix` removed from their names."""
        params = {}
        for param in self.values():
            if not param.name.startswith(strip_prefix):
                raise ValueError(
                    f"Prefix {strip_prefix!r} is to be striped before saving, but Parameter's name {param.name!r} does "
                    f"not start with {strip_prefix!r}. Perhaps the Block shares parameters with others, or its "
                    "children were created outside `with self.name_scope()`"
                )
            params[param.name[len(strip_prefix) :]] = param
        save_from(filename, params)

    def load(
        self,
        filename: str,
        ctx: Any = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        restore_prefix: str = "",
        cast_dtype: bool = False,
        dtype_source: str = "current",
    ) -> None:
        """Load values from a `.params` file, adding `restore_prefix` to the names in it."""
        self.load_dict(
            nd.load(filename), ctx, allow_missing, ignore_extra, restore_prefix, filename, cast_dtype, dtype_source
        )

    def load_dict(
        self,
        param_dict: Any,
        ctx: Any = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        restore_prefix: str = "",
        filename: str | None = None,
        cast_dtype: bool = False,
        dtype_source: str = "current",
    ) -> None:
        """Load values from a dictionary of arrays."""
        for name in self.keys() if restore_prefix else ():
            if not name.startswith(restore_prefix):
                raise AssertionError(
                    f"restore_prefix is {restore_prefix!r} but Parameters name {name!r} does not start with it"
                )
        source = "" if filename is None else f" in file {filename!r}"
        arrays = {restore_prefix + without_kind(name): array for name, array in named(param_dict, source).items()}
        load_into(
            {name: [(name, param)] for name, param in self.items()},
            arrays,
            ctx,
            allow_missing,
            ignore_extra,
            cast_dtype,
            dtype_source,
            source,
        )


def _same(key: str, value: Any, existing: Any) -> bool:
    """Whether two values of the attribute `key` are equivalent."""
    return bool(value == existing) or (key == "dtype" and to_torch(value) is to_torch(existing))
