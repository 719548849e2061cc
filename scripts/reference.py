"""The reference pages that are generated from the code, as Markdown text by path.

`pages()` generates all of them: the Python API, the operators, the command line and the events. `mkdocs_hooks.py` adds
them to the site. The text of an API page names objects (`::: neomx.gluon.block.Block`), which mkdocstrings renders from
their docstrings.
"""

from __future__ import annotations

import argparse
import ast
import functools
import importlib
import inspect
import re
import sys
import textwrap
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

from neomx import monitor
from neomx.launch import cli
from neomx.ops import OPS
from neomx.ops.table import Op

# The public modules, as programs write them after `mx.`, in the order of the site's menu.
MODULES = {
    "Arrays and gradients": ("nd", "nd.random", "nd.contrib", "nd.sparse", "autograd", "autodiff", "random", "context"),
    "NumPy": ("np", "np.random", "np.linalg", "npx", "npx.random", "npx.image"),
    "Symbols": ("sym", "sym.random", "sym.contrib", "networks", "executor", "name", "attribute"),
    "Gluon": (
        "gluon",
        "gluon.nn",
        "gluon.rnn",
        "gluon.loss",
        "gluon.data",
        "gluon.data.vision",
        "gluon.data.vision.transforms",
        "gluon.data.audio",
        "gluon.data.audio.transforms",
        "gluon.data.text",
        "gluon.model_zoo.vision",
        "gluon.model_zoo.transformer",
        "gluon.utils",
        "gluon.contrib.nn",
        "gluon.contrib.rnn",
        "gluon.contrib.cnn",
        "gluon.contrib.data",
        "gluon.contrib.estimator",
    ),
    "Training": (
        "optimizer",
        "optimizer.contrib",
        "lr_scheduler",
        "init",
        "metric",
        "amp",
        "learn",
        "callback",
        "monitor",
    ),
    "Modules": ("mod", "model", "rnn", "contrib.svrg_optimization.svrg_module"),
    "Many workers": (
        "dist",
        "kv",
        "step",
        "parallel",
        "parallel.datashard",
        "distributed",
        "gluon.distributed",
        "horovod",
    ),
    "Data": ("io", "image", "recordio", "contrib.text.embedding", "contrib.text.vocab", "contrib.text.utils"),
    "Tools": (
        "profiler",
        "viz",
        "onnx",
        "operator",
        "test_utils",
        "util",
        "runtime",
        "engine",
        "events",
        "log",
        "registry",
        "contrib.tensorboard",
        "executor_manager",
        "libinfo",
        "library",
        "rtc",
        "base",
        "error",
    ),
}

NOT_FOUND = "\n{: data-search-exclude }\n"  # exclude paragraphs that only link to other pages from the search

# The families of ops, by the files in neomx/ops that define them. Other files are on the page of the last family.
OTHER = "Other"
FAMILIES = {
    "Elementwise": "elementwise np_elementwise activation",
    "Shapes and indexing": "shape np_shape slicing indexing embedding sequence sorting np_search",
    "Reductions": "reduce np_reduce np_statistics softmax",
    "Linear algebra": "linalg np_linalg np_product",
    "Creation and casts": "creation np_creation precision",
    "Random": "random np_random random_pdf",
    "Layers": "conv pooling norm dropout rnn attention",
    "Losses": "loss cross_entropy ctc",
    "Images and detection": "image image_resize resize boxes multibox proposal roi spatial",
    "Optimizer updates": "optim optim_adaptive",
}


class Page(NamedTuple):
    """A page of the site: its position in the menu, its path in docs/, and its text."""

    section: tuple[str, ...]
    path: str
    text: str


def pages() -> Iterator[Page]:
    """Yield all pages that are generated from the code."""
    yield from api_pages()
    yield from op_pages()
    yield Page(("Command line",), "reference/command-line.md", command_line())
    yield Page(("Events",), "reference/events.md", events())


# ---- the Python API ----


def public_names(module: types.ModuleType) -> list[str]:
    """Return the public names of a module: its `__all__`, or names defined in it or in modules below it."""
    if hasattr(module, "__all__"):
        return [name for name in module.__all__ if not name.startswith("_")]
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and str(getattr(value, "__module__", "")).startswith(module.__name__)
    ]


