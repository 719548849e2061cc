"""User-defined dimensions of layouts: derived properties, and training along them."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest
import torch
from launching import LIMIT, environment, neomx_run

import neomx as mx
from neomx import nd
from neomx.parallel import Dimension, Layout, dimensions, register_dimension

PROGRAM = pathlib.Path(__file__).parents[1] / "workers" / "own_dimension.py"
TOLERANCE = 5e-6  # sums over samples in a different order


# ---- properties that a layout derives from its dimensions ----


@pytest.fixture
def ensemble(monkeypatch):
    """Register a dimension of two models, for one test."""
    monkeypatch.setattr(dimensions, "_registered", dict(dimensions._registered))

    @register_dimension
    class Ensemble(Dimension):
        name, splits_samples, shares_model = "ensemble", True, False

        def check(self, degree):
            if degree > 8:
                raise ValueError(f"ensemble must be at most 8, received {degree}")

    return Ensemble


def test_registered_dimension_is_part_of_every_product(ensemble, monkeypatch):
    layout = Layout.parse("data=3,ensemble=2,tensor=2")
    assert (layout.size, layout.ensemble, layout.degree("ensemble", "data")) == (12, 2, 6)
    assert str(layout) == "data=3,tensor=2,ensemble=2" and layout == Layout(tensor=2, ensemble=2, data=3)
    assert layout.coordinates(7) == {"ensemble": 1, "pipeline": 0, "data": 0, "shard": 0, "tensor": 1}
    found = {rank: layout.coordinates(rank) for rank in range(12)}
    monkeypatch.setattr(Layout, "coordinates", lambda self, rank=None: found[9 if rank is None else rank])
    assert (layout.batch_rank, layout.batch_size) == (4, 6)  # all members have different samples
    assert layout.peers(*layout.gradient_dimensions) == [7, 9, 11]  # and their gradients are not summed
    assert layout.peers(*layout.model_dimensions) == [6, 7, 8, 9, 10, 11]
    with pytest.raises(mx.MXNetError, match=r"data x shard x tensor x pipeline x ensemble workers: 3 x 1 x 2 x 1 x 2"):
        layout.check(4)
    with pytest.raises(ValueError, match="ensemble must be at most 8, received 9"):
        Layout(ensemble=9)
    alone = mx.parallel.estimate(torch.nn.Linear(4, 4), Layout(), (2, 4))
    assert mx.parallel.estimate(torch.nn.Linear(4, 4), Layout(ensemble=2), (2, 4)).workers == alone.workers


@pytest.mark.parametrize(
    ("given", "kind", "said"),
    [
        (3, TypeError, "expected a class derived from mx.parallel.Dimension, received 3"),
        (type("Own", (Dimension,), {}), ValueError, "Own: name must be a word such as 'data', received None"),
        (type("Own", (Dimension,), {"name": "data"}), ValueError, "there is already a dimension 'data'"),
        (
            type("Own", (Dimension,), {"name": "own", "sums_gradients": True, "shares_model": False}),
            ValueError,
            "gradients of separate models cannot be summed",
        ),
    ],
)
def test_invalid_dimension_is_rejected(given, kind, said):
    with pytest.raises(kind, match=said):
        register_dimension(given)


# ---- training along user-defined dimensions ----


# The member of the ensemble that each worker trains.
ON_FOUR = {
    "data=2,ensemble=2": [0, 0, 1, 1],
    "shard=2,ensemble=2": [0, 0, 1, 1],
    "pipeline=2,ensemble=2": [0, 0, 1, 1],
    "data=2,hosts=2": [0, 0, 0, 0],
    "shard=2,hosts=2": [0, 0, 0, 0],
}


def test_losses_and_files_equal_one_process(tmp_path):
    alone = [sys.executable, str(PROGRAM), str(tmp_path)]
    ran = subprocess.run(alone, capture_output=True, text=True, timeout=LIMIT, env=environment())
    assert ran.returncode == 0, ran.stderr
    for arguments in (["--layout", "ensemble=2", PROGRAM, tmp_path], ["-n", 4, PROGRAM, tmp_path, *ON_FOUR]):
        ran = neomx_run(*arguments)
        assert ran.returncode == 0, ran.stdout + ran.stderr
    for layout, members in {"ensemble=2": [0, 1], **ON_FOUR}.items():
        found = [dict(np.load(tmp_path / f"{layout}-{rank}.npz")) for rank in range(len(members))]
        for member in set(members):
            compare(tmp_path, layout, member, [found[at] for at, each in enumerate(members) if each == member])


def compare(folder, layout, member, found):
    """Compare the mean loss over the workers of a model, and the file that they wrote, with one process."""
    expected = dict(np.load(folder / f"alone-{member}.npz"))
    for way in found[0]:
        losses, said = np.mean([each[way] for each in found], axis=0), f"{layout}, member {member}, {way}"
        np.testing.assert_allclose(losses, expected[way], rtol=0, atol=TOLERANCE, err_msg=said)
    weights, wanted = (nd.load(str(folder / f"{name}-{member}.params")) for name in (layout, "alone"))
    assert weights.keys() == wanted.keys()
    for name in wanted:
        np.testing.assert_allclose(weights[name].asnumpy(), wanted[name].asnumpy(), rtol=0, atol=TOLERANCE)


def test_unregistered_dimension_is_rejected_by_the_workers(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import neomx as mx\nmx.parallel.Layout.from_env()\n")
    ran = neomx_run("--layout", "tenser=2", script)
    assert ran.returncode != 0
    assert "there is no dimension 'tenser'. Did you mean tensor?" in ran.stdout + ran.stderr
