"""Makes `import mxnet` load neomx. Every launched Python loads it at startup, so it uses only the standard library."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

# Aliases and the modules they mean; parent packages without a counterpart become empty modules.
MEANS = {"mxnet": "neomx", "horovod.mxnet": "neomx.horovod", "byteps.mxnet": "neomx.horovod"}
MEANS |= {"horovod.common.exceptions": "neomx.horovod.exceptions"}
EMPTY = ("horovod", "horovod.common", "byteps")
VERSION = "1.9.1"  # the MXNet version of this API, for programs that check it
ROLES = "neomx.kvstore.roles"  # `import mxnet` in a server or scheduler process runs that role and exits
NUMPY_NAMES = "neomx.compat.numpy_names"


def meaning(name: str) -> str | None:
    """Return neomx's name for a module: neomx.gluon.nn for mxnet.gluon.nn."""
    for theirs, ours in MEANS.items():
        if name == theirs or name.startswith(theirs + "."):
            return ours + name[len(theirs) :]
    return None


def _mxnet(neomx: ModuleType) -> ModuleType:
    """Return a module with all names of neomx, under MXNet's name and version."""
    module = ModuleType("mxnet", neomx.__doc__)
    for name in neomx.__all__:
        getattr(neomx, name)  # load it now, so that both modules have it
    vars(module).update({name: value for name, value in vars(neomx).items() if name not in vars(module)})
    module.__version__ = VERSION  # type: ignore[attr-defined]
    return module


class Aliases(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Resolves imports of other libraries' names to neomx's modules: the same objects, except for `mxnet`."""

    def __init__(self) -> None:
        self._own: dict[str, dict[str, object]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return a spec for the names that are aliases."""
        if meaning(fullname) is None and fullname not in EMPTY:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """Import and return neomx's module."""
        name = meaning(spec.name)
        if name is None:
            return None
        if spec.name == "mxnet":
            importlib.import_module(ROLES).take_role()
            importlib.import_module(NUMPY_NAMES).restore()
            return _mxnet(importlib.import_module(name))
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
            raise ModuleNotFoundError(f"No module named {spec.name!r} (an alias of {name})", name=spec.name) from None
        self._own[spec.name] = dict(vars(module))
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore attributes that the import system overwrote with the alias; the module itself has already run."""
        own = self._own.pop(module.__spec__.name, None) if module.__spec__ else None
        if own is None:
            return
        module.__spec__ = own["__spec__"]  # type: ignore[assignment]
        if "__path__" not in own:
            vars(module).pop("__path__", None)


def install() -> None:
    """Make the aliases take effect, before any installed library of that name. Calling it again is a no-op."""
    if not any(type(finder).__name__ == Aliases.__name__ for finder in sys.meta_path):
        sys.meta_path.insert(0, Aliases())
