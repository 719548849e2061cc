"""A symbol and its arrays as a pure torch program, by torch.export; running it does not need neomx."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from typing import Any

import torch
from torch.fx.traceback import annotate, preserve_node_meta

from ..base import MXNetError, modes
from ..context import cpu
from ..dtype import NAME_OF_TORCH
from ..ops.table import OP_ERRORS
from ..symbol import Symbol
from ..symbol.graph import Entry, Node, rebuilt, topological
from ..symbol.infer import Shapes, Types, resolved
from ..symbol.lowering import node_error
from ..symbol.rewrite import rewritten

NODE = "mxnet_node"  # metadata key for the name of the symbol's node in torch's graph
# Output ops with a label, which only their gradient uses.
_WITH_LABEL = ("SoftmaxOutput", "LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput")
_IS_DATA = ("SVMOutput", "MakeLoss", "make_loss", "BlockGrad", "IdentityAttachKLSparseReg", "Dropout")


def inference_form(symbol: Symbol) -> Symbol:
    """Return the symbol without the parts that only training needs: labels, gradients of losses, dropout."""

    def replace(node: Node, inputs: list[Entry]) -> list[Entry] | None:
        name = None if node.op is None else node.op.name
        if name in _IS_DATA and not _drops_always(node):
            return [inputs[0]]
        if name in _WITH_LABEL:
            return [(Node(node.op, node.name, [inputs[0], inputs[0]], dict(node.attrs), dict(node.values)), 0)]
        return None

    return Symbol(rebuilt(symbol._outputs, replace))


def _drops_always(node: Node) -> bool:
    return node.values.get("mode") == "always"


def with_gamma(symbol: Symbol, arrays: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the arrays, with ones for every gamma that `fix_gamma` sets to one, regardless of the file."""
    result = dict(arrays)
    for node in symbol._nodes():
        if node.op is not None and "fix_gamma" in node.op.attrs and node.op.with_defaults(node.values)["fix_gamma"]:
            gamma = node.inputs[1][0].name
            if gamma in result:
                result[gamma] = torch.ones_like(result[gamma])
    return result


