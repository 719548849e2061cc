"""`neomx inspect FILE`: show the contents of a file in one of MXNet's formats."""

from __future__ import annotations

import argparse
import json
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from .. import symbol as sym
from ..base import MXNetError
from ..dtype import NAME_OF_TORCH
from ..formats import idx, params, safetensors
from ..formats.records import MAGIC, read_index
from ..io.lists import read_list
from ..ndarray import NDArray
from ..ops.table import OPS
from ..optimizer import states as optimizer_states
from ..symbol.control_ops import CONTROL
from . import records
from .command import parse_shapes
from .onnx_file import onnx_package, reading
from .program import inference_form

EPILOG = """examples:
  neomx inspect resnet-0090.params --stats
  neomx inspect resnet-symbol.json --shape data:1,3,224,224
  neomx inspect train.rec
  neomx inspect model.safetensors --all

Supported: .params, symbol .json, .rec, .idx, .lst, .safetensors, .onnx, optimizer .states, and MNIST's IDX files.
The exit code is 2 for a file that cannot be read or is truncated.
"""

_ROWS = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `neomx inspect` to the parser."""
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--stats", action="store_true", help="show minimum, maximum, mean and NaN count of each array")
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="NAME:1,3,224,224",
        help="for a symbol: shape of an input, to infer the shapes of the parameters",
    )
    parser.add_argument("--all", action="store_true", help=f"show all rows of a table, not only the first {_ROWS}")


def main(options: argparse.Namespace) -> int:
    """Run `neomx inspect`: print the contents of the file."""
    _kind(options.file)(options.file, options)
    return 0


def _kind(path: str) -> Callable[[str, argparse.Namespace], None]:
    """Return the function that shows the file, chosen by its first bytes or else by its name."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode) and not os.path.isdir(path):  # opening a pipe would block
            raise MXNetError(f"{path}: not a regular file")
        with open(path, "rb") as file:
            start = file.read(64)
    except OSError as error:
        raise MXNetError(f"cannot read {path}: {error.strerror or error}") from error
    if not start:
        raise MXNetError(f"{path} is empty")
    ending = os.path.splitext(path)[1].lower()
    if ending in _BY_ENDING:
        return _BY_ENDING[ending]
    for beginning, reader in _BY_START.items():
        if start.startswith(beginning):
            return reader
    raise MXNetError(
        f"{path}: unknown file format: it begins with {start[:8]!r}. Expected {', '.join(_BY_ENDING)} or an IDX file"
    )


# ---- tables ----


