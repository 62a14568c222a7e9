"""The example in docs/use/host.md runs, and its table of limits is that of the settings."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

from tests.objects.fake_engine import FakeGroup

from coterie.objects import Definition, HostSettings

PAGE = (Path(__file__).parents[2] / "docs" / "use" / "host.md").read_text(encoding="utf-8")


def test_the_example_runs(tmp_path: Path) -> None:
    match = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert match is not None
    path = tmp_path / "documented_seats.py"
    path.write_text(match[1], encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    definition = module.seats
    assert isinstance(definition, Definition)
    group = FakeGroup(definition)
    session = group.open()
    assert group.result("a", session, 1, "book", "1A", "Ada") == 1
    assert group.failure("b", session, 2, "book", "1A", "Bob").error == "SeatTaken"
    assert "host.rebuilt" not in group["a"].context.counters
    assert group.look("holder", "1A") == "Ada"


def test_all_settings_are_documented() -> None:
    names = set(HostSettings.__struct_fields__)
    assert names <= set(re.findall(r"`(\w+)`", PAGE))
