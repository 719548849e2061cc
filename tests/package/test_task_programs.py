"""Every program in examples/tasks reaches its target in a short run on two workers."""

import pathlib

import pytest
from launching import neomx_run

TASKS = pathlib.Path(__file__).resolve().parents[2] / "examples" / "tasks"
PROGRAMS = sorted(path for path in TASKS.glob("*.py") if "= Task(" in path.read_text())


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_short_run_reaches_its_target(program):
    run = neomx_run("-n", 2, program, "--short")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "on 2 worker(s)" in run.stdout and "target:" in run.stdout
    assert "a separate model" not in run.stderr, run.stderr


def test_every_program_is_measured_and_described(monkeypatch):
    monkeypatch.syspath_prepend(str(TASKS.parents[1] / "benchmarks"))
    import task_runs

    names = {program.stem for program in PROGRAMS}
    assert {case.program for case in task_runs.CASES} == names
    page = (TASKS.parents[1] / "docs" / "tasks.md").read_text()
    assert [name for name in names if f"`{name}.py`" not in page] == []
