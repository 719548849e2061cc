"""Hooks of `mkdocs build`.

They add the pages generated from the code and two files of the repository. They warn about anything that a page would
load from another host, because the site must work without a network. A warning fails the build.
"""

from __future__ import annotations

import functools
import logging
import pathlib
import re
import sys
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from scripts import reference  # noqa: E402  # found by the line above

log = logging.getLogger("mkdocs.plugins.neomx")
pages = functools.cache(lambda: list(reference.pages()))
# Files outside docs/ that also become pages, so that links to them work on the site as in the repository.
OUTSIDE = {
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "reporting.md",
}
# Content that a browser loads without a click; links for readers are allowed.
ELSEWHERE = r"""["']?(?:https?:)?//[^>;)]*"""
LOADED = re.compile(
    rf"<(?:script|img|iframe|source)\b[^>]*\bsrc={ELSEWHERE}"
    rf"|<link\b[^>]*\bhref={ELSEWHERE}"
    rf"|@import\s+{ELSEWHERE}"
    rf"|url\({ELSEWHERE}"
)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the pages generated from the code to the menu, at the start of 'Reference'."""
    config.nav = [_filled(entry) for entry in config.nav or []]
    return config


def _filled(entry: dict[str, Any]) -> dict[str, Any]:
    if list(entry) != ["Reference"]:
        return entry
    menu: list[dict[str, Any]] = []
    for page in pages():
        *folders, title = page.section
        level = menu
        for folder in folders:
            level = _folder(level, folder)
        level.insert(0 if page.path.endswith("index.md") else len(level), {title: page.path})
    return {"Reference": menu + entry["Reference"]}


def _folder(level: list[dict[str, Any]], title: str) -> list[dict[str, Any]]:
    """Return the entries below `title`, which is added if it does not exist."""
    for entry in level:
        if title in entry:
            return entry[title]
    level.append({title: []})
    return level[-1][title]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages generated from the code and those from outside docs/."""
    for page in pages():
        files.append(File.generated(config, page.path, content=page.text))
    for source, target in OUTSIDE.items():
        text = (ROOT / source).read_text().replace("](docs/", "](")
        for other, page in OUTSIDE.items():
            text = text.replace(f"]({other}", f"]({page}")
        files.append(File.generated(config, target, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Redirect links to files outside docs/ to their pages."""
    for source, target in OUTSIDE.items():
        markdown = markdown.replace(f"](../{source}", f"]({target}")
    return markdown


def on_post_build(config: MkDocsConfig) -> None:
    """Warn about content that a page loads from another host."""
    for path in sorted(pathlib.Path(config.site_dir).rglob("*")):
        if path.suffix in (".html", ".css", ".svg"):
            for found in LOADED.findall(path.read_text()):
                log.warning(f"{path.relative_to(config.site_dir)} loads from another host: {found[:200]}")
