"""Lower a symbol to a single Python function on torch tensors, without wrappers, that torch.compile can trace."""

from __future__ import annotations

import keyword
import math
import weakref
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from .. import onednn
from ..base import MXNetError
from ..context import Context
from ..dtype import NAME_OF_TORCH
from ..ndarray.integers import on_integers
from ..ops.custom import MEMORY
from ..ops.table import OP_ERRORS, OPS
from .graph import Entry, Node, topological
from .rewrite import rewritten
from .symbol import Symbol

Run = Callable[[Context, Sequence[torch.Tensor]], list[torch.Tensor]]
Places = Callable[[Sequence[Node]], dict[int, Context]]  # the context of each node of a topological order, by id

LOWERED: weakref.WeakSet[Any] = weakref.WeakSet()  # live functions; a running profiler names their ops


def lower(symbol: Symbol, input_names: Sequence[str], places: Places | None = None) -> Run:
    """Return a function `run(ctx, tensors)` that computes the outputs from tensors in the order of `input_names`.

    Ops run under the caller's grad mode and read `modes.training`. An output may share memory with an input. The
    function's `source` attribute is its source code, with one line per node. Errors name the node. `places` returns the
    contexts of nodes that do not run on `ctx`.
    """
    return _Writer(symbol._outputs, input_names, places).function()


class _Writer:
    """Writes the function: one line per node, and `del` after the last use of a value.

    The source contains only numbered names, parameter names of neomx ops, and numbers. All other values of a graph are
    bound to numbered names.
    """

    def __init__(self, heads: Sequence[Entry], input_names: Sequence[str], places: Places | None):
        heads = rewritten(heads)
        self.order = topological(node for node, _ in heads)
        self.places = {} if places is None else places(self.order)
        self.names: dict[tuple[int, int], str] = {}
        self.constants: dict[int, str] = {}
        self.cast = _cast_to_integers(self.order)
        self.space: dict[str, Any] = {
            "only": _only,
            "on_integers": on_integers,
            "ERRORS": OP_ERRORS,
            "explained": self.explained,
        }
        self.node_of_line: dict[int, Node] = {}
        self.lines = ["def run(ctx, tensors):", "    try:"]
        self._write_inputs(input_names)
        last_use = {(id(n), i): at for at, node in enumerate(self.order) for n, i in node.inputs}
        last_use.update({(id(n), i): len(self.order) for n, i in heads})
        for at, node in enumerate(self.order):
            if node.op is not None:
                results = self._write_call(node)
                entries = dict.fromkeys([*((id(n), i) for n, i in node.inputs), *results])
                # Free values that no later node needs.
                dead = [self.names[entry] for entry in entries if last_use.get(entry, at) == at]
                if dead:
                    self._write(f"del {', '.join(dead)}")
        self._write(f"return [{', '.join(self.names[id(n), i] for n, i in heads)}]")
        self.lines += ["    except ERRORS as error:", "        raise explained(error) from error"]

    def _write(self, line: str) -> None:
        self.lines.append("        " + line)

    def _write_inputs(self, input_names: Sequence[str]) -> None:
        places = {name: f"x{number}" for number, name in enumerate(input_names)}
        variables = [node for node in self.order if node.op is None]
        missing = [node.name for node in variables if node.name not in places]
        if missing:
            raise MXNetError(f"missing inputs: {', '.join(missing)}. Received: {', '.join(input_names)}")
        self.names.update({(id(node), 0): places[node.name] for node in variables})
        if places:
            self._write(f"{', '.join(places.values())}, = tensors")

    def _write_call(self, node: Node) -> list[tuple[int, int]]:
        op = node.op
        assert op is not None
        count = node.count_outputs()
        results = [(id(node), i) for i in range(count)]
        self.names.update({entry: f"t{len(self.names) + i}" for i, entry in enumerate(results)})
        arguments = ", ".join(self._arguments(node))
        function = self._constant(op.fn, "op")
        call = f"on_integers({function}, {arguments})" if id(node) in self.cast else f"{function}({arguments})"
        if count == 1 and callable(op.outputs) and op.visible is None:
            call = f"only({call})"
        self._write(f"{', '.join(self.names[entry] for entry in results) or '_'} = {call}")
        self.node_of_line[len(self.lines)] = node
        return results

    def _arguments(self, node: Node) -> list[str]:
        op = node.op
        assert op is not None
        arguments = []
        here = self.places.get(id(node))
        for position, (name, (n, i)) in enumerate(zip(node.input_names(), node.inputs, strict=True)):
            value = self.names[id(n), i]
            if here is not None and here.device != self.places[id(n)].device:
                value += f".to({self._constant(here.device, 'device')})"
            by_position = op.variadic or op.inputs[position] == name
            arguments.append(value if by_position else f"{_own(name, op.inputs)}={value}")
        others = {}  # attributes of a CustomOpProp may have any name, so they never become part of the source
        for name, value in node.values.items():
            if name == "ctx":
                continue
            if name in op.attrs:
                literal = repr(value) if _is_literal(value) else self._constant(value, "k")
                arguments.append(f"{_own(name, op.attrs)}={literal}")
            else:
                others[name] = value
        if op.needs_ctx:
            arguments.append("ctx=ctx" if here is None else f"ctx={self._constant(here, 'ctx')}")
        if others:
            arguments.append(f"**{self._constant(others, 'k')}")
        return arguments

    def _constant(self, value: Any, prefix: str) -> str:
        name = self.constants.setdefault(id(value), f"{prefix}{len(self.constants)}")
        self.space[name] = value
        return name

    def function(self) -> Run:
        source = "\n".join(self.lines) + "\n"
        exec(compile(source, "<symbol>", "exec"), self.space)
        run = self.space["run"]
        run.source = source
        LOWERED.add(run)
        return run

    def explained(self, error: Exception) -> MXNetError:
        """Return the error of a run, with the name of the node that raised it and the inputs of that node."""
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code is not self.space["run"].__code__:
            trace = trace.tb_next
        node = None if trace is None else self.node_of_line.get(trace.tb_lineno)
        if trace is None or node is None:
            return MXNetError(onednn.explained(str(error)))
        received = []
        for name, (n, i) in zip(node.input_names(), node.inputs, strict=True):
            tensor = trace.tb_frame.f_locals.get(self.names[id(n), i])
            if isinstance(tensor, torch.Tensor):
                received.append(f"{name}: {NAME_OF_TORCH[tensor.dtype]}{list(tensor.shape)}")
        received += [f"{name}={value!r}" for name, value in node.values.items() if name not in ("ctx", MEMORY)]
        return node_error(node, error, received)


