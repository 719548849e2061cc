"""`mx.onnx`: export symbols to ONNX files (`export_model`) and import them (`import_model`). Needs the extra `onnx`."""

from __future__ import annotations

import sys
from typing import Any

from ..context import Context, cpu
from ..convert.onnx_file import reading
from ..ndarray import NDArray
from ..symbol import Symbol
from . import reader
from .export import export_model
from .support import get_operator_support

__all__ = ["export_model", "get_model_metadata", "get_operator_support", "import_model", "import_to_gluon", "mx2onnx"]

mx2onnx = sys.modules[__name__]  # MXNet's name for the exporter


def import_model(model_file: str) -> tuple[Symbol, dict[str, NDArray], dict[str, NDArray]]:
    """Return the symbol, the arguments and the auxiliary states of an ONNX file (opsets 7 to 20)."""
    model = reader.read(model_file)
    with reading(model_file):
        return reader.to_symbol(model)


def import_to_gluon(model_file: str, ctx: Context | None = None) -> Any:
    """Return a SymbolBlock of an ONNX file."""
    from ..gluon import SymbolBlock
    from ..symbol import var

    symbol, arguments, states = import_model(model_file)
    known = {**arguments, **states}
    inputs = [var(name) for name in symbol.list_inputs() if name not in known]
    block = SymbolBlock(symbol, inputs)
    for name, param in block.collect_params().items():
        param.shape, param.dtype = known[name].shape, known[name].dtype
        param.initialize(ctx=ctx or cpu())
        param.set_data(known[name])
    return block


def get_model_metadata(model_file: str) -> dict[str, list[tuple[str, tuple[int, ...]]]]:
    """Return the names and shapes of an ONNX file's inputs and outputs; dimensions that are not fixed are 0."""
    graph = reader.read(model_file).graph
    constants = {each.name for each in graph.initializer}

    def facts(values: Any) -> list[tuple[str, tuple[int, ...]]]:
        return [
            (value.name, tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim))
            for value in values
            if value.name not in constants
        ]

    return {"input_tensor_data": facts(graph.input), "output_tensor_data": facts(graph.output)}
