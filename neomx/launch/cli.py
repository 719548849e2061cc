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
from typing import Any, NoReturn

from .. import __version__
from ..base import MXNetError, suggest
from ..comm.output import say
from ..comm.supervision import GRACE, SAVED
from ..comm.world import DEFAULT_TIMEOUT, timeout_of
from ..monitor import sinks
from . import detached, script, slurm
from .errors import ConfigurationError
from .job import Elastic, Job, parse_hosts, parse_setting
from .run import run
from .saving import Saving

EXAMPLES = """examples:
  neomx run -n 2 train.py --epochs 3                 two workers on this machine
  neomx run -n 4 -s 2 train.py                       four workers, two parameter servers
  neomx run -n 4 -s 2 --server-replicas 2 train.py   the same; one of the servers may die
  neomx run --layout data=2,tensor=2 train.py        as many workers as the layout needs
  neomx run --hosts a:4,b:4 train.py                 four workers on each of two machines, over ssh
  neomx run --nnodes 2 --node-rank 0 --rdzv a:29400 --secret-file FILE -n 4 train.py    the same, run on each machine
  srun --ntasks-per-node=1 neomx run -n 4 train.py   on every node of a Slurm allocation
  neomx run -n 4 --elastic train.py                  the training goes on when a worker dies, and it is started again
  neomx run -n 2:8 --elastic --hosts-from ./hosts.sh train.py    between two and eight workers, as hosts come and go
  neomx run -n 4 --checkpoint DIR --every 500 train.py           later, on any number of workers: --resume DIR
  neomx run -n 4 --detach train.py                   in the background; neomx attach shows the output

environment:
  NEOMX_SECRET     the job's secret for several hosts that are not started over ssh: at least 16 bytes, the same on all
  NEOMX_INSECURE   1: run on several hosts without a secret; any process that reaches them may join
  NEOMX_SILENCE    seconds without a heartbeat after which a process counts as gone (default 20)
"""

ONE_PROCESS = """one process, in which `import mxnet` and `import horovod.mxnet` load neomx:
  python -m neomx train.py args...            like `python train.py args...`
  python -m neomx -m package.module args...   like `python -m package.module args...`
"""


# Commands other than `run`: the module of each, imported on demand, and its description. A module defines `EPILOG`
# with examples, `add_arguments(parser)`, and `main(options)`, which returns the exit code.
FILE_COMMANDS = {
    "attach": ("neomx.launch.attach", "list jobs in the background, follow the output of one, or end it"),
    "check": ("neomx.check.command", "analyze MXNet scripts without running them and report what neomx lacks"),
    "doctor": ("neomx.doctor.command", "check this machine, its limits and its connections to other machines"),
    "convert": ("neomx.convert.command", "convert a checkpoint to safetensors and a torch module, ONNX, or .params"),
    "inspect": ("neomx.convert.inspect", "show the contents of a .params, .json, .rec or safetensors file"),
    "pack": ("neomx.io.pack", "pack a folder or a list of images into a .rec file"),
    "checkpoint": ("neomx.checkpoint.command", "list, verify, prune or export the checkpoints in a directory"),
}


