"""Run random programs of nd ops, with first and second derivatives, under real MXNet and under neomx, and compare.

    .venv-oracle/bin/python tests/parity/race_ops.py run mxnet FILE FIRST COUNT
    .venv/bin/python tests/parity/race_ops.py run neomx FILE FIRST COUNT   (after MXNet, whose FILE it reads)
    .venv/bin/python tests/parity/race_ops.py compare FILE

A program is a chain of ops on two variables; a seed decides the ops, and the attributes by the signatures that MXNet
gave (recorded/registry.json). A step that MXNet refuses is left out, and neomx may allow it. A seed at which MXNet
dies is left out when `run` is called again. FILE.mxnet and FILE.neomx hold {seed: {result: array}}.
"""

import importlib
import json
import os
import pathlib
import pickle
import re
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from parity import tolerance  # noqa: E402
from parity.spec import find_op  # noqa: E402

# Ops by chance, with states or results in place, those that read memory they should not, or that want special inputs.
LEFT_OUT = re.compile(
    "_?(np|npi|npx|sg|image|cv|random|sample|contrib|sparse|linalg|backward|scatter|split|slice_assign|rnn|cond|while|"
    "foreach|equal|zeros|ones|full|eye|arange|linspace|identity_with|grad_add|hist|ravel|unravel|shuffle|copyto|imdecode|NDArray|set_value|square_sum|im2col|col2im)"
    ".*|.*(update|_v1|Custom|NoGradient|onehot_encode|cast_storage|khatri_rao|RNN|ROI|CTC|ctc|Crop|Native|CrossDevice|"
    "Spatial|Bilinear|GridGen|Correlation|Deconv|sequence|Sequence|finite|amp_|fill_element|Embedding|Dropout|Regression|"
    "Output|SVM|KLSparse|batch_take|gather_nd|multi_|lamb|mp_|reset_arrays|shape_array|size_array|BatchNorm|LeakyReLU|LRN|SoftmaxActivation)"
    ".*"
)
SKIPPED_ATTRIBUTES = {
    "dtype",
    "ctx",
    "workspace",
    "num_args",
    "forward_stype",
    "layout",
    "cudnn_tune",
    "cudnn_off",
    "out",
}


def ops():
    registry = json.loads((HERE / "recorded" / "registry.json").read_text())
    return {name: row["args"] for name, row in sorted(registry.items()) if not LEFT_OUT.fullmatch(name)}


def draw(rng, kind):
    """A value for an attribute whose type MXNet words so."""
    if kind.startswith("{"):
        return str(rng.choice(re.findall("'([^']*)'", kind.split("}")[0])))
    if "boolean" in kind:
        return bool(rng.randint(2))
    if "Shape" in kind or "tuple" in kind:
        return tuple(int(n) for n in rng.randint(0, 4, size=rng.randint(1, 4)))
    if kind.startswith(("int", "long")):
        return int(rng.randint(-2, 4))
    if kind.startswith(("float", "double")):
        return float(rng.choice([-0.5, 0.1, 0.5, 1.0, 2.0]))
    return None


def program(seed, table):
    """Steps [(op, positions of inputs among the values so far, attributes)]."""
    rng = np.random.RandomState(seed)
    names, steps = list(table), []
    for count in range(2, 2 + rng.randint(1, 5)):
        name = names[rng.randint(len(names))]
        inputs = [a for a, kind in table[name] if kind.startswith("NDArray-or-Symbol") and "[]" not in kind]
        several = any("NDArray-or-Symbol[]" in kind for _, kind in table[name])
        attributes = {}
        for attribute, kind in table[name]:
            if "NDArray-or-Symbol" in kind or attribute in SKIPPED_ATTRIBUTES:
                continue
            value = draw(rng, kind)
            if value is not None and ("required" in kind or rng.rand() < 0.5):
                attributes[attribute] = value
        recent = [count - 1] + rng.randint(0, count, size=3).tolist()
        steps.append((name, recent[: 2 if several else len(inputs)], attributes))
    return steps


