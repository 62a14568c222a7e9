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
from tests.patience import PATIENCE
from tests.pipeline.test_report import (
    figures_here,
    finding,
    many_groups,
    some_figures,
    verdict,
    violation,
)

from coterie.pipeline.jobs import JobOutcome
from coterie.pipeline.publish.report import CHAPTERS_MAX, _page

if TYPE_CHECKING:
    from pathlib import Path

    from coterie.pipeline.lake.lake import Lake

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


# Says what somebody finds who came with the keyboard, in the colours that the system asks for.
KEYS = """<script>
const stops = [...document.querySelectorAll("a[href],summary")];
console.log("PROBE" + JSON.stringify({
  stops: stops.length,
  unreachable: stops.filter(each => each.tabIndex < 0).length,
  dark: matchMedia("(prefers-color-scheme: dark)").matches,
  paper: getComputedStyle(document.body).backgroundColor,
  ink: getComputedStyle(document.body).color,
}) + "END");
addEventListener("load", () => setTimeout(() => {
  const there = document.querySelector(location.hash).closest("details");
  console.log("OPENED" + there.open);
  const other = document.querySelector("details:not([open]) > summary");
  other.focus(); other.click();
  console.log("UNFOLDED" + other.parentElement.open);
}, 0))
</script></body>"""
DARK = "--blink-settings=preferredColorScheme=0"


def browse(page: Path, folder: Path, *more: str, place: str = "") -> list[str]:
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
        *more,
        page.as_uri() + place,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    return re.findall(r":CONSOLE:\d+\] \"(.*)\", source", done.stderr)


def test_the_console_is_heard(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<!doctype html><title>x</title><script>nothing()</script>", "utf-8")
    assert any("nothing is not defined" in line for line in browse(page, tmp_path))


def test_the_report_in_a_browser(counter_lake: Lake, tmp_path: Path) -> None:
    outcome = JobOutcome(
        tmp_path,
        standings={"authoritative": 900, "rolled back": 3},
        verdicts=[verdict(), verdict(verdict="broken", check_name="one history", violations=1)],
        violations=[violation(check_name="one history")],
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


def luminance(colour: str) -> float:
    """How bright a colour is, as WCAG has it."""
    parts = [int(each) / 255 for each in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (
        each / 12.92 if each <= 0.03928 else ((each + 0.055) / 1.055) ** 2.4 for each in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("is_dark", [False, True])
def test_a_thousand_groups_by_keyboard(tmp_path: Path, *, is_dark: bool) -> None:
    figures, outcome = many_groups(1_000)
    page = tmp_path / "report.html"
    page.write_text(_page(figures, outcome, []).replace("</body>", KEYS), "utf-8")
    said = "\n".join(browse(page, tmp_path, *([DARK] if is_dark else []), place="#group-7"))
    found = json.loads(said.partition("PROBE")[2].partition("END")[0].replace('\\"', '"'))
    assert found["stops"] == 2 * CHAPTERS_MAX
    assert found["unreachable"] == 0
    assert "OPENEDtrue" in said, "who follows a link from the index sees the chapter"
    assert "UNFOLDEDtrue" in said
    assert found["dark"] == is_dark
    paper, ink = luminance(found["paper"]), luminance(found["ink"])
    assert (paper < ink) == is_dark
    assert (max(paper, ink) + 0.05) / (min(paper, ink) + 0.05) > 7, "words can be read"
