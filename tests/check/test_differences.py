"""The differences that `neomx check` reports are sentences of docs/differences.md, and their names exist in neomx.

`python tests/check/test_differences.py` copies the sentences and headings again from the page. Each entry finds its
sentence by `find`, a piece of text that occurs in no other sentence.
"""

import json
import pathlib
import re

import pytest

from neomx.check import calls, differences, package
from neomx.check.package import Missing, Value

PAGE = pathlib.Path(__file__).parents[2] / differences.PAGE


def sentences(page: str) -> list[tuple[str, str]]:
    """(heading, sentence) of all sentences, and parts of them between semicolons, that are not in parentheses."""
    found = []
    for part in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        heading, _, body = part.partition("\n")
        for paragraph in re.split(r"\n\n|\n(?=- )", body):
            text = " ".join(paragraph.removeprefix("- ").split())
            ends = [m.end() for m in re.finditer(r"[.;](?= )", text) if _outside(text[: m.start()])]
            cuts = [0, *ends, len(text)]
            found += [(heading, text[a:b].strip().rstrip(";")) for a, b in zip(cuts, cuts[1:], strict=False) if a < b]
    return found


def _outside(text: str) -> bool:
    return text.count("(") == text.count(")") and text.count("`") % 2 == 0


def renewed(entries: list[dict], page: str) -> list[dict]:
    """Return the entries with the headings and sentences that the page has now."""
    known = sentences(page)
    result = []
    for entry in entries:
        matches = [(heading, sentence) for heading, sentence in known if entry["find"] in sentence]
        assert len(matches) == 1, (
            f"{entry['find']!r} must occur in one sentence of {differences.PAGE}, found in {len(matches)}: correct "
            f"`find` in {differences.DATA.name}, or remove the entry if neomx no longer differs"
        )
        section, summary = matches[0]
        result.append({**entry, "section": section, "summary": summary})
    return result


def written(entries: list[dict]) -> str:
    return json.dumps(entries, indent=1, ensure_ascii=False) + "\n"


def entries() -> list[dict]:
    return json.loads(differences.DATA.read_text())


def test_every_entry_quotes_the_page():
    remedy = "run `python tests/check/test_differences.py` and commit what it changes"
    assert differences.DATA.read_text() == written(renewed(entries(), PAGE.read_text())), remedy


def test_links_use_the_anchors_of_headings():
    assert differences.anchor("mx.rnn, text, legacy ops") == "mxrnn-text-legacy-ops"
    assert differences.anchor("Numbers that cannot be the same") == "numbers-that-cannot-be-the-same"
    anchors = [differences.anchor(heading) for heading in re.findall(r"^## (.*)", PAGE.read_text(), re.MULTILINE)]
    assert len(anchors) == len(set(anchors))
    assert {differences.anchor(entry["section"]) for entry in entries()} <= set(anchors)


@pytest.mark.parametrize("text", [name for entry in entries() for name in entry["names"]])
def test_every_name_exists_or_is_marked_as_missing(text):
    missing = next(entry.get("missing", False) for entry in entries() if text in entry["names"])
    name, keyword, _ = differences.parse(text)
    found = package.find(name.replace("mx.", "mxnet.", 1) if name.startswith("mx.") else name)
    if isinstance(found, Missing):
        assert missing, f"neomx has no {name}: correct {differences.DATA.name}"
        assert differences.about(found)
    else:
        assert isinstance(found, Value)
        assert not keyword or calls.signature(found).takes(keyword), f"{name} has no keyword {keyword}"


def test_sentences_are_found_across_line_breaks():
    page = "# T\n\nintro\n\n## A, b\n\n- One (a; b. C).\n  Two `x; y`\n  has; three.\n- Four.\n"
    assert sentences(page) == [
        ("A, b", "One (a; b. C)."),
        ("A, b", "Two `x; y` has"),
        ("A, b", "three."),
        ("A, b", "Four."),
    ]
    (entry,) = renewed([{"find": "`x", "names": ["mx.nd"]}], page)
    assert entry == {"find": "`x", "names": ["mx.nd"], "section": "A, b", "summary": "Two `x; y` has"}
    with pytest.raises(AssertionError, match="must occur in one sentence .*, found in 0"):
        renewed([{"find": "Five", "names": []}], page)


if __name__ == "__main__":
    differences.DATA.write_text(written(renewed(entries(), PAGE.read_text())))
