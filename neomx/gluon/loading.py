"""Load Parameters from arrays, and save them. If an array does not fit, nothing is changed and the error names it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from .. import ndarray as nd
from ..base import MXNetError
from ..ndarray import NDArray
from ..process import state
from .utils import _brief_print_list

if TYPE_CHECKING:
    from .parameter import Parameter
    from .placement import Holders


def named(loaded: Any, source: str) -> Mapping[str, NDArray]:
    """Return the contents of a file if they are named arrays; raise otherwise."""
    if not loaded:
        return {}  # a file without arrays has no names either
    if not isinstance(loaded, Mapping):
        raise MXNetError(f"expected named parameters{source}, found {len(loaded)} arrays without names")
    return loaded


def holders_of(params: Iterable[Parameter]) -> Holders | None:
    """The workers that share these Parameters under a layout, or None without a layout."""
    return next((param.placement.holders for param in params if param.placement.holders is not None), None)


def save_from(filename: str, params: Mapping[str, Parameter]) -> None:
    """Write Parameters to a file under the given names.

    If workers share the Parameters, all of them must call this. One of them writes the file, with the same contents
    as for a single process.
    """
    state.saved.append(filename)
    arrays = {name: param._reduce() for name, param in params.items()}
    holders = holders_of(params.values())
    with nullcontext(True) if holders is None else holders.writing() as writes:
        if writes:
            nd.save(filename, arrays)


def without_kind(name: str) -> str:
    """Remove the prefix `arg:` or `aux:` from a parameter name in a file that `export` wrote."""
    return name[4:] if name.startswith(("arg:", "aux:")) else name


def load_into(
    params: Mapping[str, list[tuple[str, Parameter]]],
    arrays: Mapping[str, NDArray],
    ctx: Any,
    allow_missing: bool,
    ignore_extra: bool,
    cast_dtype: bool,
    dtype_source: str,
    source: str,
    kind_of_extra: type[Exception] = AssertionError,
) -> None:
    """Load arrays into Parameters by name. If any array does not fit, nothing is changed.

    `params` maps each Parameter to the names that it may have in a file: [(name, Parameter), ...].
    """
    missing = [repr(name) for name, aliases in params.items() if not any(alias in arrays for alias, _ in aliases)]
    targets = {alias: param for aliases in params.values() for alias, param in aliases}
    extra = [repr(name) for name in arrays if name not in targets]
    wrong = []
    for name, param in targets.items():
        problem = param._mismatch(arrays[name], ctx, cast_dtype, dtype_source) if name in arrays else ""
        if problem:
            wrong.append(f"Failed loading Parameter {name!r} from saved params: {problem}")
    problems = []
    if missing and not allow_missing:
        problems.append(
            f"Parameter {', '.join(missing)} is missing{source or ' in the dictionary'}, which contains parameters: "
            f"{_brief_print_list(list(arrays), 10)}. Set allow_missing=True to ignore missing parameters."
        )
    if extra and not ignore_extra:
        problems.append(
            f"Parameter {', '.join(extra)} loaded{source.replace(' in', ' from', 1)} is not present in the Block, "
            f"which contains parameters {_brief_print_list(list(targets), 10)}. Set ignore_extra=True to ignore."
        )
    problems += wrong
    if problems:
        is_extra = extra and not ignore_extra and (allow_missing or not missing)
        raise (kind_of_extra if is_extra else AssertionError)("\n".join(problems))
    for name, array in arrays.items():
        if name in targets:
            targets[name]._load_init(array, ctx, cast_dtype=cast_dtype, dtype_source=dtype_source)
