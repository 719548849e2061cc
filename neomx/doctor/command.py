"""`neomx doctor`: a report on this machine, and on its connections to others."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import secrets
import sys
import threading
from collections import Counter
from collections.abc import Iterator

from .. import __version__
from ..base import MXNetError
from ..comm import wire
from ..comm.world import LOOPBACK
from . import cpu, devices, engine, environment, hosts, limits, measure, network, software
from .finding import Check, Finding

FORMAT = 1  # version of --json: increased when a field is removed or changes its meaning
LISTEN_SECONDS = 300.0

EPILOG = """examples:
  neomx doctor                             check this machine
  neomx doctor node1 node2:29400           also check whether these hosts can be reached
  neomx doctor --listen 10.0.0.1:29400     on one machine: wait for measurements; prints the command for the other
  neomx doctor 10.0.0.1:29400              on the other machine: measure latency and bandwidth
  neomx doctor --json                      machine-readable; docs/doctor.md describes the fields

The exit code is 0 if there is no problem (there may be warnings) and 1 otherwise.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `neomx doctor` to the parser."""
    parser.add_argument(
        "hosts",
        nargs="*",
        metavar="HOST[:PORT]",
        help=f"hosts to connect to (port {measure.PORT} by default)",
    )
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")
    parser.add_argument(
        "--listen",
        nargs="?",
        const=LOOPBACK,
        metavar="ADDR[:PORT]",
        help=f"wait for measurements from other hosts instead (default {LOOPBACK}:{measure.PORT}, this host only)",
    )
    parser.add_argument(
        "--seconds", type=float, metavar="S", help=f"how long to listen (default {LISTEN_SECONDS:g}, at most 86400)"
    )
    parser.add_argument("--secret-file", metavar="FILE", help="file with the shared secret (or set NEOMX_SECRET)")


def main(options: argparse.Namespace) -> int:
    """Print the report, or listen; return the exit code."""
    if options.listen is not None:
        if options.hosts or options.json:
            raise MXNetError("--listen cannot be combined with hosts or --json: run two commands")
        seconds = LISTEN_SECONDS if options.seconds is None else options.seconds
        if not 0 < seconds <= 86400:
            raise MXNetError(f"--seconds must be above 0 and at most 86400, received {seconds:g}")
        return listen(options.listen, seconds, options.secret_file)
    if options.seconds is not None:
        raise MXNetError("--seconds requires --listen")
    checks = all_checks([_host(text) for text in options.hosts], options.secret_file)
    findings = [finding for check in checks for finding in check.findings()]
    if options.json:
        print(json.dumps(report(findings), indent=2))
    else:
        for line in lines(findings):
            print(line)
    sys.stdout.flush()
    return 1 if worst(findings) == "problem" else 0


def _host(text: str) -> tuple[str, int]:
    try:
        return hosts.parse(text)
    except ValueError as error:
        raise MXNetError(str(error)) from None


def all_checks(others: list[tuple[str, int]], secret_file: str | None) -> Iterator[Check]:
    """Yield the checks in the order of the report. Torch is tested once, when the first check needs it."""
    yield Check("software", software.check)
    tried = engine.examine()
    yield Check("cpu", lambda: cpu.check(tried))
    yield Check("devices", lambda: devices.check(tried))
    yield Check("limits", limits.check)
    yield Check("network", lambda: network.check(os.environ, [host for host, _ in others]))
    yield Check("environment", lambda: environment.check(os.environ))
    for host, port in others:
        yield Check(
            "host",
            lambda host=host, port=port: hosts.check(host, port, os.environ, secret_file),  # type: ignore[misc]
            hosts.SECONDS,
        )


def worst(findings: list[Finding]) -> str:
    """Return the status of the whole report."""
    statuses = {finding.status for finding in findings}
    return next((status for status in ("problem", "warn") if status in statuses), "ok")


def report(findings: list[Finding]) -> dict[str, object]:
    """Return the machine-readable report; docs/doctor.md describes it."""
    return {
        "format": FORMAT,
        "neomx": __version__,
        "status": worst(findings),
        "findings": [dataclasses.asdict(finding) for finding in findings],
    }


def lines(findings: list[Finding]) -> Iterator[str]:
    """Yield the lines of the human-readable report."""
    kind = None
    for finding in findings:
        if kind != (kind := finding.check.partition(".")[0]):
            yield f"{kind}"
        yield f"  {finding.status:8} {finding.finding}"
        if finding.remedy:
            yield f"  {'':8} -> {finding.remedy}"
    count = Counter(finding.status for finding in findings)
    yield f"{_counted(count['problem'], 'problem')}, {_counted(count['warn'], 'warning')}, {count['ok']} ok"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def listen(place: str, seconds: float, secret_file: str | None) -> int:
    """Wait for measurements, for a limited time; return the exit code."""
    host, port = _host(place)
    key = measure.key_for(os.environ, secret_file, wire.is_loopback(host))
    prefix = ""
    if key is None:
        made = secrets.token_hex(16)
        key, prefix = made.encode(), f"NEOMX_SECRET={made} "

    def show(text: str) -> None:
        print(f"neomx doctor: {text}", flush=True)

    listening = wire.listen(host, port)
    stop = measure.serve(listening, key, show)
    try:
        here = wire.join_address(host, listening.getsockname()[1])
        reach = (
            "only this machine can reach it" if wire.is_loopback(host) else "only callers with the secret are served"
        )
        show(f"listening on {here} for {seconds:g} s; {reach}. Press Ctrl-C to stop")
        where = "in another terminal" if wire.is_loopback(host) else "on the other machine"
        show(f"{where}, run: {prefix}neomx doctor {here}")
        threading.Event().wait(seconds)
        show("stopped listening after the time limit")
    except KeyboardInterrupt:
        show("stopped")
    finally:
        stop()
    return 0
