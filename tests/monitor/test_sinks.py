"""Custom sinks, using only public names: registered in the program, or by a package's entry point."""

import logging
import os
import subprocess
import sys
import textwrap

import pytest
from launching import LIMIT, ROOT, environment, write

import neomx as mx
from neomx.launch.cli import read_job
from neomx.launch.run import settings

# A sink that writes reported values to DIR/RANK-of-WORKERS.
LOG = """
    import os
    import neomx as mx

    @mx.monitor.register_sink("lines", help="write 100% of what is reported", metavar="DIR", parse=os.path.abspath)
    class Lines(mx.monitor.Sink):
        @classmethod
        def open(cls, value, rank, workers):
            return cls(os.path.join(value, f"{rank}-of-{workers}"))

        def __init__(self, path):
            self.file = open(path, "w")
            self.listen(metrics=lambda values, **_: print(values, file=self.file))

        def close(self):
            super().close()
            self.file.write("closed\\n")
            self.file.close()
"""


@pytest.fixture
def no_sinks(monkeypatch):
    """Remove sinks registered by a test after it."""
    monkeypatch.setattr(mx.monitor.sinks, "_registered", dict(mx.monitor.sinks._registered))


class Heard(mx.monitor.Sink):
    """Records the events it receives."""

    @classmethod
    def open(cls, value, rank, workers):
        return cls(value, rank, workers)

    def __init__(self, *made_with):
        self.made_with, self.values = made_with, []
        self.listen(metrics=lambda values, **_: self.values.append(values))


def plugin(directory, name, module, text):
    """Create an installed package with an entry point, as pip would."""
    write(directory, text, f"{module}.py")
    info = directory / f"{module}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[neomx.sinks]\n{name} = {module}\n")


def neomx_command(*arguments, path=(), **environ):
    path = os.pathsep.join([ROOT, *map(str, path)])
    command = [sys.executable, "-m", "neomx", *map(str, arguments)]
    environ = environment(**environ) | {"PYTHONPATH": path, "COLUMNS": "200"}
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=environ)


def test_sink_of_a_package_has_a_flag_and_runs_on_every_worker(tmp_path):
    installed = tmp_path / "site"
    installed.mkdir()
    plugin(installed, "lines", "lines_for_neomx", LOG)
    plugin(installed, "broken", "broken_for_neomx", "import a_package_that_is_not_there")
    plugin(installed, "absent", "absent_for_neomx", "")
    warnings = [
        "neomx: the sink 'broken' cannot be loaded from broken_for_neomx: ModuleNotFoundError: "
        "No module named 'a_package_that_is_not_there'",
        "neomx: the module absent_for_neomx does not register the sink 'absent': call register_sink in it",
    ]
    shown = neomx_command("run", "--help", path=[installed])
    assert shown.returncode == 0 and sorted(shown.stderr.splitlines()) == sorted(warnings)
    assert "--lines DIR           write 100% of what is reported" in shown.stdout

    script = write(tmp_path, 'import os, neomx as mx\nmx.monitor.report(loss=int(os.environ["RANK"]))')
    run = neomx_command("run", "-n", 2, "--lines", tmp_path, script, path=[installed])
    assert run.returncode == 0, run.stderr
    assert sorted(run.stderr.splitlines()) == sorted(warnings)  # from the launcher: workers load only what they run
    for rank in range(2):
        assert (tmp_path / f"{rank}-of-2").read_text() == f"{{'loss': {rank}.0}}\nclosed\n"


def test_sink_of_a_program_runs_on_every_worker(tmp_path):
    text = textwrap.dedent(LOG) + 'mx.monitor.start("lines", os.environ["OUT"])\nmx.monitor.report(loss=1)\n'
    run = neomx_command("run", "-n", 2, "--env", f"OUT={tmp_path}", write(tmp_path, text))
    assert run.returncode == 0, run.stderr
    for rank in range(2):
        assert (tmp_path / f"{rank}-of-2").read_text() == "{'loss': 1.0}\nclosed\n"


def test_starting_again_replaces_the_running_sink(no_sinks):
    mx.monitor.register_sink("heard", help="keep")(Heard)
    first, second = mx.monitor.start("heard"), mx.monitor.start("heard")
    mx.monitor.report(loss=1)
    second.close()
    mx.monitor.report(loss=2)
    assert (first.values, second.values, second.made_with) == ([], [{"loss": 1.0}], ("", 0, 1))


