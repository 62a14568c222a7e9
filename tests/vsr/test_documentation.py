"""The page on viewstamped replication is held to the code."""

from __future__ import annotations

import asyncio
import re
import sys
import types
from pathlib import Path

import pytest

from coterie.kernel.clock import milliseconds, seconds
from coterie.vsr import VsrSettings

PAGE = (Path(__file__).parents[2] / "docs" / "internals" / "vsr.md").read_text(encoding="utf-8")
UNITS = {"ms": milliseconds(1), "s": seconds(1), "MiB": 1 << 20, "KiB": 1 << 10}
ROWS = re.findall(r"^\| `(\w+)` \| ([\d ]+)(ms|s|MiB|KiB)?\b", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("name", "amount", "unit"), ROWS)
def test_every_limit_on_the_page_is_the_default(name: str, amount: str, unit: str) -> None:
    assert getattr(VsrSettings(), name) == int(amount.replace(" ", "")) * UNITS.get(unit, 1)


def test_the_example_on_the_page_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    [code] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    exec(compile(code, "page", "exec", dont_inherit=True), vars(module))  # noqa: S102 -- ours
    asyncio.run(module.main())


def test_the_page_lists_most_limits() -> None:
    assert len(ROWS) >= 18


def test_every_module_on_the_page_exists() -> None:
    folder = Path(__file__).parents[2] / "src" / "coterie" / "vsr"
    names = set(re.findall(r"^\| .*`(\w+\.py)`", PAGE.partition("## Views")[0], re.MULTILINE))
    assert names
    assert names <= {path.name for path in folder.rglob("*.py")}
