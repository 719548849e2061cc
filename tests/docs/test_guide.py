"""The guide has the same pages and the same code in English and in Chinese; the English code runs in test_pages_run."""

import re

import pytest
from doc_pages import DOCS, ROOT, blocks

GUIDE, CHINESE = DOCS / "guide", DOCS / "guide" / "zh"
PAGES = sorted(path.name for path in GUIDE.glob("*.md"))
HAN = re.compile("[\u4e00-\u9fff]")


def code(path):
    return [(block.language, block.title, block.text, block.not_run) for block in blocks(path)]


def test_both_languages_have_thirty_questions():
    numbered = [name for name in PAGES if re.match(r"\d\d-", name)]
    assert [int(name[:2]) for name in numbered] == list(range(1, 31))
    assert sorted(path.name for path in CHINESE.glob("*.md")) == PAGES


@pytest.mark.parametrize("name", PAGES)
def test_code_is_the_same_in_both_languages(name):
    assert code(CHINESE / name) == code(GUIDE / name)


@pytest.mark.parametrize("name", PAGES)
def test_pages_are_written_in_their_language(name):
    assert not HAN.search((GUIDE / name).read_text())
    text = re.sub(r"```.*?```", "", (CHINESE / name).read_text(), flags=re.S)
    assert HAN.search(text.splitlines()[0]), "the title is not Chinese"
    assert len(HAN.findall(text)) > 80


@pytest.mark.parametrize("folder", [GUIDE, CHINESE], ids=["en", "zh"])
def test_index_links_to_every_page(folder):
    index = (folder / "index.md").read_text()
    assert [name for name in PAGES if name != "index.md" and f"({name})" not in index] == []


def test_readme_has_the_same_program_in_chinese():
    programs = [
        re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.S) for name in ("README.md", "README.zh-CN.md")
    ]
    assert programs[0] == programs[1] and len(programs[0]) == 1
