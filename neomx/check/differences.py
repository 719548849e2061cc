"""Names that differ from MXNet's, with quotations from docs/differences.md in a data file.

`tests/check/test_differences.py` compares the quotations with the page, and updates them when run as a script.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import json
import pathlib
import re
from typing import Any

from . import package
from .package import Missing, Value

DATA = pathlib.Path(__file__).with_name("differences.json")
PAGE = "docs/differences.md"


@dataclasses.dataclass(frozen=True)
class Entry:
    """One sentence of the page and a name that it is about.

    With a `keyword` it applies to calls that pass it, with a `value` to those that pass this constant.
    """

    section: str
    summary: str
    name: str
    keyword: str = ""
    value: Any = None
    missing: bool = False  # the name does not exist, or fails when it is used

    @property
    def link(self) -> str:
        """The address of its section on the page."""
        return f"{PAGE}#{anchor(self.section)}"


def anchor(heading: str) -> str:
    """Return the fragment of a link to a heading, as GitHub generates it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def parse(text: str) -> tuple[str, str, Any]:
    """Split `mx.kv.create(name='dist_async')` into name, keyword and value."""
    name, _, argument = text.rstrip(")").partition("(")
    keyword, _, value = argument.partition("=")
    return name, keyword, ast.literal_eval(value) if value else None


@functools.cache
def _by_last_part() -> dict[str, list[Entry]]:
    entries: dict[str, list[Entry]] = {}
    for about in json.loads(DATA.read_text(encoding="utf-8")):
        for text in about["names"]:
            name, keyword, value = parse(text)
            entry = Entry(about["section"], about["summary"], name, keyword, value, about.get("missing", False))
            entries.setdefault(name.rpartition(".")[2], []).append(entry)
    return entries


@functools.cache
def _found(name: str) -> tuple[Any, str, Any]:
    """Resolve an entry's name: return the object that has it, its last part, and the object itself or None."""
    path, _, last = name.replace("mx.", "mxnet.", 1).rpartition(".")
    parent = package.find(path)
    assert isinstance(parent, Value), name
    found = package.follow(parent, last)
    return parent.thing, last, found.thing if isinstance(found, Value) else None


def about(value: Value | Missing, keywords: dict[str, Any] | None = None) -> list[Entry]:
    """Return the entries about the use of a name or, with the `keywords` of a call, about a call of it."""
    if isinstance(value, Missing):
        names = [value.attribute]
    else:  # it may have been imported under another name
        names = list(dict.fromkeys([value.path.rpartition(".")[2], str(getattr(value.thing, "__name__", ""))]))
    entries = [entry for name in names for entry in _by_last_part().get(name, [])]
    return [entry for entry in entries if _is_about(entry, value) and _applies(entry, keywords)]


def _is_about(entry: Entry, value: Value | Missing) -> bool:
    parent, last, thing = _found(entry.name)
    if isinstance(value, Missing):
        return bool(value.parent.thing is parent and value.attribute == last)
    return thing is not None and value.thing is thing


def _applies(entry: Entry, keywords: dict[str, Any] | None) -> bool:
    if not entry.keyword or keywords is None:
        return not entry.keyword and keywords is None
    return entry.keyword in keywords and entry.value in (None, keywords[entry.keyword])
