"""`neomx check`: reports which names of a script run on neomx, differ from MXNet or are missing, and how to run it."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Iterator, Sequence

from ..base import MXNetError
from . import imports, sources
from .program import check, registered_names
from .report import Report
from .starting import starts

EPILOG = """examples:
  neomx check train.py               report differences from MXNet, missing names, and the command to start it
  neomx check -v train.py            also list names that run unchanged
  neomx check src demo.ipynb         check all *.py files of a folder, and a notebook
  neomx check --json src             print JSON
  neomx check --fix --diff train.py  show how import statements would change, without writing
  neomx check --fix train.py         change `import mxnet as mx` to `import neomx as mx`, and so on

Scripts are read but never run. The exit code is 0 if nothing is missing, 1 if
something is missing or cannot be parsed, and 2 for invalid arguments.
Import statements need not be changed: `python -m neomx train.py` runs an unchanged script.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `neomx check` to the parser."""
    add = parser.add_argument
    add("paths", nargs="+", metavar="train.py|demo.ipynb|folder", help="scripts, notebooks, folders of scripts")
    add("-v", "--verbose", action="store_true", help="also list names that run unchanged")
    add("--json", action="store_true", help="print the findings as JSON")
    add("--fix", action="store_true", help="change import statements, and nothing else, so that scripts import neomx")
    add("--diff", action="store_true", help="with --fix: show the changes without writing them")


def main(options: argparse.Namespace) -> int:
    """Run `neomx check`: check the files and print the findings. Returns 1 if something is missing."""
    if options.diff and not options.fix:
        raise MXNetError("--diff requires --fix: pass both")
    if options.json and options.fix:
        raise MXNetError("--json and --fix cannot be combined: pass one of them")
    read = [sources.read(path) for path in dict.fromkeys(sources.find(options.paths))]
    return _fix(read, options.diff) if options.fix else _check(read, options.verbose, options.json)


def _check(read: list[sources.Source], verbose: bool, as_json: bool) -> int:
    registered = frozenset(name for source in read for name in registered_names(source.tree))
    reports = []
    for source in read:
        findings, facts = check(source, registered)
        is_started = facts.uses_mxnet and (len(read) == 1 or facts.has_main or source.is_notebook)
        reports.append(Report(source, findings, facts, starts(source, facts) if is_started else []))
    if as_json:
        json.dump({"files": [report.as_json() for report in reports]}, sys.stdout, indent=2)
        print()
    else:
        for line in _lines(reports, verbose):
            print(textwrap.fill(line, 120, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False))
    return int(not all(report.is_good for report in reports))


def _lines(reports: Sequence[Report], verbose: bool) -> Iterator[str]:
    for report in reports:
        yield from report.lines(verbose)
        if report.facts.uses_mxnet and len(reports) == 1:
            yield f"{report.source.path}: {report.summary()}"
        for start in report.starts:
            yield f"{report.source.path}: start it with `{start.command}`: {start.why}"
    using = [report for report in reports if report.facts.uses_mxnet]
    if len(reports) > 1:
        good = sum(report.is_good for report in using)
        yield f"{len(reports)} files, of which {len(using)} use MXNet; nothing is missing for {good} of these"
    elif reports and not using and reports[0].is_good:
        yield f"{reports[0].source.path}: does not import mxnet"
    elif not reports:
        yield "no *.py files found"


def _fix(read: list[sources.Source], only_show: bool) -> int:
    """Change import statements. Returns 1 if a file that imports MXNet was not changed."""
    left = 0
    for source in read:
        try:
            text = imports.rewritten(source)
        except imports.NotSafe as reason:
            left += 1
            print(f"{source.path}: not changed. {reason}")
            continue
        if text == source.text:
            continue
        if only_show:
            print(imports.difference(source, text), end="")
        else:
            imports.write(source, text)
            print(f"{source.path}: now imports neomx")
    return int(left > 0)
