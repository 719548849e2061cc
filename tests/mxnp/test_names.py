"""Every name of MXNet 1.9.1's mx.np, mx.npx and their submodules exists, with the same parameters."""

import inspect
import json
import pathlib

import pytest

import neomx as mx
from neomx.numpy.methods import ABSENT

RECORDED = json.loads(
    (pathlib.Path(__file__).resolve().parents[1] / "parity" / "recorded" / "np_names.json").read_text()
)
# Modules of MXNet and Python that are visible in MXNet's namespaces by accident.
INTERNAL = {
    "np": {"arrayprint", "function_base", "io", "multiarray", "stride_tricks", "utils"},
    "np.linalg": {"fallback_linalg"},
    "npx": {"check_call", "classproperty", "ctypes", "threading", "utils", "warnings", "with_metaclass"},
    "npx.image": {
        "Number", "cv2", "det", "detection", "image", "io", "is_np_array", "json", "logging", "nd", "np",
        "numeric_types", "os", "random", "recordio", "sys", "warnings",
    },
    "np.ndarray": {"__del__", "__dict__", "__setstate__", "__slots__", "__weakref__"},
    "sym.np._Symbol": {"__del__", "__setitem__", "__setstate__", "__slots__", "__weakref__"},
}  # fmt: skip
EXTENDED = {"attach_grad"}  # also accepts `stype`, as in mx.nd
ARRAYS = [path for path in RECORDED if path.startswith("np")]


def find(path):
    found = mx
    for name in path.split("."):
        found = getattr(found, name)
    return found


def members(path):
    return [(name, facts) for name, facts in RECORDED[path].items() if name not in INTERNAL.get(path, ())]


def parameters(function):
    """Return names, kinds and defaults, as written by record_np_names.py."""
    found = []
    for p in inspect.signature(function).parameters.values():
        default = p.default.__name__ if isinstance(p.default, type) else repr(p.default)
        found.append([p.name, p.kind.name, None if p.default is p.empty else default])
    return found


def takes_anything(recorded):
    return [kind for _, kind, _ in recorded if kind.startswith("VAR")] == ["VAR_POSITIONAL", "VAR_KEYWORD"]


def is_made_from_an_op(recorded):
    """Whether MXNet generates the function from its registry. tests/ops/test_registry.py compares these."""
    return ["name", "POSITIONAL_OR_KEYWORD", "None"] in recorded and recorded[-1][1] == "VAR_KEYWORD"


@pytest.mark.parametrize("path", [*ARRAYS, "sym.np._Symbol"])
def test_every_name_exists(path):
    owner = find(path)
    assert [name for name, _ in members(path) if not hasattr(owner, name)] == []


@pytest.mark.parametrize("path", ARRAYS)
def test_parameters_match_mxnet(path):
    """Functions of NumPy have the parameters of the installed NumPy."""
    owner, different = find(path), {}
    for name, facts in members(path):
        known = facts.get("parameters")
        if known is None or facts["numpy"] or not hasattr(owner, name):
            continue
        if takes_anything(known) or is_made_from_an_op(known):
            continue
        if path == "np.ndarray" and name in EXTENDED.union(ABSENT):
            continue
        ours = parameters(inspect.getattr_static(owner, name))
        if [p[0] for p in ours] != [p[0] for p in known] or [p[2] for p in ours] != [p[2] for p in known]:
            different[name] = (ours, known)
    assert different == {}


@pytest.mark.parametrize("name", ABSENT)
def test_methods_of_nd_arrays_raise_attribute_error(name):
    with pytest.raises(AttributeError, match=f"no attribute {name}"):
        getattr(mx.np.ones(2), name)()
