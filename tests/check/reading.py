"""For tests of `neomx check`: findings in a text."""

import textwrap

from neomx.check import sources
from neomx.check.program import check, registered_names


def read(text, path="train.py"):
    """Return the source of a script, or of the bytes of a notebook."""
    text = textwrap.dedent(text).lstrip("\n")
    tree, problems = sources.parse(text, path)
    return sources.Source(path, text, tree, problems)


def findings(text, *kinds):
    """Return (line, kind, name, message) of the findings in a script, of these kinds or of all but `runs`."""
    source = read(text)
    found, _ = check(source, frozenset(registered_names(source.tree)))
    chosen = kinds or ("error", "missing", "differs", "note")
    return [(each.line, each.kind, each.name, each.message) for each in found if each.kind in chosen]


def names(text, *kinds):
    """Return {name: lines} of the findings."""
    result = {}
    for line, _, name, _ in findings(text, *kinds):
        result.setdefault(name, []).append(line)
    return result
