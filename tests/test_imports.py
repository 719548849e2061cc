"""Imports flow one way: base, events -> ops -> ndarray -> ... A room that is not listed here is an error."""

import ast
import importlib
import pathlib
import sys

import pytest

import neomx

PACKAGE = pathlib.Path(neomx.__file__).parent
GROUND = {"base", "events", "context", "dtype", "onednn"}
ARRAYS = GROUND | {"ops", "formats", "ndarray", "autograd", "random"}
MAY_IMPORT = {
    "base": set(),
    "bar": set(),
    "events": set(),
    "onednn": set(),
    "programs": set(),  # names of what a launcher starts
    "dtype": {"base"},
    "context": {"base"},
    "ops": GROUND | {"formats"},  # images are resized by OpenCV
    "formats": GROUND,
    "ndarray": GROUND | {"ops", "formats", "autograd"},  # with autograd one room: the imperative front end
    "autograd": GROUND | {"ops", "ndarray"},
    "random": GROUND | {"ops", "ndarray"},
    "operator": GROUND | {"ops", "ndarray", "autograd", "name", "symbol"},
    "sample": GROUND | {"formats"},
    "name": set(),
    "attribute": set(),
    "registry": {"base"},
    "initializer": ARRAYS | {"registry"},
    "symbol": ARRAYS | {"name", "attribute", "executor"},  # with executor one room: the symbolic front end
    "executor": ARRAYS | {"symbol"},
    "lr_scheduler": GROUND,
    "metric": ARRAYS | {"registry"},
    "recordio": GROUND | {"formats"},
    "image": ARRAYS | {"recordio", "io"},
    "io": ARRAYS | {"bar", "recordio", "image", "gluon"},  # with image one room: pictures come as batches
    "optimizer": ARRAYS | {"lr_scheduler"},
    "comm": {"base", "events"},
    "dist": ARRAYS | {"comm", "gluon", "programs"},
    "kvstore": ARRAYS | {"optimizer", "comm", "registry"},
    "step": ARRAYS | {"comm", "kvstore", "optimizer"},
    "parallel": ARRAYS | {"amp", "comm", "dist", "kvstore", "initializer", "optimizer", "gluon", "step", "symbol"},
    "horovod": ARRAYS | {"comm", "dist", "kvstore", "optimizer", "gluon"},
    "amp": ARRAYS | {"name", "symbol", "gluon", "module"},
    "model": ARRAYS | {"symbol", "module", "kvstore", "optimizer", "initializer", "step"},  # with module one room
    "module": ARRAYS
    | {"attribute", "initializer", "io", "kvstore", "lr_scheduler", "metric", "model", "monitor", "name", "optimizer"}
    | {"callback", "comm", "dist", "executor", "executor_manager", "gluon", "step", "symbol"},
    "executor_manager": ARRAYS | {"executor", "io", "module", "symbol"},
    "rnn": ARRAYS | {"gluon", "initializer", "io", "model", "name", "symbol"},
    "contrib": ARRAYS | {"amp", "gluon", "io", "module", "monitor", "onnx", "optimizer", "registry", "symbol"},
    "onnx": ARRAYS | {"convert", "gluon", "model", "symbol"},
    "convert": ARRAYS | {"gluon", "io", "model", "name", "optimizer", "recordio", "symbol"},
    "visualization": {"base", "symbol"},
    "profiler": GROUND | {"comm", "formats", "ops", "symbol"},
    "engine": {"base"},
    "error": {"base"},
    "libinfo": {"base"},
    "library": {"base"},
    "log": {"base"},
    "rtc": {"base"},
    "runtime": {"base"},
    "util": GROUND,
    "callback": GROUND | {"model"},
    "monitor": ARRAYS | {"bar", "comm"},
    "test_utils": ARRAYS | {"gluon", "io", "symbol", "executor", "sample", "util"},
    "__main__": {"launch"},
    "launch": {"base", "events", "comm", "monitor", "compat", "parallel", "programs"},
    "compat": {"base", "comm", "kvstore", "horovod"},
    "gluon": ARRAYS
    | {"name", "attribute", "symbol", "initializer", "lr_scheduler", "metric", "recordio", "image", "optimizer"}
    | {"kvstore", "sample", "comm", "step"},
}
# The only rooms where processes talk to each other.
MAY_DISTRIBUTE = {"comm", "parallel", "elastic", "checkpoint"}


def imports_of(path: pathlib.Path) -> set[str]:
    """The absolute names of all that a file imports, at any depth of the code."""
    package = ["neomx", *path.relative_to(PACKAGE).parent.parts]
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            names |= {f"{module}.{alias.name}" for alias in node.names}
    return names


def room_of(path: pathlib.Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def wrong_imports(files: dict[pathlib.Path, set[str]]) -> list[str]:
    wrong = []
    for path, names in files.items():
        room = room_of(path)
        for name in sorted(names):
            parts = name.split(".")
            if name.startswith("torch.distributed") and room not in MAY_DISTRIBUTE:
                wrong.append(f"{path.name} in {room} imports {name}")
            if parts[0] == "neomx" and len(parts) > 1 and parts[1] not in MAY_IMPORT[room] | {room}:
                wrong.append(f"{path.name} in {room} imports {name}")
    return wrong


def source_files() -> list[pathlib.Path]:
    return [p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py"]


def test_every_room_is_known():
    assert {room_of(p) for p in source_files()} <= set(MAY_IMPORT)


def test_imports_flow_one_way():
    assert wrong_imports({p: imports_of(p) for p in source_files()}) == []


def test_a_wrong_import_is_seen():
    assert wrong_imports({PACKAGE / "ops" / "x.py": {"neomx.ndarray.NDArray"}}) != []
    assert wrong_imports({PACKAGE / "ops" / "x.py": {"torch.distributed.all_reduce"}}) != []


def test_every_public_name_is_loaded_when_it_is_used_and_no_other():
    assert set(neomx.__all__) <= set(dir(neomx))
    assert [name for name in dir(neomx) if not hasattr(neomx, name)] == []
    assert neomx.nd is neomx.ndarray and neomx.cpu is neomx.context.cpu
    with pytest.raises(AttributeError, match="module 'neomx' has no attribute 'no_such_room'"):
        _ = neomx.no_such_room


def test_what_a_room_lacks_is_not_taken_for_a_missing_room(monkeypatch):
    monkeypatch.delitem(sys.modules, "neomx.rtc", raising=False)
    monkeypatch.delattr(neomx, "rtc", raising=False)
    monkeypatch.setattr(importlib, "import_module", lambda name: __import__("a_package_that_is_not_there"))
    with pytest.raises(ModuleNotFoundError, match="a_package_that_is_not_there"):
        _ = neomx.rtc
