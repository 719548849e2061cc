"""`neomx convert`: convert a symbol's checkpoint to a torch program, ONNX, safetensors or .params."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import torch

from .. import ndarray as nd
from ..base import MXNetError
from ..dtype import to_torch
from ..formats import safetensors
from ..formats.atomic import replacing
from ..symbol import Symbol
from . import onnx_file, program
from .checkpoint import Checkpoint, cast, check_complete, load, tensors

EPILOG = """examples:
  neomx convert resnet --to torch -o out/resnet --shape data:1,3,224,224     out/resnet.pt2 and out/resnet.safetensors
  neomx convert resnet-symbol.json resnet-0090.params --to onnx -o resnet.onnx --shape data:1,3,224,224
  neomx convert lstm --epoch 5 --to onnx -o lstm.onnx --shape data:0,35      0: a dynamic dimension
  neomx convert old --to params -o new --dtype float16                       new-symbol.json and new-0005.params
  neomx convert resnet --to safetensors -o resnet.safetensors

The first dimension is the batch and becomes dynamic, if the graph allows it.
A torch program can be loaded without neomx:
  import torch
  net = torch.export.load("out/resnet.pt2").module()
  scores = net(torch.zeros(8, 3, 224, 224))
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `neomx convert` to the parser."""
    add = parser.add_argument
    add("model", metavar="PREFIX|symbol.json", help="the prefix of a checkpoint, or the path of its symbol file")
    add("params", nargs="?", help="the .params file (default: PREFIX-0000.params of the epoch)")
    add("--to", required=True, choices=sorted(_WRITERS), help="output format")
    add("-o", "--output", required=True, metavar="OUT", help="path of the output; the extension of the format is added")
    add("--epoch", type=int, metavar="N", help="epoch of the parameters (default: the newest)")
    add(
        "--shape",
        action="append",
        default=[],
        metavar="NAME:1,3,224,224",
        help="shape of an input; 0 means a dynamic dimension. Required for torch and onnx, once per input",
    )
    add(
        "--dtype",
        choices=("float16", "bfloat16", "float32", "float64"),
        help="cast parameters and inputs to this dtype (default: unchanged)",
    )
    add("--plain-names", action="store_true", help="write .params names without arg: and aux:, as Gluon does")
    add("--opset", type=int, metavar="N", help="ONNX opset version (default: chosen by torch)")


def main(options: argparse.Namespace) -> int:
    """Run `neomx convert`: convert, and print which files were written."""
    checkpoint = load(options.model, options.params, options.epoch)
    if options.dtype:
        checkpoint = cast(checkpoint, options.dtype)
    if not os.path.basename(options.output):
        raise MXNetError(f"--output {options.output!r}: expected a file name, such as {options.output}model")
    directory = os.path.dirname(os.path.abspath(options.output))
    if not os.path.isdir(directory):
        raise MXNetError(f"cannot write {options.output}: directory {directory} does not exist")
    _WRITERS[options.to](checkpoint, options)
    return 0


# ---- shapes ----


def parse_shapes(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return {name: shape} parsed from texts such as `data:1,3,224,224`."""
    shapes = {}
    for text in texts:
        name, colon, numbers = text.rpartition(":")
        try:
            shape = tuple(int(number) for number in numbers.strip("()[] ").split(",") if number.strip())
        except ValueError:
            shape = ()
        if not colon or not shape or min(shape) < 0:
            raise MXNetError(f"--shape {text}: expected the name of an input and its shape, such as data:1,3,224,224")
        shapes[name] = shape
    return shapes


