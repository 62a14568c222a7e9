"""docs/use/ready-made.md: its example runs, and it names every object, method and limit."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.patience import PATIENCE

from coterie import ready
from coterie.objects import MethodKind, define

PAGE = (Path(__file__).parents[2] / "docs" / "use" / "ready-made.md").read_text(encoding="utf-8")
CLASSES = [
    ready.Counter,
    ready.Dictionary,
    ready.Set,
    ready.LatestDictionary,
    ready.LatestSet,
    ready.Bag,
    ready.Queue,
    ready.Locks,
    ready.Election,
    ready.RateLimiter,
    ready.Sequence,
]


def test_the_example_prints_the_price() -> None:
    [example] = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    ran = subprocess.run(
        [sys.executable, "-c", example],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ran.stdout.split() == ["4"], ran.stderr


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_all_methods_and_limits_are_on_the_page(cls: type) -> None:
    row, *_ = re.findall(rf"^\| `{cls.__name__}(?:\[V\])?` \| `(.*?)\|(.*?)\|$", PAGE, re.MULTILINE)
    documented = [set(re.findall(r"\w+", re.sub(r"\(.*?\)", "", cell))) for cell in row]
    methods = define(cls).methods.values()
    for kind, names in zip((MethodKind.UPDATE, MethodKind.QUERY), documented, strict=True):
        assert names == {method.name for method in methods if method.kind is kind}
    limits = [name for name in vars(cls) if name.endswith("_max")]
    rows = [line for line in PAGE.splitlines() if line.startswith(f"| `{cls.__name__}` |")]
    for limit in limits:
        assert any(f"`{limit}`" in row for row in rows), limit
