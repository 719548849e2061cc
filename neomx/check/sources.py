"""Files to check: scripts, notebooks and folders of scripts, as text and as syntax trees."""

from __future__ import annotations

import ast
import bisect
import dataclasses
import io
import json
import os
import re
import tokenize
import warnings
from collections.abc import Iterable, Iterator

from ..base import MXNetError

# Syntax of Python 2 that Python 3 rejects, by patterns of the line.
_PYTHON_2 = {
    "a print statement": r"^\s*print\b(?!\s*[(=.,)])",
    "a comma in except": r"^\s*except\b[^:]*,\s*\w+\s*:",
    "an exec statement": r"^\s*exec\b\s*[^(\s=.]",
    "a comma in raise": r"^\s*raise\s+[\w.]+\s*,",
    "a tuple as parameter": r"^\s*def\s+\w+\(.*\(|\blambda\s*\(",
    "the operator <>": r"<>",
    "a backtick": r"`",
    "a number such as 0777 or 1L": r"\b0\d+\b|\b\d+[lL]\b",
    "a string with the prefix ur": r"\b[uU][rR]['\"]",
}


@dataclasses.dataclass(frozen=True)
class Problem:
    """The reason why Python cannot run a part of a file."""

    line: int
    message: str


@dataclasses.dataclass
class Source:
    """A file: its text, the tree of the parts that can be parsed, and the problems of the others."""

    path: str
    text: str
    tree: ast.Module
    problems: list[Problem]
    cells: list[int] = dataclasses.field(default_factory=list)  # the first line of each code cell of a notebook

    @property
    def is_notebook(self) -> bool:
        """Whether it is a notebook."""
        return self.path.endswith(".ipynb")

    def place(self, line: int) -> tuple[int | None, int]:
        """Return the code cell, from 1, and the line in it; the cell is None in a script."""
        if not self.cells:
            return None, line
        cell = bisect.bisect_right(self.cells, line)
        return cell, line - self.cells[cell - 1] + 1


def find(paths: Iterable[str]) -> Iterator[str]:
    """Yield the given files, and all `*.py` files in folders except hidden ones and virtual environments."""
    for path in paths:
        if os.path.isdir(path):
            yield from _in_folder(path)
        elif os.path.exists(path):
            yield path
        else:
            raise MXNetError(f"no such file or folder: {path} (looked in {os.getcwd()})")


def _in_folder(path: str) -> Iterator[str]:
    for folder, folders, files in os.walk(path):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith((".", "__pycache__"))
            and not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))
        )
        found = (os.path.join(folder, name) for name in sorted(files) if name.endswith(".py"))
        yield from (path for path in found if os.path.exists(path))  # not a broken link


def read(path: str) -> Source:
    """Read a file; errors in it are listed in its `problems`."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise MXNetError(f"cannot read {path}: {error.strerror or error}") from None
    if path.endswith(".ipynb"):
        return _notebook(path, data)
    text, problems = decode(data)
    tree, problem = parse(text, path)
    return Source(path, text, tree, problems + problem)


def decode(data: bytes) -> tuple[str, list[Problem]]:
    """Return the text of a Python file, with its line ends unchanged, and the problems with its encoding."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return data.decode(encoding), []
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        text = data.decode("latin-1")
        where = error.start if isinstance(error, UnicodeDecodeError) else _first_undecodable(data)
        told = "it declares a wrong encoding" if b"coding" in data[:200] else "it declares no encoding"
        message = (
            f"the file is not UTF-8, and {told}, so Python cannot run it. Save it as UTF-8, or declare its encoding "
            "in the first line, as in # -*- coding: latin-1 -*-"
        )
        return text, [Problem(data.count(b"\n", 0, where) + 1, message)]


def lines_of(text: str) -> list[str]:
    """Return the lines of a text with their ends, as Python counts lines: a form feed does not end one."""
    return io.StringIO(text, newline="").readlines()


def _first_undecodable(data: bytes) -> int:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return 0


def parse(text: str, path: str) -> tuple[ast.Module, list[Problem]]:
    """Return the tree of a script, empty if Python cannot parse it, and its problems."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about invalid escapes in strings
            tree = ast.parse(text)
    except SyntaxError as error:
        return ast.Module([], []), [_syntax_problem(error, text, path)]
    except (ValueError, RecursionError, MemoryError) as error:  # null bytes; nested too deeply
        return ast.Module([], []), [Problem(1, f"Python cannot parse the file: {error}")]
    redirected = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.BinOp) and _is_redirection(node)]
    return tree, [Problem(line, _python_2("a print statement", path)) for line in redirected]


def _is_redirection(node: ast.BinOp) -> bool:
    """Return whether it is `print >>file, x`, which Python 3 can parse but not run."""
    return isinstance(node.op, ast.RShift) and isinstance(node.left, ast.Name) and node.left.id == "print"


def _syntax_problem(error: SyntaxError, text: str, path: str) -> Problem:
    line = error.lineno or 1
    written = "".join(lines_of(text)[line - 1 : line])
    old = next((what for what, pattern in _PYTHON_2.items() if re.search(pattern, written)), None)
    if isinstance(error, TabError):
        old = "tabs mixed with spaces"
    return Problem(line, f"syntax error: {error.msg}" if old is None else _python_2(old, path))


def _python_2(what: str, path: str) -> str:
    return (
        f"Python 2 syntax ({what}). Convert the file with `2to3 -w {path}` (part of Python up to 3.12), then check it "
        "again"
    )


# ---- notebooks ----


def _notebook(path: str, data: bytes) -> Source:
    try:
        content = json.loads(data)
        if not isinstance(content, dict):
            raise TypeError(f"expected a JSON object, received a {type(content).__name__}")
        sheets = content.get("worksheets", [content])  # the format before 4 had sheets, and `input` for `source`
        cells = [cell for sheet in sheets for cell in sheet["cells"] if cell["cell_type"] == "code"]
        texts = ["".join(cell.get("source", cell.get("input", ""))) for cell in cells]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Source(path, "", ast.Module([], []), [Problem(1, f"not a Jupyter notebook: {error}")])
    body: list[ast.stmt] = []
    problems: list[Problem] = []
    starts: list[int] = []
    lines: list[str] = []
    for text in texts:
        plain = _without_magics(text)
        tree, problem = parse("\n".join(plain), path)
        ast.increment_lineno(tree, len(lines))
        body += tree.body
        problems += [dataclasses.replace(each, line=each.line + len(lines)) for each in problem]
        starts.append(len(lines) + 1)
        lines += plain or [""]
    return Source(path, "\n".join(lines), ast.Module(body, []), problems, starts)


def _without_magics(text: str) -> list[str]:
    """Return the lines of a cell with IPython syntax blanked; a cell in another language is all blank."""
    lines = [line.rstrip("\r\n") for line in lines_of(text)]
    first = next((line for line in lines if line.strip()), "")
    if first.startswith("%%"):
        if not first.startswith(("%%time", "%%capture", "%%prun", "%%timeit")):
            return [""] * len(lines)
        lines[lines.index(first)] = ""
    return [_without_magic(line) for line in lines]


def _without_magic(line: str) -> str:
    indent = line[: len(line) - len(line.lstrip())]
    if re.match(r"\s*(%|!|\?)", line) or line.rstrip().endswith("?"):
        return indent + "pass"
    return re.sub(r"=\s*[!%].*", "= None", line) if re.match(r"\s*[\w, ]+=\s*[!%]", line) else line
