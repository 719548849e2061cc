"""Arguments of the iterators that read files: numbers, flags and shapes, given as values or as text, as in MXNet."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import inspect
import operator
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from ..base import MXNetError


@dataclasses.dataclass
class Names:
    """Names of the arrays in a batch, and arguments that MXNet accepts and these iterators do not need."""

    data_name: str = "data"
    label_name: str = "softmax_label"
    prefetch_buffer: int = 4
    ctx: str = "gpu"
    verbose: bool = True


@dataclasses.dataclass
class DataPart:
    """The part of the data to read, and the number of parts."""

    num_parts: int = 1
    part_index: int = 0


def read(who: str, given: Mapping[str, Any], *groups: type) -> list[Any]:
    """Return an instance of each of the `groups` (dataclasses), its fields set from the values in `given`."""
    fields = {field.name: field for group in groups for field in dataclasses.fields(group)}
    _warn_of_unknown(who, [name for name in given if name not in fields], list(fields))
    for name, field in fields.items():
        if field.default is dataclasses.MISSING and name not in given:
            raise MXNetError(f"{who}: {name} ({_EXPECTED[str(field.type)]}) is required")
    values = {name: _convert(who, fields[name], value) for name, value in given.items() if name in fields}
    return [
        group(**{f.name: values[f.name] for f in dataclasses.fields(group) if f.name in values}) for group in groups
    ]


def signature(*groups: type) -> inspect.Signature:
    """Return the signature, for `help`, of a callable that takes the fields of these groups."""
    parameters = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default,
            annotation=field.type,
        )
        for group in groups
        for field in dataclasses.fields(group)
    ]
    return inspect.Signature(parameters)


def check(who: str, holds: bool, message: str) -> None:
    """Raise MXNetError with `message` unless the condition holds."""
    if not holds:
        raise MXNetError(f"{who}: {message}")


def check_part(who: str, part: DataPart) -> None:
    """Raise MXNetError if the part does not exist."""
    check(who, part.num_parts >= 1, f"num_parts must be at least 1, received {part.num_parts}")
    inside = 0 <= part.part_index < part.num_parts
    check(who, inside, f"part_index must be in [0, {part.num_parts}), received {part.part_index}")


def part_of(samples: int, part: DataPart) -> range:
    """Return the indices of the samples of a part. The sizes of the parts differ by at most one."""
    return range(samples * part.part_index // part.num_parts, samples * (part.part_index + 1) // part.num_parts)


def _warn_of_unknown(who: str, names: list[str], known: list[str]) -> None:
    """Warn of unknown arguments instead of raising: MXNet ignores them, and programs rely on it."""
    for name in names:
        near = difflib.get_close_matches(name, known, 1)
        hint = f": did you mean {near[0]}?" if near else ""
        warnings.warn(f"{who}: the unknown argument {name} is ignored{hint}", stacklevel=4)


def _convert(who: str, field: dataclasses.Field[Any], value: Any) -> Any:
    kind = str(field.type)
    if kind == "str" and value is None and field.default is not dataclasses.MISSING:
        return field.default  # None means no path
    if kind.endswith(" | None"):
        if value is None or value == "None":
            return None
        kind = kind.removesuffix(" | None")
    try:
        return _CONVERTERS[kind](value)
    except (TypeError, ValueError, SyntaxError, OverflowError):
        expected = _EXPECTED[str(field.type)]
        raise MXNetError(f"{who}: {field.name} must be {expected}, received {value!r}") from None


def _int(value: Any) -> int:
    return int(value) if isinstance(value, str) else operator.index(value)


def _bool(value: Any) -> bool:
    text = str(value).lower()
    if text not in ("true", "false", "1", "0"):
        raise ValueError(value)
    return text in ("true", "1")


def _numbers(value: Any, number: Callable[[Any], Any]) -> tuple[Any, ...]:
    if isinstance(value, str):
        value = ast.literal_eval(value)
    return tuple(number(v) for v in value) if hasattr(value, "__iter__") else (number(value),)


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else value.__fspath__() if hasattr(value, "__fspath__") else None
    if not isinstance(text, str):
        raise TypeError(value)
    return text


_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "int": _int,
    "float": float,
    "bool": _bool,
    "str": _text,
    "Shape": lambda value: _numbers(value, _int),
    "Floats": lambda value: _numbers(value, float),
}
_EXPECTED = {
    "int": "an integer",
    "float": "a number",
    "bool": "True or False",
    "str": "text",
    "Shape": "a tuple of integers",
    "Floats": "a tuple of numbers",
}
_EXPECTED |= {f"{kind} | None": f"{text} or None" for kind, text in _EXPECTED.items()}
Shape = tuple[int, ...]
Floats = tuple[float, ...]