def node_error(node: Node, error: Exception | str, received: Sequence[str]) -> MXNetError:
    """Return an error that names the node, its op and all of its inputs."""
    assert node.op is not None
    message = onednn.explained(str(error).removeprefix(node.op.name + ": "))
    return MXNetError(f"{node.op.name} {node.name!r}: {message} (received {', '.join(received) or 'nothing'})")


def _cast_to_integers(order: Sequence[Node]) -> set[int]:
    """Return the ids of nodes whose inputs may be integers that were cast from floats, and so may have a gradient."""
    casts, after = set(), set()
    for node in order:
        if node.op is None:
            continue
        if any(id(n) in after or id(n) in casts for n, _ in node.inputs):
            after.add(id(node))
        dtype = node.values.get("dtype")
        if node.op is OPS["Cast"]:
            after.discard(id(node))  # it follows the gradient itself
            if isinstance(dtype, torch.dtype) and not dtype.is_floating_point:
                casts.add(id(node))
    return after


def _own(name: str, names: Collection[str]) -> str:
    """Return the name of a parameter of an op's function. No other names are written into the source."""
    assert name in names and name.isidentifier() and not keyword.iskeyword(name), name
    return name


def _is_literal(value: Any) -> bool:
    """Whether `repr` is short and reproduces the value. Strings may come from a file, so they never count."""
    if type(value) is tuple:
        return len(value) <= 32 and all(map(_is_literal, value))
    if type(value) is int:
        return -(1 << 63) <= value < 1 << 63
    return type(value) in (bool, type(None)) or type(value) is float and math.isfinite(value)


def _only(result: Any) -> Any:
    """Return the result of an op with a single result, which may be in a list."""
    return result if isinstance(result, torch.Tensor) else result[0]
