"""Imports between the top-level modules of neomx match a table and flow one way, so that a new one is deliberate.

`python tests/package/test_imports.py` rewrites the table from the code and keeps its comments. Review the difference
before you commit it.
"""

import ast
import importlib
import pathlib
import re
import sys
import textwrap

import pytest

import neomx

PACKAGE = pathlib.Path(neomx.__file__).parent
# Each top-level module (a file or a package of neomx/) with the modules that it imports, lowest first.
IMPORTS = """
attribute
bar
compat
log
lr_scheduler
misc
name
process
programs
runtime
base: process
engine: process
events: process
onednn: process
comm: base process
context: base
dtype: base
error: base
libinfo: base
library: base
registry: base
rtc: base
doctor: base comm context onednn process
formats: base dtype
util: base context
# files: images are resized by OpenCV, which formats/ loads
ops: base context dtype formats process
recordio: base formats
sample: formats
autograd: base events ndarray onednn ops
ndarray: autograd base context dtype formats onednn ops
executor: base context dtype ndarray onednn ops symbol
# bar: `neomx pack` shows its progress
io: bar base context formats ndarray process recordio
metric: base ndarray registry
# comm: the rank of this process
monitor: bar base comm events ndarray process
optimizer: base context dtype formats lr_scheduler ndarray ops
random: context ndarray ops
symbol: attribute base context dtype executor formats name ndarray onednn ops
convert: base context dtype formats io ndarray ops optimizer recordio symbol
executor_manager: base context executor ndarray symbol
image: base context formats io ndarray ops recordio
initializer: base ndarray ops random registry
kvstore: base comm context formats ndarray ops optimizer
numpy: base context dtype ndarray ops symbol
operator: autograd base context dtype name ndarray ops symbol
profiler: base comm formats ops symbol
visualization: base symbol
numpy_extension: base context image ndarray numpy ops random symbol util
step: base comm context events kvstore ndarray optimizer
# comm: datasets and SyncBatchNorm know the workers
gluon: autograd base comm context dtype events formats image initializer kvstore metric name ndarray numpy
    numpy_extension ops optimizer process recordio sample step symbol
autodiff: base context gluon name ndarray operator symbol
callback: model
check: base compat formats gluon initializer kvstore metric ops optimizer registry symbol
# gluon: mx.dist.shard returns a part of a dataset
dist: base comm gluon ndarray programs
model: base kvstore module ndarray process step symbol
module: base callback comm context events executor executor_manager formats gluon initializer io kvstore metric model
    ndarray optimizer process step symbol
networks: gluon name symbol
onnx: base context convert dtype gluon ndarray ops symbol
# gluon, io: datasets for tests
test_utils: autograd base context executor formats gluon io ndarray symbol util
# module: a BucketingModule is converted too
amp: base context dtype gluon module name ndarray ops symbol
checkpoint: base comm context convert dtype events formats gluon io module ndarray ops optimizer process step
distributed: dist gluon ndarray
rnn: base gluon initializer io model ndarray ops symbol
contrib: amp autograd base gluon io module ndarray onnx registry symbol
elastic: autograd base checkpoint comm events gluon io module ops optimizer process step
parallel: amp autograd base comm context dist distributed dtype events formats gluon initializer io module ndarray ops
    optimizer process step
horovod: base checkpoint comm context elastic events formats gluon kvstore module ndarray optimizer process step
# monitor: flags follow from registered sinks; parallel, checkpoint: --layout and --resume are checked before the start
launch: base checkpoint comm monitor parallel programs
learn: autograd base comm context dist gluon metric name ndarray ops parallel random step symbol
__main__: launch
"""
# Modules that import each other and belong together: arrays, symbols, and training a symbol.
TOGETHER = [{"autograd", "ndarray"}, {"executor", "symbol"}, {"callback", "model", "module"}]
# The only modules in which processes communicate.
MAY_DISTRIBUTE = {"comm", "parallel", "elastic", "checkpoint"}


