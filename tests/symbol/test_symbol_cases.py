"""Every op as a symbol: names, JSON, shapes and dtypes, compared with MXNet 1.9.1 for each parity case."""

import gzip
import json
import pathlib
import zlib

import numpy as np
import pytest

import neomx as mx
from neomx.ops import OPS
from parity import spec, symbol_cases, tolerance
from parity.recordings import FAMILIES, recorded

PATH = pathlib.Path(__file__).resolve().parents[1] / "parity" / "recorded" / "symbol_cases.json.gz"
RECORDED = json.loads(gzip.decompress(PATH.read_bytes()))
EXACT = ("json", "arguments", "states", "outputs", "made inputs", "shapes", "dtypes")
# MXNet infers an output from its attributes alone (wrongly for Concat), but neomx requires all inputs.
NOT_FROM_THE_FIRST = {"amp_multicast", "multi_all_finite", "multi_sum_sq", "scatter_nd", "_rnn_param_concat", "Concat"}


def by_name_only(case):
    """Whether it omits the third positional input, which a symbol only accepts by name, as in MXNet."""
    return case.attrs.get("use_label_lengths", False) and not case.attrs.get("use_data_lengths", False)


def cases_of(family):
    cases = spec.CASES[family].values()
    return [case for case in cases if isinstance(case, spec.Case) and not by_name_only(case)]


def agrees(ours, theirs):
    """Whether everything that MXNet infers is also inferred here."""
    if isinstance(theirs, list) and theirs:
        return len(ours) == len(theirs) and all(agrees(a, b) for a, b in zip(ours, theirs, strict=True))
    return theirs in (None, 0, []) or ours == theirs


@pytest.mark.parametrize("family", [f for f in FAMILIES if cases_of(f)])
def test_symbols_match_mxnet(family):
    for case in cases_of(family):
        expected = RECORDED.get(case.id)
        if expected is None:  # MXNet has no such symbol, e.g. for optimizer steps
            continue
        received = json.loads(json.dumps(symbol_cases.facts(mx, case)))
        for key in EXACT:
            if expected[key] != "refused":
                assert received[key] == expected[key], (case.id, key)
        for key in ("shapes from the first", "dtypes from the first"):
            if expected.get(key, "refused") != "refused" and case.op not in NOT_FROM_THE_FIRST:
                assert agrees(received[key], expected[key]), (case.id, key)
        assert mx.sym.load_json(expected["json"]).tojson() == expected["json"], case.id


@pytest.mark.parametrize("family", [f for f in FAMILIES if cases_of(f)])
def test_inferred_shapes_and_dtypes_match_the_results(family):
    """Includes ops for which MXNet has no symbols."""
    for case in cases_of(family):
        arrays = case.arrays()
        names = [f"v{i}" for i in range(len(arrays))]
        symbol = symbol_cases.find_function(mx, case.op)(*map(mx.sym.var, names), name="n", **case.attrs)
        types = symbol.infer_type_partial(**{n: a.dtype for n, a in zip(names, arrays, strict=True)})[1]
        expected = recorded(family)[case.id]
        outputs = [expected[key] for key in sorted(expected) if key.startswith("out")]
        assert types == [o.dtype for o in outputs], case.id
        if 0 in sum((a.shape for a in [*arrays, *outputs]), ()) or case.op == "_contrib_boolean_mask":
            continue  # a symbol treats 0 as an unknown dimension
        shapes = symbol.infer_shape_partial(**{n: a.shape for n, a in zip(names, arrays, strict=True)})[1]
        assert shapes == [o.shape for o in outputs], case.id


def run_bound(case):
    """Return the results of `case.run`, computed by an executor."""
    values = case.arrays()
    arrays = {f"v{i}": mx.nd.array(v, dtype=v.dtype) for i, v in enumerate(values)}
    symbol = symbol_cases.find_function(mx, case.op)(*map(mx.sym.var, arrays), name="n", **case.attrs)
    grads = {f"v{i}": mx.nd.ones_like(arrays[f"v{i}"]) for i, v in enumerate(values) if case.differentiates(i, v)}
    states = {name: arrays[name] for name in symbol.list_auxiliary_states()}
    executor = symbol.bind(mx.cpu(), arrays, grads, "write", states)
    outputs = executor.forward(is_train=case.train)
    results = {f"out{i}": output.asnumpy() for i, output in enumerate(outputs)}
    if case.grad:
        rng = np.random.RandomState(zlib.crc32(case.id.encode()) ^ 1)
        heads = [rng.uniform(-1, 1, size=o.shape) for o in outputs]
        executor.backward([mx.nd.array(g, dtype=o.dtype) for g, o in zip(heads, outputs, strict=True)])
        results.update({f"grad{name[1:]}": grad.asnumpy() for name, grad in grads.items() if name not in states})
    return results


@pytest.mark.parametrize("family", [f for f in FAMILIES if cases_of(f)])
def test_executors_compute_the_recorded_values(family):
    for case in cases_of(family):
        mx.random.seed(0)
        np.random.seed(0)
        expected = recorded(family)[case.id]
        for key, value in run_bound(case).items():
            tolerance.check(value, expected[key], f"{case.id} {key}", **case.tolerance())


def test_every_op_has_a_function():
    for name in OPS:
        if not name.startswith("_np"):  # ops of mx.sym.np and mx.sym.npx
            assert callable(symbol_cases.find_function(mx, name)), name
