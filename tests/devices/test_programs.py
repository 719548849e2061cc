"""Programs of tests/parity with the first pretend device as cpu(0), the second as cpu(1), and so on."""

import pytest
from running import check

import neomx as mx
from parity import spec

FAMILIES = (
    "gluon_losses",
    "gluon_layers",
    "gluon_rnn",
    "group2ctx",
    "metrics",
    "autograd",
    "sparse",
    "executors",
    "ndarray",
)
_SPARSE_TENSORS = "torch has no sparse tensors on an accelerator written in Python"
_TWO_CPUS = "adds arrays of two CPU contexts, which are one device"
EXCLUDED = {
    "gluon_layers:embedding": _SPARSE_TENSORS,
    "gluon_layers:sparse_embedding_in_training": _SPARSE_TENSORS,
    "sparse:dot": _SPARSE_TENSORS,
    "sparse:gradients_of_dot": _SPARSE_TENSORS,
    "sparse:gradients_of_embedding": _SPARSE_TENSORS,
    "sparse:a_gradient_seen_before_and_after": _SPARSE_TENSORS,
    "gluon_rnn:exported_layers": "loads parameters without a context, which means the CPU in MXNet too",
    "ndarray:contexts": _TWO_CPUS,
    "ndarray:mixing_is_refused": _TWO_CPUS,
}


def programs():
    for family in FAMILIES:
        for name, case in spec.CASES[family].items():
            if isinstance(case, spec.Program) and f"{family}:{name}" not in EXCLUDED:
                yield pytest.param(family, name, id=f"{family}:{name}")


@pytest.mark.parametrize(("family", "name"), list(programs()))
def test_program(family, name):
    check(family, name, mx.gpu(0))


def test_excluded_programs_exist():
    known = {f"{family}:{name}" for family in FAMILIES for name in spec.CASES[family]}
    assert known >= EXCLUDED.keys()