# The options of other launchers and ours that mean the same.
ELSEWHERE = {
    **dict.fromkeys(("--np", "--worker", "--workers", "--num-workers", "--nproc-per-node", "--nproc_per_node"), "-n"),
    **dict.fromkeys(("--servers", "--num-servers"), "-s"),
    **dict.fromkeys(("-H", "--host", "--hostfile"), "--hosts"),
    "--node_rank": "--node-rank",
}


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors suggest the options and commands with similar names."""

    def __init__(self, *args: Any, **kwargs: Any):
        self.names: list[str] = []
        self.typed: list[str] = []
        super().__init__(*args, **kwargs)

    def add_argument(self, *args: Any, **kwargs: Any) -> argparse.Action:
        """Add an argument, and remember the names of options."""
        action = super().add_argument(*args, **kwargs)
        if action.help is not argparse.SUPPRESS:
            self.names += action.option_strings
        return action

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the arguments; an unknown option is an error here, where its command and similar names are known."""
        self.typed = [] if args is None else list(args)
        found, unknown = super().parse_known_args(args, namespace)
        self._check_options(unknown)
        return found, unknown

    def _check_options(self, words: Sequence[str]) -> None:
        """Exit with an error if the first of `words` that looks like an option is unknown."""
        option = next((word.partition("=")[0] for word in words if word.startswith("-")), None)
        if option is not None and option not in self.names:
            name = ELSEWHERE.get(option)
            known = name is not None and name in self.names
            similar = f" Did you mean {name}?" if known else suggest(option, self.names, most=1)
            self.exit(2, f"{self.prog}: error: unknown option {option}.{similar} {self._help}\n")

    def error(self, message: str) -> NoReturn:
        """Print the message and where to find help, and exit."""
        if "required" in message:  # a misspelled option may be the reason
            self._check_options(self.typed)
        message = message if message.endswith((".", "?")) else f"{message}."
        self.exit(2, f"{self.prog}: error: {message} {self._help}\n")

    @property
    def _help(self) -> str:
        return f"Run {self.prog} --help for the options"


