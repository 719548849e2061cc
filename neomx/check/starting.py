"""How to start a script: with plain Python, `python -m neomx` or `neomx run`, and with which options."""

from __future__ import annotations

import dataclasses
import re
import shlex

from .package import COMPANIONS, COMPAT, ROOTS
from .program import Facts
from .sources import Source, lines_of

_WORKERS = 2  # used if the script does not specify a number
_LAUNCHER = re.compile(r"(?:\b\S*launch\.py|\bmpirun|\bmpiexec|\bhorovodrun|\bbpslaunch)\s+(\S.*)")
# Signs of divided data, and of a program for many workers that names no store.
_DIVIDES = re.compile(r"\b(?:num_parts|part_index|rank|\w*[Ss]hard|\w*Sampler|split_dataset)\b")
_FOR_WORKERS = re.compile(r"\b(?:data_parallel|DDP|ScatterDataShard|comm_(?:init|allreduce\w*|broadcast))\b")
_COUNTS = {"-n": "-n", "-np": "-n", "--num-workers": "-n", "--num-proc": "-n", "-s": "-s", "--num-servers": "-s"}


@dataclasses.dataclass(frozen=True)
class Start:
    """A command to run, or a line to add to a notebook, and the reason."""

    command: str
    why: str


def starts(source: Source, facts: Facts) -> list[Start]:
    """Return the commands that start a script: first as one process, then on many workers if it supports them."""
    from ..kvstore import needs_servers

    if source.is_notebook:
        return [_in_notebook(facts)]
    alone = [] if any(map(needs_servers, facts.stores)) else [_alone(source, facts)]
    return alone + (_translated(source) or _on_workers(source, facts))


def _needs_aliases(facts: Facts) -> bool:
    return facts.uses_aliases and COMPAT not in facts.imports


def _in_notebook(facts: Facts) -> Start:
    if _needs_aliases(facts):
        return Start(f"import {COMPAT}", "add this line at the start of the first cell")
    return Start("jupyter notebook", "it needs no change")


def _alone(source: Source, facts: Facts) -> Start:
    script = shlex.quote(source.path)
    if not _needs_aliases(facts):
        return Start(f"python {script}", "it needs no change")
    others = [name for name in facts.imports if name in COMPANIONS or name in ROOTS - {"neomx"}]
    first = min(others, key=lambda name: facts.imports[name])
    return Start(
        f"python -m neomx {script}",
        f"line {facts.imports[first]} imports {first}. Or add `import {COMPAT}` before it, for python and torchrun",
    )


def _on_workers(source: Source, facts: Facts) -> list[Start]:
    """Return the commands for a script that is written for many workers, or has an option for them."""
    from ..kvstore import is_distributed, needs_servers

    script = shlex.quote(source.path)
    run = f"neomx run -n {_WORKERS}"
    found = [
        Start(f"{run} {script}", f"line {facts.imports[library]} imports {library}")
        for library in ("horovod", "byteps")
        if library in facts.imports
    ]
    for store, line in facts.stores.items():
        if needs_servers(store):
            found.append(Start(f"{run} -s 1 {script}", f"line {line} has the kvstore {store!r}, which needs servers"))
        elif is_distributed(store):
            found.append(Start(f"{run} {script}", f"line {line} has the kvstore {store!r}"))
    for number, text in enumerate(lines_of(source.text), 1) if not found else ():
        if match := _FOR_WORKERS.search(text):
            found.append(Start(f"{run} {script}", f"line {number} has {match[0]}, which is for many workers"))
            break
    if found and not _DIVIDES.search(source.text):
        why = "every worker would read all of the data: nothing in this file divides it. For a Gluon dataset use"
        hint = f"{why} neomx.dist.shard(dataset), for an iterator num_parts=kv.num_workers and part_index=kv.rank"
        found[-1] = Start(found[-1].command, f"{found[-1].why}. Note that {hint}")
    for option, line in facts.options.items() if not found else ():
        found.append(Start(f"{run} {script} {option} dist_sync", f"line {line} lets the user choose the kvstore"))
    if not found and facts.contexts:
        why = f"line {facts.contexts[0]} has several contexts, which also work in one process. To use one worker per"
        found.append(Start(f"{run} {script}", f"{why} device, change it to one context and kvstore='dist_sync' first"))
    return list({start.command: start for start in reversed(found)}.values())[::-1]


def _translated(source: Source) -> list[Start]:
    """Return the first command of another launcher in the text, converted to `neomx run`."""
    for number, line in enumerate(lines_of(source.text), 1):
        for match in _LAUNCHER.finditer(line):
            command = translate(match[1], source.path)
            if command:
                return [Start(command, f"line {number} has `{match[0].strip()}`")]
    return []


def translate(arguments: str, script: str) -> str | None:
    """Convert the options of mpirun, horovodrun or MXNet's launch.py to a `neomx run` command; None if there are none.

    `-np 4 -H a:2,b:2 python train.py --lr 1` becomes `neomx run --hosts a:2,b:2 train.py --lr 1`.
    """
    words = re.sub(r"[`\"'\\]", " ", arguments).split()
    program = next((words[i:] for i, word in enumerate(words) if word.endswith(".py")), [script])
    options = dict(zip(words, words[1:], strict=False))
    options |= {name: value for name, equals, value in (word.partition("=") for word in words) if equals}
    counts = {_COUNTS[word]: value for word, value in options.items() if word in _COUNTS and value.isdigit()}
    if "-n" not in counts:
        return None
    hosts = next((options[name] for name in ("-H", "--host", "--hosts") if ":" in options.get(name, "")), None)
    where = ["--hosts", hosts] if hosts else ["-n", counts["-n"]]
    servers = ["-s", counts["-s"]] if int(counts.get("-s", 0)) else []
    return shlex.join(["neomx", "run", *where, *servers, *program])
