"""Libraries written beside MXNet, told as they load what they cannot know. Standard library only, as neomx_aliases."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType


def without_torch(check: ModuleType) -> None:
    """GluonCV refuses to load beside torch 2. Its MXNet half never uses torch, so let it find none."""

    def refuse(*versions: str) -> None:
        raise ImportError("the torch half of gluoncv needs torch < 2; neomx runs on a later one")

    check._require_pytorch_version = refuse  # type: ignore[attr-defined]


AFTER_LOADING: dict[str, Callable[[ModuleType], None]] = {"gluoncv.check": without_torch}


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        AFTER_LOADING[module.__name__](module)


class Companions(MetaPathFinder):
    """Finds the modules that need a change, and no other."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The installed module's spec, with a loader that makes the change."""
        spec = PathFinder.find_spec(fullname, path) if fullname in AFTER_LOADING else None
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(fullname, spec.loader.path)
        return spec


def install() -> None:
    """From now on. Twice is once."""
    if not any(type(finder).__name__ == Companions.__name__ for finder in sys.meta_path):
        sys.meta_path.insert(0, Companions())