def load(name: str) -> types.ModuleType:
    """Return the module that programs write as `mx.<name>`."""
    module: Any = importlib.import_module("neomx")
    for part in name.split("."):
        if not hasattr(module, part):
            importlib.import_module(f"{module.__name__}.{part}")
        module = getattr(module, part)
    assert isinstance(module, types.ModuleType)
    return module


def static_path(value: Any) -> str | None:
    """Return the path of the definition of a class or function in the source; None if it is created at run time."""
    module, name = str(getattr(value, "__module__", "")), str(getattr(value, "__qualname__", ""))
    if not module.startswith("neomx.") or name not in defined_in(module):
        return None
    return f"{module}.{name}" if getattr(sys.modules[module], name) is value else None


@functools.cache
def defined_in(module: str) -> frozenset[str]:
    """Return the classes and functions that the source of a module defines at its top level."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return frozenset(each.name for each in tree.body if isinstance(each, (ast.ClassDef, ast.FunctionDef)))


def documented() -> dict[str, dict[str, Any]]:
    """Return public classes and functions: {module as programs write it: {name: object}}."""
    return {
        name: {
            public: value
            for public in sorted(public_names(module))
            if callable(value := getattr(module, public)) and not isinstance(value, types.ModuleType)
        }
        for names in MODULES.values()
        for name in names
        for module in (load(name),)
    }


def homes(objects: dict[str, dict[str, Any]]) -> dict[int, tuple[str, str]]:
    """Return, for each object by its id, the public module whose page describes it, and its name there.

    This is the module closest to the object's definition; of several, the first in the menu.
    """
    home: dict[int, tuple[str, str]] = {}
    nearness: dict[int, int] = {}
    for module, values in objects.items():
        parts = load(module).__name__.split(".")
        for name, value in values.items():
            own = str(getattr(value, "__module__", "")).split(".")
            common = len(parts) if own[: len(parts)] == parts else 0
            if common > nearness.get(id(value), -1):
                home[id(value)], nearness[id(value)] = (module, name), common
    return home


def api_path(module: str) -> str:
    """Return the path of a module's page."""
    return f"reference/api/{module}.md"


def api_pages() -> Iterator[Page]:
    """Yield a page for each public module, and one that lists them."""
    objects = documented()
    home = homes(objects)
    rows = []
    for section, names in MODULES.items():
        rows.append(f"\n## {section}\n\n| module | |\n|---|---|")
        for name in names:
            summary = (inspect.getdoc(load(name)) or "").split("\n\n")[0].replace("\n", " ")
            rows.append(
                f"| [`mx.{name}`]({name}.md) | {summary.removeprefix(f'`mx.{name}`: ').replace('|', '&#124;')} |"
            )
            yield Page(("Python API", section, f"mx.{name}"), api_path(name), module_page(name, objects[name], home))
    head = (
        "# Python API\n\nThe public modules of `import neomx as mx`. Functions of `mx.nd`, `mx.sym` and `mx.npx` that "
    )
    head += "are made from the op table\nare on the pages of the [operators](../operators/index.md).\n"
    yield Page(("Python API", "Overview"), "reference/api/index.md", head + "\n".join(rows) + "\n")


def module_page(name: str, values: dict[str, Any], home: dict[int, tuple[str, str]]) -> str:
    """Return the page of one public module."""
    module = load(name)
    parts = [f"# mx.{name}", inspect.getdoc(module) or "", ""]
    if module is monitor:
        parts[1] = parts[1].partition("The events:")[0] + "The [events](../events.md) have a page of their own."
    elsewhere, made_from_ops, from_numpy, types_, described = [], [], [], [], []
    for public, value in values.items():
        where = home[id(value)]
        op = _op_called(*where) if static_path(value) is None else None
        if op is not None:
            made_from_ops.append(f"[`{public}`](../operators/{family_path(op)}#{op_anchor(op)})")
        elif where != (name, public):
            elsewhere.append(f"[`{public}`]({where[0]}.md#{anchor(*where)})")
        elif path := static_path(value):
            described.append(_described(name, public, path))
        elif str(getattr(value, "__module__", "")).startswith("neomx"):
            described.append(_made_at_run_time(name, public, value))
        elif isinstance(value, type):
            types_.append(f"`{public}`")
        else:
            from_numpy.append(f"`{public}`")
    if elsewhere:
        parts.append(f"Described elsewhere: {', '.join(elsewhere)}.{NOT_FOUND}")
    if made_from_ops:
        parts.append(f"Made from the op table: {', '.join(made_from_ops)}.{NOT_FOUND}")
    if from_numpy:
        parts.append(f"These run in NumPy on the CPU and have no gradient: {', '.join(from_numpy)}.\n")
    if types_:
        parts.append(f"Types of Python and NumPy: {', '.join(types_)}.\n")
    return "\n".join(parts + described)


