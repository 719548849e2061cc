"""The command `neomx doctor`: its report, its exit code, and a measurement between two machines."""

import contextlib
import json
import re
import signal
import subprocess
import sys

import netns
import pytest
from doctoring import KERNEL, TORCH, by_name
from doctoring import engine as made_up
from launching import LIMIT, environment

from neomx.doctor import engine
from neomx.doctor.finding import Finding
from neomx.launch import cli

COMMAND = [sys.executable, "-m", "neomx", "doctor"]
SECRET = "0123456789abcdef"  # pragma: allowlist secret


def doctor(*words, enter=lambda command: command, **environ):
    command = enter([*COMMAND, *words])
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=environment(**environ))


def findings_of(run):
    said = json.loads(run.stdout)
    assert set(said) == {"format", "neomx", "status", "findings"} and said["format"] == 1
    assert run.returncode == (1 if said["status"] == "problem" else 0), run.stderr
    return [Finding(**finding) for finding in said["findings"]]


def test_report_on_this_machine_is_complete():
    run = doctor("--json", NEOMX_SECRET=SECRET)
    found = by_name(findings_of(run))
    kinds = {name.partition(".")[0] for name in found}
    assert kinds == {"software", "cpu", "devices", "limits", "network", "environment"}
    assert not [name for name in found if name.endswith((".error", ".timeout"))]
    assert "float32 matrix product" in found["cpu.kernels"].values["working"]
    assert SECRET not in run.stdout + run.stderr


def test_problem_gives_exit_code_1_and_readable_lines(monkeypatch, capsys):
    monkeypatch.setattr(engine, "examine", lambda: made_up(TORCH, KERNEL))
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    assert cli.main(["doctor", "127.0.0.1:1"]) == 1  # nothing listens on port 1
    shown = capsys.readouterr().out
    assert "  problem  OMP_NUM_THREADS is invalid" in shown and "refused the connection" in shown
    assert re.search(r"^           -> Start `neomx doctor --listen 127.0.0.1:1`", shown, re.MULTILINE)
    assert re.fullmatch(r"\d+ problems, \d+ warnings, \d+ ok", shown.splitlines()[-1])


@pytest.mark.parametrize(
    "words",
    [["a:b"], ["--listen", "--json"], ["--listen", "1.2.3.4:5", "--seconds", "nan"], ["--seconds", "5"], ["a:99999"]],
)
def test_invalid_arguments_print_a_one_line_error(words, capsys):
    assert cli.main(["doctor", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_report_needs_no_torch():
    text = "import sys, neomx.doctor.command; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", text], timeout=LIMIT, env=environment()).returncode == 0


@contextlib.contextmanager
def listener(*words, enter=lambda command: command, **environ):
    """Start `neomx doctor --listen`, wait until it listens, and yield the process and the command it printed."""
    command = enter([*COMMAND, "--listen", *words])
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment(**environ))
    try:
        assert "listening on" in process.stdout.readline()
        yield process, process.stdout.readline()
    finally:
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=LIMIT)
        assert process.returncode == 0 and rest.endswith("neomx doctor: stopped\n")


def test_listener_stops_after_the_time_limit():
    run = doctor("--listen", "127.0.0.1:0", "--seconds", "0.5")
    assert run.returncode == 0, run.stderr
    assert re.match(r".*listening on 127.0.0.1:[1-9]\d* for 0.5 s; only this machine can reach it", run.stdout)
    assert run.stdout.endswith("stopped listening after the time limit\n")


def test_two_machines_measure_their_link():
    reason = netns.why_not()
    if reason:
        pytest.skip(reason)
    with netns.TwoMachines() as machines:
        here = machines.addresses[0]

        def enter(machine):
            return lambda command: machines.command(machine, command)

        with listener(f"{here}:29400", enter=enter(0)) as (_, printed):
            made = re.fullmatch(rf".*run: NEOMX_SECRET=(\w+) neomx doctor {here}:29400\n", printed)[1]
            before = machines.sent(1)
            nowhere = "198.51.100.7"  # no route to it
            others = [here, f"{here}:1", nowhere]
            run = doctor(*others, "--json", enter=enter(1), NEOMX_SECRET=made)
            crossed = machines.sent(1) - before
            findings = findings_of(run)
    assert made not in run.stdout
    by_host = {}
    for finding in findings:
        if finding.check.startswith("host."):
            by_host.setdefault((finding.values["host"], finding.values["port"]), {})[finding.check] = finding
    measured = by_host[here, 29400]
    assert measured["host.versions"].values["name"] == machines.names[0]
    assert measured["host.latency"].values["seconds"] > 0
    speed = measured["host.bandwidth"].values
    assert speed["sent"] > 0 and speed["received"] > 0 and crossed >= speed["largest"] > 0
    assert by_host[here, 1]["host.connect"].values["reason"] == "refused"
    assert by_host[nowhere, 29400]["host.connect"].values["reason"] == "unreachable"
    jobs = [finding.values for finding in findings if finding.check == "network.job"]
    assert jobs[0] == {
        "towards": here, "address": machines.addresses[1], "interface": "eth0", "gloo_interface": "eth0"
    }  # fmt: skip
