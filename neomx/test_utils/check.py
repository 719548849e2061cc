"""Checks of symbols, Blocks and optimizers: against expected values, numeric gradients, or each other."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import autograd, symbol
from ..context import Context, current_context
from ..executor import Executor
from ..ndarray import NDArray, array, waitall
from ..symbol import Symbol
from .arrays import default_context, rand_ndarray
from .compare import (
    Tolerance,
    assert_almost_equal,
    compare_ndarray_tuple,
    default_numeric_eps,
    get_atol,
    get_rtol,
)

Arrays = dict[str, NDArray]


def _placed(value: Any, ctx: Context, dtype: Any) -> NDArray:
    """Convert a value to an array; an array keeps its dtype and storage type."""
    if isinstance(value, NDArray):
        return value.copyto(ctx) if value.context != ctx else value
    return array(value, ctx=ctx, dtype=dtype)


def _by_name(what: str, names: Sequence[str], given: Any, ctx: Context, dtype: Any) -> Arrays:
    """Return arrays by name, from a dict or from a list in the order of the names."""
    assert isinstance(given, (dict, list, tuple)), f"{what} must be a dict or a list, received {type(given).__name__}"
    if isinstance(given, dict):
        if set(given) != set(names):
            raise ValueError(
                f"Symbol arguments and keys of the given {what} do not match. "
                f"symbol args: {sorted(names)}, {what} keys: {sorted(given)}"
            )
        values = [given[name] for name in names]
    else:
        if len(given) != len(names):
            raise ValueError(f"{what} has {len(given)} values, expected one for each of {', '.join(names)}")
        values = list(given)
    return {name: _placed(value, ctx, dtype) for name, value in zip(names, values, strict=True)}


def _auxiliary(sym: Symbol, given: Any, ctx: Context, dtype: Any) -> Arrays:
    names = sym.list_auxiliary_states()
    if given is None:
        if names:
            raise ValueError(f"Length of aux_states does not match the number of arguments: expected {names}")
        return {}
    return _by_name("aux_states", names, given, ctx, dtype)


def simple_forward(sym: Symbol, ctx: Context | None = None, is_train: bool = False, **inputs: Any) -> Any:
    """Return the output of a symbol for numpy arrays: a numpy array, or a list of them."""
    ctx = ctx or default_context()
    executor = sym.bind(ctx, args={name: array(value, ctx=ctx) for name, value in inputs.items()})
    executor.forward(is_train=is_train)
    outputs = [output.asnumpy() for output in executor.outputs]
    return outputs[0] if len(outputs) == 1 else outputs


def _expected(sym: Symbol, expected: Any, names: Sequence[str]) -> dict[str, Any]:
    return expected if isinstance(expected, dict) else dict(zip(names, expected, strict=True))


def check_symbolic_forward(
    sym: Symbol,
    location: Any,
    expected: Any,
    rtol: Tolerance = None,
    atol: Tolerance = None,
    aux_states: Any = None,
    ctx: Context | None = None,
    equal_nan: bool = False,
    dtype: Any = np.float32,
) -> list[NDArray]:
    """Assert that the outputs of a symbol for `location` are the `expected` ones; return the outputs.

    Both arguments are lists, or dicts by the names of arguments and outputs.
    """
    ctx = ctx or default_context()
    args = _by_name("location", sym.list_arguments(), location, ctx, dtype)
    executor = sym.bind(ctx, args=args, aux_states=_auxiliary(sym, aux_states, ctx, dtype))
    executor.forward(is_train=False)
    names = sym.list_outputs()
    wanted = _expected(sym, expected, names)
    for name, output in zip(names, executor.outputs, strict=True):
        if name in wanted:
            labels = f"EXPECTED_{name}", f"FORWARD_{name}"
            assert_almost_equal(wanted[name], output, rtol, atol, labels, equal_nan)
    return executor.outputs


def check_symbolic_backward(
    sym: Symbol,
    location: Any,
    out_grads: Any,
    expected: Any,
    rtol: Tolerance = None,
    atol: Tolerance = None,
    aux_states: Any = None,
    grad_req: Any = "write",
    ctx: Context | None = None,
    grad_stypes: dict[str, str] | None = None,
    equal_nan: bool = False,
    dtype: Any = np.float32,
) -> Arrays:
    """Assert that the gradients of a symbol for `out_grads` at `location` are the `expected` ones; return them.

    With grad_req 'add' gradients are accumulated to the existing values; with 'null' none may be computed.
    """
    ctx = ctx or default_context()
    names = sym.list_arguments()
    args = _by_name("location", names, location, ctx, dtype)
    wanted = _expected(sym, expected, names)
    before = {name: np.random.normal(size=args[name].shape) for name in wanted}
    stypes = grad_stypes or {}
    grads = {
        name: array(before[name], ctx=ctx, dtype=args[name].dtype).tostype(stypes.get(name, "default"))
        for name in wanted
    }
    requests = _requests(grad_req, names, wanted)
    executor = sym.bind(ctx, args, grads, requests, _auxiliary(sym, aux_states, ctx, dtype))
    executor.forward(is_train=True)
    if isinstance(out_grads, dict):
        out_grads = [out_grads[name] for name in sym.list_outputs()]
    heads = None if out_grads is None else [_placed(each, ctx, dtype) for each in out_grads]
    executor.backward(heads)
    for name, gradient in grads.items():
        request = requests[name]
        target = wanted[name] if request == "write" else before[name]
        if request == "add":
            target = before[name] + getattr(wanted[name], "asnumpy", lambda name=name: wanted[name])()
        assert_almost_equal(target, gradient, rtol, atol, (f"EXPECTED_{name}", f"BACKWARD_{name}"), equal_nan)
    return grads


def _requests(grad_req: Any, names: Sequence[str], wanted: Any) -> dict[str, str]:
    """Return the grad_req of each argument; 'null' for arguments whose gradient is not needed."""
    if isinstance(grad_req, str):
        given = dict.fromkeys(names, grad_req)
    else:
        given = dict(grad_req) if isinstance(grad_req, dict) else dict(zip(names, grad_req, strict=True))
    return {name: given.get(name, "null") if name in wanted else "null" for name in names}


# ---- numeric gradients ----


def numeric_grad(
    executor: Executor,
    location: dict[str, Any],
    aux_states: dict[str, Any] | None = None,
    eps: float = 1e-4,
    use_forward_train: bool = True,
    dtype: Any = np.float32,
) -> dict[str, np.ndarray]:
    """Return the gradient of the sum of an executor's outputs, by finite differences of step `eps` at `location`."""
    gradients = {}
    for name, value in (aux_states or {}).items():
        executor.aux_dict[name][:] = value
    for name, value in location.items():
        executor.arg_dict[name][:] = value
    for name, value in location.items():
        values = np.array(value.asnumpy() if isinstance(value, NDArray) else value, dtype=dtype)
        gradient = np.zeros(values.shape, dtype=dtype)
        for place in np.ndindex(*values.shape):
            centre, ends = values[place], []
            for step in (eps / 2, -eps / 2):
                values[place] = centre + step
                executor.arg_dict[name][:] = values
                for state, start in (aux_states or {}).items():
                    executor.aux_dict[state][:] = start  # the forward pass may have changed it
                executor.forward(is_train=use_forward_train)
                ends.append([output.asnumpy() for output in executor.outputs])
            values[place] = centre
            # Subtract element by element, so that unchanged elements leave no rounding error.
            gradient[place] = sum((above - below).sum() for above, below in zip(*ends, strict=True)) / eps
        executor.arg_dict[name][:] = values
        gradients[name] = gradient
    return gradients


