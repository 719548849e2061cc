"""`mx.onnx.export_model`: write a symbol and its parameters to an ONNX file."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from .. import symbol as sym
from ..base import MXNetError
from ..convert import onnx_file, program
from ..convert.checkpoint import Checkpoint, check_complete, read_arrays, sorted_arrays, tensors
from ..dtype import to_torch
from ..ndarray import NDArray
from ..symbol import Symbol


def export_model(
    sym: Symbol | str,
    params: str | Mapping[str, NDArray] | Sequence[Mapping[str, NDArray]],
    in_shapes: Any = None,
    in_types: Any = np.float32,
    onnx_file_path: str = "model.onnx",
    verbose: bool = False,
    dynamic: bool = False,
    dynamic_input_shapes: Any = None,
    run_shape_inference: bool = False,
    input_type: Any = None,
    input_shape: Any = None,
    opset_version: int | None = None,
) -> str:
    """Export a symbol (or its .json file) and parameters (or their file) to ONNX; return the path of the file.

    `in_shapes` and `in_types` are those of the inputs in the symbol's order; entries for labels are accepted and
    ignored. With `dynamic`, the dimensions that are None or a name in `dynamic_input_shapes` are dynamic, or all if it
    is not given.
    """
    checkpoint = _checkpoint(sym, params)
    symbol = program.inference_form(checkpoint.symbol)
    inputs = checkpoint.inputs(symbol)
    examples = _examples(inputs, checkpoint.inputs(), input_shape or in_shapes, input_type or in_types)
    check_complete(checkpoint, symbol, examples)
    varying = _varying(examples, dynamic_input_shapes) if dynamic else {}
    arrays = program.with_gamma(symbol, tensors(checkpoint.arrays))
    grown = {
        name: program.example([max(n, 2) if i in varying.get(name, ()) else n for i, n in enumerate(e.shape)], e.dtype)
        for name, e in examples.items()
    }
    traced = program.export(symbol, arrays, grown, varying)
    outputs, opset = checkpoint.symbol.list_outputs(), _opset(opset_version)
    model = onnx_file.write(onnx_file_path, traced, inputs, outputs, opset)
    if verbose:
        logging.info("Exported ONNX file %s saved to disk: %d nodes", onnx_file_path, len(model.graph.node))
    return onnx_file_path


def _opset(asked: int | None) -> int | None:
    """Return the opset version to write. Programs for MXNet request older ones than torch supports."""
    if asked is None or asked >= onnx_file.LEAST_OPSET:
        return asked
    least = onnx_file.LEAST_OPSET
    warnings.warn(f"opset_version={asked} is older than torch supports: writing opset {least}", stacklevel=3)
    return least


def _checkpoint(symbol: Symbol | str, params: Any) -> Checkpoint:
    if isinstance(symbol, str):
        symbol = sym.load(symbol)
    if not isinstance(symbol, Symbol):
        raise ValueError(f"Input sym and params should either be files or objects, received {type(symbol).__name__}")
    if isinstance(params, str):
        loaded: dict[str, NDArray] = read_arrays(params)
    elif isinstance(params, Mapping):
        loaded = dict(params)
    elif isinstance(params, (list, tuple)) and all(isinstance(each, Mapping) for each in params):
        loaded = {name: value for each in params for name, value in each.items()}
    else:
        raise ValueError(
            f"expected params to be a file, a dictionary, or a list of two, received {type(params).__name__}"
        )
    return Checkpoint(symbol, *sorted_arrays(loaded, symbol))


def _examples(inputs: list[str], with_labels: list[str], shapes: Any, types: Any) -> dict[str, torch.Tensor]:
    """Return zeros for each input, from shapes (and types) for the inputs, with or without labels."""
    shapes = [tuple(shape) for shape in shapes or ()]
    names = inputs if len(shapes) == len(inputs) else with_labels
    if len(shapes) != len(names):
        raise MXNetError(f"expected the shapes of {', '.join(inputs)}, received {len(shapes)}: {shapes}")
    kinds = list(types) if isinstance(types, (list, tuple)) else [types] * len(names)
    if len(kinds) not in (1, len(names)):
        raise MXNetError(f"expected the types of {', '.join(names)}, received {len(kinds)}")
    kinds = kinds * len(names) if len(kinds) == 1 else kinds
    facts = zip(names, shapes, kinds, strict=True)
    return {name: program.example(shape, to_torch(kind)) for name, shape, kind in facts if name in inputs}


def _varying(examples: Mapping[str, torch.Tensor], dynamic: Any) -> dict[str, list[int]]:
    """Return the dynamic dimensions of each input."""
    if dynamic is None:
        return {name: list(range(tensor.dim())) for name, tensor in examples.items()}
    if len(dynamic) != len(examples):
        raise MXNetError(f"expected dynamic_input_shapes of {', '.join(examples)}, received {len(dynamic)}")
    return {
        name: [axis for axis, n in enumerate(shape) if not isinstance(n, (int, np.integer))]
        for name, shape in zip(examples, dynamic, strict=True)
    }
