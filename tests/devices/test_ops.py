"""Every op of the table on the second pretend device, so that a default device cannot hide errors."""

import pytest
from running import check

import neomx as mx
from parity import spec
from parity.recordings import FAMILIES

CASES = [
    (family, name) for family in FAMILIES for name, case in spec.CASES[family].items() if isinstance(case, spec.Case)
]


@pytest.mark.parametrize(("family", "name"), [pytest.param(*case, id=":".join(case)) for case in CASES])
def test_op(family, name, contexts):
    check(family, name, mx.gpu(1))
    assert contexts == {mx.gpu(1)}
