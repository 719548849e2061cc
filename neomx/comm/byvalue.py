"""Pickles functions and classes that cannot be imported, such as those of a notebook cell or of `__main__`.

Python pickles functions and classes by name, and a new process cannot import those that were typed into a cell. Here
they are pickled by value, with the globals that they use, and recreated in the `__main__` of the new process. Only a
launcher and the processes that it starts exchange such pickles, through a private pipe.
"""

from __future__ import annotations

import dataclasses
import dis
import enum
import importlib
import io
import marshal
import pickle
import sys
import types
from typing import Any

_NOT_SENT = {"__dict__", "__weakref__", "_abc_impl", "__slots__"}
_MADE_IN_PYTHON = 1 << 9  # the flag of heap types, which are not static types of C
_IN_TYPES = {found: name for name, found in vars(types).items() if isinstance(found, type)}  # X
_NAMES = {"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL"}


def dumps(value: Any) -> bytes:
    """Pickle a value, including functions and classes that cannot be imported."""
    file = io.BytesIO()
    _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(value)
    return file.getvalue()


def unsendable(function: Any) -> dict[str, Exception]:
    """Return the globals used by a function that cannot be pickled, with the error of each."""
    found = {}
    for name, value in _used_globals(function).items() if isinstance(function, types.FunctionType) else ():
        try:
            dumps(value)
        except Exception as error:
            found[name] = error
    return found


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, types.FunctionType):
            return NotImplemented if _has_home(obj) else _reduce_function(obj)
        if isinstance(obj, type) and obj in _IN_TYPES:
            return getattr, (types, _IN_TYPES[obj])
        if isinstance(obj, type):
            return NotImplemented if not obj.__flags__ & _MADE_IN_PYTHON or _has_home(obj) else _reduce_class(obj)
        if isinstance(obj, types.ModuleType):
            return importlib.import_module, (obj.__name__,)
        if isinstance(obj, staticmethod | classmethod):
            return type(obj), (obj.__func__,)
        if isinstance(obj, property):
            return property, (obj.fget, obj.fset, obj.fdel, obj.__doc__)
        if isinstance(obj, types.MappingProxyType):
            return types.MappingProxyType, (dict(obj),)
        if obj is dataclasses.MISSING:
            return "MISSING"
        if type(obj).__qualname__ == "_FIELD_BASE" and type(obj).__module__ == "dataclasses":
            return obj.name
        return NotImplemented


def _has_home(obj: Any) -> bool:
    """Whether a new process can import the object by name."""
    module = sys.modules.get(obj.__module__ or "")
    if module is None or obj.__module__ == "__main__":
        return False
    found: Any = module
    for part in obj.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is obj


# ---- functions ----


def _reduce_function(function: types.FunctionType) -> tuple[Any, ...]:
    state = {
        "globals": _used_globals(function),
        "cells": [_contents(cell) for cell in function.__closure__ or ()],
        "set": {
            "__defaults__": function.__defaults__,
            "__kwdefaults__": function.__kwdefaults__,
            "__annotations__": function.__annotations__,
            "__doc__": function.__doc__,
            "__module__": function.__module__,
            "__qualname__": function.__qualname__,
        },
        "dict": dict(function.__dict__),
    }
    code = function.__code__
    made_of = (marshal.dumps(code), function.__globals__["__name__"], function.__name__, len(code.co_freevars))
    return _make_function, made_of, state, None, None, _fill_function


def _used_globals(function: types.FunctionType) -> dict[str, Any]:
    """Return the globals it uses; empty if the new process imports their module."""
    home = sys.modules.get(function.__globals__["__name__"])
    if home is not None and home.__name__ != "__main__" and vars(home) is function.__globals__:
        return {}
    names = _names(function.__code__)
    return {name: value for name, value in function.__globals__.items() if name in names}


def _names(code: types.CodeType) -> set[str]:
    names = {str(step.argval) for step in dis.get_instructions(code) if step.opname in _NAMES}
    return names.union(*(_names(inner) for inner in code.co_consts if isinstance(inner, types.CodeType)))


def _contents(cell: Any) -> tuple[Any, ...]:
    try:
        return (cell.cell_contents,)
    except ValueError:  # not assigned yet
        return ()


def _make_function(code: bytes, module: str, name: str, cells: int) -> types.FunctionType:
    closure = tuple(types.CellType() for _ in range(cells))
    return types.FunctionType(marshal.loads(code), _namespace(module), name, None, closure)


def _fill_function(function: types.FunctionType, state: dict[str, Any]) -> None:
    function.__globals__.update(state["globals"])
    for cell, contents in zip(function.__closure__ or (), state["cells"], strict=True):
        if contents:
            cell.cell_contents = contents[0]
    for name, value in state["set"].items():
        setattr(function, name, value)
    function.__dict__.update(state["dict"])


def _namespace(name: str) -> dict[str, Any]:
    """Return the globals of a module, which is created if it cannot be imported."""
    try:
        return vars(importlib.import_module(name))
    except ImportError:
        return vars(sys.modules.setdefault(name, types.ModuleType(name)))


# ---- classes ----


def _reduce_class(cls: type) -> tuple[Any, ...]:
    if issubclass(cls, enum.Enum):
        raise TypeError(f"the Enum {cls.__name__} cannot be sent to other processes from here: define it in a module")
    body = {
        name: value
        for name, value in vars(cls).items()
        if name not in _NOT_SENT and not isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType)
    }
    slots = vars(cls).get("__slots__")
    made_of = (type(cls), cls.__name__, cls.__bases__, cls.__module__, cls.__qualname__, slots)
    return _make_class, made_of, body, None, None, _fill_class


def _make_class(metaclass: Any, name: str, bases: tuple[type, ...], module: str, qualname: str, slots: Any) -> type:
    body = {"__module__": module, "__qualname__": qualname} | ({} if slots is None else {"__slots__": slots})
    made = types.new_class(name, bases, {"metaclass": metaclass}, lambda namespace: namespace.update(body))
    if "." not in qualname:
        _namespace(module).setdefault(name, made)  # pickles of its instances look it up by name
    return made


def _fill_class(cls: type, body: dict[str, Any]) -> None:
    for name, value in body.items():
        setattr(cls, name, value)
