"""Every template in docs/extending runs as it is written, each in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "extending"
PAGES = [page for page in sorted(FOLDER.glob("*.md")) if page.name != "README.md"]
PROGRAMS = [page for page in PAGES if "```python\n" in page.read_text(encoding="utf-8")]
TOY = Path(__file__).parent / "toy_family"
OF_PROCESSES = {"benchmark"}
"""Pages whose programs start real processes."""
MINUTES = 5


def write_templates(page: Path, folder: Path) -> Path:
    """Write the code of a page into files, and give the one to run.

    Blocks with the same `file=` make up that file together, in their order; those without a name
    are the program.
    """
    text = page.read_text(encoding="utf-8")
    main = folder / f"{page.stem.replace('-', '_')}_page.py"
    parts: dict[str, list[str]] = {}
    for name, code in re.findall(r"```python(?: file=(\S+))?\n(.*?)```", text, flags=re.DOTALL):
        parts.setdefault(name or main.name, []).append(code)
    for name, blocks in parts.items():
        (folder / name).write_text("\n\n".join(blocks), encoding="utf-8")
    return main


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=[pytest.mark.slow] * (page.stem in OF_PROCESSES))
        for page in PROGRAMS
    ],
)
def test_the_template_runs(page: Path, tmp_path: Path) -> None:
    main = write_templates(page, tmp_path)
    ran = subprocess.run(
        [sys.executable, "-W", "error", main.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60 * MINUTES,
        check=False,
    )
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"


def without_layout(code: str) -> str:
    """Leave out what a formatter decides, which moves the parts of a page to the left."""
    return re.sub(r",?\s+", "", code)


def test_what_the_page_on_families_shows_is_the_toy_family() -> None:
    text = (FOLDER / "engine-family.md").read_text(encoding="utf-8")
    shown = re.findall(r"```python from=(\S+)\n(.*?)```", text, flags=re.DOTALL)
    for name, code in shown:
        file = (TOY / name).read_text(encoding="utf-8")
        assert without_layout(code) in without_layout(file), f"{name} has no such lines: {code}"
    assert {name for name, _ in shown} == {file.name for file in TOY.glob("[!t_]*.py")}
