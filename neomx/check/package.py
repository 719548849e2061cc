"""Lookup of MXNet's names in neomx."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import functools
import importlib
import inspect
import re
import textwrap
import warnings
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

from ..compat.numpy_names import BUILTINS, RENAMED
from ..compat.startup.neomx_aliases import EMPTY, MEANS

ROOTS = frozenset({"neomx", *EMPTY, *(name.partition(".")[0] for name in MEANS)})
COMPAT = "neomx.compat.mxnet"  # importing it makes MXNet's names aliases of neomx
COMPANIONS = ("gluoncv", "gluonnlp", "mxboard", "d2l")  # libraries that import mxnet themselves


@dataclasses.dataclass(frozen=True, eq=False)  # `thing` may not be comparable
class Value:
    """The value of an expression.

    `thing` is an object of neomx. If `made` is set, it is the class of the object; `sure` means that the object is not
    of another subclass of the declared return type. `owner` is the class through which a method was found.
    """

    path: str
    thing: Any
    made: bool = False
    sure: bool = True
    owner: type | None = None

    @property
    def name(self) -> str:
        """MXNet's name of the value, as programs write it."""
        return shown(self.path)

    @property
    def is_module(self) -> bool:
        """Whether it is a module."""
        return isinstance(self.thing, ModuleType)


@dataclasses.dataclass(frozen=True, eq=False)
class Missing:
    """A name that does not exist: `attribute` of the value `parent`."""

    parent: Value
    attribute: str

    @property
    def name(self) -> str:
        """The full name, as programs write it."""
        return shown(f"{self.parent.path}.{self.attribute}")


OPAQUE = object()  # an object that exists, about which nothing else is known


def shown(path: str) -> str:
    """Return a dotted name as programs write it: `mx.nd.zeros` for `mxnet.nd.zeros`."""
    root, _, rest = path.partition(".")
    return f"mx.{rest}" if root in ("mxnet", "neomx") and rest else path


def is_ours(path: str) -> bool:
    """Return whether a dotted name belongs to a module that neomx provides."""
    return path.partition(".")[0] in ROOTS


def find(path: str) -> Value | Missing | None:
    """Return the value of a dotted name that a program imports; None if unknown."""
    root, *rest = path.split(".")
    if root not in ROOTS and root != "numpy":
        return None
    value: Value | Missing | None = Value(root, _root(root))
    for part in rest:
        assert isinstance(value, Value)
        value = _submodule(value, part) or follow(value, part)
        if not isinstance(value, Value):
            return value
    return value


@functools.cache
def _root(name: str) -> ModuleType:
    """Return the module that an import of a root name binds; horovod and byteps only have their module for MXNet."""
    if name not in EMPTY:
        return importlib.import_module("numpy" if name == "numpy" else "neomx")
    module = ModuleType(name)
    for theirs, ours in MEANS.items():
        if theirs.startswith(f"{name}."):
            setattr(module, theirs.removeprefix(f"{name}."), importlib.import_module(ours))
    return module


def _submodule(value: Value, name: str) -> Value | None:
    """Return the module that an import statement would load."""
    path = f"{value.path}.{name}"
    if not value.is_module or value.path in EMPTY or isinstance(follow(value, name), Value):
        return None
    whole = f"{value.thing.__name__}.{name}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Value(path, importlib.import_module(whole))
    except ModuleNotFoundError as error:
        return None if error.name == whole else Value(path, OPAQUE)
    except Exception:  # it exists, but needs a package that is not installed
        return Value(path, OPAQUE)


def follow(value: Value, attribute: str) -> Value | Missing | None:
    """Return an attribute of a value; None if it is unknown whether it exists."""
    path = f"{value.path}.{attribute}"
    if value.thing is OPAQUE:
        return None
    if value.made:
        return _of_object(value, attribute)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            thing = getattr(value.thing, attribute)
    except AttributeError:
        if isinstance(value.thing, type) and attribute in attributes(value.thing):
            return Value(path, OPAQUE)
        is_known = value.is_module or (isinstance(value.thing, type) and is_ours(path))
        return Missing(value, attribute) if is_known else None
    except Exception:  # loaded on demand, and needs a package that is not installed
        return Value(path, OPAQUE)
    return Value(path, thing, owner=value.thing if isinstance(value.thing, type) else None)


