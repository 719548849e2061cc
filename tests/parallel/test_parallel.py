"""Layouts in one process: degrees, coordinates, and a layout of one worker."""

import importlib.util
import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from launching import LIMIT

import neomx as mx
from neomx import gluon, nd
from neomx.gluon import nn
from neomx.parallel import Layout
from tests.launching import ROOT, environment


def test_layout_text_round_trip():
    layout = Layout.parse("data=2, tensor=4")
    assert layout == Layout(data=2, tensor=4)
    assert layout.size == 8
    assert str(layout) == "data=2,tensor=4"
    assert str(Layout()) == "data=1"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tensr=2", "Did you mean tensor"),
        ("data=two", "data must be a number, received 'two'"),
        ("data=2,data=2", "data is given twice"),
        ("data", "expected name=number, received 'data'"),
        ("data=0", "a positive integer, received 0"),
    ],
)
def test_invalid_layout_is_rejected(text, said):
    with pytest.raises(ValueError, match=said):
        Layout.parse(text)


def test_product_of_degrees_must_be_the_number_of_workers():
    with pytest.raises(mx.MXNetError, match=r"2 x 1 x 2 x 1 = 4, but there are 3.*neomx run -n 4"):
        Layout(data=2, tensor=2).check(3)


def test_tensor_groups_have_adjacent_ranks():
    layout = Layout(data=2, shard=2, tensor=2, pipeline=2)
    found = [layout.coordinates(rank) for rank in range(layout.size)]
    assert list(found[0]) == ["pipeline", "data", "shard", "tensor"]
    assert [tuple(each.values()) for each in found[:3]] == [(0, 0, 0, 0), (0, 0, 0, 1), (0, 0, 1, 0)]
    assert len({tuple(each.values()) for each in found}) == 16
    assert found[8]["pipeline"] == 1


def test_peers_differ_only_along_the_given_dimensions(monkeypatch):
    layout = Layout(data=2, tensor=2, pipeline=2)
    found = {rank: layout.coordinates(rank) for rank in range(8)}
    monkeypatch.setattr(Layout, "coordinates", lambda self, rank=None: found[5 if rank is None else rank])
    assert layout.peers("tensor") == [4, 5]
    assert layout.peers("data", "shard") == [5, 7]
    assert layout.peers("pipeline") == [1, 5]
    assert layout.peers() == [5]
    assert (layout.batch_rank, layout.batch_size) == (0, 2)


def test_layout_of_one_worker_does_not_change_a_block():
    net = gluon.nn.Dense(3, in_units=2)
    net.initialize()
    before = net.weight.data().asnumpy()
    assert mx.parallel.apply(net, Layout()) is net
    np.testing.assert_array_equal(net.weight.data().asnumpy(), before)


@pytest.mark.parametrize(
    ("net", "options", "kind", "said"),
    [
        (3, {}, TypeError, "expected a gluon Block or a torch module, received int"),
        (torch.nn.Linear(2, 2), {"shard": "some"}, ValueError, "'full', 'grads', 'optimizer'"),
    ],
)
def test_apply_rejects_invalid_arguments(net, options, kind, said):
    with pytest.raises(kind, match=said):
        mx.parallel.apply(net, Layout(), **options)


def test_share_of_a_dataset_follows_the_batch_rank(monkeypatch):
    layout = Layout(data=2, tensor=2)
    monkeypatch.setattr(Layout, "batch_rank", 1)
    assert [layout.share(range(6))[i] for i in range(3)] == [1, 3, 5]


def test_initialization_under_a_layout(tmp_path):
    """On two workers: Blocks initialized part by part, torch modules, and one program for any layout."""
    command = [sys.executable, "-m", "neomx", "run", "-n", "2", f"{ROOT}/tests/workers/beginning.py", str(tmp_path)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads((tmp_path / "found.json").read_text())
    assert set(found) == {"hollow", "unknown shape", "torch", "whole", "example"}
    assert found["hollow"] == 0.0  # exactly the values of one process
    assert "the shape of" in found["unknown shape"]
    for name, difference in (found["torch"] | found["whole"]).items():
        assert difference < 1e-5, name  # sums in a different order, over ten steps of AdamW
    np.testing.assert_allclose(found["example"], _alone(), rtol=1e-4)  # the losses of one process


def _alone():
    spec = importlib.util.spec_from_file_location("layouts", f"{ROOT}/examples/layouts.py")
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program.main(steps=4)


def test_apply_initializes_a_block_in_one_process():
    """The same program runs on one worker, where nothing is sharded."""
    net = nn.HybridSequential()
    net.add(nn.Dense(4, in_units=3), nn.Dense(2))  # in one process, the second shape may be deferred
    mx.parallel.apply(net, Layout(), init=mx.init.One(), checkpoint=False)
    assert net(nd.ones((1, 3))).asnumpy().tolist() == [[12.0, 12.0]]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"layout": "data=1"}, "expected a Layout, such as .*, received 'data=1'"),
        ({"microbatches": True}, "microbatches must be a positive integer, received True"),
        ({"clip": -1.0}, "clip must be a positive number or None, received -1.0"),
        ({"clip": "1"}, "clip must be a positive number or None, received '1'"),
        ({"schedule": ["gpipe"]}, r"unknown schedule \['gpipe'\]. Did you mean gpipe"),
    ],
)
def test_train_step_rejects_invalid_arguments(how, said):
    net = nn.Dense(2, in_units=2)
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    with pytest.raises((TypeError, ValueError), match=said):
        mx.parallel.train_step(net, gluon.loss.L2Loss(), trainer, **{"layout": Layout(), **how})


def test_apply_requires_a_layout_and_step_requires_arrays():
    net = nn.Dense(2, in_units=2)
    net.initialize()
    with pytest.raises(TypeError, match="expected a Layout.*received None"):
        mx.parallel.apply(net, None)
    with pytest.raises(TypeError, match="expected a Layout.*received 'data=2'"):
        mx.parallel.estimate(net, "data=2", (2, 2))
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    step = mx.parallel.train_step(net, gluon.loss.L2Loss(), trainer, Layout())
    with pytest.raises(TypeError, match="step expects arrays or tensors, received a ndarray"):
        step(np.ones((2, 2)), nd.ones((2, 2)))
