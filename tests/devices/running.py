"""Runs the cases of tests/parity on pretend devices, and compares with the recordings of MXNet on a CPU."""

import neomx as mx
from parity import spec, tolerance
from parity.recordings import recorded


class Elsewhere:
    """neomx with cpu() replaced by the pretend devices, so that everything a program puts on the CPU is there."""

    def __getattr__(self, name):
        return getattr(mx, name)

    def cpu(self, device_id=0):
        return mx.gpu(device_id)


def check(family, name, ctx):
    case, expected = spec.CASES[family][name], recorded(family)[name]
    with ctx:
        received = case.run(Elsewhere())
    assert sorted(received) == sorted(expected)
    how = case.tolerance()
    if "resize" in name:
        how["off"] = max(how["off"], 1)  # gray levels: only the CPU has OpenCV's fixed-point arithmetic
    for key, value in expected.items():
        if value.dtype.kind == "U":
            assert str(received[key]).replace("gpu(", "cpu(") == str(value), key
            continue
        assert received[key].shape == value.shape, key
        assert received[key].dtype == value.dtype, key
        tolerance.check(received[key], value, key, **how)
