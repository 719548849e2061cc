"""`neomx checkpoint`: list, verify, prune and export the checkpoints in a directory."""

from __future__ import annotations

import argparse
from datetime import datetime, timezone

from ..base import MXNetError
from ..convert.inspect import show, size_of
from . import export, folder, manifest, reading
from .manifest import CheckpointError, DamagedError, Manifest
from .storage import Storage, open_storage

EPILOG = """examples:
  neomx checkpoint list runs/a
  neomx checkpoint verify s3://bucket/run
  neomx checkpoint prune runs/a --keep 2 --best max --dry-run
  neomx checkpoint export runs/a -o digits           digits.params and digits.states

The directory may be a URL (pip install "neomx[remote]"). The exit code of verify is 1 if a checkpoint is damaged.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `neomx checkpoint` to the parser."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="list|verify|prune|export")
    for name, act, purpose in (
        ("list", _list, "show step, age, size, workers, layout and metric of each checkpoint"),
        ("verify", _verify, "read all files and compare their checksums"),
        ("prune", _prune, "delete all but the newest checkpoints"),
        ("export", _export, "write a .params and a .states file for MXNet programs"),
    ):
        sub = actions.add_parser(name, help=purpose, description=purpose)
        sub.add_argument("directory", metavar="DIR")
        sub.set_defaults(act=act)
        if name in ("verify", "export"):
            sub.add_argument("--step", type=int, metavar="N", help="the checkpoint of this step")
        if name == "prune":
            sub.add_argument("--keep", type=_count, required=True, metavar="N", help="how many of the newest to keep")
            sub.add_argument("--best", choices=("max", "min"), help="also keep the one with the best metric")
            sub.add_argument("--dry-run", action="store_true", help="only show what would be deleted")
        if name == "export":
            sub.add_argument("-o", dest="output", required=True, metavar="OUT", help="OUT.params and OUT.states")
            sub.add_argument(
                "--mxnet",
                action="store_true",
                help="write states that MXNet 1.9 reads, without the optimizer's settings and update counts",
            )


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected an integer of at least 1, received {text!r}")
    return int(text)


def main(options: argparse.Namespace) -> int:
    """Run `neomx checkpoint` and return its exit code."""
    storage = open_storage(options.directory)
    if not folder.steps(storage):
        raise MXNetError(f"there are no checkpoints in {storage.url}")
    return int(options.act(storage, options))


# ---- list ----


def _list(storage: Storage, options: argparse.Namespace) -> int:
    rows = []
    for step in folder.steps(storage):
        found, problem = _read(storage, step)
        if found is None:
            rows.append((step, "-", "-", "-", "-", "-", problem))
            continue
        problem = _damage(storage, found)
        metric = "-" if found.metric is None else f"{found.metric:.6g}"
        row = (step, age(found.created), size_of(found.size), str(found.workers), found.layout or "-", metric)
        rows.append((*row, f"damaged: {problem}" if problem else "whole"))
    options.all = True
    show(("step", "age", "size", "workers", "layout", "metric", ""), rows, options)
    return 0


def _read(storage: Storage, step: int) -> tuple[Manifest | None, str]:
    """Return the manifest of a checkpoint, or None and why there is none."""
    if not folder.is_finished(storage, step):
        return None, "unfinished"
    try:
        return manifest.read(storage, folder.name_of(step)), ""
    except DamagedError as error:
        return None, f"damaged: {error}"
    except CheckpointError as error:
        return None, str(error)


def _damage(storage: Storage, found: Manifest) -> str:
    """Return which file of a checkpoint is missing or truncated, or ''."""
    try:
        for name, file in found.files.items():
            manifest.check_size(storage, f"{folder.name_of(found.step)}/{name}", file)
    except DamagedError as error:
        return str(error)
    return ""


def age(created: str) -> str:
    """Return the time since a checkpoint was written, or '-' if a clock was wrong."""
    try:
        seconds = (datetime.now(timezone.utc) - datetime.fromisoformat(created)).total_seconds()
    except (ValueError, TypeError):
        return "-"
    if seconds < 0:
        return "-"
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


# ---- verify ----


def _verify(storage: Storage, options: argparse.Namespace) -> int:
    damaged = 0
    for step in [_chosen(storage, options.step)] if options.step is not None else folder.steps(storage):
        found, problem = _read(storage, step)
        if found is not None:
            try:
                found.verify(storage, folder.name_of(step))
            except DamagedError as error:
                problem = f"damaged: {error}"
        damaged += problem not in ("", "unfinished")
        print(f"step {step}: {problem or 'whole'}")
    return 1 if damaged else 0


def _chosen(storage: Storage, step: int) -> int:
    steps = folder.steps(storage)
    if step not in steps:
        raise MXNetError(f"there is no checkpoint of step {step} in {storage.url}: expected one of {steps[-10:]}")
    return step


# ---- prune ----


def _prune(storage: Storage, options: argparse.Namespace) -> int:
    old = folder.old(storage, options.keep, options.best)
    for step in old:
        if not options.dry_run:
            folder.remove(storage, step)
        print(f"step {step}: {'would be deleted' if options.dry_run else 'deleted'}")
    kept = len(folder.readable(storage)) - (len(old) if options.dry_run else 0)
    print(f"{kept} checkpoint{'s' * (kept != 1)} kept")
    return 0


# ---- export ----


def _export(storage: Storage, options: argparse.Namespace) -> int:
    content = reading.read_step(storage, _newest(storage) if options.step is None else _chosen(storage, options.step))
    count = export.write_params(content, f"{options.output}.params")
    print(f"{options.output}.params: {count} arrays of step {content.step}")
    if "optimizer" not in content.facts:
        print("the checkpoint has no optimizer states: it was saved without a Trainer")
        return 0
    count = export.write_states(content, f"{options.output}.states", options.mxnet)
    print(f"{options.output}.states: {count} arrays")
    return 0


def _newest(storage: Storage) -> int:
    """Return the step of the newest checkpoint that is whole."""
    for step in reversed(folder.steps(storage)):
        found, problem = _read(storage, step)
        problem = problem or (_damage(storage, found) if found is not None else "")
        if not problem:
            return step
        print(f"step {step} is not used: {problem}")
    raise MXNetError(f"none of the checkpoints in {storage.url} is whole")
