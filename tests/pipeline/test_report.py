"""The figures, the drawings and the page: right on a small run, and safe whatever names say."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pipeline.here import Row, edit

from coterie.pipeline.engines import families_of, family_named
from coterie.pipeline.jobs import JobOutcome
from coterie.pipeline.lake.ranges import ranges_of
from coterie.pipeline.publish.charts import Line, plot, timeline
from coterie.pipeline.publish.figures import (
    BUCKETS,
    DOWN,
    OTHER,
    PRIMARY,
    Change,
    Figures,
    Span,
    TimeSlice,
    _count_answers,
    figures_of,
    slice_width,
)
from coterie.pipeline.publish.report import CHAPTERS_MAX, _page, _write_data

if TYPE_CHECKING:
    from coterie.pipeline.lake.lake import Lake

NASTY = "<script>alert('x')</script>&\"'"


def figures_here(lake: Lake, group: str = "group") -> Figures:
    """The figures as the report has them, without Spark."""
    width = slice_width(lake, group)
    answers: dict[int, list[int]] = {}
    for task in ranges_of(lake, [group]):
        for row in _count_answers(task, width).to_pylist():
            histogram = answers.setdefault(row["slice"], [0] * BUCKETS)
            histogram[row["bucket"]] += row["count"]
    return figures_of(lake, group, families_of(lake)[group], answers)


def some_figures(name: str = "calls") -> Figures:
    """A made-up half minute: two replicas, one goes down, a partition, a fail-over."""
    return Figures(
        group=name,
        stack="DYNSEQ:PVSYNC",
        replicas=["a", name],
        start=1_000_000,
        end=31_000_000,
        spans=[
            Span("a", 1_000_000, 2_000_000, OTHER, "1a", "a"),
            Span("a", 2_000_000, 31_000_000, PRIMARY, "2a", name),
            Span(name, 1_000_000, 12_000_000, PRIMARY, "2a", name),
            Span(name, 12_000_000, 31_000_000, DOWN),
        ],
        changes=[
            Change(2_000_000, "2a", name, joined=name, lost="", gap=None),
            Change(12_500_000, "3a", "a", joined="", lost=name, gap=250_000),
        ],
        slices=[
            TimeSlice(2_500_000, 10, 10.0, 800.0, 4_000.0),
            TimeSlice(3_500_000, 0, 0.0, 0.0, 0.0),
        ],
        answers=10,
        p50=800.0,
        p99=4_000.0,
        availability=0.96,
    )


def verdict(**changes: object) -> dict[str, object]:
    return {
        "group_name": "calls",
        "check_name": "exactly once",
        "paper": "objects 5.1",
        "promise": "No request is executed twice.",
        "verdict": "kept",
        "checked": 1234,
        "violations": 0,
        "remark": "",
        **changes,
    }


def violation(**changes: object) -> dict[str, object]:
    return {
        "group_name": "calls",
        "check_name": "exactly once",
        "position": 17,
        "view": None,
        "replicas": ["a", "b"],
        "evidence": "request 4 of session 2 was answered in 2 ways",
        "rows": [{"replica": "a", "incarnation": 1, "sequence": 99}],
        **changes,
    }


def finding(**changes: object) -> dict[str, object]:
    return {
        "group_name": "calls",
        "replica": "a",
        "incarnation": 1,
        "path": "calls/a/000001/000000000000001.segment",
        "byte_offset": 4096,
        "kind": "torn tail",
        "reason": "a turn of 300 bytes has only 12",
        "first": 88,
        "last": 0,
        **changes,
    }


class Reading(HTMLParser):
    """Collects the tags and the text of a page, and sees that every element is closed."""

    VOID = frozenset({"meta"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        self.tags.append(tag)
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.text += data


# ---- figures


def test_figures_of_a_run(counter_lake: Lake) -> None:
    figures = figures_here(counter_lake)
    assert figures.stack == "SAFE:DYNSEQ:PVSYNC"
    assert figures.replicas == ["a", "b", "c"]
    assert figures.start < figures.end
    assert {span.state for span in figures.spans} == {PRIMARY, OTHER}
    assert all(span.start < span.end for span in figures.spans)
    assert 0 < figures.availability <= 1
    assert figures.answers == sum(each.count for each in figures.slices) > 0
    assert figures.p50 == figures.p99 == 0, "simulated clients do not say when they asked"
    assert "<h3>Latency</h3>" not in _page([figures], JobOutcome(counter_lake.path("")), [])
    views = [int(re.match(r"\d+", change.view)[0]) for change in figures.changes]  # type: ignore[index]
    assert views == sorted(views)
    assert figures.changes[0].gap is None
    assert any(change.lost for change in figures.changes)
    assert any(change.gap for change in figures.changes)


def test_a_replica_that_was_killed_is_down_until_it_starts_again(optimistic_lake: Lake) -> None:
    started = [
        row
        for row in optimistic_lake.table("lives", "group").to_pylist()
        if row["event"] == "started"
    ]
    births = {(row["replica"], row["recorded_at"]) for row in started if row["incarnation"] > 1}
    downs = [span for span in figures_here(optimistic_lake).spans if span.state == DOWN]
    assert downs
    assert {(span.replica, span.end) for span in downs} <= births


def test_availability_is_the_share_of_time_in_a_primary_view(counter_lake: Lake) -> None:
    figures = figures_here(counter_lake)
    primary = sorted((span.start, span.end) for span in figures.spans if span.state == PRIMARY)
    covered: set[int] = set()
    for start, end in primary:
        covered.update(range(start // 1000, end // 1000))
    length = (max(span.end for span in figures.spans) - primary[0][0]) / 1000
    assert len(covered) / length == pytest.approx(figures.availability, abs=0.01)


def test_latencies_are_of_requests_that_say_when_they_were_made(counter_lake: Lake) -> None:
    def timed(row: Row) -> Row:
        return {**row, "asked_at": row["recorded_at"] - 5_000 if row["session"] % 2 else 0}

    assert edit(counter_lake, "replies", timed)
    figures = figures_here(counter_lake)
    assert 4_000 < figures.p50 == figures.p99 < 6_000
    assert "<h3>Latency</h3>" in _page([figures], JobOutcome(counter_lake.path("")), [])


def test_a_group_of_which_nothing_is_known(tmp_path: Path) -> None:
    from coterie.pipeline.lake.lake import Lake  # noqa: PLC0415 -- the name is for types above

    figures = figures_of(Lake.make(tmp_path / "lake"), "nobody", family_named("stack"), {})
    assert not figures.spans
    assert not figures.slices
    assert not figures.changes
    assert figures.availability == 0.0
    assert "Group nobody" in Reading(_page([figures], JobOutcome(tmp_path), [])).text


# ---- drawings


@pytest.mark.parametrize("name", ["calls", NASTY])
def test_drawings_are_well_formed(name: str) -> None:
    figures = some_figures(name)
    lines = [Line(name, "one", [(2_000_000, 1.0), (3_000_000, 900.0)])]
    for drawing in (
        timeline(figures),
        plot(figures, lines, "ms", name, log=True),
        plot(figures, lines, "1/s", name, log=False),
    ):
        root = ET.fromstring(drawing)  # noqa: S314 -- our own
        width, height = map(float, root.attrib["viewBox"].split()[2:])
        for element in root.iter("rect"):
            assert float(element.attrib["x"]) >= 0
            assert float(element.attrib["x"]) + float(element.attrib["width"]) <= width
        for element in root.iter("polyline"):
            for point in element.attrib["points"].split():
                x, y = map(float, point.split(","))
                assert 0 <= x <= width
                assert 0 <= y <= height


def test_replicas_of_one_view_have_one_colour() -> None:
    root = ET.fromstring(timeline(some_figures()))  # noqa: S314 -- our own
    bars = [(bar.attrib, bar.find("title")) for bar in root.iter("rect")]
    said = {title.text: style.get("style") for style, title in bars if title is not None}
    assert said["a: primary view 2a of calls, 29.00 s"] is not None
    assert (
        said["a: primary view 2a of calls, 29.00 s"]
        == said["calls: primary view 2a of calls, 11.00 s"]
    )
    assert said["calls: down, or silent, for 19.00 s"] is None, "grey comes from the style sheet"


def test_a_single_value_is_a_dot() -> None:
    lines = [Line("p50", "one", [(2_000_000, 3.0)])]
    root = ET.fromstring(plot(some_figures(), lines, "ms", "p50", log=True))  # noqa: S314 -- ours
    [drawn] = root.iter("polyline")
    first, second = drawn.attrib["points"].split()
    assert first == second


def test_a_plot_of_nothing() -> None:
    for log in (True, False):
        ET.fromstring(plot(some_figures(), [Line("p50", "one", [])], "ms", "x", log=log))  # noqa: S314


# ---- the page


def test_a_page_with_everything_that_can_go_wrong(tmp_path: Path) -> None:
    outcome = JobOutcome(
        tmp_path,
        standings={"authoritative": 1000, "rolled back": 3},
        verdicts=[
            verdict(verdict="broken", violations=60),
            verdict(check_name="one history", verdict="undecided", remark="b is missing (3 rows)"),
            verdict(check_name="of another group", group_name="other"),
        ],
        violations=[violation(position=each) for each in range(60)],
    )
    page = _page([some_figures()], outcome, [finding()] * 51)
    read = Reading(page)
    assert "Promises were broken: exactly once." in read.text
    assert "1 broken, 1 undecided" in read.text
    assert "cannot be told from the journals at hand" in read.text
    assert "of another group" not in read.text
    assert read.text.count("request 4 of session 2") == 50, "the page stays short"
    assert "60 in all" in read.text
    assert "a/1/99" in read.text
    assert "51 in all" in read.text
    assert "1,000 authoritative, 3 rolled back" in read.text
    assert "250 ms" in read.text


def test_a_page_without_verdicts_claims_nothing(tmp_path: Path) -> None:
    read = Reading(_page([some_figures()], JobOutcome(tmp_path), []))
    assert "No promise was checked in this run." in read.text
    assert "All journals could be read whole." in read.text
    assert "Violations" not in read.text


def test_names_and_reasons_cannot_become_markup(tmp_path: Path) -> None:
    words = dict.fromkeys(("check_name", "promise", "paper", "verdict", "remark"), NASTY)
    outcome = JobOutcome(
        tmp_path,
        standings={NASTY: 1},
        verdicts=[verdict(group_name=NASTY, **words)],
        violations=[
            violation(
                check_name=NASTY,
                evidence=NASTY,
                replicas=[NASTY],
                rows=[{"replica": NASTY, "incarnation": 1, "sequence": 2}],
            )
        ],
    )
    names = dict.fromkeys(("group_name", "replica", "kind", "reason", "path"), NASTY)
    page = _page([some_figures(NASTY)], outcome, [finding(**names)])
    assert "<script" not in page
    read = Reading(page)
    assert "script" not in read.tags
    assert read.text.count(NASTY) > 10, "it is still said, as text"


def test_the_same_figures_as_parquet_and_json(tmp_path: Path) -> None:
    _write_data(tmp_path, [some_figures("one"), some_figures("two")])
    for table, rows in (("spans", 8), ("changes", 4), ("slices", 4)):
        written = pq.read_table(tmp_path / "figures" / f"{table}.parquet")
        assert len(written) == rows
        assert set(written["group_name"].to_pylist()) == {"one", "two"}
    schema = pq.read_schema(tmp_path / "figures" / "changes.parquet")
    assert pa.types.is_int64(schema.field("gap_us").type)


def many_groups(count: int) -> tuple[list[Figures], JobOutcome]:
    """So many groups; a promise to one of them was broken, and one cannot be told of."""
    names = [f"group {number:04}" for number in range(count)]
    words = {names[count // 2]: "broken", names[count // 3]: "undecided"}
    verdicts = [
        verdict(group_name=name, verdict=words.get(name, "kept"), check_name=f"check {number}")
        for name in names
        for number in range(20)
    ]
    broken = violation(group_name=names[count // 2], check_name="check 3")
    outcome = JobOutcome(Path("out"), verdicts=verdicts, violations=[broken])
    return [some_figures(name) for name in names], outcome


def test_many_groups_have_an_index_the_worst_first() -> None:
    figures, outcome = many_groups(1_000)
    page = _page(figures, outcome, [])
    rows = re.findall(r'<tr class="([\w-]+)"><td>(?:<a href="#group-\d+">)?(group \d+)', page)
    assert rows[:3] == [
        ("broken", "group 0500"),
        ("undecided", "group 0333"),
        ("kept", "group 0000"),
    ]
    assert len({name for _, name in rows}) == 1_000
    assert page.count("<details open>") == 1, "what was broken is open"
    assert page.count("<details") == CHAPTERS_MAX
    assert page.index("Violations") < page.index("1,000 groups") < page.index("<details")
    assert len(page.encode()) < 10_000_000
    for place in range(CHAPTERS_MAX):
        assert page.count(f'id="group-{place}"') == page.count(f'href="#group-{place}"') == 1
