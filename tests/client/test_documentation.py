"""The examples in docs/use/clients.md run, and its tables of limits are those of the settings."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING

from tests.service.groups import Counter, PortGroup

from coterie.client import ClientSettings
from coterie.service.settings import PortSettings

if TYPE_CHECKING:
    import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "use" / "clients.md").read_text(encoding="utf-8")


def test_the_examples_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    examples = "\n\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    (tmp_path / "documented_clients.py").write_text(examples, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    import documented_clients  # type: ignore[import-not-found]  # noqa: PLC0415 -- made above

    monkeypatch.setattr(documented_clients, "Counter", Counter, raising=False)

    async def story() -> None:
        async with PortGroup() as group:
            await documented_clients.use(group.addresses["r1"])
            address = group.addresses["r2"]
            assert await asyncio.to_thread(documented_clients.use_blocking, address) == 19

    asyncio.run(story())
    first, second = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"3 7 \d+\.r1:\d+ AUTHORITATIVE", first)
    assert second == "12"


def test_all_settings_and_counters_are_documented() -> None:
    named = set(re.findall(r"`([\w.]+)`", PAGE))
    assert set(ClientSettings.__struct_fields__) <= named
    assert set(PortSettings.__struct_fields__) <= named
    source = Path(__file__).parents[2] / "src" / "coterie" / "service"
    for module in ("port", "engines/stack_front", "caller"):
        text = (source / f"{module}.py").read_text(encoding="utf-8")
        assert set(re.findall(r'"(port\.\w+)"', text)) <= named
