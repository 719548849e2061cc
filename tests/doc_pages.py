"""Follows a page of the documentation literally: runs its blocks in order, in an empty directory.

    python tests/doc_pages.py docs/tutorials/first-training.md ...

- A `python` block runs in the page's process, after those before it. A `text title="Output"` block after it is its
  expected output.
- A block with another title is a file: it is written to the directory.
- In a `console` block, a line after `$ ` is a command, and the lines below it are its output. It must exit with 0, or
  with the status in `# exit status 1` at its end.
- A block after `<!-- not run: reason -->` is skipped, and so are blocks of other languages.

Output is compared line by line: every line of the page must be printed, in this order. `...` matches any text, and
numbers with a decimal point may differ by 5 % or 0.02.

Pages run in processes that are forked from one that has imported neomx, because importing takes longer than most pages.
"""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
import traceback
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
FENCE = re.compile(
    r"(?P<indent> *)(?P<fence>```+)(?P<info>[^\n]*)\n(?P<text>.*?)^(?P=indent)(?P=fence) *$", re.M | re.S
)
NOT_RUN = re.compile(r"<!-- not run: (.+?) -->\s*\Z")
NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?")
SECONDS = 600  # timeout of a command


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    title: str
    text: str
    not_run: str  # the reason why it does not run, if any

    @property
    def place(self) -> str:
        """The position of the block, for errors."""
        return f"{self.page}:{self.line}"


def blocks(path: pathlib.Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    page = path.read_text()
    found = []
    for match in FENCE.finditer(page):
        words = shlex.split(match["info"])
        title = next((word.removeprefix("title=") for word in words if word.startswith("title=")), "")
        reason = NOT_RUN.search(page[: match.start()])
        line = page[: match.start()].count("\n") + 1
        text = textwrap.dedent(match["text"])
        found.append(Block(_name(path), line, words[0] if words else "", title, text, reason[1] if reason else ""))
    return found


def _name(path: pathlib.Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def runs(block: Block) -> bool:
    """Return whether the block runs in any way."""
    return not block.not_run and (block.language in ("python", "console") or bool(block.title))


def commands(block: Block) -> list[tuple[str, int, str]]:
    """Return the commands of a `console` block, each with its exit status and expected output."""
    found: list[tuple[str, int, str]] = []
    for part in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
        command, _, output = part.partition("\n")
        status = re.search(r"# exit status (\d+)$", command)
        found.append((command, int(status[1]) if status else 0, output))
    return found


def assert_printed(expected: str, printed: str, place: str) -> None:
    """Assert that every line of `expected` is in `printed`, in this order."""
    rest = printed.splitlines()
    for line in filter(str.strip, expected.splitlines()):
        if line.strip() == "...":
            continue
        at = next((i for i, other in enumerate(rest) if matches(line, other)), None)
        if at is None:
            raise AssertionError(f"{place} shows the line\n  {line}\nwhich was not printed:\n{printed}")
        rest = rest[at + 1 :]


def matches(line: str, other: str) -> bool:
    """Return whether a printed line matches a line of the page."""
    pattern, numbers = "", []
    for part in re.split(rf"({NUMBER.pattern}|\.\.\.|\s+)", line.strip()):
        if NUMBER.fullmatch(part):
            numbers.append(float(part))
            pattern += f"({NUMBER.pattern})"
        else:
            pattern += ".*" if part == "..." else r"\s+" if part.isspace() else re.escape(part)
    found = re.fullmatch(pattern, other.strip())
    if found is None:
        return False
    pairs = zip(numbers, map(float, found.groups()), strict=True)
    return all(abs(a - b) <= max(0.02, 0.05 * abs(a)) for a, b in pairs)


def follow(path: pathlib.Path) -> None:
    """Run the blocks of a page in the current directory; raises the first failure with its position."""
    names = {"__name__": "__main__"}
    printed = ""
    for block in filter(runs, blocks(path)):
        if block.title == "Output":
            assert_printed(block.text, printed, block.place)
        elif block.title:
            pathlib.Path(block.title).write_text(block.text)
        elif block.language == "python":
            printed = _run_python(block, names)
        else:
            for command, status, output in commands(block):
                assert_printed(output, _run_command(command, status, block), block.place)


def _run_python(block: Block, names: dict[str, object]) -> str:
    code = compile("\n" * block.line + block.text, str(ROOT / block.page), "exec")
    with contextlib.redirect_stdout(io.StringIO()) as stream:
        exec(code, names)
    return stream.getvalue()


def _run_command(command: str, status: int, block: Block) -> str:
    program, *arguments = shlex.split(command, comments=True)
    assert program in ("python", "neomx"), f"{block.place}: {program} is neither python nor neomx"
    call = [sys.executable, *(["-m", "neomx"] if program == "neomx" else []), *arguments]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), "."])}
    done = subprocess.run(
        call, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS, env=environ
    )
    if done.returncode != status:
        raise AssertionError(f"{block.place}: {command} exited with {done.returncode}, not {status}:\n{done.stdout}")
    return done.stdout


def main(paths: list[str]) -> int:
    """Follow each page in a separate process and directory; return the number of failures."""
    if len(paths) > 1:
        import neomx.gluon.model_zoo.transformer
        import neomx.module
        import neomx.numpy_extension
        import neomx.parallel  # noqa: F401  # loaded once, for all pages

    children = {}
    for path in map(pathlib.Path.resolve, map(pathlib.Path, paths)):
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            os._exit(_in_empty_directory(path))
        children[path] = os.waitpid(child, 0)[1]
    return sum(status != 0 for status in children.values())


def _in_empty_directory(path: pathlib.Path) -> int:
    status = 1
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        sys.path.insert(0, directory)
        try:
            follow(path)
            status = 0
        except BaseException:
            print(f"{path}:\n{traceback.format_exc()}")
        sys.stdout.flush()
        os.chdir("/")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
