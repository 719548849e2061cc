"""The graph of a hybridized Block: traced once with symbols, then run as a plain function on torch tensors."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from .. import symbol
from ..base import MXNetError, suggest
from ..ndarray import NDArray
from ..symbol.cached_op import outputs_to_copy, run_as_one, with_losses, wrapped
from ..symbol.infer import run_for_any_shape
from ..symbol.lowering import LOWERED, Run
from .structure import ARRAY, flatten, regroup

Hook = tuple[Callable[..., Any], bool]


def check_backend(name: str) -> None:
    """Raise if torch.compile does not have the backend `name`."""
    known = torch.compiler.list_backends(exclude_tags=())
    if name not in known:
        raise MXNetError(
            f"unknown backend {name!r}.{suggest(name, known)} Backends are those of torch.compile: {', '.join(known)}"
        )


def joined(outputs: list[symbol.Symbol]) -> symbol.Symbol:
    """Group the outputs into one symbol. A single output is returned unchanged."""
    return outputs[0] if len(outputs) == 1 else symbol.Group(outputs)


def _compiled(run: Run, **options: Any) -> Run:
    """Compile `run` with torch.compile. It is excluded from profiling, whose wrappers would cause recompilation."""
    LOWERED.discard(run)
    return torch.compile(run, **options)


class CachedGraph:
    """The traced computation of a HybridBlock for one nesting of the arguments."""

    def __init__(self, block: Any, args: Any):
        flat, self.in_format = flatten(args)
        count = sum(each is not None for each in flat)
        names = iter(["data"] if count == 1 else [f"data{i}" for i in range(count)])
        self.kind = next((each._kind for each in flat if each is not None), NDArray)
        as_kind = (lambda each: each) if self.kind is NDArray else symbol.Symbol.as_np_ndarray
        self.inputs = [None if each is None else as_kind(symbol.var(next(names))) for each in flat]
        outputs, self.out_format = flatten(block._symbolic(*regroup(self.inputs, self.in_format)))
        if any(not isinstance(each, symbol.Symbol) for each in outputs):
            raise ValueError(
                f"{block.name}: hybrid_forward must return symbols for symbolic inputs, received {outputs!r:.99}. "
                "Compute only with F and the arguments"
            )
        self.symbol = joined(outputs)
        fed = {each.name: at for at, each in enumerate(self.inputs) if each is not None}
        params = block.collect_params()
        wanted = list(dict.fromkeys(self.symbol.list_inputs()))
        self.positions = [fed[name] for name in wanted if name in fed]
        self.params = [self._param(params, name, block) for name in wanted if name not in fed]
        self.order = [name for name in wanted if name in fed] + [p.name for p in self.params]
        self.as_given = self.in_format == [ARRAY] * len(flat) and self.positions == list(range(len(flat)))
        unused = [str(at) for at in fed.values() if at not in self.positions]
        if unused:
            warnings.warn(
                f"{block.name}: input {', '.join(unused)} is not used by any computation. Is this intended?",
                stacklevel=2,
            )
        self.views = outputs_to_copy(self.symbol)
        self.run: Callable[..., list[torch.Tensor]] = None  # type: ignore[assignment]

    @staticmethod
    def _param(params: Any, name: str, block: Any) -> Any:
        try:
            return params[name]
        except KeyError:
            raise MXNetError(
                f"{block.name}: the graph has an input {name!r} that is neither an argument nor a parameter. "
                "Create it with self.params.get(...) in __init__, or pass the array as an argument"
            ) from None

    def __getstate__(self) -> dict[str, Any]:
        """Return everything except the compiled function, which a copy creates again."""
        return {**vars(self), "run": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.compile(*self.compiled_for)

    def compile(self, backend: str | None, options: dict[str, Any]) -> None:
        """Create the function that runs the graph."""
        self.compiled_for = backend, options
        finish = (lambda run: run) if backend is None else partial(_compiled, backend=backend, **options)
        self.run = run_for_any_shape(with_losses(self.symbol), self.order, finish)

    def infer_shapes(self, args: Any) -> None:
        """Set the unknown shapes of the parameters, inferred from these arguments."""
        self._infer("shape", self.symbol.infer_shape, args)

    def infer_types(self, args: Any) -> None:
        """Set the dtypes of the parameters, inferred from these arguments."""
        self._infer("dtype", self.symbol.infer_type, args)

    def _infer(self, attribute: str, infer: Callable[..., Any], args: Any) -> None:
        given = {
            str(each.name): getattr(arg, attribute)
            for each, arg in zip(self.inputs, flatten(args)[0], strict=True)
            if each is not None and each.name in self.order
        }
        arguments, _, auxiliary = infer(**given)
        names = (*self.symbol.list_arguments(), *self.symbol.list_auxiliary_states())
        found = dict(zip(names, (*(arguments or ()), *(auxiliary or ())), strict=False))
        for param in self.params:
            if found.get(param.name) is not None:
                setattr(param, attribute, found[param.name])

    def __call__(self, args: Any, hook: Hook | None = None) -> Any:
        flat = args if self.as_given else flatten(args)[0]
        ctx = next(each for each in flat if each is not None)._ctx.computing
        given = [flat[at] for at in self.positions]
        parameters = [param.data(ctx)._data for param in self.params]
        tensors = [each._data for each in given] + parameters
        run = self.run if hook is None else partial(self._monitored, hook)
        results = run_as_one(run, ctx, tensors, self.views, len(self.symbol))
        arrays = wrapped(results, ctx, self.kind, self.symbol, self.order, given, parameters)
        return arrays[0] if self.out_format == ARRAY else regroup(arrays, self.out_format)

    def _monitored(self, hook: Hook, ctx: Any, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """Run the graph and call `hook` for the outputs, and optionally the inputs, of every op."""
        callback, inputs_too = hook
        wanted = with_losses(self.symbol)
        every = wanted.get_internals()
        values = run_for_any_shape(every, self.order)(ctx, tensors)
        by_entry = {(id(node), i): value for (node, i), value in zip(every._outputs, values, strict=True)}
        told = set()
        for node, _ in every._outputs:
            if node.op is None or id(node) in told:
                continue
            told.add(id(node))
            if inputs_too:
                for name, (source, i) in zip(node.input_names(), node.inputs, strict=True):
                    callback(f"{node.name}_{name}", node.op.name, NDArray(by_entry[id(source), i], ctx))
            for i, name in enumerate(node.output_names()):
                callback(name, node.op.name, NDArray(by_entry[id(node), i], ctx))
        return [by_entry[id(node), i] for node, i in wanted._outputs]
