"""The example in docs/use/upgrades.md is what it says: a later version that can follow."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

from tests.objects.fake_engine import FakeGroup

from coterie.objects import define
from coterie.objects.classes.versions import upgrade

PAGE = (Path(__file__).parents[2] / "docs" / "use" / "upgrades.md").read_text(encoding="utf-8")


def test_the_example_can_follow() -> None:
    match = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert match is not None
    module = sys.modules["documented_upgrade"] = types.ModuleType("documented_upgrade")
    exec(match[1], vars(module))  # noqa: S102 -- our own page
    definition = define(module.Seats)
    assert definition.previous is not None
    old = definition.previous.make()
    old.book("1A", "Ada")  # type: ignore[attr-defined]
    new = upgrade(definition, definition.previous, old)
    assert vars(new) == {"bookings": {"1A": ("Ada", "")}}
    group = FakeGroup(definition)
    session = group.open()
    assert group.result("a", session, 1, "book", "1A", "Ada") == 1
    assert group.look("note", "1A") == ""
