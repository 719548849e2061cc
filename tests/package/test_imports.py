"""Imports between rooms are exactly those of a table and flow one way, so that a new one is a decision.

`python tests/package/test_imports.py` rewrites the table from the code and keeps its comments. Read the difference
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
# Each room (a file or a package of neomx/) with the rooms that it imports, from the ground up.
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
# files: pictures are resized by OpenCV, which formats/ loads
ops: base context dtype formats process
recordio: base formats
sample: formats
autograd: base events ndarray onednn ops
ndarray: autograd base context dtype formats onednn ops
executor: base context dtype ndarray onednn ops symbol
# bar: `neomx pack` shows how far it is
io: bar base context formats ndarray recordio
metric: base ndarray registry
# comm: which rank this is
monitor: bar base comm events ndarray process
optimizer: base context dtype formats lr_scheduler ndarray ops
random: context ndarray ops
symbol: attribute base context dtype executor formats name ndarray onednn ops
convert: base context dtype formats io ndarray ops optimizer recordio symbol
executor_manager: base context executor ndarray symbol
image: base context formats io ndarray recordio
initializer: base ndarray ops random registry
kvstore: base comm context formats ndarray optimizer
numpy: base context dtype ndarray ops symbol
operator: autograd base context dtype name ndarray ops symbol
profiler: base comm formats ops symbol
visualization: base symbol
numpy_extension: base context image ndarray numpy ops random symbol util
step: base comm context events kvstore ndarray optimizer
# comm: datasets and SyncBatchNorm know the workers
gluon: autograd base comm context dtype events formats image initializer kvstore metric name ndarray numpy
    numpy_extension ops optimizer process random recordio sample step symbol
callback: model
check: base compat formats gluon initializer kvstore metric ops optimizer registry symbol
# gluon: mx.dist.shard is a dataset's part
dist: base comm gluon ndarray programs
horovod: base comm events formats gluon kvstore ndarray optimizer process step
model: base kvstore module ndarray process step symbol
module: base callback comm context events executor executor_manager formats gluon initializer io kvstore metric model
    ndarray optimizer process step symbol
onnx: base context convert dtype gluon ndarray ops symbol
# gluon, io: datasets for tests
test_utils: autograd base context executor formats gluon io ndarray symbol util
# module: a BucketingModule is converted too
amp: base context dtype gluon module name ndarray ops symbol
rnn: base gluon initializer io model ndarray ops symbol
contrib: amp autograd base gluon io module ndarray onnx registry symbol
parallel: amp autograd base comm context dtype formats gluon initializer ndarray ops optimizer step
# monitor: flags follow from registered sinks; parallel: --layout is checked before anything starts
launch: base comm monitor parallel programs
__main__: launch
"""
# Rooms that import each other, each of them one room in several files: arrays, symbols, and training a symbol.
TOGETHER = [{"autograd", "ndarray"}, {"executor", "symbol"}, {"callback", "model", "module"}]
# The only rooms where processes talk to each other.
MAY_DISTRIBUTE = {"comm", "parallel", "elastic", "checkpoint"}


def imports_of(path: pathlib.Path) -> set[str]:
    """The absolute names of all that a file imports, at any depth of the code."""
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
    """{room: {room that it imports: the file that does}} of the files."""
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
    """{room: the rooms that it imports}, in the table's order."""
    lines = re.sub(r"#.*|\n  +", " ", table).split("\n")
    return {line.split(":")[0].strip(): set(line.partition(":")[2].split()) for line in lines if line.strip()}


def differences(files: dict[pathlib.Path, set[str]], table: str) -> list[str]:
    """How the imports of the files differ from the table, and what to do about it."""
    remedy = "if that is meant, run `python tests/package/test_imports.py`"
    found, listed = edges_of(files), read(table)
    wrong = [f"{room} is not in the table: {remedy}" for room in found.keys() - listed.keys()]
    wrong += [f"{room} is in the table and no longer in the package: {remedy}" for room in listed.keys() - found.keys()]
    for room in found.keys() & listed.keys():
        for other in found[room].keys() - listed[room]:
            path = found[room][other]
            wrong.append(f"{path} imports {other}, which no file of {room} did: use a room that it imports; {remedy}")
        for other in listed[room] - found[room].keys():
            wrong.append(
                f"{room} no longer imports {other}: run `python tests/package/test_imports.py` to drop it from the list"
            )
    return sorted(wrong)


def upwards(table: str) -> list[str]:
    """Imports of rooms that stand later in the table."""
    above: set[str] = set()
    wrong = []
    for room, others in read(table).items():
        above.add(room)
        beside = {name for group in TOGETHER if room in group for name in group}
        wrong += [f"{room} imports {other}, which is built on it" for other in sorted(others - above - beside)]
    return wrong


