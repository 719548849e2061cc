"""Key-value stores between real processes, compared with recordings of MXNet's servers and with definitions."""

import functools
import os
import pathlib
import subprocess
import sys

import kvstore_job
import numpy as np
import pytest
from launching import LIMIT

from parity import tolerance
from parity.kvstore_programs import BIG, PROGRAMS

HERE = pathlib.Path(__file__).resolve().parents[1]
RECORDED = dict(np.load(str(HERE / "parity" / "recorded" / "kvstore.npz")))
# Cases that MXNet refuses and neomx supports: the results of neomx.
MORE = {
    "pushpull compressed": "None",  # MXNet sums without compression only
    "another batch size": "None",  # MXNet's servers do not accept a new one
    "string key among ints": "None",  # MXNet's keys are all of one type
}
AFTER_MORE = {"weight last"}  # differs because MXNet refused the previous step


def run_job(workers, servers, folder):
    """Return {rank: results} of all programs on this many workers and servers; without servers, by all-reduce."""
    if workers == 1:
        kvstore_job.main(folder)
    else:
        command = [sys.executable, "-m", "neomx", "run", "-n", str(workers), "-s", str(servers)]
        command += [str(HERE / "kvstore_job.py"), str(folder)]
        environ = dict(os.environ, PYTHONPATH=str(HERE.parent), OMP_NUM_THREADS="1")
        environ["MXNET_KVSTORE_BIGARRAY_BOUND"] = str(BIG)
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=LIMIT)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return {rank: dict(np.load(str(folder / f"{rank}.npz"))) for rank in range(workers)}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Return the results for a number of workers and servers; each job runs once."""

    @functools.cache
    def get(workers, servers):
        return run_job(workers, servers, tmp_path_factory.mktemp("results"))

    return get


def check(program, name, found, wanted):
    if wanted.dtype.kind in "US":
        if str(wanted) == "raises Exception":  # of any type
            assert str(found).startswith("raises"), name
        else:
            assert str(found) == str(wanted), name
        return
    assert found.dtype == wanted.dtype and found.shape == wanted.shape, name
    tolerance.check(found, wanted, f"{program}: {name}")


JOBS = [
    (workers, servers, name)
    for workers, servers in [(1, 0), (2, 0), (3, 0), (2, 2)]
    for name, program in PROGRAMS.items()
    if workers in program.workers
]


@pytest.mark.parametrize("workers, servers, program", JOBS)
def test_results_equal_mxnet(results, workers, servers, program):
    for rank, found in results(workers, servers).items():
        assert f"{program}|error" not in found, str(found[f"{program}|error"])
        prefix = f"{program}|{workers}|{rank}|"
        names = [key[len(prefix) :] for key in RECORDED if key.startswith(prefix)]
        assert names
        for name in names:
            wanted = RECORDED[prefix + name]
            more = name in MORE and str(wanted).startswith("raises")
            if more:
                assert str(found[f"{program}|{name}"]) == MORE[name]
            elif not (name in AFTER_MORE and str(RECORDED[prefix + "another batch size"]).startswith("raises")):
                check(program, name, found[f"{program}|{name}"], wanted)


@pytest.mark.parametrize("workers", (1, 2, 3))
@pytest.mark.parametrize("program", [each.__name__ for each in kvstore_job.OWN])
def test_results_equal_their_definition(results, workers, program):
    for found in results(workers, 0).values():
        assert f"{program}|error" not in found, str(found[f"{program}|error"])
        wanted = {
            key: value for key, value in found.items() if key.startswith(program + "|") and key.endswith("expected")
        }
        assert wanted
        for key, value in wanted.items():
            check(program, key, found[key.removesuffix(" expected")], value)
