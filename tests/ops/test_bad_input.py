"""Every recorded call with invalid input works or raises an MXNetError that names the op, but no other exception."""

import importlib
import pathlib

import numpy as np
import pytest

import neomx as mx
from neomx.ops import OPS
from parity import spec

for _path in sorted((pathlib.Path(__file__).resolve().parents[1] / "parity" / "cases").glob("[a-z]*.py")):
    importlib.import_module(f"parity.cases.{_path.stem}")

CASES: dict[str, list[spec.Case]] = {}
for _family in spec.CASES.values():
    for _case in _family.values():
        if isinstance(_case, spec.Case) and len(CASES.setdefault(_case.op, [])) < 4:
            CASES[_case.op].append(_case)


def spoilt(arrays: list[np.ndarray], attrs: dict) -> list[tuple[str, list, dict]]:
    """Return (change, arrays, attributes) of calls with one invalid argument each."""
    calls = []
    for i, array in enumerate(arrays):
        with np.errstate(invalid="ignore"):  # nan and inf cannot be converted to integers
            other_dtype = array.astype("int32" if array.dtype.kind == "f" else "float64")
        others = {
            "one dimension fewer": array[0] if array.ndim > 1 else array[:0].reshape(-1),
            "one dimension more": array[None],
            "one element more": np.concatenate([array, array[:1]]) if array.ndim else array,
            "last axis longer": np.concatenate([array, array[..., :1]], axis=-1) if array.ndim else array,
            "other dtype": other_dtype,
            "nothing": None,
            "not an array": "text",
            "huge values": np.full_like(array, 120),
            "negative values": -np.abs(array) - 1 if array.dtype.kind in "fi" else array,
        }
        for what, value in others.items():
            calls.append((f"input {i}: {what}", [*arrays[:i], value, *arrays[i + 1 :]], attrs))
    for name in attrs:
        for value in ("nonsense", -7, (3, -5, 2), None, 0):
            calls.append((f"{name}={value!r}", arrays, {**attrs, name: value}))
    calls.append(("an unknown attribute", arrays, {**attrs, "no_such_attribute": 1}))
    calls.append(("one input fewer", arrays[:-1], attrs))
    calls.append(("one input more", [*arrays, np.ones(2, "float32")], attrs))
    return calls


def to_nd(value):
    return mx.nd.array(value, dtype=value.dtype) if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("op", sorted(CASES))
def test_invalid_input_raises_only_mxnet_errors(op):
    for case in CASES[op]:
        for what, arrays, attrs in spoilt(case.arrays(), case.attrs):
            try:
                with mx.autograd.record():
                    outputs = spec.find_op(mx, op)(*[to_nd(a) for a in arrays], **attrs)
                for output in outputs if isinstance(outputs, (list, tuple)) else [outputs]:
                    output.asnumpy()
            except mx.MXNetError as error:
                named = {op, OPS[op].name}
                assert any(name in str(error) for name in named), f"{case.id}, {what}: {error}"
            except Exception as error:
                pytest.fail(f"{case.id}, {what}: {type(error).__name__}: {error}")
