"""Patches libraries built on MXNet as they are loaded. Uses only the standard library, as neomx_aliases does."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType


def without_torch(check: ModuleType) -> None:
    """Hide torch from GluonCV, which refuses to load with torch 2; its MXNet half never uses torch."""

    def refuse(*versions: str) -> None:
        raise ImportError("the torch half of gluoncv needs torch < 2; neomx uses a later version")

    check._require_pytorch_version = refuse  # type: ignore[attr-defined]


AFTER_LOADING: dict[str, Callable[[ModuleType], None]] = {"gluoncv.check": without_torch}


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        AFTER_LOADING[module.__name__](module)


class Companions(MetaPathFinder):
    """Finds only the modules that need a patch."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of the installed module, with a loader that applies the patch."""
        spec = PathFinder.find_spec(fullname, path) if fullname in AFTER_LOADING else None
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(fullname, spec.loader.path)
        return spec


def install() -> None:
    """Install the finder. Calling it again is a no-op."""
    if not any(type(finder).__name__ == Companions.__name__ for finder in sys.meta_path):
        sys.meta_path.insert(0, Companions())
