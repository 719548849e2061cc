"""Block, HybridBlock and SymbolBlock: the classes that all models and layers derive from."""

from __future__ import annotations

import re
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .. import ndarray as nd
from .. import symbol
from ..base import MXNetError
from ..context import Context
from ..ndarray import NDArray
from ..numpy.multiarray import ndarray
from ..symbol import Symbol
from . import model_file
from .cached import CachedGraph, check_backend, joined
from .kinds import front_of, symbol_front_of
from .loading import load_into, named, save_from, without_kind
from .parameter import DeferredInitializationError, Parameter
from .parameter_dict import ParameterDict
from .private_names import _flatten as _flatten
from .private_names import _regroup as _regroup
from .scope import BlockScope
from .structure import ARRAY, flatten
from .summary import print_summary
from .twin import Twin, call_through, house, make_twin
from .utils import HookHandle, _indent

__all__ = ["Block", "DeferredInitializationError", "HookHandle", "HybridBlock", "SymbolBlock"]


def _attached(hooks: OrderedDict[int, Any], hook: Any) -> HookHandle:
    handle = HookHandle()
    handle.attach(hooks, hook)
    return handle


class Block:
    """A model or a layer: parameters, child Blocks, and a `forward`.

    A subclass creates children and parameters in `__init__`, inside `with self.name_scope():`, and overrides `forward`.
    """

    _children: dict[str, Block]
    _twin: Twin | None

    def __init__(self, prefix: str | None = None, params: ParameterDict | None = None):
        self._empty_prefix = prefix == ""
        self._prefix, self._params = BlockScope.create(prefix, params, self._alias())
        self._name = self._prefix.removesuffix("_")
        self._scope = BlockScope(self)
        self._children = {}
        self._reg_params: dict[str, Parameter] = {}
        self._forward_hooks: OrderedDict[int, Any] = OrderedDict()
        self._forward_pre_hooks: OrderedDict[int, Any] = OrderedDict()
        self._twin = None

    def __repr__(self) -> str:
        lines = [f"  ({name}): {_indent(repr(child), 2)}" for name, child in self._children.items()]
        return f"{type(self).__name__}(\n" + "\n".join(lines) + "\n)"

    def __setattr__(self, name: str, value: Any) -> None:
        existing = self.__dict__.get(name)
        if isinstance(existing, (Parameter, Block)) and not isinstance(value, type(existing)):
            raise TypeError(
                f"Changing attribute type for {name} from {type(existing)} to {type(value)} is not allowed. "
                "Assign the new value to another attribute"
            )
        if isinstance(value, Block):
            self.register_child(value, name)
        elif isinstance(value, Parameter):
            if name in self._reg_params:
                raise AssertionError(
                    f"Overriding Parameter attribute {name} is not allowed. If you want to share parameters between "
                    "blocks, please set 'params' at Block construction instead."
                )
            self._reg_params[name] = value
            if self._twin is not None:
                house(self._twin, name, value)
        super().__setattr__(name, value)

    def _alias(self) -> str:
        return type(self).__name__.lower()

    # ---- names and parameters ----

    @property
    def prefix(self) -> str:
        """The prefix of this Block's parameter names."""
        return self._prefix

    @property
    def name(self) -> str:
        """The name of this Block: its prefix without the trailing underscore."""
        return self._name

    def name_scope(self) -> BlockScope:
        """Return a context manager. Blocks created inside it get this Block's prefix."""
        return self._scope

    @property
    def params(self) -> ParameterDict:
        """The parameters of this Block, without those of its children."""
        return self._params

    def collect_params(self, select: str | None = None) -> ParameterDict:
        """Return the parameters of this Block and its children, or those whose names match the regex `select`."""
        self._check_containers()
        collected = ParameterDict(self._params.prefix)
        pattern = None if select is None else re.compile(select)
        for block in self._walk():
            collected.update(
                {name: param for name, param in block.params.items() if pattern is None or pattern.match(name)}
            )
        return collected

    def _walk(self) -> Iterable[Block]:
        yield self
        for child in self._children.values():
            yield from child._walk()

    def _check_containers(self) -> None:
        """Warn about Blocks in plain lists and dictionaries, whose parameters would not be trained."""
        children = {id(child) for child in self._children.values()}

        def holds_others(value: Any) -> bool:
            if isinstance(value, (list, tuple)):
                return any(holds_others(item) for item in value)
            if isinstance(value, dict):
                return any(holds_others(item) for item in value.values())
            return isinstance(value, Block) and id(value) not in children

        for name, value in vars(self).items():
            if name != "_children" and isinstance(value, (list, tuple, dict)) and holds_others(value):
                warnings.warn(
                    f'"{type(self).__name__}.{name}" is an unregistered container with Blocks: their parameters are '
                    "not collected. Register them with register_child(), or use nn.Sequential/nn.HybridSequential.",
                    stacklevel=3,
                )
        for child in self._children.values():
            child._check_containers()

    def _collect_params_with_prefix(self, prefix: str = "") -> dict[str, Parameter]:
        """The parameters by their position in the structure, such as 'features.0.weight'."""
        prefix = prefix + "." if prefix else ""
        collected = {prefix + name: param for name, param in self._reg_params.items()}
        for name, child in self._children.items():
            collected.update(child._collect_params_with_prefix(prefix + name))
        return collected

    def initialize(self, init: Any = None, ctx: Any = None, verbose: bool = False, force_reinit: bool = False) -> None:
        """Initialize all parameters. Those without their own initializer use `init` (default: Uniform(0.07))."""
        self.collect_params().initialize(init, ctx, verbose, force_reinit)

    # ---- files ----

    def save_parameters(self, filename: str, deduplicate: bool = False) -> None:
        """Write all parameters to a `.params` file, named by their position in the structure."""
        params = self._collect_params_with_prefix()
        if deduplicate:
            last = {id(param): name for name, param in params.items()}
            params = {name: params[name] for name in last.values()}
        save_from(filename, params)

    def load_parameters(
        self,
        filename: str,
        ctx: Any = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        cast_dtype: bool = False,
        dtype_source: str = "current",
    ) -> None:
        """Read parameters from a file that `save_parameters`, `collect_params().save` or `export` wrote.

        If any parameter in the file does not fit, nothing is changed.
        """
        found, source = nd.load(filename), f" in file {filename!r}"
        params = self._collect_params_with_prefix()
        if not found and not params:
            return
        loaded = named(found, source)
        whole_names = not any("." in name for name in loaded) and not loaded.keys() <= params.keys()
        if whole_names:  # the format of old files
            self.collect_params().load_dict(
                loaded, ctx, allow_missing, ignore_extra, self._old_prefix(loaded), filename, cast_dtype, dtype_source
            )
            return
        aliases: dict[int, list[tuple[str, Parameter]]] = {}
        for name, param in params.items():
            aliases.setdefault(id(param), []).append((name, param))
        by_first_name = {names[0][0]: names for names in aliases.values()}
        load_into(by_first_name, loaded, ctx, allow_missing, ignore_extra, cast_dtype, dtype_source, source, ValueError)

    def _old_prefix(self, loaded: Iterable[str]) -> str:
        """The prefix that `collect_params().save(strip_prefix=net.prefix)` removed from the names, or ''."""
        whole = set(self.collect_params().keys())
        plain = set(map(without_kind, loaded))
        return "" if plain & whole or not all(name.startswith(self.prefix) for name in whole) else self.prefix

    def save_params(self, filename: str) -> None:
        """Write all parameters under their full names without the prefix. Deprecated: use `save_parameters`."""
        warnings.warn("save_params is deprecated. Please use save_parameters.", DeprecationWarning, stacklevel=2)
        self.collect_params().save(filename, strip_prefix=self.prefix)

    def load_params(
        self, filename: str, ctx: Any = None, allow_missing: bool = False, ignore_extra: bool = False
    ) -> None:
        """Deprecated alias of `load_parameters`."""
        warnings.warn("load_params is deprecated. Please use load_parameters.", DeprecationWarning, stacklevel=2)
        self.load_parameters(filename, ctx, allow_missing, ignore_extra)

    def save(self, prefix: str) -> None:
        """Write the graphs of the hybridized Blocks and all parameters: `prefix-model.json`, `prefix-model.params`."""
        self.save_parameters(f"{prefix}-model.params")
        model_file.write(f"{prefix}-model.json", self)

    def load(self, prefix: str) -> None:
        """Read files written by `save`, here or in MXNet, into a Block of the same structure.

        Blocks that were hybridized when they were saved are hybridized again.
        """
        hybridized = model_file.read(f"{prefix}-model.json", self)
        self.load_parameters(f"{prefix}-model.params")
        for block, was_so in zip(self._walk(), hybridized, strict=True):
            if was_so and isinstance(block, HybridBlock):
                block._active = True

    # ---- children, hooks ----

    def register_child(self, block: Block, name: str | None = None) -> None:
        """Add `block` as a child, so that its parameters are collected."""
        name = str(len(self._children)) if name is None else name
        self._children[name] = block
        if self._twin is not None:
            self._twin._modules[name] = block.torch()

    def register_forward_pre_hook(self, hook: Callable[[Block, Any], Any]) -> HookHandle:
        """Call `hook(block, inputs)` before each forward."""
        return _attached(self._forward_pre_hooks, hook)

    def register_forward_hook(self, hook: Callable[[Block, Any, Any], Any]) -> HookHandle:
        """Call `hook(block, inputs, output)` after each forward."""
        return _attached(self._forward_hooks, hook)

    def register_op_hook(self, callback: Callable[[str, str, NDArray], Any], monitor_all: bool = False) -> None:
        """Call `callback(name, op, array)` for the outputs of ops in hybridized Blocks; `monitor_all` adds inputs."""
        for child in self._children.values():
            child.register_op_hook(callback, monitor_all)

    def apply(self, fn: Callable[[Block], Any]) -> Block:
        """Call `fn` on every descendant, children before parents, and finally on this Block. Return this Block."""
        for child in self._children.values():
            child.apply(fn)
        fn(self)
        return self

    def hybridize(self, active: bool = True, **kwargs: Any) -> None:
        """Hybridize all children that are HybridBlocks, recursively."""
        for child in self._children.values():
            child.hybridize(active, **kwargs)

    def cast(self, dtype: Any) -> None:
        """Cast all parameters to `dtype`."""
        for child in self._children.values():
            child.cast(dtype)
        for param in self.params.values():
            param.cast(dtype)

    def reset_ctx(self, ctx: Any) -> None:
        """Move all parameters to other contexts."""
        self.collect_params().reset_ctx(ctx)

    def zero_grad(self) -> None:
        """Set all gradients to zero."""
        self.collect_params().zero_grad()

    def summary(self, *inputs: Any) -> None:
        """Print the output shape and number of parameters of each layer for these inputs."""
        print_summary(self, inputs)

    # ---- running ----

    def __call__(self, *args: Any) -> Any:
        if self._twin is not None and self._twin.has_hooks() and not isinstance(next(iter(args), None), Symbol):
            return call_through(self._twin, args)
        return self._run(args)

    def _run(self, args: Any) -> Any:
        for hook in tuple(self._forward_pre_hooks.values()) if self._forward_pre_hooks else ():
            hook(self, args)
        output = self.forward(*args)
        for hook in tuple(self._forward_hooks.values()) if self._forward_hooks else ():
            hook(self, args, output)
        return output

    def forward(self, *args: Any) -> Any:
        """Compute the output. Subclasses must override this method."""
        raise NotImplementedError(f"{type(self).__name__} must override forward")

    def torch(self) -> Twin:
        """Return a torch module that shares this Block's memory, for torch.optim, DDP, torch.compile etc."""
        if self._twin is None:
            self._twin = make_twin(self)
        return self._twin


