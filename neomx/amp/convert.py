"""Conversion of trained networks to mixed precision: inserts casts into graphs and casts parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import symbol
from ..base import MXNetError
from ..context import Context, current_context, gpu, num_gpus
from ..dtype import NAME_OF_TORCH
from ..gluon.block import HybridBlock, SymbolBlock
from ..ndarray import NDArray
from ..symbol import Symbol
from .graph import Conversion
from .lists import (
    list_conditional_fp32_ops,
    list_fp32_ops,
    list_lp16_fp32_ops,
    list_lp16_ops,
    low_precision,
)
from .policy import Policy

Conditional = Sequence[tuple[str, str, Sequence[str]]]


def convert_symbol(
    sym: Symbol,
    target_dtype: Any = "float16",
    target_dtype_ops: Sequence[str] | None = None,
    fp32_ops: Sequence[str] | None = None,
    conditional_fp32_ops: Conditional | None = None,
    excluded_sym_names: Sequence[str] | None = None,
    data_names: Sequence[str] | None = None,
    cast_optional_params: bool = False,
) -> Symbol:
    """Return the symbol with casts before its ops and with float32 outputs.

    Given lists replace MXNet's. Nodes named in `excluded_sym_names` stay in float32. With `data_names`, all other
    variables are parameters, and `cast_optional_params` stores those in the target dtype that would be cast to it.
    """
    return _convert(
        sym, target_dtype, target_dtype_ops, fp32_ops, conditional_fp32_ops, excluded_sym_names, data_names,
        cast_optional_params,
    ).symbol  # fmt: skip


def _convert(
    sym: Any,
    target_dtype: Any,
    low: Any,
    high: Any,
    conditional: Any,
    excluded: Any,
    data: Any,
    cast_params: bool,
) -> Conversion:
    if not isinstance(sym, Symbol):
        raise AssertionError(f"expected a Symbol, received {type(sym).__name__} {sym!r:.80}")
    target = low_precision(target_dtype)
    for name, value in (("target_dtype_ops", low), ("fp32_ops", high), ("excluded_sym_names", excluded)):
        _check_names(name, value)
    _check_conditional(conditional)
    strange = set(data or ()) - set(sym.list_inputs())
    if strange:
        raise MXNetError(
            f"data_names: {sorted(strange)} are not inputs of the symbol, which has {sym.list_inputs()[:20]}"
        )
    low = list_lp16_ops(target) if low is None else low
    _check_distinct(target, low, high, conditional)
    policy = Policy.of(target, low, high, conditional)
    return Conversion(sym, policy, excluded or (), data, cast_params)


def _check_names(name: str, value: Any) -> None:
    if value is not None and not (isinstance(value, (list, tuple)) and all(isinstance(v, str) for v in value)):
        raise AssertionError(f"{name} must be a list of names, received {value!r:.80}")


def _check_conditional(given: Any) -> None:
    if given is not None and not all(isinstance(each, (list, tuple)) and len(each) == 3 for each in given):
        raise AssertionError(f"conditional_fp32_ops must be a list of (op, attribute, values), received {given!r:.80}")


def _check_distinct(target: Any, low: Any, high: Any, conditional: Any) -> None:
    conditional = list_conditional_fp32_ops(target) if conditional is None else conditional
    high = list_fp32_ops(target) if high is None else high
    known = {*list_lp16_ops(target), *list_fp32_ops(target), *list_lp16_fp32_ops(target)}
    under_condition = {op for op, _, _ in conditional}
    unknown = {*low, *high} - known - under_condition
    if unknown:
        raise AssertionError(
            f"ops must be in list_lp16_ops, list_fp32_ops or list_lp16_fp32_ops; {sorted(unknown)} are in none of them"
        )
    twice = set(low) & set(high) | set(low) & under_condition | set(high) & under_condition
    if twice:
        raise AssertionError(
            f"{sorted(twice)} are in several of target_dtype_ops, fp32_ops, conditional_fp32_ops. List each only once"
        )


def convert_model(
    sym: Symbol,
    arg_params: dict[str, NDArray],
    aux_params: dict[str, NDArray],
    target_dtype: Any = "float16",
    target_dtype_ops: Sequence[str] | None = None,
    fp32_ops: Sequence[str] | None = None,
    conditional_fp32_ops: Conditional | None = None,
    excluded_sym_names: Sequence[str] | None = None,
    cast_optional_params: bool = False,
) -> tuple[Symbol, dict[str, NDArray], dict[str, NDArray]]:
    """Return (symbol, arguments, auxiliary states) with casts, as `convert_symbol`. Other variables are data."""
    for name, params in (("arg_params", arg_params), ("aux_params", aux_params)):
        if not isinstance(params, dict):
            raise AssertionError(f"{name} must be a dict of names and arrays, received {type(params).__name__}")
    if not isinstance(sym, Symbol):
        raise AssertionError(f"expected a Symbol, received {type(sym).__name__} {sym!r:.80}")
    data = [name for name in sym.list_inputs() if name not in arg_params and name not in aux_params]
    made = _convert(
        sym, target_dtype, target_dtype_ops, fp32_ops, conditional_fp32_ops, excluded_sym_names, data,
        cast_optional_params,
    )  # fmt: skip
    dtype = NAME_OF_TORCH[made.policy.target]
    arguments, states = (
        {name: array.astype(dtype) if name in made.in_target else array for name, array in params.items()}
        for params in (arg_params, aux_params)
    )
    return made.symbol, arguments, states


def convert_hybrid_block(
    block: HybridBlock,
    target_dtype: Any = "float16",
    target_dtype_ops: Sequence[str] | None = None,
    fp32_ops: Sequence[str] | None = None,
    conditional_fp32_ops: Conditional | None = None,
    excluded_sym_names: Sequence[str] | None = None,
    ctx: Context | None = None,
    cast_optional_params: bool = False,
) -> SymbolBlock:
    """Return a SymbolBlock with casts and its own parameters, from a block that was hybridized and run once.

    `ctx` defaults to the first GPU if there is one, otherwise to the current context.
    """
    if not isinstance(block, HybridBlock):
        raise AssertionError(f"block must be a HybridBlock, received {type(block).__name__} {block!r:.80}")
    graph = block._last_graph
    if graph is None:
        raise RuntimeError("the block has no graph to convert: call block.hybridize() and run it once first")
    sym = symbol.load_json(graph.symbol.tojson())  # without the casts of amp.init
    values = {param.name: param._reduce() for param in graph.params}
    states = set(sym.list_auxiliary_states())
    sym, arguments, auxiliary = convert_model(
        sym,
        {name: value for name, value in values.items() if name not in states},
        {name: value for name, value in values.items() if name in states},
        target_dtype, target_dtype_ops, fp32_ops, conditional_fp32_ops, excluded_sym_names, cast_optional_params,
    )  # fmt: skip
    made = SymbolBlock(sym, [symbol.var(str(each.name)) for each in graph.inputs if each is not None])
    for name, param in made.collect_params().items():
        value = arguments[name] if name in arguments else auxiliary[name]
        param.cast(value.dtype)
        param._load_init(value, ctx or (gpu(0) if num_gpus() else current_context()))
    return made


def convert_bucketing_module(
    bucketing_mod: Any,
    target_dtype: Any = "float16",
    target_dtype_ops: Sequence[str] | None = None,
    fp32_ops: Sequence[str] | None = None,
    conditional_fp32_ops: Conditional | None = None,
    excluded_sym_names: Sequence[str] | None = None,
    cast_optional_params: bool = False,
) -> Any:
    """Return a new, unbound BucketingModule with casts in the symbols of all existing buckets of this one."""
    from ..module import BucketingModule

    if not isinstance(bucketing_mod, BucketingModule):
        raise AssertionError(f"expected a BucketingModule, received {type(bucketing_mod).__name__}")
    if not bucketing_mod._buckets:
        raise AssertionError("the BucketingModule has no buckets yet: call bind and init_params first")
    params = bucketing_mod.get_params()
    symbols = {}
    for key, module in bucketing_mod._buckets.items():
        symbols[key], *converted = convert_model(
            module.symbol, *params, target_dtype, target_dtype_ops, fp32_ops, conditional_fp32_ops,
            excluded_sym_names, cast_optional_params,
        )  # fmt: skip
    key, settings = bucketing_mod._default_bucket_key, bucketing_mod._settings
    return BucketingModule.load_dict(symbols, bucketing_mod._sym_gen, key, *converted, **settings)