def show(header: Sequence[str], rows: Sequence[Sequence[object]], options: argparse.Namespace) -> None:
    """Print a table, with numbers right-aligned."""
    kept = rows if options.all else rows[:_ROWS]
    texts = [[_text(cell) for cell in row] for row in (header, *kept)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    right = [all(isinstance(row[i], (int, float)) for row in kept) for i in range(len(header))]
    for row in texts:
        cells = [t.rjust(w) if r else t.ljust(w) for t, w, r in zip(row, widths, right, strict=True)]
        print("  " + "  ".join(cells).rstrip())
    if len(kept) < len(rows):
        print(f"  ... {len(rows) - len(kept)} more (--all shows them)")


def _text(cell: object) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def size_of(count: int) -> str:
    """Format a number of bytes: 11.2 MB."""
    value, unit = float(count), "bytes"
    for unit in ("bytes", "KB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:.3g} {unit}" if unit != "bytes" else f"{count} bytes"


# ---- arrays ----


def _show_arrays(
    named: Iterable[tuple[str, torch.Tensor, str, tuple[int, ...]]], what: str, options: argparse.Namespace
) -> None:
    """Print a table of (name, stored values, storage, shape), and the totals."""
    rows, numbers, stored = [], 0, 0
    for name, tensor, storage, shape in named:
        dtype = NAME_OF_TORCH.get(tensor.dtype, str(tensor.dtype).removeprefix("torch."))
        rows.append([name, dtype, _shape(shape), storage, *(_stats(tensor) if options.stats else [])])
        numbers, stored = numbers + tensor.numel(), stored + tensor.nbytes
    print(f"{what}: {len(rows)} arrays, {numbers} values, {size_of(stored)}")
    if rows:
        show(["name", "dtype", "shape", "storage", *(_STATS if options.stats else [])], rows, options)


_STATS = ("least", "greatest", "mean", "NaN")


def _stats(tensor: torch.Tensor) -> list[float | int | str]:
    if not tensor.numel():
        return ["-", "-", "-", 0]
    values = tensor.double() if not tensor.is_complex() else tensor.abs()
    finite = values[~values.isnan()]
    if not finite.numel():
        return ["-", "-", "-", tensor.numel()]
    return [float(finite.min()), float(finite.max()), float(finite.mean()), tensor.numel() - finite.numel()]


def _shape(shape: Iterable[int]) -> str:
    return "x".join(map(str, shape)) or "()"


def _params(path: str, options: argparse.Namespace) -> None:
    found, names = params.read(path)
    if "header" in names:  # neomx's optimizer states have the same format
        _states(path, options)
        return
    labels = names or [f"[{i}]" for i in range(len(found))]
    rows = [(label, record.data, *_storage(record)) for label, record in zip(labels, found, strict=True)]
    kinds = Counter(name.partition(":")[0] for name in names if ":" in name)
    told = ", ".join(f"{count} {kind}:" for kind, count in kinds.items())
    _show_arrays(rows, f".params{f' ({told})' if told else '' if names else ' without names'}", options)


def _storage(record: params.Record) -> tuple[str, tuple[int, ...]]:
    """Return the storage type and the shape of an array."""
    if isinstance(record, params.Sparse):
        return record.storage, record.shape
    return "default", tuple(record.data.shape)


def _safetensors(path: str, options: argparse.Namespace) -> None:
    archive = safetensors.Archive(path)
    _show_arrays(
        ((name, tensor, "default", tuple(tensor.shape)) for name, tensor in archive.items()), "safetensors", options
    )
    for key, value in archive.metadata.items():
        print(f"  {key}: {value:.100}")


def _idx_array(path: str, options: argparse.Namespace) -> None:
    array = torch.from_numpy(idx.read(path))
    _show_arrays([(os.path.basename(path), array, "default", tuple(array.shape))], "IDX", options)


def _states(path: str, options: argparse.Namespace) -> None:
    with open(path, "rb") as file:
        found, optimizer = optimizer_states.loads(file.read())
    if optimizer is not None:
        settings = {name: value for name, value in sorted(vars(optimizer).items()) if _is_setting(name, value)}
        print(f"optimizer {type(optimizer).__name__}: {', '.join(f'{k}={v}' for k, v in settings.items())}")
    rows = [
        (f"{key}{place}", array._data, "default", tuple(array.shape))
        for key, value in found.items()
        for place, array in _arrays_in(value)
    ]
    _show_arrays(rows, f"optimizer states of {len(found)} parameters", options)


def _is_setting(name: str, value: object) -> bool:
    return not name.startswith("_") and isinstance(value, (bool, int, float, str))


def _arrays_in(value: Any, place: str = "") -> Iterable[tuple[str, NDArray]]:
    if isinstance(value, NDArray):
        yield place, value
    elif isinstance(value, (list, tuple)):
        for i, each in enumerate(value):
            yield from _arrays_in(each, f"{place}[{i}]")


# ---- symbols ----


def _symbol(path: str, options: argparse.Namespace) -> None:
    try:
        with open(path, encoding="utf-8") as file:
            graph = json.load(file)
        nodes = [(node["op"], node["name"]) for node in graph["nodes"]]
        if not all(isinstance(text, str) for node in nodes for text in node):
            raise TypeError("the op and the name of a node must be strings")
        counts = Counter(op for op, _ in nodes if op != "null")
        operators = [_operator(op, count, graph) for op, count in counts.items()]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise MXNetError(f"{path}: not the JSON of a symbol: {type(error).__name__}: {error!s:.100}") from None
    print(f"symbol: {len(nodes)} nodes, {_version(graph)}")
    symbol = sym.load(path) if not _unknown(counts) else None
    show(["operator", "nodes", "first", "its attributes"], operators, options)
    if symbol is None:
        first = next(f"{op} {name!r}" for op, name in nodes if op in _unknown(counts))
        raise MXNetError(f"{path}: unknown ops: {', '.join(sorted(_unknown(counts)))}; first node: {first}")
    _variables(symbol, options)


def _unknown(ops: Iterable[str]) -> set[str]:
    return {op for op in ops if op not in OPS and op not in CONTROL and op != "_np_cumsum"}


def _version(graph: dict[str, Any]) -> str:
    attrs = graph.get("attrs")
    found = attrs.get("mxnet_version") if isinstance(attrs, dict) else None
    number = found[1] if isinstance(found, list) and len(found) == 2 else None
    if not isinstance(number, int):
        return "written by a version before 0.9 (no version recorded)"
    return f"written by MXNet {number // 10000}.{number // 100 % 100}.{number % 100}"


def _operator(op: str, count: int, graph: dict[str, Any]) -> tuple[str, int, str, str]:
    first = next(node for node in graph["nodes"] if node["op"] == op)
    attrs = {**(first.get("param") or {}), **(first.get("attr") or {}), **(first.get("attrs") or {})}
    return op, count, first["name"], f"{', '.join(f'{k}={v}' for k, v in attrs.items()):.70}"


def _variables(symbol: Any, options: argparse.Namespace) -> None:
    arguments, states = symbol.list_arguments(), symbol.list_auxiliary_states()
    given = parse_shapes(options.shape)
    kinds = {
        **dict.fromkeys((*arguments, *states), "label"),  # needed only for training
        **dict.fromkeys(inference_form(symbol).list_inputs(), "argument"),
        **dict.fromkeys(given, "given"),
        **dict.fromkeys(states, "auxiliary"),
    }
    noted = {name: {k: v for k, v in attrs.items() if k.startswith("__")} for name, attrs in symbol.attr_dict().items()}
    shapes: dict[str, Any] = {}
    if given:
        unknown = [name for name in given if name not in arguments]
        if unknown:
            raise MXNetError(f"the symbol has no input {', '.join(unknown)}. Its inputs: {', '.join(arguments)}")
        found, outputs, auxiliary = symbol.infer_shape_partial(**given)
        shapes = dict(zip((*arguments, *states), (*found, *auxiliary), strict=True))
        told = [f"{name} {_shape(s) if s else '?'}" for name, s in zip(symbol.list_outputs(), outputs, strict=True)]
    else:
        told = symbol.list_outputs()
    print(f"outputs: {', '.join(told)}")
    print(f"inputs: {len(arguments)} arguments, {len(states)} auxiliary states")
    rows = [
        (
            name,
            kinds[name],
            *([_shape(shapes[name]) if shapes[name] else "?"] if given else []),
            " ".join(f"{k.strip('_')}={v}" for k, v in noted.get(name, {}).items())[:70],
        )
        for name in (*arguments, *states)
    ]
    show(["name", "kind", *(["shape"] if given else []), "attributes"], rows, options)
    if given:
        counted = [shape for name, shape in shapes.items() if shape and kinds[name] in ("argument", "auxiliary")]
        count = sum(torch.Size(shape).numel() for shape in counted)
        print(f"parameters: {count} values")


def _onnx(path: str, options: argparse.Namespace) -> None:
    onnx = onnx_package()
    with reading(path):
        model = onnx.load(path)
        arrays = [(each.name, torch.tensor(onnx.numpy_helper.to_array(each))) for each in model.graph.initializer]
    opsets = ", ".join(f"{each.domain or 'opset'} {each.version}" for each in model.opset_import)
    print(f"ONNX: {len(model.graph.node)} nodes, {opsets}, by {model.producer_name or 'unknown producer'}")
    for what, values in (("inputs", model.graph.input), ("outputs", model.graph.output)):
        told = [f"{value.name} {_dims(value)}" for value in values]
        print(f"{what}: {', '.join(told)}")
    counts = Counter(node.op_type for node in model.graph.node)
    show(["operator", "nodes"], list(counts.items()), options)
    _show_arrays(((name, array, "default", tuple(array.shape)) for name, array in arrays), "arrays", options)


def _dims(value: Any) -> str:
    return f"({', '.join(str(dim.dim_value or dim.dim_param or '?') for dim in value.type.tensor_type.shape.dim)})"


# ---- data ----


def _rec(path: str, options: argparse.Namespace) -> None:
    found = records.summarised(path, _ROWS if options.all else 5)
    mean = found.total // found.count if found.count else 0
    print(
        f"RecordIO: {found.count} records, {size_of(os.path.getsize(path))}; record size {size_of(mean)} on average, "
        f"{size_of(found.longest)} at most"
    )
    widths = ", ".join(
        f"{count} with {'no header' if width < 0 else f'{width} label' + 's' * (width > 1)}"
        for width, count in sorted(found.widths.items())
    )
    print(f"labels: {widths or 'none'}")
    rows = []
    for number, record in enumerate(found.first):
        head = records.labelled(record)
        label = "" if head is None else records.short(head[0].label if head[0].flag else [head[0].label])
        ids = "" if head is None else f"{head[0].id} {head[0].id2}"
        rows.append((number, record.position, record.length, label, ids, head and records.picture_size(head[1]) or ""))
    if rows:
        show(["record", "at byte", "bytes", "label", "id id2", "content"], rows, options)
    index = os.path.splitext(path)[0] + ".idx"
    if found.problem is not None:
        raise MXNetError(f"{found.problem}. Complete records before it: {found.count}")
    if os.path.isfile(index):
        problem = records.index_problem(read_index(index), found.positions)
        print(f"{index}: {problem or 'matches, one key per record'}")


def _index(path: str, options: argparse.Namespace) -> None:
    with open(path, "rb") as file:
        if file.read(2) == b"\0\0":
            _idx_array(path, options)
            return
    entries = read_index(path)
    print(f"index: {len(entries)} keys")
    show(["key", "at byte"], entries if options.all else entries[:5], options)
    data = os.path.splitext(path)[0] + ".rec"
    if os.path.isfile(data):
        positions = [record.position for record in records.scan(data)]
        print(f"{data}: {records.index_problem(entries, positions) or 'matches, one record per key'}")


def _list(path: str, options: argparse.Namespace) -> None:
    entries = read_list(path)
    widths = Counter(len(entry.labels) for entry in entries)
    told = ", ".join(f"{count} with {width} label{'s' * (width > 1)}" for width, count in sorted(widths.items()))
    kinds = len({entry.labels for entry in entries})
    print(f"list: {len(entries)} images, {told or 'none'}, {kinds} different")
    rows = [(entry.number, records.short(entry.labels), entry.path) for entry in entries]
    show(["key", "labels", "path"], rows if options.all else rows[:5], options)


_BY_ENDING: dict[str, Callable[[str, argparse.Namespace], None]] = {
    ".params": _params,
    ".json": _symbol,
    ".rec": _rec,
    ".idx": _index,
    ".lst": _list,
    ".safetensors": _safetensors,
    ".states": _states,
    ".onnx": _onnx,
}
_BY_START: dict[bytes, Callable[[str, argparse.Namespace], None]] = {
    b"\x12\x01\0\0\0\0\0\0": _params,
    b"{": _symbol,
    MAGIC: _rec,
    b"\x80": _states,
    b"\0\0": _idx_array,
    b"\x1f\x8b": _idx_array,
}
