"""Makes `import mxnet` mean neomx. Every launched Python loads it at its start, so it is standard library only."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

# Which name means which; packages whose own name leads nowhere stand as empty modules.
MEANS = {"mxnet": "neomx", "horovod.mxnet": "neomx.horovod", "byteps.mxnet": "neomx.horovod"}
EMPTY = ("horovod", "byteps")
VERSION = "1.9.1"  # whose API this is, for programs that ask
ROLES = "neomx.kvstore.roles"  # in a server's or scheduler's process `import mxnet` does that work and ends
NUMPY_NAMES = "neomx.compat.numpy_names"


def meaning(name: str) -> str | None:
    """neomx's name for a module: mxnet.gluon.nn is neomx.gluon.nn."""
    for theirs, ours in MEANS.items():
        if name == theirs or name.startswith(theirs + "."):
            return ours + name[len(theirs) :]
    return None


def _mxnet(neomx: ModuleType) -> ModuleType:
    """All that neomx has, under MXNet's name and version."""
    module = ModuleType("mxnet", neomx.__doc__)
    for name in neomx.__all__:
        getattr(neomx, name)  # loaded now, so that it stands in both
    vars(module).update({name: value for name, value in vars(neomx).items() if name not in vars(module)})
    module.__version__ = VERSION  # type: ignore[attr-defined]
    return module


class Aliases(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers imports of other libraries' names with neomx's own modules: the very same objects, but for `mxnet`."""

    def __init__(self) -> None:
        self._own: dict[str, dict[str, object]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A spec for the names that mean something here."""
        if meaning(fullname) is None and fullname not in EMPTY:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """neomx's module, imported now."""
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
            raise ModuleNotFoundError(f"No module named {spec.name!r} (here it means {name})", name=spec.name) from None
        self._own[spec.name] = dict(vars(module))
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run: it has run. What importing wrote into it under the other name is taken back."""
        own = self._own.pop(module.__spec__.name, None) if module.__spec__ else None
        if own is None:
            return
        module.__spec__ = own["__spec__"]  # type: ignore[assignment]
        if "__path__" not in own:
            vars(module).pop("__path__", None)


def install() -> None:
    """From now on the other names mean neomx, before any installed library of that name. Twice is once."""
    if not any(type(finder).__name__ == Aliases.__name__ for finder in sys.meta_path):
        sys.meta_path.insert(0, Aliases())
