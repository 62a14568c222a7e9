"""The pages of documentation hang together: no page is out of the way, no word has two meanings."""

from __future__ import annotations

import re

from tests.test_repository import LINK, ROOT, prose

DOCS = ROOT / "docs"
ROOMS = {"use", "operate", "internals", "extending"}


def test_every_page_is_in_a_room_and_the_readme_leads_to_it() -> None:
    index = DOCS / "extending" / "README.md"
    linked = {
        (page.parent / link).resolve()
        for page in (ROOT / "README.md", index)
        for link in LINK.findall(prose(page))
    }
    pages = sorted(DOCS.rglob("*.md"))
    assert {page.relative_to(DOCS).parts[0] for page in pages} == ROOMS
    assert [page for page in pages if page not in linked] == []


def test_the_glossary_has_each_word_once_and_in_order() -> None:
    """The words that everything else is explained with are there."""
    text = (DOCS / "internals" / "glossary.md").read_text(encoding="utf-8")
    words = re.findall(r"(?m)^\| \*([^*]+)\* \|", text)
    assert words == sorted(set(words))
    assert set(words) >= {
        *("group", "replica", "incarnation", "view", "regular view", "transitional view"),
        *("primary view", "entry", "identity", "viewstamp", "position", "request id"),
        *("deliver", "authoritative", "stable", "commit", "zombie", "standing", "status"),
    }


def test_the_tests_that_pages_name_are_there() -> None:
    """A line of the page on security is held by a test, or it is only a hope."""
    named = {
        found
        for page in DOCS.rglob("*.md")
        for found in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.read_text(encoding="utf-8"))
    }
    assert named
    for file, test in sorted(named):
        assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), (file, test)


def test_decisions_are_numbered_in_order() -> None:
    """Two that were made at the same time may not bear one number: others refer to it."""
    text = (DOCS / "internals" / "decisions.md").read_text(encoding="utf-8")
    numbers = [int(number) for number in re.findall(r"(?m)^## (\d+)\. ", text)]
    assert numbers == list(range(1, len(numbers) + 1))