def _of_object(value: Value, attribute: str) -> Value | Missing | None:
    """Return an attribute of an instance of the class `value.thing`."""
    for cls in (value.thing, *_subclasses(value.thing)):  # zeros(stype='csr') returns an instance of a subclass
        if hasattr(cls, attribute) or attribute in attributes(cls):
            found = inspect.getattr_static(cls, attribute, OPAQUE)
            thing = found if isinstance(found, FunctionType) else OPAQUE
            return Value(f"{value.path}.{attribute}", thing, owner=cls)
        if any("__getattr__" in vars(base) for base in cls.__mro__):
            return None
    return Missing(value, attribute) if value.sure else None


def _subclasses(cls: type) -> Iterator[type]:
    subs: list[type] = cls.__subclasses__()
    for sub in subs:
        yield sub
        yield from _subclasses(sub)


@functools.cache
def attributes(cls: type) -> frozenset[str]:
    """Return the attributes of instances of a class: those of the class, and those that its methods set."""
    names = set(dir(cls))
    for base in cls.__mro__:
        names |= set(vars(base).get("__annotations__", ()))
        tree = source(base) if base.__module__.startswith("neomx") else None
        for node in ast.walk(tree) if tree else ():
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
                names.add(node.attr)
    return frozenset(names)


@functools.cache
def source(thing: Any) -> ast.Module | None:
    """Return the syntax tree of a class or a function of neomx."""
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(thing)))
    except (OSError, TypeError, SyntaxError):
        return None


def exported(module: str, name: str) -> Value | None:
    """Return the value that `from module import *` binds `name` to, or None."""
    found = find(module) if is_ours(module) else None
    if not isinstance(found, Value) or not found.is_module or name not in listed(found.thing):
        return None
    value = follow(found, name)
    return value if isinstance(value, Value) else None


def listed(module: ModuleType) -> list[str]:
    """Return the public names of a module."""
    return list(getattr(module, "__all__", None) or [name for name in dir(module) if not name.startswith("_")])


# ---- suggestions for missing names ----


def nearest(missing: Missing) -> str:
    """Return the most similar name that neomx has, or ''.

    It tries the same name in another case, then the same name in another module, then a similar name in the same
    module.
    """
    parent, name = missing.parent, missing.attribute
    known = attributes(parent.thing) if parent.made else dir(parent.thing)
    others = [other for other in known if not other.startswith("_") and other != name]
    close = [other for other in others if other.lower() == name.lower()]
    if not close:
        if not parent.made and (place := _elsewhere(name, parent)):
            return place
        close = difflib.get_close_matches(name, others, n=1, cutoff=0.75)
    return shown(f"{parent.path}.{close[0]}") if close else ""


def _elsewhere(name: str, parent: Value) -> str:
    """Return the shortest path of a public name in neomx, first within the package of `parent`; '' if there is none."""
    top, room = _root("neomx"), ".".join(parent.path.split(".")[1:2])
    starts = [(f"mx.{room}", getattr(top, room))] if isinstance(getattr(top, room, None), ModuleType) else []
    for start in (*starts, ("mx", top)):
        for path, module in _below(*start):
            if name in listed(module) and _belongs(getattr(module, name, None), name, module):
                return f"{path}.{name}"
    return ""


def _below(path: str, module: ModuleType) -> Iterator[tuple[str, ModuleType]]:
    """Yield a module of neomx and all public modules below it, short names first."""
    level, seen = [(path, module)], {module.__name__}
    while level:
        yield from level
        deeper = []
        for path, module in level:
            for name in [*listed(module), *(["module"] if module.__name__ == "neomx" else [])]:
                child = getattr(module, name, None)
                if isinstance(child, ModuleType) and child.__name__ not in seen and _belongs(child, name, module):
                    seen.add(child.__name__)
                    deeper.append((f"{path}.{name}", child))
        level = deeper


def _belongs(thing: Any, name: str, module: ModuleType) -> bool:
    """Return whether a public name of a module is defined in its package, not imported from another one."""
    home = thing.__name__ if isinstance(thing, ModuleType) else getattr(thing, "__module__", None) or ""
    return name in getattr(module, "__all__", ()) or home.split(".")[:2] == module.__name__.split(".")[:2]


# ---- NumPy's names ----


def numpy_has_again(name: str) -> bool:
    """Return whether NumPy removed a name that `import mxnet` restores."""
    return name in BUILTINS or name in RENAMED


def numpy_remedy(name: str) -> str:
    """Return NumPy's own advice for a name that it removed, or ''."""
    try:
        getattr(_root("numpy"), name)
    except AttributeError as error:
        advice = re.search(r"\bUse (.*?)[.;]? *$|deprecated alias for (.*?)\. ", " ".join(str(error).split()))
        return f" Use {advice[1] or advice[2]}." if advice else ""
    return ""
