"""`neomx check --fix`: replaces imports of MXNet's modules by imports of neomx's, and changes nothing else."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import re
import tokenize
from collections.abc import Iterator

from ..compat.startup.neomx_aliases import EMPTY, MEANS, meaning
from ..formats.atomic import replacing
from .package import COMPANIONS, COMPAT
from .program import check
from .sources import Source, lines_of


class NotSafe(Exception):
    """Raised with the reason why a file is not changed."""


def rewritten(source: Source) -> str:
    """Return the text of the file with imports of neomx. Raises NotSafe if the script might behave differently."""
    lines = lines_of(source.text)
    edits = [edit for node in ast.walk(source.tree) for edit in _edits(node, lines)]
    if not edits and not source.problems:
        return source.text
    if source.is_notebook:
        raise NotSafe(f"notebooks are not rewritten. Add `import {COMPAT}` to the first cell")
    if source.problems:
        raise NotSafe(f"line {source.problems[0].line}: {source.problems[0].message}")
    for (row, start), end, text in sorted(edits, reverse=True):
        lines[row] = lines[row][:start] + text + lines[row][end:]
    text = "".join(lines)
    _refuse(source, text)
    return text


def write(source: Source, text: str) -> None:
    """Write the text to the file atomically, in the file's encoding."""
    with open(source.path, "rb") as file:
        encoding, _ = tokenize.detect_encoding(file.readline)
    with replacing(source.path) as out:
        out.write(text.encode(encoding))


def difference(source: Source, text: str) -> str:
    """Return the changes in the format of `diff -u`."""
    return "".join(difflib.unified_diff(lines_of(source.text), lines_of(text), source.path, source.path))


# ---- scripts that cannot be changed safely ----


def _refuse(source: Source, text: str) -> None:
    """Raise NotSafe if a script depends on the names in its import statements."""
    assert _without_imports(text) == _without_imports(source.text), "only import statements change"
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and re.search(r"\b(__import__|import_module|find_spec)$", ast.unparse(node.func)):
            _refuse_string(node, node.args[0] if node.args else None)
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value) == "sys.modules":
            _refuse_string(node, node.slice)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or "."]
            for name in names:
                if name.partition(".")[0] in COMPANIONS:
                    raise NotSafe(
                        f"line {node.lineno}: {name} imports mxnet itself. Run the script with python -m neomx, or add "
                        f"`import {COMPAT}` before that line"
                    )
    _refuse_names(source, text)


def _refuse_string(node: ast.expr, named: ast.expr | None) -> None:
    name = named.value if isinstance(named, ast.Constant) else None
    if isinstance(name, str) and (meaning(name) or name in EMPTY):
        raise NotSafe(f"line {node.lineno}: {ast.unparse(node)} has the module's name in a string. Change it by hand")


def _refuse_names(source: Source, text: str) -> None:
    """Raise NotSafe if the script needs names that exist only under the name mxnet."""
    for finding in check(dataclasses.replace(source, text=text, tree=ast.parse(text)))[0]:
        if finding.kind == "missing" and finding.name.startswith("numpy."):
            raise NotSafe(f"line {finding.line}: {finding.name}: {finding.message}")
        if finding.name == "mx.__version__":
            raise NotSafe(
                f"line {finding.line}: mxnet.__version__ is 1.9.1, but neomx.__version__ is neomx's own version"
            )


def _without_imports(text: str) -> str:
    """Return a syntax tree without its import statements, as text."""

    class Without(ast.NodeTransformer):
        def visit_Import(self, node: ast.Import) -> ast.AST:
            return ast.Pass()

        def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
            return ast.Pass()

    return ast.dump(Without().visit(ast.parse(text)))


# ---- the edits ----

Edit = tuple[tuple[int, int], int, str]  # (line from 0, start column), end column, replacement


def _edits(node: ast.AST, lines: list[str]) -> Iterator[Edit]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            ours = _imported(alias)
            if ours is not None:
                row, column = _start(lines, alias)
                end = column + len(alias.name)
                if lines[row][column:end] != alias.name:  # spaces around the dots
                    raise NotSafe(f"line {alias.lineno}: expected `{alias.name}` without spaces")
                yield (row, column), end, ours
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield from _edits_from(node, node.module, lines)


def _imported(alias: ast.alias) -> str | None:
    """Return the replacement for a module's name in `import ...`."""
    ours, root = meaning(alias.name), alias.name.partition(".")[0]
    if ours is None:
        if root in EMPTY:
            raise NotSafe(f"line {alias.lineno}: neomx has no {alias.name}")
        return None
    if alias.asname:
        return ours
    if root != "mxnet":
        raise NotSafe(f"line {alias.lineno}: `import {alias.name}` binds {root}. Write `import {alias.name} as hvd`")
    return "neomx as mxnet" if alias.name == "mxnet" else f"{ours}, neomx as mxnet"


def _edits_from(node: ast.ImportFrom, module: str, lines: list[str]) -> Iterator[Edit]:
    ours = meaning(module)
    if ours is None and module.partition(".")[0] not in EMPTY:
        return
    if ours is None:  # from horovod import mxnet
        alias = node.names[0]
        if module not in EMPTY or len(node.names) > 1 or alias.name != "mxnet":
            raise NotSafe(f"line {node.lineno}: of {module}, neomx only has {module.partition('.')[0]}.mxnet")
        ours, _, name = MEANS[f"{module}.mxnet"].rpartition(".")
        start = _start(lines, alias)
        yield start, start[1] + len("mxnet"), name if alias.asname else f"{name} as mxnet"
    row, column = _start(lines, node)
    found = re.compile(rf"from\s+{re.escape(module)}\b").match(lines[row], column)
    if found is None:
        raise NotSafe(f"line {node.lineno}: expected `from {module} import ...` on one line")
    yield (row, found.end() - len(module)), found.end(), ours


def _start(lines: list[str], node: ast.alias | ast.stmt) -> tuple[int, int]:
    """Return the line and column at which a node begins, in characters; Python counts bytes."""
    row = node.lineno - 1
    return row, len(lines[row].encode()[: node.col_offset].decode())