def check_numeric_gradient(
    sym: Symbol,
    location: Any,
    aux_states: Any = None,
    numeric_eps: float | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    grad_nodes: Any = None,
    use_forward_train: bool = True,
    ctx: Context | None = None,
    grad_stype_dict: dict[str, str] | None = None,
    dtype: Any = np.float32,
) -> None:
    """Assert that the gradients of a symbol at `location` match finite differences of step `numeric_eps`.

    The outputs are summed with random weights. `grad_nodes` are the arguments to check: a list, or a dict with their
    grad_req (default: all).
    """
    dtype = np.dtype(dtype)
    assert dtype.kind == "f", f"dtype must be float16, float32 or float64, received {dtype}"
    ctx = ctx or default_context()
    args = _by_name("location", sym.list_arguments(), location, ctx, dtype)
    start = {name: value.asnumpy() for name, value in args.items()}
    states = _auxiliary(sym, aux_states, ctx, dtype)
    before = {name: value.asnumpy() for name, value in states.items()}
    if not isinstance(grad_nodes, (list, tuple, dict, type(None))):
        raise ValueError(f"grad_nodes must be a list or a dict, received {type(grad_nodes).__name__}")
    nodes = list(args) if grad_nodes is None else list(grad_nodes)
    asked = grad_nodes if isinstance(grad_nodes, dict) else dict.fromkeys(nodes, "write")
    loss, weights = _weighted(sym, args, dtype)
    args.update({name: array(value, ctx=ctx, dtype=dtype) for name, value in weights.items()})
    first = {name: np.random.normal(0, 0.01, size=args[name].shape).astype(dtype) for name in nodes}
    stypes = grad_stype_dict or {}
    grads = {name: array(first[name], ctx=ctx, dtype=dtype).tostype(stypes.get(name, "default")) for name in nodes}
    executor = loss.bind(ctx, args, grads, _requests(asked, list(args), nodes), states)
    executor.forward(is_train=True)
    executor.backward()
    symbolic = {name: gradient.asnumpy() for name, gradient in grads.items()}
    numeric = numeric_grad(
        executor,
        {name: start[name] for name in nodes},
        before,
        default_numeric_eps()[dtype] if numeric_eps is None else numeric_eps,
        use_forward_train,
        dtype,
    )
    rtol, atol = (
        rtol if rtol is not None else get_rtol(dtype=dtype),
        atol if atol is not None else get_atol(dtype=dtype),
    )
    for name in nodes:
        target = {"write": numeric[name], "add": numeric[name] + first[name], "null": first[name]}[asked[name]]
        assert_almost_equal(target, symbolic[name], rtol, atol, (f"NUMERICAL_{name}", f"BACKWARD_{name}"))