def input_shapes(checkpoint: Checkpoint, symbol: Symbol, given: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """Return the shapes of the inputs, in the symbol's order; all other variables must have an array."""
    unknown = [name for name in given if name not in symbol.list_arguments()]
    if unknown:
        raise MXNetError(
            f"the model has no input {', '.join(unknown)}. Its inputs: {', '.join(checkpoint.inputs(symbol)) or 'none'}"
        )
    check_complete(checkpoint, symbol, given)
    return {name: given[name] for name in symbol.list_arguments() if name in given}


# ---- programs ----


@dataclass
class Traced:
    """A checkpoint as a program: the names of the inputs in order, and whether their first dimension is dynamic."""

    program: torch.export.ExportedProgram
    inputs: list[str]
    outputs: list[str]
    arrays: dict[str, torch.Tensor]
    varies: bool


def trace(checkpoint: Checkpoint, given: Mapping[str, tuple[int, ...]], dtype: str | None = None) -> Traced:
    """Trace the inference form of a checkpoint. Dimensions given as 0 are dynamic; if there are none, the batch is."""
    symbol = program.inference_form(checkpoint.symbol)
    shapes = input_shapes(checkpoint, symbol, given)
    arrays = program.with_gamma(symbol, tensors(checkpoint.arrays))
    kind = to_torch(dtype) if dtype else _common_type(arrays)
    examples = {name: program.example([n or 2 for n in shape], kind) for name, shape in shapes.items()}
    varying = {name: [axis for axis, n in enumerate(shape) if n == 0] for name, shape in shapes.items()}
    if any(varying.values()):
        traced, varies = program.export(symbol, arrays, examples, varying), True
    else:
        traced, varies = program.export_with_batch(symbol, arrays, examples)
    return Traced(traced, list(examples), checkpoint.symbol.list_outputs(), arrays, varies)


def _common_type(arrays: Mapping[str, torch.Tensor]) -> torch.dtype:
    """Return float16 if the weight matrices are; BatchNorm's vectors are float32 in any case."""
    kinds = {tensor.dtype for tensor in arrays.values() if tensor.is_floating_point() and tensor.dim() > 1}
    return kinds.pop() if len(kinds) == 1 else torch.float32


def _report(path: str, traced: Traced, shapes: Mapping[str, tuple[int, ...]]) -> None:
    batch = "for batches of any size" if traced.varies else "for these shapes only, because the graph fixes them"
    if any(0 in shape for shape in shapes.values()):
        batch = "dimensions given as 0 are dynamic"
    asked = ", ".join(f"{name}:{','.join(map(str, shape))}" for name, shape in shapes.items())
    print(f"{path}: {', '.join(traced.inputs)} -> {', '.join(traced.outputs)}; {batch} ({asked})")


class _Patient:
    """A file that stores write errors for later: torch's writer aborts the process if a write fails."""

    def __init__(self, file: BinaryIO):
        self._file = file
        self._error: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: bytes) -> int:
        if self._error is None:
            try:
                return self._file.write(data)
            except OSError as error:
                self._error = error
        return len(data)

    def complain(self) -> None:
        """Raise the stored error, if any."""
        if self._error is not None:
            raise self._error


def _to_torch(checkpoint: Checkpoint, options: argparse.Namespace) -> None:
    shapes = parse_shapes(options.shape)
    traced = trace(checkpoint, shapes, options.dtype)
    stem = options.output.removesuffix(".pt2")
    with program.inferring(), replacing(stem + ".pt2") as file:
        patient = _Patient(file)
        torch.export.save(traced.program, patient)  # type: ignore[arg-type]
        patient.complain()
    safetensors.write(stem + ".safetensors", traced.arrays, _metadata())
    _report(stem + ".pt2", traced, shapes)
    print(f"{stem}.safetensors: {len(traced.arrays)} arrays")


def _to_onnx(checkpoint: Checkpoint, options: argparse.Namespace) -> None:
    onnx_file.onnx_package()  # fail before the work if it is not installed
    shapes = parse_shapes(options.shape)
    traced = trace(checkpoint, shapes, options.dtype)
    path = options.output if options.output.endswith(".onnx") else options.output + ".onnx"
    onnx_file.write(path, traced.program, traced.inputs, traced.outputs, options.opset)
    _report(path, traced, shapes)


# ---- arrays ----


def _to_safetensors(checkpoint: Checkpoint, options: argparse.Namespace) -> None:
    path = options.output if options.output.endswith(".safetensors") else options.output + ".safetensors"
    safetensors.write(path, tensors(checkpoint.arrays), _metadata())
    print(f"{path}: {len(checkpoint.arrays)} arrays")


def _metadata() -> dict[str, str]:
    return {"format": "pt"}  # expected by other readers


def _to_params(checkpoint: Checkpoint, options: argparse.Namespace) -> None:
    stem = options.output.removesuffix(".params")
    path = options.output if options.output != stem else f"{stem}-{checkpoint.epoch:04d}.params"
    arg, aux = ("", "") if options.plain_names else ("arg:", "aux:")
    named = {arg + name: array for name, array in checkpoint.arguments.items()}
    named.update({aux + name: array for name, array in checkpoint.states.items()})
    checkpoint.symbol.save(stem + "-symbol.json")
    nd.save(path, named)
    print(f"{stem}-symbol.json: {', '.join(checkpoint.symbol.list_outputs())}")
    print(f"{path}: {len(named)} arrays")


_WRITERS = {"torch": _to_torch, "onnx": _to_onnx, "safetensors": _to_safetensors, "params": _to_params}
