"""Comparison of the op table with MXNet 1.9.1: names, arguments and defaults; and that all ops are tested."""

import ast
import importlib
import json
import pathlib
import re

import pytest
import torch

import neomx as mx
from neomx.dtype import NAME_OF_TORCH
from neomx.ops import OPS
from parity import spec

PARITY = pathlib.Path(__file__).resolve().parents[1] / "parity"
REGISTRY = json.loads((PARITY / "recorded" / "registry.json").read_text())
TENSORS = ("NDArray-or-Symbol", "Symbol", "NDArray", "ndarray-or-symbol", "NDArray-or-Symbol[]", "Symbol or Symbol[]")
ROWS = {row.name: row for row in OPS.values()}

# Ops of MXNet that are not in the table.
LEFT_OUT = {
    "graph sampling, which belongs to DGL": re.compile(r"_contrib_(dgl_.*|edge_id)"),
    "internal ops of the C++ engine": re.compile(
        r"_(CrossDeviceCopy|NDArray|Native|NoGradient|CustomFunction|split_v2_backward)"
    ),
    "gradients that MXNet registers as ops": re.compile(r"_contrib_backward_.*|_npi_backward_.*|_npi_.*_backward"),
    "functions of the front ends": re.compile(r"_(foreach|while_loop|cond|set_value)"),
    "assignment by masks, which arrays do in place": re.compile(r"_npi_boolean_mask_assign_.*"),
    "decoding and reading of images": re.compile(r"_(cvimdecode|cvimread|imdecode)"),
}
# Arguments that MXNet's registry omits or describes incorrectly. The parity cases show the actual ones.
INPUTS_NOT_TOLD = {
    "BatchNorm_v1": ["moving_mean", "moving_var"],
    "IdentityAttachKLSparseReg": ["moving_avg"],
}
ATTRIBUTES_TOLD_WRONGLY = {
    "_contrib_SparseEmbedding",  # the registry omits a default
    "_linspace",  # lists those of _arange
    "_npi_norm",  # lists none
    "smooth_l1",  # the registry omits a default
    "_npi_concatenate",  # lists `dim` instead of `axis`
    "_npi_dstack",  # lists `dim`, which is ignored
    "_npi_hstack",
}
COUNTED = {"num_args"}  # the number of arrays, which front ends count
OWN_ATTRIBUTES = {"SoftmaxOutput": {"multi_label"}}  # which MXNet does not have


# Ops for transformers and for sounds that MXNet 1.9 does not have.
OUR_OWN = {"_contrib_attention", "_contrib_gelu_tanh"} | {name for name in ROWS if name.startswith("_contrib_audio_")}


def is_tensor(kind: str) -> bool:
    return kind.split(",")[0].strip() in TENSORS or kind.startswith(("NDArray", "Symbol"))


def test_every_op_of_mxnet_is_in_the_table():
    missing = [
        name
        for name, facts in REGISTRY.items()
        if name not in OPS
        and not any(pattern.fullmatch(name) for pattern in LEFT_OUT.values())
        and not name.startswith("_sparse_")
    ]
    assert missing == []


def test_every_op_of_the_table_is_in_mxnet():
    assert {name for name in ROWS if name not in REGISTRY} == OUR_OWN