def _weighted(sym: Symbol, args: Arrays, dtype: np.dtype) -> tuple[Symbol, dict[str, np.ndarray]]:
    """Return a loss symbol of the outputs times random weights, and the weights, which are new arguments."""
    shapes = sym.infer_shape(**{name: value.shape for name, value in args.items()})[1]
    weights = {f"__random_proj{i}": (np.random.rand(*shape) + 0.1).astype(dtype) for i, shape in enumerate(shapes)}
    variables = [symbol.var(name, shape=value.shape, dtype=dtype.name) for name, value in weights.items()]
    return symbol.Group([symbol.make_loss(out * weight) for out, weight in zip(sym, variables, strict=True)]), weights


# ---- comparisons ----


def check_consistency(
    sym: Any,
    ctx_list: Sequence[dict[str, Any]],
    scale: float = 1.0,
    grad_req: Any = "write",
    arg_params: dict[str, Any] | None = None,
    aux_params: dict[str, Any] | None = None,
    rtol: Tolerance = None,
    atol: Tolerance = None,
    raise_on_err: bool = True,
    ground_truth: dict[str, Any] | None = None,
    equal_nan: bool = False,
    use_uniform: bool = False,
    rand_type: Any = np.float64,
) -> dict[str, Any]:
    """Assert that a symbol computes the same values on several contexts or with several dtypes.

    Each item of `ctx_list` has a 'ctx', the shapes of the inputs by name, and a 'type_dict'. The reference is
    `ground_truth`, or else the run with the most precise dtype. Returns the outputs and gradients of the reference by
    name.
    """
    assert len(ctx_list) > 1, f"expected at least two contexts to compare, received {len(ctx_list)}"
    symbols = [sym] * len(ctx_list) if isinstance(sym, Symbol) else list(sym)
    names = [(each.list_outputs(), each.list_arguments()) for each in symbols]
    assert len(symbols) == len(ctx_list) and all(each == names[0] for each in names), (
        "expected one symbol per context, all with the same arguments and outputs"
    )
    executors = [each.simple_bind(grad_req=grad_req, **spec) for each, spec in zip(symbols, ctx_list, strict=True)]
    _fill(executors, scale, arg_params, aux_params, use_uniform, rand_type, grad_req)
    dtypes = [np.dtype(executor.outputs[0].dtype) for executor in executors]
    best = max(range(len(executors)), key=lambda number: dtypes[number].itemsize)
    truth = ground_truth
    for training in (False, True) if grad_req != "null" else (False,):
        for executor in executors:
            executor.forward(is_train=training)
        for executor in executors if training else ():
            pairs = zip(executors[best].outputs, executor.outputs, strict=True)
            executor.backward([head.astype(own.dtype).as_in_context(own.context) for head, own in pairs])
        results = [_results(executor, training) for executor in executors]
        measure = truth if truth is not None else results[best]
        _compare(results, measure, best, training, ctx_list, dtypes, rtol, atol, equal_nan, raise_on_err)
    return truth if truth is not None else results[best]


