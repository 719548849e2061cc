"""The documentation matches the code: names, variables, errors, links and commands are compared with it."""

import ast
import difflib
import pathlib
import re
import shlex
import types

import pytest
from doc_pages import DOCS, ROOT, assert_printed, blocks, commands, matches

import neomx as mx
from neomx.launch import cli
from scripts import reference

PAGES = sorted(DOCS.rglob("*.md"))
SOURCES = sorted((ROOT / "neomx").rglob("*.py"))
# Variables with these prefixes belong to neomx, MXNet or supported launchers.
FAMILIES = r"(NEOMX|MXNET|DMLC|SLURM|OMPI|PMI|PMIX|MPI|MASTER|GROUP|LOCAL|TORCHELASTIC|GLOO|ONEDNN|MALLOC|XDG)_\w+"
# Public modules that `from neomx import *` does not import.
SELDOM = ("autodiff", "distributed", "engine", "error", "executor_manager", "learn", "libinfo", "library", "log", "mod")
SELDOM += ("networks", "onnx", "parallel", "profiler", "rnn", "rtc", "runtime", "util", "viz")
# Covered in the reference by the modules they contain, or by the name that programs use instead.
WITHOUT_PAGE = {"contrib", "img", "initializer", "kvstore", "module", "mon", "ndarray", "numpy", "numpy_extension"}
WITHOUT_PAGE |= {"rnd", "symbol", "visualization"}


def literals(path):
    """Yield the string literals of a source file that are not docstrings; formatted values become `{}`."""
    tree = ast.parse(path.read_text())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {id(each.body[0].value) for each in ast.walk(tree) if isinstance(each, documented) and _doc(each)}
    for node in ast.walk(tree):
        if id(node) not in docstrings and (text := literal(node)) != "{}":
            yield text


def literal(node):
    """Return the text of an expression, with `{}` for unknown parts."""
    if isinstance(node, ast.JoinedStr):
        return "".join(map(literal, node.values))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return literal(node.left) + literal(node.right)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"%[sdr]|%\.\d[fg]", "{}", node.value)  # placeholders of logging
    return "{}"


def _doc(node):
    return bool(node.body) and isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant)


@pytest.fixture(scope="module")
def texts():
    return [text for path in SOURCES for text in literals(path)]


@pytest.fixture(scope="module")
def generated():
    return {page.path: page.text for page in reference.pages()}


def test_environment_page_lists_exactly_the_variables_read(texts):
    page = (DOCS / "reference" / "environment.md").read_text()
    listed = {name for name in re.findall(r"`(\w+)`", page) if re.fullmatch(FAMILIES, name)}
    read = {name for text in texts for name in re.findall(r"[A-Za-z_]+", text) if re.fullmatch(FAMILIES, name)}
    prefixes = {"NEOMX_SINK_", "OMPI_COMM_WORLD_"}  # the page says NEOMX_SINK_NAME; a pattern of neomx check
    assert read - prefixes - listed == set(), "docs/reference/environment.md lacks these variables"
    assert listed - read - {"NEOMX_SINK_NAME"} == set(), "docs/reference/environment.md lists unused variables"


@pytest.mark.parametrize("page", [page for page in PAGES if 'title="Error"' in page.read_text()], ids=lambda p: p.stem)
def test_quoted_errors_exist_in_the_code(page, texts):
    for block in blocks(page):
        if block.title == "Error":
            quoted = re.sub(r"\{\w+\}", "{}", block.text.strip())
            if not any(quoted in text for text in texts):
                nearest = difflib.get_close_matches(quoted, texts, 1, 0.4)  # takes seconds
                pytest.fail(f"{block.place}: no such text in neomx/; nearest: {nearest}")


def test_every_public_module_and_name_is_in_the_reference(generated):
    rooms = {name for name in dir(mx) if isinstance(getattr(mx, name, None), types.ModuleType)}
    public = rooms & {*mx.__all__, *SELDOM}
    assert public - WITHOUT_PAGE - {name for names in reference.MODULES.values() for name in names} == set()
    objects = reference.documented()
    for module, values in objects.items():
        page = generated[reference.api_path(module)]
        for name in values:
            assert re.search(rf"`{name}`|`mx\.{module}\.{name}`|\"mx\.{module}\.{name}\"", page), f"mx.{module}.{name}"


def test_calls_of_ops_exist(generated):
    entries = "\n".join(text for path, text in generated.items() if path.startswith("reference/operators/"))
    calls = {call for line in re.findall("^Call it as (.*)", entries, re.M) for call in re.findall("`mx.(.*?)`", line)}
    assert len(calls) > 500
    for call in calls:
        found = mx
        for part in call.split("."):
            found = getattr(found, part)
        assert callable(found), call
    made = {name for name in mx.nd.op.__dict__ if not name.startswith("_")}
    assert {f"nd.{name}" for name in made if name in reference.OPS} <= calls


