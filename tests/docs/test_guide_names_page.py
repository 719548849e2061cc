"""docs/guide-names.md: its names exist."""

import re

from doc_pages import DOCS

import neomx as mx

PAGE = DOCS / "guide-names.md"


def names():
    """Return the names in the first column of the table that begin with mx."""
    table = PAGE.read_text().partition("|---|---|---|\n")[2].partition("\n\n")[0]
    return [name for row in table.splitlines() for name in re.findall(r"`(mx\.[\w.]+)`", row.split("|")[1])]


def test_names_in_the_table_exist_and_are_documented():
    assert len(names()) > 35
    for name in names():
        thing = mx
        for part in name.split(".")[1:]:
            thing = getattr(thing, part)
        assert thing.__doc__, name
