"""Write programs as ONNX files by torch.onnx. The packages of the extra `onnx` are loaded on demand."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ..base import MXNetError
from ..formats.atomic import replacing
from .program import NODE, inferring

LEAST_OPSET = 18  # torch writes it for every model; some models can be written down to 14
_MOST_IN_ONE_FILE = 2_000_000_000  # protobuf is limited to 2 GB; larger models store arrays in a second file


def onnx_package(name: str = "onnx") -> Any:
    """Import and return the package, or raise an error that says what to install."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MXNetError(f'ONNX files need the package {name}: pip install "neomx[onnx]" ({error})') from error


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Convert exceptions of protobuf, onnx and numpy on a damaged file to an error that names the file."""
    try:
        yield
    except MXNetError:
        raise
    except Exception as error:
        raise MXNetError(f"{path}: not a readable ONNX file: {error!s:.200}") from error


def write(
    path: str | os.PathLike[str],
    program: torch.export.ExportedProgram,
    inputs: Sequence[str],
    outputs: Sequence[str],
    opset: int | None = None,
) -> Any:
    """Write a program as ONNX, checked by onnx, and return the model. Dynamic dimensions get names."""
    onnx = onnx_package()
    onnx_package("onnxscript")
    outputs = _distinct(outputs, taken=inputs)
    try:
        with inferring():
            made: Any = torch.onnx.export(
                program, dynamo=True, verbose=False, input_names=inputs, output_names=outputs, opset_version=opset
            )
    except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
        raise _explained(error) from error
    written = next(each.version for each in made.model_proto.opset_import if not each.domain)
    if opset is not None and written != opset:
        raise MXNetError(
            f"opset {opset} cannot be written: torch writes {written} for this model. Use {LEAST_OPSET} or later"
        )
    size = sum(tensor.nbytes for tensor in program.state_dict.values())
    if size > _MOST_IN_ONE_FILE:
        made.save(os.fspath(path), external_data=True)
        onnx.checker.check_model(os.fspath(path))
        return made.model_proto
    model = made.model_proto
    _name_dims(model.graph)
    onnx.checker.check_model(model, full_check=True)
    with replacing(path) as file:
        file.write(model.SerializeToString())
    return model


def _name_dims(graph: Any) -> None:
    """Rename dynamic dimensions: `batch` for the first of inputs, else `data_dim1`; torch names them s77."""
    names: dict[str, str] = {}
    for value in graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.dim_param:
                taken = "batch" if axis == 0 and "batch" not in names.values() else f"{value.name}_dim{axis}"
                names.setdefault(dim.dim_param, taken)
    for value in (*graph.input, *graph.output, *graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = re.sub(r"\w+", lambda found: names.get(found[0], found[0]), dim.dim_param)


def _distinct(names: Sequence[str], taken: Sequence[str]) -> list[str]:
    """Return unique names for outputs, different from those of inputs, as ONNX requires: an input may be an output."""
    used, result = set(taken), []
    for name in names:
        base = f"{name}_output" if name in taken else name
        free = next(each for each in (base, *(f"{base}_{i}" for i in range(1, len(names) + 1))) if each not in used)
        used.add(free)
        result.append(free)
    return result


def _explained(error: BaseException) -> MXNetError:
    """Return an error that names the symbol's node that cannot be expressed in ONNX."""
    reason = str(error.__cause__ or error).splitlines()[0]
    causes = [each for each in _chain(error) if "No ONNX function found" in str(each)]
    if causes:
        reason = str(causes[-1]).split(". Failure message")[0]
    node = next((found for each in _chain(error) if (found := _node_of(each))), None)
    return MXNetError(f"{node or 'the graph'} cannot be converted to ONNX: {reason}")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _node_of(error: BaseException) -> str | None:
    """Return the symbol's node whose conversion failed; torch's error only has its name in torch's graph."""
    trace = error.__traceback__
    found = None
    while trace is not None:
        for value in trace.tb_frame.f_locals.values():
            if isinstance(value, torch.fx.Node):
                found = _noted(value.meta) or found
        trace = trace.tb_next
    return found


def _noted(meta: Mapping[str, Any]) -> str | None:
    return (meta.get("custom") or {}).get(NODE)
