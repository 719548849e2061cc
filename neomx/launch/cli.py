"""The command line: `neomx run ...`, the commands on files, and `python -m neomx script.py ...`."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..base import MXNetError
from ..comm.output import say
from ..comm.world import DEFAULT_TIMEOUT
from ..monitor import sinks
from . import script, slurm
from .job import Job, parse_hosts, parse_setting
from .run import run

EXAMPLES = """examples:
  neomx run -n 2 train.py --epochs 3                 two workers on this machine
  neomx run -n 4 -s 2 train.py                       four workers, two parameter servers
  neomx run --layout data=2,tensor=2 train.py        as many workers as the layout needs
  neomx run --hosts a:4,b:4 train.py                 four workers on each of two machines, over ssh
  neomx run --nnodes 2 --node-rank 0 --rdzv a:29400 --secret-file FILE -n 4 train.py    the same, typed on each machine
  srun --ntasks-per-node=1 neomx run -n 4 train.py   on every node of a Slurm allocation

environment:
  NEOMX_SECRET     the job's secret where several hosts are not started over ssh: at least 16 bytes, the same on all
  NEOMX_INSECURE   1: several hosts without a secret, so that whoever reaches them may join
  NEOMX_SILENCE    seconds after which a process that gives no sign of life counts as gone (default 20)
"""

ONE_PROCESS = """one process, in which `import mxnet` and `import horovod.mxnet` mean neomx:
  python -m neomx train.py args...            as `python train.py args...`
  python -m neomx -m package.module args...   as `python -m package.module args...`
"""


# Commands on files: where each is, loaded when it is asked for, and what it is for. Such a module has an `EPILOG` of
# examples, `add_arguments(parser)` and `main(options)`, which returns the exit code.
FILE_COMMANDS = {
    "check": ("neomx.check.command", "read MXNet scripts, without running them, and tell what neomx does not have"),
    "doctor": ("neomx.doctor.command", "check this machine, its limits and its connections to other machines"),
    "convert": ("neomx.convert.command", "turn a checkpoint into safetensors and a torch module, ONNX, or .params"),
    "inspect": ("neomx.convert.inspect", "say what a .params, .json, .rec or safetensors file holds"),
    "pack": ("neomx.io.pack", "pack a folder or a list of pictures into a .rec file"),
}


def parser(chosen: str | None = None) -> argparse.ArgumentParser:
    """The options of the command; those of a command on files only if it is the one `chosen`."""
    raw = argparse.RawDescriptionHelpFormatter
    top = argparse.ArgumentParser(
        prog="neomx",
        description="Train MXNet programs on many workers; keep their files.",
        epilog=ONE_PROCESS,
        formatter_class=raw,
    )
    commands = top.add_subparsers(dest="command_name", required=True, metavar="command")
    sub = commands.add_parser(
        "run", help="run one script as many processes", epilog=EXAMPLES, formatter_class=raw, allow_abbrev=False
    )
    if chosen not in FILE_COMMANDS:
        sinks.load_plugins()
    _add_run(sub.add_argument)
    for name, (path, purpose) in FILE_COMMANDS.items():
        module = importlib.import_module(path) if name == chosen else None
        sub = commands.add_parser(
            name, help=purpose, description=purpose, epilog=module.EPILOG if module else None, formatter_class=raw
        )
        if module is not None:
            module.add_arguments(sub)
            sub.set_defaults(main=module.main)
    return top


def _add_run(add: Callable[..., Any]) -> None:
    add("-n", dest="workers", type=int, metavar="N", help="workers on each node (default 1)")
    add(
        "-s",
        dest="servers",
        type=int,
        default=0,
        metavar="S",
        help="parameter servers on all nodes together (default 0: all-reduce)",
    )
    add("--hosts", type=parse_hosts, default=(), metavar="a:4,b:4", help="hosts and their workers, started over ssh")
    add("--nnodes", dest="nodes", type=int, metavar="N", help="number of nodes, one command typed on each")
    add("--node-rank", dest="node", type=int, metavar="K", help="which of them this is, from 0")
    add("--rdzv", dest="rendezvous", metavar="HOST:PORT", help="where node 0 listens and the others find it")
    add(
        "--layout",
        metavar="data=2,tensor=2",
        help="how the workers divide the work, for Layout.from_env() (data, shard, tensor, pipeline, and what "
        "the program registers); without -n it tells how many there are",
    )
    add("--logs", metavar="DIR", help="keep each process's whole output in DIR/worker-0.log, ...")
    add("--tls", action="store_true", help="encrypt all connections (a certificate is made for the job)")
    add("--tls-file", metavar="PEM", help="encrypt with this certificate and key")
    add(
        "--timeout",
        type=float,
        default=DEFAULT_TIMEOUT,
        metavar="SECONDS",
        help="how long anybody waits for anybody (default %(default)g)",
    )
    add("--secret-file", metavar="FILE", help="the job's secret, the same on every node (or set NEOMX_SECRET)")
    add("--insecure", action="store_true", help="run on several hosts without a secret: whoever reaches them may join")
    add(
        "--env",
        dest="environ",
        action="append",
        type=parse_setting,
        default=[],
        metavar="K=V",
        help="set a variable in every process",
    )
    add(
        "--leash", action="store_true", help=argparse.SUPPRESS
    )  # started over ssh: the secret on stdin, whose end means: end
    add(
        "-m", dest="module", nargs=argparse.REMAINDER, metavar="module args...", help="run a module instead of a script"
    )
    add("script", nargs=argparse.REMAINDER, metavar="script.py args...")
    _add_sinks(add)  # last: one with a name that is taken has no flag


def _add_sinks(add: Callable[..., Any]) -> None:
    """A flag for each registered sink: `--tensorboard DIR`, or `--progress` and `--no-progress`."""
    for sink in sinks.registered():
        flag, dest, about = f"--{sink.name}", f"sink {sink.name}", sink.help.replace("%", "%%")
        try:
            if sink.metavar is None:
                action = argparse.BooleanOptionalAction
                add(flag, dest=dest, action=action, default=sink.default, help=about)
            else:
                add(flag, dest=dest, type=_valid(sink), metavar=sink.metavar, help=about)
        except argparse.ArgumentError:
            say(f"the sink {sink.name!r} has no flag: {flag} is another option of neomx run. Set {sink.variable}")


def _valid(sink: sinks.Registration) -> Callable[[str], str]:
    def value(text: str) -> str:
        try:
            return text and sink.parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return value


def _sinks_asked_for(given: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The variables that start the sinks in workers, taken out of the options."""
    for sink in sinks.registered():
        value = given.pop(f"sink {sink.name}", None)
        if isinstance(value, bool) and (value or sink.default):
            yield sink.variable, "1" if value else "0"
        elif value:
            yield sink.variable, value