@pytest.mark.parametrize("name", sorted(set(ROWS) & set(REGISTRY)))
def test_names_and_arguments_match_mxnet(name):
    row, facts = ROWS[name], REGISTRY[name]
    aliases = {a for a in facts["aliases"] if not a.startswith("_sparse_")}
    assert aliases - set(row.names) == set(), "aliases that MXNet has"
    assert set(row.names) - set(facts["aliases"]) == set(), "aliases that MXNet does not have"
    tensors = [n for n, kind in facts["args"] if is_tensor(kind)]
    attributes = {n: kind for n, kind in facts["args"] if not is_tensor(kind)}
    if not row.variadic:
        assert list(row.inputs) == tensors + INPUTS_NOT_TOLD.get(name, [])
    if name in ATTRIBUTES_TOLD_WRONGLY:
        return
    ours = [n for n in row.attr_order if n not in {"ctx"} | COUNTED | OWN_ATTRIBUTES.get(name, set())]
    assert ours == [n for n in attributes if n not in {"ctx"} | COUNTED]
    for attribute in ours:
        default = re.search(r"default=(.*)$", attributes[attribute])
        if default is None:
            assert attribute not in row.defaults or row.defaults[attribute] is None, f"{attribute} is required"
            continue
        assert attribute in row.defaults, f"{attribute} has a default: {default[1]}"
        assert same(row.defaults[attribute], default[1].strip("'")), (
            f"{attribute}: {row.defaults[attribute]!r}, in MXNet {default[1]}"
        )


def same(ours, text: str) -> bool:
    """Return whether a default equals the one in MXNet's text: a number, a tuple, None or a string."""
    if ours is None or ours == "" or ours == ():
        return text in ("None", "", "[]", "()")
    if isinstance(ours, torch.dtype):
        return NAME_OF_TORCH[ours] == text
    if isinstance(ours, str):
        return ours == text
    text = re.sub(r"\b0+(\d)", r"\1", text) if isinstance(ours, tuple) else text
    value = ast.literal_eval(text.replace("[", "(").replace("]", ",)") if text not in ("[]", "()") else "()")
    if isinstance(ours, tuple):
        return tuple(value) == pytest.approx(ours)
    return float(ours) == pytest.approx(float(value), rel=1e-6)


# Ops whose results cannot be compared with MXNet, by the test that covers them instead.
SHOWN_ELSEWHERE = {
    "test_random.py": r"_(random|sample)_.*|_shuffle",  # random: moments and repeatability are tested
    "test_image_random.py": r"_image_random_.*",
    "test_layers.py": "BatchNorm_v1|IdentityAttachKLSparseReg",  # MXNet's nd cannot call them
    "test_contrib.py": "_contrib_(fft|ifft|count_sketch|group_adagrad_update)",  # only for GPUs or sparse arrays
    "test_conv.py": "_contrib_ModulatedDeformableConvolution",
    "test_math.py": "_square_sum|_zeros_without_dtype",
    "test_transformer.py": "_contrib_(attention|gelu_tanh)",  # not in MXNet
    "test_audio_ops.py": "_contrib_audio_.*",  # not in MXNet
}


# Families of cases above the level of ops. They do not count as cases of an op.
ABOVE_OPS = re.compile("gluon_|data|estimator|initializers|metrics|optimizers|symbols|trainings|transforms")


def ops_with_cases(monkeypatch) -> set[str]:
    """Return the ops that cases name or that recorded programs call."""
    called = set()

    def watched(row):
        compute = row.fn

        def fn(*args, **kwargs):
            called.add(row.name)
            return compute(*args, **kwargs)

        return fn

    for row in ROWS.values():
        monkeypatch.setattr(row, "fn", watched(row))
    for path in (PARITY / "cases").glob("[a-z]*.py"):
        importlib.import_module(f"parity.cases.{path.stem}")
        if ABOVE_OPS.match(path.stem):
            continue
        for case in spec.CASES[path.stem].values():
            if isinstance(case, (spec.Program, spec.NpCase)):
                case.run(mx)
            else:
                called.add(OPS[case.op].name)
    return called


def test_every_op_has_a_case(monkeypatch):
    missing = set(ROWS) - ops_with_cases(monkeypatch)
    for file, pattern in SHOWN_ELSEWHERE.items():
        text = next(PARITY.parent.rglob(file)).read_text()
        shown = {name for name in missing if re.fullmatch(pattern, name)}
        assert shown, f"{pattern} matches no op without a case"
        for name in shown:
            short = re.sub(r"^_(contrib|random|sample|image)?_?", "", name).removesuffix("_like")
            assert short in text, f"{file} does not mention {short}"
        missing -= shown
    assert not missing, sorted(missing)
