"""Find the ops that can be exported to ONNX: run each op of the parity cases as a node of a model by onnxruntime.

    python scripts/measure_onnx.py FILE [family ...]

appends a line of JSON for each op to FILE: {"op": name, "ok": whether one of its cases matched neomx's own results,
"why": the first line of the last problem}. `neomx/onnx/support.py` lists the ops that matched. Random ops, whose
results cannot be compared, and optimizer updates, which are not part of a model, are skipped.
"""

import importlib
import json
import pathlib
import re
import sys
import tempfile

import numpy as np
import onnxruntime
import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import neomx as mx  # noqa: E402
from neomx.convert import onnx_file, program  # noqa: E402
from neomx.ops.table import get_op  # noqa: E402
from parity import spec, symbol_cases  # noqa: E402

MOST_CASES, TOGETHER = 3, 12
LEFT_OUT = ("random", "sample", "uniform", "normal", "shuffle", "multinomial", "Dropout", "zipfian", "_update")


def attempt(cases, path):
    """Raise unless onnxruntime computes the same as neomx, for a model whose outputs are those of all cases."""
    arrays, symbols = {}, []
    for number, case in enumerate(cases):
        fed = {f"v{number}_{i}": mx.nd.array(v, dtype=v.dtype) for i, v in enumerate(case.arrays())}
        made = symbol_cases.find_function(mx, case.op)(*map(mx.sym.var, fed), name=f"n{number}", **case.attrs)
        arrays.update(fed)
        symbols.append(made)
    symbol = mx.sym.Group(symbols)
    states = {name: arrays[name] for name in symbol.list_auxiliary_states()}
    expected = [o.asnumpy() for o in symbol.bind(mx.cpu(), arrays, aux_states=states).forward(is_train=False)]
    form = program.inference_form(symbol)
    fed = {name: arrays[name]._data for name in form.list_inputs() if name not in states}
    kept = {name: array._data for name, array in states.items()}
    traced = program.export(form, program.with_gamma(form, kept), fed, {})
    onnx_file.write(path, traced, list(fed), [f"out{i}" for i in range(len(expected))])
    session = onnxruntime.InferenceSession(path)
    wanted = {each.name for each in session.get_inputs()}
    received = session.run(None, {name: tensor.numpy() for name, tensor in fed.items() if name in wanted})
    names = [f"n{number}" for number, made in enumerate(symbols) for _ in made.list_outputs()]
    for name, ours, theirs in zip(names, expected, received, strict=True):
        if not np.allclose(theirs.astype(ours.dtype), ours, 1e-3, 1e-4, equal_nan=True):
            raise ValueError(f"{name} gives {theirs.reshape(-1)[:4]}, expected {ours.reshape(-1)[:4]}")


def problem(cases, path):
    """Return why the export fails; empty on success."""
    try:
        attempt(cases, path)
        return ""
    except Exception as error:  # on any error, the op does not count as supported
        return f"{type(error).__name__}: {error}".strip().splitlines()[0][:200]


def measured(by_op, path):
    """Return {op: problem}; tests several ops in one model, and separately those whose node a problem names."""
    ops, result = list(by_op), {}
    while ops:
        why = problem([by_op[name][0] for name in ops], path)
        if not why:
            return {**result, **dict.fromkeys(ops, "")}
        named = re.search(r"'?n(\d+)\b", why)
        failed = [ops[int(named[1])]] if named else ops
        for name in failed:
            problems = [problem([case], path) for case in by_op[name][:MOST_CASES]]
            result[name] = "" if "" in problems else problems[-1]
        ops = [name for name in ops if name not in failed]
    return result


def main():
    torch.set_num_threads(1)
    families = sys.argv[2:] or sorted(p.stem for p in (ROOT / "tests" / "parity" / "cases").glob("[a-z]*.py"))
    by_op = {}
    for family in families:
        importlib.import_module(f"parity.cases.{family}")
        for case in spec.CASES.get(family, {}).values():
            if isinstance(case, spec.Case) and not any(word in case.op for word in LEFT_OUT):
                by_op.setdefault(get_op(case.op).name, []).append(case)
    before = pathlib.Path(sys.argv[1])
    done = {json.loads(line)["op"] for line in before.read_text().splitlines()} if before.exists() else set()
    ops = sorted(set(by_op) - done)
    with tempfile.TemporaryDirectory() as folder, open(sys.argv[1], "a") as file:
        for at in range(0, len(ops), TOGETHER):
            some = {name: sorted(by_op[name], key=lambda c: c.train) for name in ops[at : at + TOGETHER]}
            for name, why in measured(some, f"{folder}/model.onnx").items():
                file.write(json.dumps({"op": name, "ok": not why, "why": why}) + "\n")
            file.flush()


if __name__ == "__main__":
    main()