def distributing(files: dict[pathlib.Path, set[str]]) -> list[str]:
    """Who imports torch.distributed and should go through comm."""
    return [
        f"{path.relative_to(PACKAGE)} imports {name}: use comm"
        for path, names in files.items()
        for name in names
        if name.startswith("torch.distributed") and room_of(path) not in MAY_DISTRIBUTE
    ]


def rewritten(source: str, files: dict[pathlib.Path, set[str]]) -> str:
    """This file with the table as the code is, and the comments that the table has."""
    before, table, after = re.fullmatch(r'(.*?\nIMPORTS = """\n)(.*?)(""".*)', source, re.DOTALL).groups()
    comments = {room: text for text, room in re.findall(r"((?:^#.*\n)+)(\w+)", table, re.MULTILINE)}
    edges, levels = edges_of(files), {}

    def level(room: str, on_the_way: tuple[str, ...]) -> int:
        """How many rooms lie under it."""
        if room in on_the_way:
            circle = " -> ".join([*on_the_way[on_the_way.index(room) :], room])
            sys.exit(f"these rooms import each other: {circle}. Move what they share to a lower room")
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


def test_imports_are_those_of_the_table_and_flow_one_way():
    assert differences({p: imports_of(p) for p in source_files()}, IMPORTS) == []
    assert upwards(IMPORTS) == []


def test_every_room_is_documented_as_mxnets_or_ours():
    text = (PACKAGE.parent / "docs" / "architecture.md").read_text()
    tables = [re.search(rf"^{title}:\n\n```\n(.*?)```", text, re.S | re.M)[1] for title in ("MXNet's modules", "Ours")]
    listed = [name for table in tables for line in table.splitlines() for name in line.split("  ")[0].split()]
    remedy = 'list each room once, under "MXNet\'s modules" or "Ours" in docs/architecture.md'
    assert sorted(listed) == sorted(rooms()), remedy


def test_only_comm_and_layouts_import_torch_distributed():
    assert distributing({p: imports_of(p) for p in source_files()}) == []


def test_new_imports_and_those_that_are_gone_are_seen():
    files = {PACKAGE / "ops" / "x.py": {"neomx.ndarray.NDArray", "neomx.base.modes"}}
    assert differences(files, "ops: base ndarray\n") == []
    (new,) = differences(files, "ops: base")
    assert new.startswith("ops/x.py imports ndarray, which no file of ops did: use a room that it imports; if")
    (gone,) = differences(files, "# why\nops: base\n    context ndarray\n")
    assert gone == "ops no longer imports context: run `python tests/package/test_imports.py` to drop it from the list"
    assert differences(files, "")[0].startswith("ops is not in the table")
    assert len(differences(files, "ops: base ndarray\nolds")) == 1
    assert upwards("base\nops: base ndarray\nndarray: autograd ops") == ["ops imports ndarray, which is built on it"]
    assert distributing({PACKAGE / "ops" / "x.py": {"torch.distributed.all_reduce"}}) != []


def test_the_table_is_rewritten_with_its_comments():
    before = '\nIMPORTS = """\nbase\n# why\n# at all\nops: dtype\n"""\nrest\n'
    files = {PACKAGE / "ops" / "x.py": {"neomx.events.emit", "torch"}, PACKAGE / "events.py": set()}
    after = '\nIMPORTS = """\nevents\n# why\n# at all\nops: events\n"""\nrest\n'
    assert rewritten(before, files) == after == rewritten(after, files)
    with pytest.raises(SystemExit, match="import each other: events -> ops -> events"):
        rewritten(before, files | {PACKAGE / "events.py": {"neomx.ops.table"}})


def test_every_public_name_is_loaded_when_it_is_used_and_no_other():
    assert set(neomx.__all__) <= set(dir(neomx))
    assert [name for name in dir(neomx) if not hasattr(neomx, name)] == []
    assert neomx.nd is neomx.ndarray and neomx.cpu is neomx.context.cpu
    with pytest.raises(AttributeError, match="module 'neomx' has no attribute 'no_such_room'"):
        _ = neomx.no_such_room


def test_what_a_room_lacks_is_not_taken_for_a_missing_room(monkeypatch):
    monkeypatch.delitem(sys.modules, "neomx.rtc", raising=False)
    monkeypatch.delattr(neomx, "rtc", raising=False)
    monkeypatch.setattr(importlib, "import_module", lambda name: __import__("a_package_that_is_not_there"))
    with pytest.raises(ModuleNotFoundError, match="a_package_that_is_not_there"):
        _ = neomx.rtc


if __name__ == "__main__":
    here = pathlib.Path(__file__)
    here.write_text(rewritten(here.read_text(), {p: imports_of(p) for p in source_files()}))
