"""The code on the pages runs as printed, and its output matches the pages."""

import subprocess
import sys

import doc_pages
import pytest
from doc_pages import DOCS, blocks, runs
from launching import LIMIT, environment

TUTORIALS = sorted((DOCS / "tutorials").glob("*.md"))
GUIDE = sorted((DOCS / "guide").glob("*.md"))  # its pages in Chinese have the same code
# Other pages of docs/ show parts of programs that do not run by themselves.
TOPICS = ("index", "networks", "guide-names", "learn", "learn-less-labels")
TOPICS += ("augmentation", "augmentation-audio", "augmentation-text")
OTHERS = [
    page
    for page in (*(DOCS / f"{name}.md" for name in TOPICS), *sorted(DOCS.glob("*/*.md")))
    if page not in TUTORIALS + GUIDE and any(map(runs, blocks(page)))
]


def follow(*pages):
    """Return the errors from following the pages."""
    command = [sys.executable, doc_pages.__file__, *map(str, pages)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT, env=environment()
    )
    return "" if done.returncode == 0 else done.stdout


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_tutorial_runs_as_printed(page):
    assert follow(page) == ""


@pytest.mark.parametrize("half", [0, 1])
def test_guide_runs_as_printed(half):
    assert len(GUIDE) > 30
    assert follow(*GUIDE[half::2]) == ""


def test_code_on_other_pages_runs():
    assert len(OTHERS) > 10
    assert follow(*OTHERS) == ""


def test_wrong_page_is_reported(tmp_path):
    page = tmp_path / "page.md"
    page.write_text('```python\nprint("one")\n```\n\n```text title="Output"\ntwo\n```\n')
    assert "page.md:5 shows the line\n  two\nwhich was not printed:\none" in follow(page)
    page.write_text("```console\n$ python -c 'raise SystemExit(3)'\n```\n")
    assert "exited with 3, not 0" in follow(page)
