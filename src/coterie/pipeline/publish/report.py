"""`report.html`: one page, complete in itself, that a person would want to look at."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from coterie.pipeline.engines import families, family_of
from coterie.pipeline.lake.lake import draft_of
from coterie.pipeline.outcomes import Basis, Outcome
from coterie.pipeline.publish.charts import Line, plot, timeline
from coterie.pipeline.publish.figures import all_figures
from coterie.pipeline.publish.manifest import table_of
from coterie.pipeline.read.schemas import TIME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from coterie.pipeline.jobs import JobOutcome
    from coterie.pipeline.lake.lake import Lake
    from coterie.pipeline.publish.figures import Figures

FIGURES = {
    "spans": pa.schema(
        [
            ("group_name", pa.string()),
            ("replica", pa.string()),
            ("began_at", TIME),
            ("ended_at", TIME),
            ("state", pa.string()),
            ("view", pa.string()),
            ("members", pa.string()),
        ]
    ),
    "changes": pa.schema(
        [
            ("group_name", pa.string()),
            ("happened_at", TIME),
            ("view", pa.string()),
            ("members", pa.string()),
            ("joined", pa.string()),
            ("lost", pa.string()),
            ("gap_us", pa.int64()),
        ]
    ),
    "slices": pa.schema(
        [
            ("group_name", pa.string()),
            ("happened_at", TIME),
            ("count", pa.int64()),
            ("per_second", pa.float64()),
            ("p50_us", pa.float64()),
            ("p99_us", pa.float64()),
        ]
    ),
}
"""The figures as tables."""
_NAMES = {
    "start": "began_at",
    "end": "ended_at",
    "at": "happened_at",
    "gap": "gap_us",
    "p50": "p50_us",
    "p99": "p99_us",
}
"""What figures are called in tables, where a name has to say its unit and needs no quotes."""
_ROWS_SHOWN = 50
MANY_GROUPS = 8
"""From how many groups on a chapter opens when it is asked for, unless a promise was broken."""
CHAPTERS_MAX = 200
"""Groups that have a chapter, at most: those first for which something is to be said."""
_OPEN_MAX = 20
"""Chapters that are open from the beginning, where there are many."""
_WORST = ("broken", "undecided", "kept in part", "not yet", "kept", "not checked", "")
"""Verdicts, and none, in the order in which somebody would look at them."""
_WORDS = {
    "kept": "kept",
    "broken": "BROKEN",
    "kept in part": "kept, as far as the journals at hand tell",
    "undecided": "cannot be told from the journals at hand",
    "not yet": "cannot be told yet",
    "not checked": "not checked",
}


def write_report(spark: SparkSession, lake: Lake, outcome: JobOutcome) -> Path:
    """Write the page, and the same figures as JSON and Parquet; give the page's path."""
    figures = list(all_figures(spark, lake))
    for family in families().values():
        outcomes = family.outcomes(table_of(outcome.out, "transactions").parent)
        for each in figures:
            each.transactions |= outcomes.get(each.group, {})
    _write_data(outcome.out, figures)
    chapters = {each.group: family_of(each.stack).chapter(each) for each in figures}
    page = outcome.out / "report.html"
    draft = outcome.out / "_draft-report.html"
    draft.write_text(_page(figures, outcome, outcome.findings, chapters), encoding="utf-8")
    draft.replace(page)
    return page


def _write_data(out: Path, figures: Sequence[Figures]) -> None:
    data = [asdict(each) for each in figures]
    (out / "figures.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    folder = out / "figures"
    folder.mkdir(exist_ok=True)
    for table, schema in FIGURES.items():
        rows = [
            {"group_name": each["group"], **{_NAMES.get(name, name): row[name] for name in row}}
            for each in data
            for row in each[table]
        ]
        draft = draft_of(folder / f"{table}.parquet")
        pq.write_table(pa.Table.from_pylist(rows, schema), draft)
        draft.replace(folder / f"{table}.parquet")


def _page(
    figures: Sequence[Figures],
    outcome: JobOutcome,
    findings: Sequence[dict[str, Any]],
    chapters: Mapping[str, str] | None = None,
) -> str:
    broken = sorted({row["check_name"] for row in outcome.violations})
    if broken:
        headline, style = f"Promises were broken: {', '.join(broken)}", "bad"
    elif outcome.outcome is Outcome.DAMAGED:
        headline, style = "No promise was found broken, but not all could be known", "open"
    elif outcome.verdicts:
        headline, style = "Every promise that could be checked was kept", "good"
    else:
        headline, style = "No promise was checked in this run", "open"
    problems = "".join(f'<p class="bad">{escape(each)}.</p>' for each in outcome.problems)
    told = _by_group(outcome.verdicts)
    # Who looks at a thousand groups looks at those first of which there is something to say.
    figures = sorted(
        figures, key=lambda each: (_WORST.index(_worst(told.get(each.group))), each.group)
    )
    shown = figures[:CHAPTERS_MAX]
    sections = [
        _group(each, told.get(each.group, []), (chapters or {}).get(each.group, ""), place)
        for place, each in enumerate(shown)
    ]
    if len(figures) > 1:
        sections.insert(0, _index(figures, told))
    if len(shown) >= MANY_GROUPS:
        sections = [sections[0], *_folded(shown, told, sections[1:])]
    entries = ", ".join(f"{count:,} {word}" for word, count in sorted(outcome.standings.items()))
    entries = f"<p>Entries of all groups: {escape(entries)}.</p>" if entries else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Coterie report</title><style>{_style()}</style></head><body><main>"
        f'<h1>Coterie report</h1><p class="{style} headline">{escape(headline)}.</p>'
        f"{problems}{entries}{_violations(outcome)}{''.join(sections)}{_findings(findings)}"
        "<footer>Times are those of the replicas' own clocks. Latency is from the client's clock "
        "when it asked to the replica's when it answered.</footer></main></body></html>\n"
    )