def _fill(
    executors: Sequence[Executor],
    scale: float,
    arg_params: dict[str, Any] | None,
    aux_params: dict[str, Any] | None,
    use_uniform: bool,
    rand_type: Any,
    grad_req: Any,
) -> None:
    """Set the same arguments in all executors: the given ones, and random values for the others."""
    values = dict(arg_params or {})
    for name, value in executors[0].arg_dict.items():
        if name not in values:
            draw = np.random.uniform(-scale, scale, value.shape) if use_uniform else None
            values[name] = np.random.normal(size=value.shape, scale=scale) if draw is None else draw
            values[name] = values[name].astype(rand_type)
    for executor in executors:
        for name, value in executor.arg_dict.items():
            value[:] = values[name]
        for name, value in executor.aux_dict.items():
            value[:] = (aux_params or {}).get(name, 0)
        for gradient in executor.grad_dict.values():
            if gradient is not None:
                gradient[:] = 0


def _results(executor: Executor, training: bool) -> dict[str, NDArray]:
    results = {name: value.copy() for name, value in executor.output_dict.items()}
    if training:
        results.update({name: value.copy() for name, value in executor.grad_dict.items() if value is not None})
    return results


def _compare(
    results: Sequence[dict[str, NDArray]],
    measure: dict[str, Any],
    best: int,
    training: bool,
    ctx_list: Sequence[dict[str, Any]],
    dtypes: Sequence[np.dtype],
    rtol: Tolerance,
    atol: Tolerance,
    equal_nan: bool,
    raise_on_err: bool,
) -> None:
    for number, result in enumerate(results):
        if number == best:
            continue
        for name, value in result.items():
            if name not in measure:
                continue
            try:
                assert_almost_equal(value, measure[name], rtol, atol, equal_nan=equal_nan)
            except AssertionError as error:
                here, there = (f"{dtypes[i]} {ctx_list[i]['ctx']} ctx {i}" for i in (number, best))
                print(f"{'Train' if training else 'Predict'} Err: {here} vs {there} at {name}")
                if raise_on_err:
                    raise
                print(error)