def test_environment_starts_a_sink_on_its_ranks(no_sinks):
    mx.monitor.register_sink("heard-all", help="keep", metavar="X")(Heard)
    mx.monitor.register_sink("heard-first", help="keep", ranks="first")(Heard)
    of_rank = {"NEOMX_STORE": "h:1", "NEOMX_SECRET": "s" * 16, "WORLD_SIZE": "2", "NEOMX_SINK_HEARD_ALL": "3"}
    of_rank |= {"NEOMX_SINK_HEARD_FIRST": "1", "NEOMX_PROGRESS": "1"}
    made = {}
    for rank in range(2):
        started = mx.monitor.start_from_environment({**of_rank, "RANK": str(rank)})
        made[rank] = [sink.made_with for sink in started if isinstance(sink, Heard)]
        assert [type(sink) for sink in started].count(mx.monitor.Progress) == (rank == 0)
        for sink in started:
            sink.close()
    assert made == {0: [("3", 0, 2), ("", 0, 2)], 1: [("3", 1, 2)]}
    assert mx.monitor.start_from_environment({**of_rank, "NEOMX_ROLE": "server"}) == []


def test_missing_or_failing_sink_is_skipped_with_a_warning(no_sinks, caplog):
    class Full(Heard):
        def __init__(self, *_):
            raise OSError("no space\nleft")

    mx.monitor.register_sink("full", help="fails")(Full)
    with caplog.at_level(logging.WARNING, "neomx"):
        assert mx.monitor.start_from_environment({"NEOMX_SINK_FULL": "1", "NEOMX_SINK_GONE": "1"}) == []
    assert [record.getMessage() for record in caplog.records] == [
        "neomx: NEOMX_SINK_GONE requests a sink that is not registered here: is its package installed on this machine?",
        "neomx: the sink 'full' cannot be started: OSError: no space left",
    ]
    with pytest.raises(OSError, match="no space"):
        mx.monitor.start("full")


def test_failing_sink_is_stopped_and_training_continues(no_sinks, caplog):
    calls = []

    class Fails(Heard):
        def __init__(self, *_):
            self.listen(metrics=self.fail)

        def fail(self, values):
            calls.append(values)
            raise ValueError("not a number")

    mx.monitor.register_sink("fails", help="fails")(Fails)
    mx.monitor.start("fails")
    with caplog.at_level(logging.WARNING, "neomx"):
        mx.monitor.report(loss=1)
        mx.monitor.report(loss=2)
    assert calls == [{"loss": 1.0}]
    assert [record.getMessage() for record in caplog.records] == [
        "neomx: Fails failed at the event 'metrics' and was stopped: ValueError: not a number"
    ]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: mx.monitor.start("tensorbord"), "no sink 'tensorbord' is registered. Did you mean tensorboard?"),
        (lambda: mx.monitor.start("tensorboard"), "'tensorboard' expects a value (DIR), received ''"),
        (lambda: mx.monitor.start("progress", "x"), "'progress' expects no value, received 'x'"),
        (lambda: mx.monitor.register_sink("Lines", help=""), "lowercase letters, digits and '-', received 'Lines'"),
        (lambda: mx.monitor.register_sink("x", help="", ranks="last"), "'all' or 'first', received 'last'"),
        (lambda: mx.monitor.register_sink("x", help="", metavar="X", default=True), "is for switches"),
        (lambda: mx.monitor.register_sink("x", help="")(int), "expects a subclass of mx.monitor.Sink"),
        (lambda: mx.monitor.register_sink("progress", help="")(Heard), "already registered by neomx.monitor.console"),
    ],
)
def test_invalid_registration_or_start_is_refused(call, says):
    with pytest.raises(mx.MXNetError) as error:
        call()
    assert says in str(error.value)


def test_sink_options_reach_workers_and_other_machines(no_sinks, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "", "train.py")

    def even(text):
        if int(text) % 2:
            raise ValueError(f"expected an even number, received {text}")
        return text

    mx.monitor.register_sink("heard", help="keep")(Heard)
    mx.monitor.register_sink("count", help="keep", metavar="N", parse=even)(Heard)
    mx.monitor.register_sink("timeout", help="keep")(Heard)

    def told(*options):
        return dict(settings(read_job(["run", *options, "train.py"])))

    assert told() == {"NEOMX_PROGRESS": "1"} == told("--progress")
    assert told("--no-progress") == {"NEOMX_PROGRESS": "0"} == told("--env", "NEOMX_PROGRESS=0")
    assert told("--tensorboard", "board")["NEOMX_TENSORBOARD"] == str(tmp_path / "board")
    assert told("--heard", "--count", "4")["NEOMX_SINK_COUNT"] == "4"
    assert "--timeout is an option of neomx run. Set NEOMX_SINK_TIMEOUT" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        told("--count", "3")
    assert "argument --count: expected an even number, received 3" in capsys.readouterr().err
    hosts = told("--no-progress", "--heard", "--hosts", "a:1,b:1")  # these are sent through ssh's stdin
    assert hosts == {"NEOMX_PROGRESS": "0", "NEOMX_SINK_HEARD": "1"}