class HybridBlock(Block):
    """A Block whose `hybrid_forward(F, x, ...)` accepts arrays and symbols, so that `hybridize()` can trace a graph."""

    def __init__(self, prefix: str | None = None, params: ParameterDict | None = None):
        super().__init__(prefix, params)
        self._active = False
        self._backend: str | None = None
        self._backend_options: dict[str, Any] = {}
        self._graphs: dict[str, CachedGraph] = {}  # key: the nesting of the arguments
        self._last_graph: CachedGraph | None = None
        self._op_hook: tuple[Callable[..., Any], bool] | None = None

    def register_child(self, block: Block, name: str | None = None) -> None:
        """Add `block`, which must be a HybridBlock, as a child."""
        if not isinstance(block, HybridBlock):
            raise ValueError(
                f"Children of HybridBlock must also be HybridBlock, but {block!r:.200} has type {type(block)}. If you "
                "are using Sequential, please try HybridSequential instead."
            )
        super().register_child(block, name)
        self._clear_cached_op()

    def _clear_cached_op(self) -> None:
        self._graphs, self._last_graph = {}, None

    def hybridize(
        self,
        active: bool = True,
        backend: str | None = None,
        clear: bool = True,
        static_alloc: bool = False,
        static_shape: bool = False,
        inline_limit: int = 2,
        forward_bulk_size: int | None = None,
        backward_bulk_size: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Run as a graph from the next call on, compiled by torch.compile if `backend` is given, as in 'inductor'.

        MXNet's memory and bulking flags are accepted but ignored: torch allocates memory dynamically. With a backend,
        `kwargs` are passed to torch.compile.
        """
        if backend is not None:
            check_backend(backend)
        self._active, self._backend, self._backend_options = active, backend, kwargs if backend is not None else {}
        if clear:
            self._clear_cached_op()
        if active and (self._forward_hooks or self._forward_pre_hooks):
            warnings.warn(
                f'"{self.name}" is being hybridized while still having forward hook/pre-hook. If "{self.name}" is a '
                "child of HybridBlock, the hooks will not take effect.",
                stacklevel=2,
            )
        super().hybridize(active)

    def cast(self, dtype: Any) -> None:
        """Cast all parameters to `dtype`."""
        self._clear_cached_op()
        super().cast(dtype)

    def optimize_for(self, x: Any, *args: Any, backend: str | None = None, clear: bool = False, **kwargs: Any) -> None:
        """Hybridize with a backend and build the graph for these inputs immediately."""
        self.hybridize(True, backend, clear, **kwargs)
        self._graph_for((x, *args))

    def infer_shape(self, *args: Any) -> None:
        """Infer the shapes of the parameters from these inputs."""
        CachedGraph(self, args).infer_shapes(args)

    def infer_type(self, *args: Any) -> None:
        """Infer the dtypes of the parameters from these inputs."""
        CachedGraph(self, args).infer_types(args)

    def _finish_deferred(self, graph: CachedGraph, args: Any) -> None:
        """Initialize the parameters whose shapes were unknown so far."""
        try:
            graph.infer_shapes(args)
        except (MXNetError, ValueError, TypeError, AssertionError) as error:
            raise ValueError(
                f"Deferred initialization failed because shape cannot be inferred. {self.name}: {error}"
            ) from error
        for param in graph.params:
            param._finish_deferred_init()

    def _graph_for(self, args: Any) -> CachedGraph:
        """The graph for arguments with this nesting."""
        key = _nesting(args)
        graph = self._graphs.get(key)
        if graph is None:
            graph = CachedGraph(self, args)
            if any(param._deferred_init for param in graph.params):
                self._finish_deferred(graph, args)
            graph.compile(self._backend, self._backend_options)
            self._graphs[key] = graph
        if graph is not self._last_graph:  # setting an attribute of a Block is slow
            self._last_graph = graph
        return graph

    @property
    def _cached_graph(self) -> tuple[Any, ...]:
        """The inputs and output of the graph that ran last. Other libraries read it under this name."""
        graph = self._last_graph
        return () if graph is None else ([each for each in graph.inputs if each is not None], graph.symbol)

    def forward(self, x: Any, *args: Any) -> Any:
        """Compute the output with `hybrid_forward`: an array for arrays, a symbol for symbols."""
        if isinstance(x, NDArray):
            if args:
                _refuse_symbols(args)
            if self._runs_graph():
                return self._graph_for((x, *args))((x, *args), self._op_hook)
            return self.hybrid_forward(front_of(x), x, *args, **self._own_arrays(x._ctx, (x, *args)))
        if isinstance(x, Symbol):
            return self._symbolic(x, *args)
        return self._forward_nested(x, *args)

    def _runs_graph(self) -> bool:
        """Whether to run the graph. Torch hooks on children (FSDP2 gathers in them) require separate calls instead."""
        return self._active and (self._twin is None or not self._twin.has_hooks_inside())

    def _own_arrays(self, ctx: Context, args: Any) -> dict[str, NDArray]:
        try:
            return {name: param.data(ctx) for name, param in self._reg_params.items()}
        except DeferredInitializationError:
            self._finish_deferred(CachedGraph(self, args), args)
            for param in self._reg_params.values():  # including those that the graph does not use
                param._finish_deferred_init()
            return {name: param.data(ctx) for name, param in self._reg_params.items()}

    def _symbolic(self, *args: Any) -> Any:
        F = symbol_front_of(next(each for each in flatten(args)[0] if each is not None))
        variables = {name: param.var() for name, param in self._reg_params.items()}
        if F is not symbol:
            variables = {name: each.as_np_ndarray() for name, each in variables.items()}
        with self.name_scope(), _telling_of_symbols(self):
            return self.hybrid_forward(F, *args, **variables)

    def _forward_nested(self, *args: Any) -> Any:
        """Run `forward` when the first argument is a list or a torch tensor."""
        if any(isinstance(arg, torch.Tensor) for arg in args):
            return self.torch()(*args)
        flat, _ = flatten(args)
        arrays = [item for item in flat if isinstance(item, NDArray)]
        if not arrays:
            if any(isinstance(item, Symbol) for item in flat):
                return self._symbolic(*args)
            raise ValueError(
                "In HybridBlock, there must be one NDArray or one Symbol in the input, received "
                f"{', '.join(type(arg).__name__ for arg in args) or 'nothing'}"
            )
        if self._runs_graph():
            return self._graph_for(args)(args, self._op_hook)
        return self.hybrid_forward(front_of(arrays[0]), *args, **self._own_arrays(arrays[0]._ctx, args))

    def hybrid_forward(self, F: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Compute the output with `F` (`mx.nd` or `mx.sym`). Parameters are passed by the names of their attributes."""
        raise NotImplementedError(f"{type(self).__name__} must override hybrid_forward")

    def register_op_hook(self, callback: Callable[[str, str, NDArray], Any], monitor_all: bool = False) -> None:
        """Call `callback(name, op, array)` for the outputs of all ops in the graph; `monitor_all` adds inputs."""
        self._op_hook = (callback, monitor_all)
        super().register_op_hook(callback, monitor_all)

    def export(self, path: str, epoch: int = 0, remove_amp_cast: bool = True) -> None:
        """Write `path-symbol.json` and `path-0000.params`, which MXNet and `SymbolBlock.imports` can load."""
        if self._last_graph is None:
            raise RuntimeError(
                "Please first call block.hybridize() and then run forward with this block at least once before calling "
                "export."
            )
        graph = self._last_graph
        auxiliary = set(graph.symbol.list_auxiliary_states())
        params = {f"{'aux' if param.name in auxiliary else 'arg'}:{param.name}": param for param in graph.params}
        save_from(f"{path}-{epoch:04d}.params", params)  # first, because the disk may be full
        graph.symbol.save(f"{path}-symbol.json", remove_amp_cast=remove_amp_cast)


@contextmanager
def _telling_of_symbols(block: Block) -> Iterator[None]:
    """Extend an error that `hybrid_forward` raised on a symbol with the reason why it received symbols."""
    try:
        yield
    except Exception as error:
        if "Symbol" in str(error) and "was given symbols" not in str(error):
            error.args = (
                f"{error}. {type(block).__name__} {block.name!r} was given symbols, to trace its graph (hybridize) or "
                "to infer shapes. Symbols have no values, shape or elements. Compute only with F and the arguments, "
                "or move that part into a Block that is not hybridized",
            )
        raise


def _nesting(args: Any) -> str:
    """A key for the nesting of the arguments."""
    for arg in args:
        if not isinstance(arg, NDArray):
            flat, nesting = flatten(args)
            return repr(nesting) + front_of(next(each for each in flat if each is not None)).__name__
    return ("n" if isinstance(args[0], ndarray) else "a") * len(args)


def _refuse_symbols(args: Any) -> None:
    """Raise if symbols are mixed with an array. The states from a modifier cell's `begin_state` can be symbols."""
    for arg in args:
        if isinstance(arg, Symbol) or (
            isinstance(arg, (list, tuple)) and any(isinstance(each, Symbol) for each in arg)
        ):
            raise ValueError(
                "In HybridBlock, arrays and symbols cannot be mixed in the input. If these are states, "
                "create them as arrays: begin_state(batch_size=..., func=nd.zeros)"
            )


class SymbolBlock(HybridBlock):
    """A Block that runs a Symbol. `SymbolBlock.imports` reads one from a file."""

    def __init__(self, outputs: Any, inputs: Any, params: Any = None):
        super().__init__(prefix=None, params=None)
        self._prefix = ""
        shared = params if isinstance(params, ParameterDict) or params is None else _as_parameters(params)
        self._params = ParameterDict("", shared)
        inputs = [inputs] if isinstance(inputs, Symbol) else list(inputs)
        if isinstance(outputs, (list, tuple)) and len(outputs) == 1:
            outputs = outputs[0]
        for each in flatten(inputs)[0]:
            if len(each.list_inputs()) != 1 or each.list_inputs() != each.list_outputs():
                raise AssertionError(f"Input symbols must be variable, but {each} is an output of operators")
        self._outputs, self._inputs = outputs, inputs
        self._register_parameters()
        self._active = True

    def _register_parameters(self) -> None:
        graph = joined(flatten(self._outputs)[0])
        fed = {each.name for each in flatten(self._inputs)[0]}
        auxiliary = set(graph.list_auxiliary_states())
        types = dict(zip(graph.list_arguments(), graph.infer_type_partial()[0] or [], strict=False))
        names = [name for name in (*graph.list_arguments(), *graph.list_auxiliary_states()) if name not in fed]
        common = _common_prefix(names)
        for name in names:
            param = self._params._get_impl(name)
            if param is None:
                trained, dtype = name not in auxiliary, types.get(name)
                param = self._params.get(
                    name,
                    grad_req="write" if trained else "null",
                    differentiable=trained,
                    allow_deferred_init=True,
                    **({} if dtype is None else {"dtype": dtype}),
                )
            self._reg_params[name[len(common) :]] = param

    @staticmethod
    def imports(
        symbol_file: str,
        input_names: str | list[str],
        param_file: str | None = None,
        ctx: Any = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
    ) -> SymbolBlock:
        """Return a SymbolBlock read from files that `export` wrote, here or in MXNet."""
        graph = symbol.load(symbol_file)
        names = [input_names] if isinstance(input_names, str) else list(input_names)
        unknown = [name for name in names if name not in graph.list_arguments()]
        block = SymbolBlock(graph, [symbol.var(name) for name in names])
        if param_file is not None:
            try:
                block.collect_params().load(
                    param_file, ctx, allow_missing, ignore_extra, cast_dtype=True, dtype_source="saved"
                )
            except AssertionError as error:
                hint = f" The graph has no input {', '.join(map(repr, unknown))}." if unknown else ""
                raise AssertionError(f"{error}{hint}") from None
        elif ctx is not None:
            block.collect_params().initialize(ctx=ctx)
        return block

    def __repr__(self) -> str:
        outputs = len(flatten(self._outputs)[0])
        return f"{type(self).__name__}(\n{self._outputs!r} : {len(self._inputs)} -> {outputs}\n)"

    def _symbolic(self, *args: Any) -> Any:
        """The graph with its inputs replaced by `args`."""
        flat, nesting = flatten(self._outputs)
        whole = joined(flat)
        known = set(whole.list_inputs())
        inputs, given = flatten(self._inputs)[0], flatten(args)[0]
        if len(inputs) != len(given):
            names = ", ".join(each.name for each in inputs)
            raise ValueError(f"{self.name} expects {len(inputs)} input(s), {names}; received {len(given)}")
        named = zip(inputs, given, strict=True)
        composed = whole(**{each.name: arg for each, arg in named if each.name in known})
        if len(flat) == 1:
            return composed if nesting == ARRAY else [composed[i] for i in range(len(composed))]
        parts, at = [], 0
        for each in flat:
            count = len(each.list_outputs())
            parts.append(composed[at] if count == 1 else symbol.Group([composed[at + i] for i in range(count)]))
            at += count
        return parts

    def hybridize(self, active: bool = True, *args: Any, **kwargs: Any) -> None:
        """Compile the graph if a backend is given. A SymbolBlock always runs as a graph, regardless of `active`."""
        super().hybridize(True, *args, **kwargs)

    def hybrid_forward(self, F: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the graph applied to these symbols."""
        return self._symbolic(x, *args)


def _as_parameters(arrays: dict[str, Any]) -> ParameterDict:
    """Convert arrays or Parameters by name to a ParameterDict."""
    params = ParameterDict("")
    for name, value in arrays.items():
        if isinstance(value, Parameter):
            params._params[name] = value
        else:
            params.get(without_kind(name), shape=value.shape, dtype=value.dtype)._load_init(value, None)
    return params


def _common_prefix(names: list[str]) -> str:
    """The longest common prefix of the names that ends in an underscore."""
    if not names:
        return ""
    first, last = min(names), max(names)  # all names in between share their common prefix
    length = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[: first.rfind("_", 0, length) + 1]