def imports_of(path: pathlib.Path) -> set[str]:
    """Return the absolute names of all imports of a file, at any depth of the code."""
    package = ["neomx", *path.relative_to(PACKAGE).parent.parts]
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            names |= {f"{module}.{alias.name}" for alias in node.names}
    return names


def room_of(path: pathlib.Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def rooms() -> set[str]:
    return {room_of(path) for path in source_files()}


def edges_of(files: dict[pathlib.Path, set[str]]) -> dict[str, dict[str, str]]:
    """Return {module: {imported module: the file that imports it}}."""
    edges: dict[str, dict[str, str]] = {room_of(path): {} for path in sorted(files)}
    known = rooms()
    for path, names in sorted(files.items()):
        room = room_of(path)
        for name in names:
            parts = name.split(".")
            if parts[0] == "neomx" and len(parts) > 1 and parts[1] != room and parts[1] in known:
                edges[room][parts[1]] = str(path.relative_to(PACKAGE))
    return edges


def read(table: str) -> dict[str, set[str]]:
    """Return {module: imported modules}, in the order of the table."""
    lines = re.sub(r"#.*|\n  +", " ", table).split("\n")
    return {line.split(":")[0].strip(): set(line.partition(":")[2].split()) for line in lines if line.strip()}


def differences(files: dict[pathlib.Path, set[str]], table: str) -> list[str]:
    """Return how the imports of the files differ from the table, and what to do about it."""
    remedy = "if this is intended, run `python tests/package/test_imports.py`"
    found, listed = edges_of(files), read(table)
    wrong = [f"{room} is not in the table: {remedy}" for room in found.keys() - listed.keys()]
    wrong += [f"{room} is in the table but no longer in the package: {remedy}" for room in listed.keys() - found.keys()]
    for room in found.keys() & listed.keys():
        for other in found[room].keys() - listed[room]:
            path = found[room][other]
            wrong.append(f"{path} imports {other}, which is new for {room}: use a module that it imports; {remedy}")
        for other in listed[room] - found[room].keys():
            wrong.append(
                f"{room} no longer imports {other}: run `python tests/package/test_imports.py` to drop it from the list"
            )
    return sorted(wrong)


def upwards(table: str) -> list[str]:
    """Return imports of modules that are later in the table."""
    above: set[str] = set()
    wrong = []
    for room, others in read(table).items():
        above.add(room)
        beside = {name for group in TOGETHER if room in group for name in group}
        wrong += [f"{room} imports {other}, which is built on it" for other in sorted(others - above - beside)]
    return wrong


def distributing(files: dict[pathlib.Path, set[str]]) -> list[str]:
    """Return the files that import torch.distributed and should use comm instead."""
    return [
        f"{path.relative_to(PACKAGE)} imports {name}: use comm"
        for path, names in files.items()
        for name in names
        if name.startswith("torch.distributed") and room_of(path) not in MAY_DISTRIBUTE
    ]


def rewritten(source: str, files: dict[pathlib.Path, set[str]]) -> str:
    """Return this file with the table updated from the code, keeping the table's comments."""
    before, table, after = re.fullmatch(r'(.*?\nIMPORTS = """\n)(.*?)(""".*)', source, re.DOTALL).groups()
    comments = {room: text for text, room in re.findall(r"((?:^#.*\n)+)(\w+)", table, re.MULTILINE)}
    edges, levels = edges_of(files), {}

    def level(room: str, on_the_way: tuple[str, ...]) -> int:
        """Return how many levels of modules are below it."""
        if room in on_the_way:
            circle = " -> ".join([*on_the_way[on_the_way.index(room) :], room])
            sys.exit(f"these modules import each other: {circle}. Move shared code to a lower module")
        if room not in levels:
            group = next((group for group in TOGETHER if room in group), {room})
            under = {other for each in group for other in edges.get(each, ())} - group
            levels[room] = 1 + max((level(other, (*on_the_way, room)) for other in under), default=-1)
        return levels[room]

    lines = ""
    for room in sorted(edges, key=lambda room: (level(room, ()), room)):
        line = f"{room}: {' '.join(sorted(edges[room]))}".removesuffix(": ")
        lines += comments.get(room, "") + "\n".join(textwrap.wrap(line, 120, subsequent_indent="    ")) + "\n"
    return before + lines + after


def source_files() -> list[pathlib.Path]:
    return [p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py"]


def test_imports_match_the_table_and_flow_one_way():
    assert differences({p: imports_of(p) for p in source_files()}, IMPORTS) == []
    assert upwards(IMPORTS) == []


def test_every_module_is_documented_as_mxnets_or_ours():
    text = (PACKAGE.parent / "docs" / "architecture.md").read_text()
    tables = [re.search(rf"^{title}:\n\n```\n(.*?)```", text, re.S | re.M)[1] for title in ("MXNet's modules", "Ours")]
    listed = [name for table in tables for line in table.splitlines() for name in line.split("  ")[0].split()]
    remedy = 'list each module once, under "MXNet\'s modules" or "Ours" in docs/architecture.md'
    assert sorted(listed) == sorted(rooms()), remedy


def test_only_comm_and_layouts_import_torch_distributed():
    assert distributing({p: imports_of(p) for p in source_files()}) == []


def test_new_and_removed_imports_are_reported():
    files = {PACKAGE / "ops" / "x.py": {"neomx.ndarray.NDArray", "neomx.base.modes"}}
    assert differences(files, "ops: base ndarray\n") == []
    (new,) = differences(files, "ops: base")
    assert new.startswith("ops/x.py imports ndarray, which is new for ops: use a module that it imports; if")
    (gone,) = differences(files, "# why\nops: base\n    context ndarray\n")
    assert gone == "ops no longer imports context: run `python tests/package/test_imports.py` to drop it from the list"
    assert differences(files, "")[0].startswith("ops is not in the table")
    assert len(differences(files, "ops: base ndarray\nolds")) == 1
    assert upwards("base\nops: base ndarray\nndarray: autograd ops") == ["ops imports ndarray, which is built on it"]
    assert distributing({PACKAGE / "ops" / "x.py": {"torch.distributed.all_reduce"}}) != []


def test_table_is_rewritten_with_its_comments():
    before = '\nIMPORTS = """\nbase\n# why\n# at all\nops: dtype\n"""\nrest\n'
    files = {PACKAGE / "ops" / "x.py": {"neomx.events.emit", "torch"}, PACKAGE / "events.py": set()}
    after = '\nIMPORTS = """\nevents\n# why\n# at all\nops: events\n"""\nrest\n'
    assert rewritten(before, files) == after == rewritten(after, files)
    with pytest.raises(SystemExit, match="import each other: events -> ops -> events"):
        rewritten(before, files | {PACKAGE / "events.py": {"neomx.ops.table"}})


def test_only_public_names_are_loaded_on_use():
    assert set(neomx.__all__) <= set(dir(neomx))
    assert [name for name in dir(neomx) if not hasattr(neomx, name)] == []
    assert neomx.nd is neomx.ndarray and neomx.cpu is neomx.context.cpu
    with pytest.raises(AttributeError, match="module 'neomx' has no attribute 'no_such_room'"):
        _ = neomx.no_such_room


def test_missing_dependency_is_not_reported_as_a_missing_module(monkeypatch):
    monkeypatch.delitem(sys.modules, "neomx.rtc", raising=False)
    monkeypatch.delattr(neomx, "rtc", raising=False)
    monkeypatch.setattr(importlib, "import_module", lambda name: __import__("a_package_that_is_not_there"))
    with pytest.raises(ModuleNotFoundError, match="a_package_that_is_not_there"):
        _ = neomx.rtc


if __name__ == "__main__":
    here = pathlib.Path(__file__)
    here.write_text(rewritten(here.read_text(), {p: imports_of(p) for p in source_files()}))
