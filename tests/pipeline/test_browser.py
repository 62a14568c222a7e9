"""The report in a real browser: nothing complains, and every part can be seen."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.pipeline.test_report import figures_here, finding, some_figures, verdict, violation

from coterie.pipeline.jobs import Outcome
from coterie.pipeline.report import _page

if TYPE_CHECKING:
    from pathlib import Path

    from coterie.pipeline.lake import Lake

pytestmark = pytest.mark.long
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTH, HEIGHT = 1100, 3000
# Says where every part of the page came to lie, on the console.
PROBE = """<script>
console.log("PROBE" + JSON.stringify([...document.querySelectorAll("h1,h2,h3,svg,table")].map(
  each => [each.tagName.toLowerCase(), each.textContent.slice(0, 40),
           each.getBoundingClientRect().width, each.getBoundingClientRect().height]
)) + "END")
</script></body>"""


def browse(page: Path, folder: Path) -> list[str]:
    """Open a page, take a picture of it (`shot.png`), and give what the console said."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    command = [
        *(browser, "--headless", "--disable-gpu", "--disable-dev-shm-usage"),
        # Chromium refuses to run as root in its sandbox; the page is our own.
        *(["--no-sandbox"] if os.geteuid() == 0 else []),
        f"--user-data-dir={folder / 'profile'}",
        "--enable-logging=stderr",
        f"--window-size={WIDTH},{HEIGHT}",
        f"--screenshot={folder / 'shot.png'}",
        page.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return re.findall(r":CONSOLE:\d+\] \"(.*)\", source", done.stderr)


def test_the_console_is_heard(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<!doctype html><title>x</title><script>nothing()</script>", "utf-8")
    assert any("nothing is not defined" in line for line in browse(page, tmp_path))


def test_the_report_in_a_browser(counter_lake: Lake, tmp_path: Path) -> None:
    outcome = Outcome(
        tmp_path,
        standings={"authoritative": 900, "rolled back": 3},
        verdicts=[verdict(), verdict(verdict="broken", check="one history", violations=1)],
        violations=[violation(check="one history")],
    )
    figures = [figures_here(counter_lake), some_figures()]
    page = tmp_path / "report.html"
    page.write_text(_page(figures, outcome, [finding()]), "utf-8")
    assert browse(page, tmp_path) == []
    picture = (tmp_path / "shot.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert struct.unpack(">II", picture[16:24]) == (WIDTH, HEIGHT)
    assert len(picture) > 50_000, "there is something to see"

    probed = tmp_path / "probed.html"
    probed.write_text(page.read_text("utf-8").replace("</body>", PROBE), "utf-8")
    said = "\n".join(browse(probed, tmp_path))
    parts = json.loads(said.partition("PROBE")[2].partition("END")[0].replace('\\"', '"'))
    assert all(width > 0 and height > 0 for _, _, width, height in parts)
    seen = {(tag, text) for tag, text, _, _ in parts}
    for title in ("Views and partitions", "Throughput", "Latency", "Fail-overs and merges"):
        assert ("h3", title) in seen
    assert {("h2", "Violations"), ("h2", "Findings"), ("h3", "Verdicts")} <= seen
    drawings = [width for tag, _, width, _ in parts if tag == "svg"]
    assert len(drawings) == 5
    assert min(drawings) > WIDTH / 2, "drawings are as wide as the page"