def test_every_event_is_in_the_table():
    table = {row[0].strip("`") for row in reference.event_table()[1:]}
    emitted = {name for path in SOURCES for name in re.findall(r"\bemit\(\s*\"(\w+)\"", path.read_text())}
    assert table == emitted


def test_command_line_page_has_every_option(generated):
    page = generated["reference/command-line.md"]
    for name, parser in reference.commands().items():
        shown = re.findall(r"(?<![\w-])--?[a-z][\w-]*", parser.format_help())
        section = page.partition(f"## neomx {name} ")[2].partition("\n## ")[0]
        assert {flag for flag in shown if flag not in ("-h", "--help")} <= set(re.findall(r"--?[a-z][\w-]*", section))


def test_documented_tolerances_match_the_tests():
    page = (DOCS / "explanation" / "equality.md").read_text()
    rows = re.findall(r"\| `(tests/\S+)` \| (\S+) \|", page)
    assert len(rows) == 4
    for path, limit in rows:
        assert f"\nTOLERANCE = {limit}\n" in (ROOT / path).read_text(), path


def test_commands_on_pages_are_valid(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("train.py", "job.secret", "every_other.py", "hosts.sh"):
        pathlib.Path(name).touch()
    pathlib.Path("hosts.sh").chmod(0o755)
    pathlib.Path("examples").symlink_to(ROOT / "examples")
    checked = 0
    for page in PAGES:
        for block in blocks(page):
            if block.title.endswith(".py"):
                pathlib.Path(block.title).touch()
            lines = [command for command, *_ in commands(block)] if block.language == "console" else []
            lines += block.text.splitlines() if block.language == "sh" else []
            for words in (shlex.split(line, comments=True) for line in lines):
                if "neomx" in words and "install" not in words:
                    arguments = words[words.index("neomx") + 1 :]
                    if arguments[0] == "run":
                        cli.read_job(arguments)
                    else:
                        cli.parser(arguments[0]).parse_args(arguments)
                    checked += 1
    assert checked > 15


def test_few_blocks_are_not_run_and_each_has_a_reason():
    left_out = [block for page in PAGES for block in blocks(page) if block.not_run]
    assert len(left_out) == 8, "change this number only for a block that cannot run"
    assert all(len(block.not_run) > 20 for block in left_out)


# ---- links ----

LINK = re.compile(r"(?<!`)\[[^\]]*\]\(([^)\s]+)\)")


def without_code(text):
    """Return the text of a page without fenced blocks and code spans."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^( *)```.*?^\1```", "", text, flags=re.M | re.S))


def anchors(text):
    """Return the anchors of the headings of a page."""
    named = re.findall(r"\{#([\w.-]+)\}", text)
    heads = re.findall(r"^#+ (.*?)(?: \{#.*)?$", re.sub(r"^( *)```.*?^\1```", "", text, flags=re.M | re.S), re.M)
    return {*named, *(re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", head).strip().lower()) for head in heads)}


@pytest.mark.parametrize(
    "page", [*PAGES, *(ROOT / name for name in ("README.md", "CHANGELOG.md", "SECURITY.md"))], ids=lambda p: p.stem
)
def test_links_are_valid(page, generated):
    for link in LINK.findall(without_code(page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        made = generated.get(str(target.relative_to(DOCS))) if target.is_relative_to(DOCS) else None
        assert made is not None or target.exists(), f"{page}: {link} has no target"
        if anchor:
            assert anchor in anchors(made or target.read_text()), f"{page}: {link}: no such heading"


def test_lines_of_pages_are_at_most_120_characters():
    """Tables and quoted texts may be longer."""
    for page in [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        text = re.sub(r"^( *)```text.*?^\1```", "", page.read_text(), flags=re.M | re.S)
        long = [line for line in text.splitlines() if len(line) > 120 and not line.startswith("|")]
        assert long == [], page


# ---- the harness itself ----


def test_output_is_compared_with_tolerance():
    assert matches("loss 0.74, 100 samples", "loss 0.75, 100 samples")
    assert not matches("loss 0.74, 100 samples", "loss 0.94, 100 samples")
    assert not matches("loss 0.74, 100 samples", "loss 0.74, 101 samples")
    assert matches("Speed: ... samples/sec", "Speed: 123.4 samples/sec")
    assert_printed("a\nc\n", "a\nb\nc\n", "here")
    with pytest.raises(AssertionError, match="here shows the line"):
        assert_printed("c\na\n", "a\nb\nc\n", "here")
