"""Errors, events and dtypes."""

import numpy as np
import pytest
import torch

import neomx as mx
from neomx import events
from neomx.dtype import FLAG_OF_TORCH, NUMPY_OF_TORCH, TORCH_OF_FLAG, to_torch


def test_events_reach_subscribers_until_they_unsubscribe():
    seen = []
    stop = events.subscribe(lambda name, fields: seen.append((name, fields)), "step")
    stop_all = events.subscribe(lambda name, fields: seen.append("any " + name))
    events.emit("step", loss=0.5)
    events.emit("other")
    stop()
    stop_all()
    events.emit("step", loss=0.4)
    assert seen == [("step", {"loss": 0.5}), "any step", "any other"]


def test_mxnet_error_is_a_runtime_error():
    assert issubclass(mx.MXNetError, RuntimeError) and mx.base.MXNetError is mx.MXNetError


@pytest.mark.parametrize(
    ("spelling", "expected"),
    [
        ("float32", torch.float32),
        (np.float16, torch.float16),
        (np.dtype("int8"), torch.int8),
        (float, torch.float64),
        (int, torch.int64),
        (bool, torch.bool),
        (torch.bfloat16, torch.bfloat16),
        ("uint8", torch.uint8),
    ],
)
def test_all_spellings_of_a_dtype(spelling, expected):
    assert to_torch(spelling) is expected


@pytest.mark.parametrize("spelling", ["float13", "complex64", torch.complex64, object, None.__class__])
def test_unknown_dtypes_raise(spelling):
    with pytest.raises(mx.MXNetError, match="unknown dtype .* Expected one of float32"):
        to_torch(spelling)


def test_type_flags_of_files_match_the_dtypes():
    assert {TORCH_OF_FLAG[flag]: flag for flag in TORCH_OF_FLAG} == FLAG_OF_TORCH
    assert set(NUMPY_OF_TORCH) == set(FLAG_OF_TORCH)
    assert [TORCH_OF_FLAG[i] for i in range(8)] == [
        to_torch(name) for name in ["float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bool"]
    ]