def run(mx, seed, table, refused=None):
    """{result: array} of a program; `refused` are the steps to leave out, or None to find them."""
    rng = np.random.RandomState(seed)
    shape = ((2, 3), (2, 3, 4), (4, 4), (2, 3, 4, 4))[rng.randint(4)]
    variables = [mx.nd.array(rng.uniform(0.2, 1.4, size=shape)) for _ in range(2)]
    for variable in variables:
        variable.attach_grad()
    results, found = {}, []
    with mx.autograd.record():
        values = list(variables)
        for i, (name, inputs, attributes) in enumerate(program(seed, table)):
            value = values[inputs[0]] if inputs else values[-1]
            if refused is None or i not in refused:
                try:
                    made = find_op(mx, name)(*[values[at] for at in inputs], **attributes)
                    made = made[0] if isinstance(made, (list, tuple)) else made
                    results["step%d" % i] = made.asnumpy()
                    value = made
                except Exception as error:
                    if refused is not None:
                        results["step%d" % i] = np.array("refuses: " + str(error)[:200])
                    found.append(i)
            values.append(value)
        head = (values[-1].astype("float32") * values[-1].astype("float32")).sum()
    results["refused"] = np.array(found if refused is None else sorted(refused))
    results.update(derivatives(mx, head, variables))
    return results


def derivatives(mx, head, variables):
    results = {}
    try:
        head.backward(retain_graph=True)
        results.update(("first%d" % i, v.grad.asnumpy().copy()) for i, v in enumerate(variables))
        with mx.autograd.record():
            gradient = mx.autograd.grad(head, [variables[0]], create_graph=True, retain_graph=True)[0]
            total = (gradient * variables[0]).sum()
        total.backward()
        results["second"] = variables[0].grad.asnumpy()
    except Exception as error:
        results["stopped"] = np.array(str(error)[:200])
    return results


def run_all(engine, path, first, count):
    os.environ.setdefault("MXNET_STORAGE_FALLBACK_LOG_VERBOSE", "0")
    mx, table = importlib.import_module(engine), ops()
    own = pathlib.Path(path + "." + engine)
    done = pickle.loads(own.read_bytes()) if own.exists() else {}
    reference = pickle.loads(pathlib.Path(path + ".mxnet").read_bytes()) if engine != "mxnet" else {}
    for seed in range(first, first + count):
        if seed in done or (reference and not reference.get(seed)):
            continue
        done[seed] = {}  # until it is done: it may end the process
        if engine == "mxnet":
            own.write_bytes(pickle.dumps(done))
        done[seed] = run(mx, seed, table, set(reference[seed]["refused"].tolist()) if reference else None)
    own.write_bytes(pickle.dumps(done))


def differs(expected, received):
    """The first result that is not MXNet's, or None."""
    for key, value in expected.items():
        if key in ("refused", "stopped") or (key == "second" and key not in received):
            continue
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            return None  # what follows from infinities is left to chance
        other = received.get(key, np.array(received.get("stopped", "missing")))
        if other.shape != value.shape or other.dtype != value.dtype:
            return key
        if tolerance.used(other, value, factor=64) > 1:
            return key
    return None


def compare(path):
    theirs, ours = (pickle.loads(pathlib.Path(path + "." + engine).read_bytes()) for engine in ("mxnet", "neomx"))
    table, counts, found = ops(), {"programs": 0, "first": 0, "second": 0, "steps": 0, "left out": 0}, 0
    for seed, expected in sorted(theirs.items()):
        if not expected:
            counts["left out"] += 1
            continue
        counts["programs"] += 1
        counts["first"] += "first0" in expected
        counts["second"] += "second" in expected
        counts["steps"] += sum(key.startswith("step") for key in expected)
        key = differs(expected, ours[seed])
        if key:
            found += 1
            print(seed, key, [s for i, s in enumerate(program(seed, table)) if i not in expected["refused"]])
            print("   MXNet", expected[key].ravel()[:6], "neomx", ours[seed].get(key, ours[seed].get("stopped")))
    print(counts, "%d programs differ" % found)


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run_all(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    else:
        compare(sys.argv[2])