def anchor(module: str, public: str) -> str:
    """Return the anchor of a name on the page of its module."""
    return f"mx.{module}.{public}"


def _described(module: str, public: str, path: str) -> str:
    heading = f"mx.{module}.{public}"
    return (
        f'[](){{#{anchor(module, public)}}}\n\n::: {path}\n    options:\n      heading: "{heading}"\n'
        f'      toc_label: "{public}"\n'
    )


def _made_at_run_time(module: str, public: str, value: Any) -> str:
    try:
        signature = str(inspect.signature(value))
    except (TypeError, ValueError):
        signature = "(...)"
    name = f"mx.{module}.{public}"
    return (
        f"## `{name}` {{#{anchor(module, public)}}}\n\n```python\n{public}{signature}\n```\n\n{inspect.getdoc(value)}\n"
    )


# ---- operators ----


def _op_called(module: str, public: str) -> Op | None:
    """Return the row of the op table for a function of `mx.nd`, `mx.sym` or `mx.npx`; None for other functions."""
    prefix = {"contrib": "_contrib_", "linalg": "_linalg_", "image": "_image_", "sparse": "_sparse_"}
    tail = module.rpartition(".")[2]
    for name in (
        public,
        prefix.get(tail, "_") + public,
        f"_npx_{public}",
        f"_npx__{tail}_{public}",
        f"_random_{public}",
    ):
        if name in OPS:
            return OPS[name]
    return None


def rows() -> list[Op]:
    """Return the rows of the op table without duplicates, sorted by name."""
    return sorted({id(op): op for op in OPS.values()}.values(), key=lambda op: (op.name.lstrip("_").lower(), op.name))


def family(op: Op) -> str:
    """Return the family of an op."""
    file = op.fn.__module__.rpartition(".")[2]
    return next((title for title, files in FAMILIES.items() if file in files.split()), OTHER)


def family_path(op: Op) -> str:
    """Return the page of an op's family, relative to the folder of the operators."""
    return family(op).lower().replace(" ", "-") + ".md"


def op_anchor(op: Op) -> str:
    """Return the anchor of an op on its page."""
    return f"op-{op.name}"


def callable_as(name: str) -> list[str]:
    """Return the ways in which programs write an op of this name."""
    for prefix, place in {
        "_contrib_": "contrib",
        "_linalg_": "linalg",
        "_image_": "image",
        "_sparse_": "sparse",
    }.items():
        if name.startswith(prefix):
            short = name.removeprefix(prefix)
            return [f"mx.nd.{place}.{short}", f"mx.sym.{place}.{short}"]
    if name.startswith("_npx_"):
        return [f"mx.npx.{name.removeprefix('_npx_')}"] if not name.startswith("_npx__") else []
    return [] if name.startswith("_") else [f"mx.nd.{name}", f"mx.sym.{name}"]


def op_pages() -> Iterator[Page]:
    """Yield a page for each family of ops, and one that lists all names."""
    ops = rows()
    for title in (*FAMILIES, OTHER):
        members = [op for op in ops if family(op) == title]
        text = f"# {title}\n\nOps of this family, from the op table. Arrays come first, then attributes.\n\n"
        text += "\n".join(map(op_entry, members))
        yield Page(("Operators", title), f"reference/operators/{family_path(members[0])}", text)
    head = """---
search:
  exclude: true
---

# Operators

Every op of MXNet is one row of the op table. A row defines a function on arrays (`mx.nd`), a function that creates a
node of a graph (`mx.sym`) and, for the ops of NumPy mode, a function of `mx.npx`. A name that begins with `_np` is the
name that a graph's file uses for a function of [`mx.np`](../api/np.md); programs call that function. A name that begins
with another underscore is available in `mx.nd._internal` and `mx.sym._internal`.

| name | family |
|---|---|
"""
    names = sorted(OPS, key=lambda name: (name.lstrip("_").lower(), name))
    table = [f"| [`{name}`]({family_path(OPS[name])}#{op_anchor(OPS[name])}) | {family(OPS[name])} |" for name in names]
    yield Page(("Operators", "All names"), "reference/operators/index.md", head + "\n".join(table) + "\n")