def parser(chosen: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of the command. The options of a command other than `run` are added only if it is `chosen`."""
    raw = argparse.RawDescriptionHelpFormatter
    top = Parser(
        prog="neomx",
        description="Run MXNet programs on one or more workers, and work with their files.",
        epilog=ONE_PROCESS,
        formatter_class=raw,
    )
    top.add_argument("--version", action="version", version=f"neomx {__version__}")
    commands = top.add_subparsers(dest="command_name", required=True, metavar="command")
    sub = commands.add_parser(
        "run", help="run a script as several processes", epilog=EXAMPLES, formatter_class=raw, allow_abbrev=False
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
    add(
        "-n",
        dest="workers",
        type=_count,
        metavar="N",
        help="number of workers on each node (default 1); with --elastic also MIN:MAX, such as 2:8",
    )
    add(
        "-s",
        dest="servers",
        type=int,
        default=0,
        metavar="S",
        help="total number of parameter servers on all nodes (default 0: all-reduce)",
    )
    add(
        "--server-replicas",
        type=int,
        default=1,
        metavar="R",
        help="number of servers that hold each parameter: R - 1 of them may die at the same time (default 1: none)",
    )
    add("--hosts", type=parse_hosts, default=(), metavar="a:4,b:4", help="hosts and their workers, started over ssh")
    add("--nnodes", dest="nodes", type=int, metavar="N", help="number of nodes; run the command on each")
    add("--node-rank", dest="node", type=int, metavar="K", help="rank of this node, from 0")
    add("--rdzv", dest="rendezvous", metavar="HOST:PORT", help="address of node 0, to which the other nodes connect")
    add(
        "--layout",
        metavar="data=2,tensor=2",
        help="how the workers divide the work, for Layout.from_env() (data, shard, tensor, pipeline, and dimensions "
        "that the program registers); determines the number of workers if -n is not given",
    )
    _add_elastic(add)
    _add_saving(add)
    add("--detach", action="store_true", help="run in the background; neomx attach shows the output and ends the job")
    add("--logs", metavar="DIR", help="write the output of each process to DIR/worker-0.log, ...")
    add("--tls", action="store_true", help="encrypt all connections (creates a certificate for the job)")
    add("--tls-file", metavar="PEM", help="encrypt all connections with this certificate and key")
    add(
        "--timeout",
        type=_seconds,
        metavar="SECONDS",
        help=f"timeout for waiting on another process, in seconds (default: NEOMX_TIMEOUT, or {DEFAULT_TIMEOUT:g})",
    )
    add("--secret-file", metavar="FILE", help="file with the job's secret, the same on all nodes (or set NEOMX_SECRET)")
    add("--insecure", action="store_true", help="run on several hosts without a secret; any process may join")
    add(
        "--env",
        dest="environ",
        action="append",
        type=parse_setting,
        default=[],
        metavar="K=V",
        help="set an environment variable in every process",
    )
    add(
        "--leash", action="store_true", help=argparse.SUPPRESS
    )  # started over ssh: reads the secret from stdin, and ends when stdin closes
    add(
        "-m", dest="module", nargs=argparse.REMAINDER, metavar="module args...", help="run a module instead of a script"
    )
    add("script", nargs=argparse.REMAINDER, metavar="script.py args...")
    _add_sinks(add)  # last: a sink whose name is already an option gets no flag


def _add_elastic(add: Callable[..., Any]) -> None:
    """Add the options of elastic jobs, with the names that horovodrun has for them."""
    add(
        "--elastic",
        action="store_true",
        help="continue when workers are lost, as long as one of them (or MIN of -n MIN:MAX) lives, and replace them",
    )
    add("--spares", type=int, metavar="K", help="K more workers that start, wait, and take the place of a lost one")
    add(
        "--restarts",
        "--reset-limit",
        dest="restarts",
        type=int,
        metavar="N",
        help=f"how often the worker in each place is replaced (default {Elastic.restarts})",
    )
    add(
        "--hosts-from",
        "--host-discovery-script",
        dest="hosts_from",
        metavar="SCRIPT",
        help="a program that prints lines host:workers. It runs every few seconds: workers start on new hosts, up to "
        "MAX, and end on hosts that are no longer printed",
    )
    add(
        "--cooldown",
        "--blacklist-cooldown-range",
        dest="cooldown",
        type=float,
        nargs=2,
        metavar=("MIN", "MAX"),
        help="seconds for which a host that fails three times within a minute gets no workers; they double up to MAX "
        "(default {:g} {:g})".format(*Elastic.cooldown),
    )
    add("--scale-batch", action="store_true", help="let the batch of all workers change with their number")
    add("--min-np", type=int, metavar="MIN", help="the same as MIN of -n MIN:MAX")
    add("--max-np", type=int, metavar="MAX", help="the same as MAX of -n MIN:MAX")


def _add_saving(add: Callable[..., Any]) -> None:
    """Add the options of checkpoints."""
    add("--checkpoint", metavar="DIR", help="save the state of the training in this directory")
    add("--every", type=int, metavar="N", help="steps between two checkpoints (default: save only after a signal)")
    add("--keep", type=int, metavar="K", help="number of checkpoints that are kept (default: all)")
    add(
        "--resume",
        metavar="DIR",
        help="continue from the newest checkpoint in this directory; auto: in that of --checkpoint, if there is one",
    )
    add(
        "--grace",
        type=_seconds,
        metavar="SECONDS",
        help="how long the workers may take to save a checkpoint after SIGTERM or SIGUSR1 "
        f"(default {GRACE:g} with --checkpoint). The exit code is then {SAVED}",
    )


def _count(text: str) -> tuple[int | None, int]:
    """Return the least and the largest number of workers, with a hint for users of mpirun, who write `-np 2`."""
    least, colon, most = text.rpartition(":")
    try:
        return int(least) if colon else None, int(most)
    except ValueError:
        hint = ". Write -n 2, not -np 2" if text.startswith("p") else ""
        raise argparse.ArgumentTypeError(f"expected an integer, received {text!r}{hint}") from None


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number of seconds, received {text!r}") from None


def _add_sinks(add: Callable[..., Any]) -> None:
    """Add a flag for each registered sink: `--tensorboard DIR`, or `--progress` and `--no-progress`."""
    for sink in sinks.registered():
        flag, dest, about = f"--{sink.name}", f"sink {sink.name}", sink.help.replace("%", "%%")
        try:
            if sink.metavar is None:
                action = argparse.BooleanOptionalAction
                add(flag, dest=dest, action=action, default=sink.default, help=about)
            else:
                add(flag, dest=dest, type=_valid(sink), metavar=sink.metavar, help=about)
        except argparse.ArgumentError:
            say(f"the sink {sink.name!r} has no flag, since {flag} is an option of neomx run. Set {sink.variable}")


def _valid(sink: sinks.Registration) -> Callable[[str], str]:
    def value(text: str) -> str:
        try:
            return text and sink.parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return value


def _sinks_asked_for(given: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Remove the options of sinks and yield the variables that start them in workers."""
    for sink in sinks.registered():
        value = given.pop(f"sink {sink.name}", None)
        if isinstance(value, bool) and (value or sink.default):
            yield sink.variable, "1" if value else "0"
        elif value:
            yield sink.variable, value


def read_job(argv: Sequence[str] | None = None) -> Job:
    """Parse the command line and return the job."""
    given = vars(parser().parse_args(argv))
    del given["command_name"]
    module, script = given.pop("module"), given.pop("script")
    if given["workers"] is None:
        _hint_misplaced(script)
    nodes, node, rendezvous = given.pop("nodes"), given.pop("node"), given.pop("rendezvous")
    if nodes is None and not given["hosts"] and (found := slurm.place(os.environ)):
        nodes, node, rendezvous = found
    if given["timeout"] is None:
        given["timeout"] = timeout_of(os.environ)
    given["workers"], given["elastic"] = _elastic_of(given)
    given["saving"] = Saving(
        given.pop("checkpoint"), *(given.pop(name) for name in ("every", "keep", "resume", "grace"))
    )
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


def _elastic_of(given: dict[str, Any]) -> tuple[int | None, Elastic | None]:
    """Remove the options of elastic jobs, and return the number of workers and the options."""
    least, workers = given.pop("workers") or (None, None)
    lowest, highest = given.pop("min_np"), given.pop("max_np")
    if lowest is not None and least is not None or highest is not None and workers is not None:
        raise ConfigurationError("pass either -n MIN:MAX or --min-np MIN and --max-np MAX")
    least, workers = least if lowest is None else lowest, workers if highest is None else highest
    named = {"restarts": "--restarts", "spares": "--spares", "hosts_from": "--hosts-from", "cooldown": "--cooldown"}
    found = {name: value for name in named if (value := given.pop(name)) is not None}
    scales = given.pop("scale_batch")
    if given["elastic"]:
        if "cooldown" in found:
            found["cooldown"] = tuple(found["cooldown"])
        return workers, Elastic(least=least, scale_batch=scales, **found)
    asked = [named[name] for name in found] + ["--scale-batch"] * scales
    asked += [f"-n {least}:{workers}"] if least is not None else ["--max-np"] if highest is not None else []
    if asked:
        raise ConfigurationError(f"{asked[0]} needs --elastic: without it, the workers of a job do not change")
    return workers, None


def _hint_misplaced(script: list[str]) -> None:
    """Print a hint if a flag of `neomx run` follows the script, as in `neomx run train.py -n 2`."""
    flags = ("-n", "-s", "--hosts", "--nnodes", "--layout", "--elastic")
    if len(script) > 1 and (flag := script[1].partition("=")[0]) in flags:
        say(
            f"{flag} comes after {script[0]}, so it is passed to the script. If it is meant for neomx run, write "
            f"neomx run {flag} ... {script[0]}"
        )


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """On SIGTERM, exit as after an error, so that partially written files are removed."""
    if threading.current_thread() is not threading.main_thread():  # signal handlers need the main thread
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the `neomx` command and return its exit code."""
    typed = argv is None
    argv = sys.argv[1:] if argv is None else argv
    try:
        if typed and script.is_program(argv, ("run", *FILE_COMMANDS)):
            script.execute(argv)
        if not argv:
            parser().print_help()
            return 0
        if not argv[0].startswith("-") and argv[0] not in ("run", *FILE_COMMANDS):
            raise MXNetError(
                f"unknown command {argv[0]!r}.{suggest(argv[0], ('run', *FILE_COMMANDS))} Expected one of run, "
                f"{', '.join(FILE_COMMANDS)}, or a script"
            )
        if argv[0] in FILE_COMMANDS:
            options = parser(argv[0]).parse_args(argv)
            with _ending_in_order():
                return int(options.main(options))
        job = read_job(argv)
        return detached.start(job) if job.detach else run(job)
    except MXNetError as error:
        say(str(error))
        return 2
    except KeyboardInterrupt:  # before anything was started
        return 130
    except BrokenPipeError:  # the reader of our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