def example(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Return zeros for tracing."""
    try:
        return torch.zeros(list(shape), dtype=dtype)
    except (RuntimeError, TypeError, OverflowError) as error:
        raise MXNetError(f"an input of shape {tuple(shape)} cannot be allocated: {_first_line(error)}") from error


class Program(torch.nn.Module):
    """Computes a symbol node by node, so that each traced op can be annotated with its node.

    Arguments are parameters and auxiliary states are buffers, under their names. `inputs` is the order of the inputs.
    """

    def __init__(self, symbol: Symbol, arrays: Mapping[str, torch.Tensor], inputs: Sequence[str]):
        super().__init__()
        self._heads = rewritten(symbol._outputs)
        self._order = topological(node for node, _ in self._heads)
        self._inputs = list(inputs)
        states = set(symbol.list_auxiliary_states())
        for name in symbol.list_inputs():
            if name in arrays:
                _place(self, name, arrays[name], name in states)

    def forward(self, *inputs: torch.Tensor) -> Any:
        """Return the output, or a tuple of several outputs."""
        fed = dict(zip(self._inputs, inputs, strict=True))
        values: dict[tuple[int, int], torch.Tensor] = {}
        for node in self._order:
            results = [_find(self, node.name, fed)] if node.op is None else _call(node, values)
            values.update({(id(node), i): result for i, result in enumerate(results)})
        outputs = tuple(values[id(node), i] for node, i in self._heads)
        return outputs[0] if len(outputs) == 1 else outputs


def _place(module: torch.nn.Module, name: str, tensor: torch.Tensor, is_state: bool) -> None:
    """Register a tensor under its name; a dot in the name means a submodule, as in torch."""
    *path, last = name.split(".")
    try:
        for part in path:
            if part not in module._modules:
                module.add_module(part, torch.nn.Module())
            module = module.get_submodule(part)
        if is_state:
            module.register_buffer(last, tensor)
        else:
            module.register_parameter(last, torch.nn.Parameter(tensor, requires_grad=False))
    except (KeyError, AttributeError) as error:  # "forward", or a name that is a prefix of another
        raise MXNetError(f"a torch module cannot have an array named {name!r}: {error}. Rename it") from None


def _find(module: torch.nn.Module, name: str, fed: Mapping[str, torch.Tensor]) -> torch.Tensor:
    if name in fed:
        return fed[name]
    *path, last = name.split(".")
    return getattr(module.get_submodule(".".join(path)), last)


def _call(node: Node, values: Mapping[tuple[int, int], torch.Tensor]) -> list[torch.Tensor]:
    op = node.op
    assert op is not None
    tensors: list[torch.Tensor] = [values[id(source), i] for source, i in node.inputs]
    named = {} if op.variadic else dict(zip(node.input_names(), tensors, strict=True))
    attrs = {**node.values, "ctx": cpu()} if op.needs_ctx else node.values
    try:
        with annotate({NODE: f"{op.name} {node.name!r}"}):
            result = op.fn(*([] if named else tensors), **named, **attrs)
    except OP_ERRORS as error:
        received = [f"{name}: {_shown(each)}" for name, each in zip(node.input_names(), tensors, strict=True)]
        raise node_error(node, f"cannot be converted: {_first_line(error)}", received) from error
    return [result] if isinstance(result, torch.Tensor) else list(result)


def _shown(tensor: torch.Tensor) -> str:
    return f"{NAME_OF_TORCH.get(tensor.dtype, tensor.dtype)}{list(tensor.shape)}"


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


@contextmanager
def inferring() -> Iterator[None]:
    """Run in inference mode: no recording, no training mode, and torch's own warnings silenced."""
    before, heard = (modes.recording, modes.training), logging.root.manager.disable
    modes.recording = modes.training = False
    logging.disable(logging.CRITICAL)
    try:
        with torch.no_grad(), preserve_node_meta(), warnings.catch_warnings(), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        modes.recording, modes.training = before
        logging.disable(heard)


def export(
    symbol: Symbol,
    arrays: Mapping[str, torch.Tensor],
    examples: Mapping[str, torch.Tensor],
    varying: Mapping[str, Sequence[int]],
) -> torch.export.ExportedProgram:
    """Export the program of a symbol for inputs like `examples`; the dimensions in `varying` are dynamic."""
    shapes = {name: tuple(tensor.shape) for name, tensor in {**arrays, **examples}.items()}
    known = set(symbol.list_inputs())
    types = Types(symbol, {name: tensor.dtype for name, tensor in {**arrays, **examples}.items() if name in known})
    symbol = resolved(symbol, Shapes(symbol, {name: shape for name, shape in shapes.items() if name in known}, types))
    program = Program(symbol, arrays, list(examples)).eval()
    dims = tuple({axis: torch.export.Dim.DYNAMIC for axis in varying.get(name, ())} for name in examples)
    dynamic = {"inputs": dims} if any(dims) else None
    try:
        with inferring():
            exported = torch.export.export(program, tuple(examples.values()), dynamic_shapes=dynamic, strict=False)
    except MXNetError:
        raise
    except OP_ERRORS as error:
        raise MXNetError(f"torch.export cannot trace the symbol: {_first_line(error)}") from error
    exported.graph_module.graph.eliminate_dead_code()
    exported.graph_module.recompile()
    return exported


def export_with_batch(
    symbol: Symbol, arrays: Mapping[str, torch.Tensor], examples: Mapping[str, torch.Tensor]
) -> tuple[torch.export.ExportedProgram, bool]:
    """Export with a dynamic batch size and return True; if not possible, with that of `examples` and return False."""
    pairs = {name: torch.cat([tensor[:1]] * 2) if tensor.dim() else tensor for name, tensor in examples.items()}
    try:
        return export(symbol, arrays, pairs, {name: (0,) for name, tensor in pairs.items() if tensor.dim()}), True
    except MXNetError:
        return export(symbol, arrays, examples, {}), False