def op_entry(op: Op) -> str:
    """Return the entry of an op: its call, its description, and its other names."""
    calls = [call for name in op.names for call in callable_as(name)]
    others = [name for name in op.names if name != op.name]
    lines = [
        f"## {op.name} {{#{op_anchor(op)}}}",
        "",
        f"```python\n{_wrapped(op.signature())}\n```",
        "",
        inspect.getdoc(op.fn) or "",
    ]
    if calls:
        lines += ["", f"Call it as {', '.join(f'`{call}`' for call in calls)}."]
    if others:
        lines += ["", f"Names in the table: {', '.join(f'`{name}`' for name in (op.name, *others))}."]
    return "\n".join(lines) + "\n"


def _wrapped(signature: str) -> str:
    return "\n".join(textwrap.wrap(signature, 80, subsequent_indent="    ", break_on_hyphens=False))


# ---- the command line ----


def commands() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of each command of `neomx`."""
    return {name: _choices(cli.parser(name))[name] for name in _choices(cli.parser())}


def _choices(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (action,) = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    return dict(action.choices)


def command_line() -> str:
    """Return the page of the `neomx` command."""
    purposes = {}
    for action in cli.parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            purposes = {choice.dest: choice.help or "" for choice in action._choices_actions}
    parts = ["# Command line\n\n`neomx <command>`, or `python -m neomx <command>`.\n\n| command | |\n|---|---|"]
    parts += [f"| [`neomx {name}`](#neomx-{name}) | {purpose} |" for name, purpose in purposes.items()]
    for name, parser in commands().items():
        purpose = parser.description or purposes.get(name, "")
        parts.append(f"\n## neomx {name} {{#neomx-{name}}}\n\n{_sentence(purpose)}\n\n```\n{_usage(parser)}\n```\n")
        parts.append("| option | |\n|---|---|")
        parts += [f"| {_option(action)} | {_cell(_help(parser, action))} |" for action in _shown(parser)]
        if parser.epilog:
            parts.append(f"\n```\n{parser.epilog.strip()}\n```")
    return "\n".join(parts) + "\n"


def _sentence(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _shown(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [each for each in parser._actions if each.help is not argparse.SUPPRESS and each.dest != "help"]


def _usage(parser: argparse.ArgumentParser) -> str:
    formatter = argparse.HelpFormatter(parser.prog, width=100)
    formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups)
    return formatter.format_help().strip()


def _option(action: argparse.Action) -> str:
    value = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    if not action.option_strings:
        return f"`{action.metavar or action.dest}`"
    if action.nargs == 0:
        return ", ".join(f"`{flag}`" for flag in action.option_strings)
    if action.choices is not None and action.metavar is None:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    return ", ".join(f"`{flag} {value}`" for flag in action.option_strings)


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    return argparse.HelpFormatter(parser.prog)._expand_help(action) if action.help else ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "&#124;").replace("<", "&lt;")


# ---- events ----


def event_table() -> list[list[str]]:
    """Return the rows of the table in the docstring of `neomx.monitor`, header first."""
    lines = (inspect.getdoc(monitor) or "").splitlines()
    rules = [i for i, line in enumerate(lines) if re.fullmatch(r"=+( +=+)+", line)]
    spans = [(part.start(), part.end()) for part in re.finditer("=+", lines[rules[0]])]
    table: list[list[str]] = []
    for line in lines[rules[0] + 1 : rules[-1]]:
        if line.startswith("="):
            continue
        cells = [
            line[start : None if i == len(spans) - 1 else spans[i + 1][0]].strip() for i, (start, _) in enumerate(spans)
        ]
        if cells[0]:
            table.append(cells)
        else:
            table[-1] = [f"{before} {more}".strip() for before, more in zip(table[-1], cells, strict=True)]
    return table


def events() -> str:
    """Return the page of the events."""
    head, *rest = event_table()
    lines = [
        "# Events",
        "",
        "While a program trains, neomx reports what happens as events. A [sink](../how-to/add-a-sink.md) listens to",
        "them, and so can a program, with `neomx.events.subscribe`. Nothing is measured for an event without",
        "subscribers.",
        "",
        f"| {' | '.join(head)} |",
        "|---|---|---|",
    ]
    return "\n".join(lines + [f"| {' | '.join(map(_cell, row))} |" for row in rest]) + "\n"