def check_gluon_hybridize_consistency(
    net_builder: Callable[..., Any],
    data_l: Sequence[NDArray],
    numpy_func: Callable[..., Any] | None = None,
    test_grad: bool = True,
    rtol: float = 1e-4,
    atol: float = 1e-4,
) -> None:
    """Assert that the outputs and gradients of a HybridBlock do not change by hybridizing, and match `numpy_func`.

    `net_builder(prefix=..., params=...)` constructs the block.
    """
    shared = net_builder(prefix="net_")
    shared.initialize()
    measure: tuple[Any, ...] | None = None
    for hybridized in (False, True):
        net = net_builder(prefix="net_", params=shared.collect_params())
        if hybridized:
            net.hybridize()
        inputs = [each.copy() for each in data_l]
        for each in inputs:
            each.attach_grad()
        with autograd.record(train_mode=test_grad):
            output = net(*inputs)
        gradients: list[Any] = []
        if test_grad:
            output.backward()
            gradients = [each.grad for each in inputs]
            gradients += [param.grad() for param in net.collect_params().values() if param.grad_req != "null"]
        found = tuple(each.asnumpy() for each in (output, *gradients))
        if measure is None:
            measure = found
        compare_ndarray_tuple(found, measure, rtol, atol)
    if numpy_func is not None and measure is not None:
        assert_almost_equal(measure[0], numpy_func(*[each.asnumpy() for each in data_l]), rtol, atol)


def compare_optimizer(
    opt1: Any,
    opt2: Any,
    shape: Any,
    dtype: Any,
    w_stype: str = "default",
    g_stype: str = "default",
    rtol: float = 1e-4,
    atol: float = 1e-5,
    compare_states: bool = True,
    ntensors: int = 1,
) -> None:
    """Assert that two optimizers compute equal weights and states from the same weights and gradients."""
    shapes = [shape] * ntensors if not isinstance(shape, list) else shape
    weights, gradients = [], []
    for each in shapes:
        weights.append(rand_ndarray(each, w_stype, density=1, dtype=dtype))
        gradients.append(rand_ndarray(each, g_stype, dtype=dtype))
    results = []
    for optimizer in (opt1, opt2):
        mine = [weight.copy() for weight in weights]
        numbers = list(range(len(mine)))
        states = [optimizer.create_state_multi_precision(i, weight) for i, weight in enumerate(mine)]
        if len(mine) == 1:
            optimizer.update_multi_precision(0, mine[0], gradients[0].copy(), states[0])
        else:
            optimizer.update_multi_precision(numbers, mine, [each.copy() for each in gradients], states)
        results.append((states, mine))
    for (state1, weight1), (state2, weight2) in zip(*(zip(*each, strict=True) for each in results), strict=True):
        if compare_states:
            compare_ndarray_tuple(state1, state2, rtol, atol)
        assert_almost_equal(weight1, weight2, rtol, atol)


def check_speed(
    sym: Symbol,
    location: dict[str, Any] | None = None,
    ctx: Context | None = None,
    N: int = 20,
    grad_req: str | None = None,
    typ: str = "whole",
    **kwargs: Any,
) -> float:
    """Return the mean time in seconds over `N` runs of a symbol: forward and backward ('whole') or only 'forward'.

    Arguments are taken from `location`, or drawn at random with the shapes in `kwargs`.
    """
    if typ not in ("whole", "forward"):
        raise ValueError('typ can only be "whole" or "forward".')
    ctx = ctx or current_context()
    shapes = kwargs if location is None else {name: np.shape(value) for name, value in location.items()}
    executor = sym.simple_bind(ctx, grad_req=grad_req or "write", **shapes)
    for name, value in executor.arg_dict.items():
        value[:] = np.random.normal(size=value.shape) if location is None else location[name]

    def once() -> None:
        executor.forward(is_train=typ == "whole")
        if typ == "whole":
            executor.backward(executor.outputs)

    once()  # warm up, so that one-time initialization is not measured
    waitall()
    began = time.time()
    for _ in range(N):
        once()
    waitall()
    return (time.time() - began) / N
