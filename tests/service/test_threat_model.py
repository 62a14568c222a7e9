"""The page on security names a test for each line of who is trusted with what, and it exists."""

from __future__ import annotations

import re

from tests.test_repository import ROOT

PAGE = ROOT / "docs" / "operate" / "security.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def lines() -> list[str]:
    section = PAGE.read_text(encoding="utf-8").partition("## Who is trusted with what")[2]
    return re.findall(r"(?m)^\| .*\|$", section.partition("\n## ")[0])[2:]


def test_every_line_names_a_test_that_exists() -> None:
    assert len(lines()) >= 15
    for line in lines():
        named = NAMED.findall(line.split("|")[-2])
        assert named, f"no test for: {line}"
        for file, name in named:
            text = (ROOT / file).read_text(encoding="utf-8")
            assert re.search(rf"(?m)^(?:async )?def {name}\(", text), f"{file} has no {name}"