def read_job(argv: Sequence[str] | None = None) -> Job:
    """The job that the command line asks for."""
    given = vars(parser().parse_args(argv))
    del given["command_name"]
    module, script = given.pop("module"), given.pop("script")
    if given["workers"] is None:
        _hint_misplaced(script)
    nodes, node, rendezvous = given.pop("nodes"), given.pop("node"), given.pop("rendezvous")
    if nodes is None and not given["hosts"] and (found := slurm.place(os.environ)):
        nodes, node, rendezvous = found
    layout = [("NEOMX_LAYOUT", given["layout"])] if given["layout"] is not None else []
    given["environ"] = (*given["environ"], *layout)
    given["sinks"] = tuple(_sinks_asked_for(given))
    for name in ("logs", "tls_file"):
        given[name] = given[name] and os.path.abspath(given[name])
    return Job(
        command=module or script,
        module=module is not None,
        nodes=nodes or 1,
        node=node or 0,
        rendezvous=rendezvous,
        **given,
    )


def _hint_misplaced(script: list[str]) -> None:
    """Say that a flag of ours comes too late: `neomx run train.py -n 2` runs one worker."""
    flags = ("-n", "-s", "--hosts", "--nnodes", "--layout")
    if len(script) > 1 and (flag := script[1].partition("=")[0]) in flags:
        say(
            f"{flag} comes after {script[0]}, so it goes to the script. If it is meant for neomx run, write "
            f"neomx run {flag} ... {script[0]}"
        )


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """A process that is told to end does so as after an error: files that are half written are removed."""
    if threading.current_thread() is not threading.main_thread():  # signals are for the main one
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def main(argv: Sequence[str] | None = None) -> int:
    """The `neomx` command; returns its exit code."""
    typed = argv is None
    argv = sys.argv[1:] if argv is None else argv
    try:
        if typed and script.is_program(argv, ("run", *FILE_COMMANDS)):
            script.execute(argv)
        if argv and argv[0] in FILE_COMMANDS:
            options = parser(argv[0]).parse_args(argv)
            with _ending_in_order():
                return int(options.main(options))
        return run(read_job(argv))
    except MXNetError as error:
        say(str(error))
        return 2
    except KeyboardInterrupt:  # before anything was started
        return 130
    except BrokenPipeError:  # whoever read our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
