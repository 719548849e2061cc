"""The `-model.json` file of `Block.save`: the structure of a Block, in MXNet's format."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

from ..base import MXNetError
from ..formats.atomic import replacing


def write(name: str, block: Any) -> None:
    """Write the structure of a Block, and the graphs of its hybridized Blocks."""
    with replacing(name) as file:
        file.write(json.dumps(_describe(block)).encode())


def _describe(block: Any) -> dict[str, Any]:
    """Describe a Block as {'dense0': {facts and children}}. Keys are class names, numbered in traversal order."""
    numbers = itertools.count()

    def facts_of(each: Any) -> dict[str, Any]:
        key = f"{type(each).__name__.lower()}{next(numbers)}"
        facts = {"orig_name": each.name, **_graph_of(each)}
        facts["children"] = {child.name: attribute for attribute, child in each._children.items()}
        for child in each._children.values():
            facts.update(facts_of(child))
        return {key: facts}

    return facts_of(block)


def _graph_of(block: Any) -> dict[str, Any]:
    if not hasattr(block, "_last_graph"):  # not a HybridBlock
        return {}
    graph = block._last_graph
    if graph is None:
        return {"hybridized": False}
    return {
        "in_format": graph.in_format,
        "out_format": graph.out_format,
        "inputs": [each.tojson() for each in graph.inputs if each is not None],
        "symbol": graph.symbol.tojson(),
        "hybridized": True,
    }


def read(name: str, block: Any) -> list[bool]:
    """Return, in traversal order, whether each Block was hybridized. Raise if the file describes another structure."""
    with open(name, "rb") as file:
        try:
            content = json.load(file)
        except (ValueError, RecursionError) as error:
            raise MXNetError(f"{name} is not JSON: {error}. Expected a file that Block.save wrote") from None
    found, expected = list(_walk(content)), list(_walk(_describe(block)))
    if [key for key, _ in found] != [key for key, _ in expected]:
        raise MXNetError(
            f"{name} describes another Block. Expected {_names(expected)}; the file has {_names(found)}. Load it into "
            "a Block with the same structure as the one that was saved"
        )
    return [facts.get("hybridized") is True for _, facts in found]


def _walk(content: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Iterate over the (key, facts) of all described Blocks, parents before children."""
    for key, facts in content.items() if isinstance(content, dict) else ():
        if isinstance(facts, dict) and key != "children":
            yield key, facts
            yield from _walk(facts)


def _names(found: list[tuple[str, dict[str, Any]]]) -> str:
    names = [key for key, _ in found]
    return ", ".join(names if len(names) <= 12 else [*names[:12], f"and {len(names) - 12} more"]) or "no Blocks"
