"""Checkpoints of layouts: each worker writes its part, and any number of workers with any layout resumes.

Weights and optimizer states are compared to the bit after loading, and after more steps under the same layout; under
another one, up to the rounding of sums over workers (2e-6 after two steps of Adam).
"""

import pathlib
import subprocess
import sys

import numpy as np
import pytest
from launching import LIMIT, environment, neomx_run

from neomx.checkpoint import folder, manifest, reading
from neomx.checkpoint.storage import Local

PROGRAM = pathlib.Path(__file__).parents[1] / "workers" / "checkpointing_layouts.py"
pytestmark = pytest.mark.processes


def run(workers, *arguments):
    if workers == 1:
        command = [sys.executable, str(PROGRAM), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=environment())
    else:
        done = neomx_run("-n", workers, PROGRAM, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """What one process, two workers and four workers have saved. Each also loads what the ones before have saved."""
    path = tmp_path_factory.mktemp("layouts")
    run(1, path, "save")
    run(2, path, "save", 1, 2)
    run(4, path, "save", 2)
    return path


def test_any_layout_resumes_exactly_and_loads_any_other(saved):
    assert len([each for each in saved.iterdir() if each.name.endswith("-again.params")]) == 2 + 12 + 12


def test_one_process_loads_all_layouts(saved):
    run(1, saved, 2, 4)


def contents(path):
    storage = Local(str(path))
    (step,) = folder.steps(storage)
    return manifest.read(storage, folder.name_of(step)), storage


@pytest.mark.parametrize("name", ["2 data=2 None 0.0", "2 shard=2 full 0.0", "4 data=2,tensor=2 optimizer 0.0"])
def test_every_element_is_written_once_and_by_all_workers(saved, name):
    found, _ = contents(saved / name)
    shared = {name: each for name, each in found.tensors.items() if not name.startswith("worker/")}
    assert sum(len(each.slices) for each in shared.values()) >= len(shared)
    written = [0] * found.workers
    for each in shared.values():
        for cut in each.slices:
            written[cut.rank] += int(np.prod([stop - start for start, stop in cut.region]))
    assert sum(written) == sum(int(np.prod(each.shape)) for each in shared.values())
    assert max(written) - min(written) <= sum(written) // 4


def test_only_the_needed_slices_are_read(saved, monkeypatch):
    found, storage = contents(saved / "2 shard=2 full 0.0")
    content = reading.read(storage, found)
    stored = found.tensors["param/0.weight"]
    assert [cut.region for cut in stored.slices] == [((0, 8), (0, 10)), ((8, 16), (0, 10))]
    opened = set()
    read = Local.read

    def noted(self, path, begin, into):
        opened.add(path.rpartition("/")[2])
        read(self, path, begin, into)

    monkeypatch.setattr(Local, "read", noted)
    part = content.read({"param/0.weight": ((9, 12), (2, 7))})["param/0.weight"]
    assert opened == {found.part(1)}
    whole = content.read({"param/0.weight": None})["param/0.weight"]
    assert np.array_equal(whole[9:12, 2:7], part)
    assert opened == {found.part(0), found.part(1)}