def _style() -> str:
    return files("coterie.pipeline.publish").joinpath("report.css").read_text(encoding="utf-8")


def _by_group(verdicts: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    told: dict[str, list[dict[str, Any]]] = {}
    for row in verdicts:
        told.setdefault(row["group_name"], []).append(row)
    return told


def _worst(verdicts: Sequence[dict[str, Any]] | None) -> str:
    """Give the verdict that says most about a group; nothing if there is none."""
    words = {row["verdict"] for row in verdicts or ()}
    return next((word for word in _WORST if word in words), "")


def _index(figures: Sequence[Figures], told: Mapping[str, Sequence[dict[str, Any]]]) -> str:
    """Give a line for each group, the worst first, that leads to its chapter."""
    rows: list[str] = []
    for place, each in enumerate(figures):
        gaps = [change.gap for change in each.changes if change.gap is not None]
        word = _worst(told.get(each.group))
        name = escape(each.group)
        cells = (
            f'<a href="#group-{place}">{name}</a>' if place < CHAPTERS_MAX else name,
            escape(_WORDS.get(word, word) or "-"),
            f"{each.answers:,}",
            f"{each.availability:.2%}",
            f"{max(gaps) / 1000:.0f} ms" if gaps else "-",
        )
        style = escape(word.replace(" ", "-"))
        rows.append(f'<tr class="{style}">{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>')
    heads = ("group", "promises", "answers", "in a primary view", "longest gap")
    head = "".join(f"<th>{each}</th>" for each in heads)
    more = ""
    if len(figures) > CHAPTERS_MAX:
        more = (
            f"<p>The first {CHAPTERS_MAX} have a chapter below; figures.json and the tables have "
            "all of them.</p>"
        )
    return (
        f'<section class="index"><h2>{len(figures):,} groups</h2>{more}<div class="wide"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div></section>"
    )


def _folded(
    figures: Sequence[Figures],
    told: Mapping[str, Sequence[dict[str, Any]]],
    sections: Sequence[str],
) -> Iterator[str]:
    """Fold chapters up, but for the first that tell of broken promises.

    What leads to a chapter is inside, so browsers open it when somebody goes there.
    """
    for place, (each, section) in enumerate(zip(figures, sections, strict=True)):
        word = _worst(told.get(each.group))
        is_open = " open" if word == "broken" and place < _OPEN_MAX else ""
        said = escape(_WORDS.get(word, word) or "-")
        yield (
            f"<details{is_open}><summary>{escape(each.group)} <span>{said}</span></summary>"
            f"{section}</details>"
        )


def _group(
    figures: Figures, verdicts: Sequence[dict[str, Any]], chapter: str, place: int = 0
) -> str:
    throughput = Line(
        "answers a second", "one", [(each.at, each.per_second) for each in figures.slices]
    )
    busy = [each for each in figures.slices if each.p50]
    latency = [
        Line("p50", "one", [(each.at, each.p50 / 1000) for each in busy]),
        Line("p99", "two", [(each.at, each.p99 / 1000) for each in busy]),
    ]
    plots = ""
    if figures.slices:
        done = plot(figures, [throughput], "1/s", "Throughput", log=False)
        plots = f"<h3>Throughput</h3>{done}"
    if busy:
        plots += f"<h3>Latency</h3>{plot(figures, latency, 'ms', 'Latency', log=True)}"
    return (
        f'<section id="group-{place}"><h2>Group {escape(figures.group)}</h2>{_facts(figures)}'
        "<h3>Views and partitions</h3>"
        "<p>One row a replica, one colour a view: replicas of one colour were together. Strong "
        "colours are primary views, pale ones took no updates; grey is down, or silent.</p>"
        f"{timeline(figures)}{plots}{chapter}{_changes(figures)}{_verdicts(verdicts)}</section>"
    )


def _facts(figures: Figures) -> str:
    gaps = [change.gap for change in figures.changes if change.gap is not None]
    facts = {
        "stack": figures.stack,
        "replicas": ", ".join(figures.replicas),
        "from": _when(figures.start),
        "length": f"{(figures.end - figures.start) / 1e6:.1f} s",
        "answers": f"{figures.answers:,}",
        "latency p50 / p99": (
            f"{figures.p50 / 1000:.2f} / {figures.p99 / 1000:.2f} ms" if figures.p50 else "-"
        ),
        "in a primary view": f"{figures.availability:.2%} of the time",
        "longest gap at a change of view": f"{max(gaps) / 1000:.0f} ms" if gaps else "-",
    }
    if figures.transactions:
        counted = sorted(figures.transactions.items())
        facts["transactions"] = ", ".join(f"{count:,} {word}" for word, count in counted)
    items = "".join(
        f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in facts.items()
    )
    return f'<dl class="facts">{items}</dl>'


def _when(at: int) -> str:
    try:
        return f"{datetime.fromtimestamp(at / 1e6, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return f"{at} us"


def _changes(figures: Figures) -> str:
    rows = [
        (
            f"{(change.at - figures.start) / 1e6:.2f} s",
            change.view,
            change.members,
            change.joined or "-",
            change.lost or "-",
            "-" if change.gap is None else f"{change.gap / 1000:.0f} ms",
        )
        for change in figures.changes
    ]
    heads = ("after", "primary view", "members", "joined", "lost", "between answers")
    return "<h3>Fail-overs and merges</h3>" + _table(heads, rows)


def _verdicts(verdicts: Sequence[dict[str, Any]]) -> str:
    if not verdicts:
        return ""
    counted = Counter(row["verdict"] for row in verdicts)
    said = ", ".join(f"{count} {word}" for word, count in counted.items())
    rows = [
        (
            row["check_name"],
            row["promise"],
            row["paper"],
            _WORDS.get(row["verdict"], row["verdict"]),
            f"{row['checked']:,}",
            row["remark"],
        )
        for row in verdicts
    ]
    heads = ("check", "promise", "paper", "verdict", "rows", "remark")
    styles = [str(row["verdict"]).replace(" ", "-") for row in verdicts]
    if verdicts[0].get("journals") is not None:
        rest = Basis(**{name: verdicts[0][name] for name in Basis.__dataclass_fields__})
        said = f"{said}. They rest on {rest}"
    return f"<h3>Verdicts</h3><p>{escape(said)}.</p>" + _table(heads, rows, styles)


def _violations(outcome: JobOutcome) -> str:
    if not outcome.violations:
        return ""
    rows = [
        (
            row["group_name"],
            row["check_name"],
            str(row["position"] if row["position"] is not None else "-"),
            ", ".join(row["replicas"] or []),
            row["evidence"],
            "; ".join(
                f"{place['replica']}/{place['incarnation']}/{place['sequence']}"
                for place in row["rows"] or []
            ),
        )
        for row in outcome.violations[:_ROWS_SHOWN]
    ]
    heads = (
        *("group", "check", "position", "replicas", "evidence"),
        "records (replica/life/number)",
    )
    more = _more(len(outcome.violations))
    return "<section><h2>Violations</h2>" + _table(heads, rows) + more + "</section>"


def _findings(findings: Sequence[dict[str, Any]]) -> str:
    if not findings:
        return "<section><h2>Findings</h2><p>All journals could be read whole.</p></section>"
    rows = [
        (row["group_name"], row["replica"], str(row["kind"]), row["reason"], row["path"])
        for row in findings[:_ROWS_SHOWN]
    ]
    heads = ("group", "replica", "kind", "what", "where")
    more = _more(len(findings))
    return "<section><h2>Findings</h2>" + _table(heads, rows) + more + "</section>"


def _more(count: int) -> str:
    """Say how many there are, if not all of them are shown."""
    return f"<p>{count:,} in all.</p>" if count > _ROWS_SHOWN else ""


def _table(
    heads: Iterable[str], rows: Sequence[Sequence[str]], styles: Sequence[str] | None = None
) -> str:
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    body = "".join(
        f'<tr class="{escape(styles[index]) if styles else ""}">'
        + "".join(f"<td>{escape(str(cell))}</td>" for cell in row)
        + "</tr>"
        for index, row in enumerate(rows)
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide">{table}</div>'
