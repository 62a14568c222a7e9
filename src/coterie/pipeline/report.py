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

from coterie.pipeline.charts import Line, plot, timeline
from coterie.pipeline.figures import count_answers, figures_of
from coterie.pipeline.findings import findings_of
from coterie.pipeline.transaction_tables import count_outcomes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from coterie.pipeline.figures import Figures
    from coterie.pipeline.jobs import Outcome
    from coterie.pipeline.lake import Lake

_ROWS_SHOWN = 50
_WORDS = {
    "kept": "kept",
    "broken": "BROKEN",
    "undecided": "cannot be told from the journals at hand",
    "not checked": "not checked",
}


def write_report(spark: SparkSession, lake: Lake, outcome: Outcome) -> Path:
    """Write the page, and the same figures as JSON and Parquet; give the page's path."""
    answers = count_answers(spark, lake)
    figures = [figures_of(lake, group, answers.get(group, {})) for group in lake.groups()]
    outcomes = count_outcomes(outcome.out)
    for each in figures:
        each.transactions = outcomes.get(each.group, {})
    findings = [row for group in lake.groups() for row in findings_of(lake, group).to_pylist()]
    _write_data(outcome.out, figures)
    page = outcome.out / "report.html"
    draft = outcome.out / "_draft-report.html"
    draft.write_text(_page(figures, outcome, findings), encoding="utf-8")
    draft.replace(page)
    return page


def _write_data(out: Path, figures: Sequence[Figures]) -> None:
    data = [asdict(each) for each in figures]
    (out / "figures.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    folder = out / "figures"
    folder.mkdir(exist_ok=True)
    for table in ("spans", "changes", "slices"):
        rows = [{"group": each["group"], **row} for each in data for row in each[table]]
        if rows:
            pq.write_table(pa.Table.from_pylist(rows), folder / f"{table}.parquet")


def _page(figures: Sequence[Figures], outcome: Outcome, findings: Sequence[dict[str, Any]]) -> str:
    broken = sorted({row["check"] for row in outcome.violations})
    if broken:
        headline, style = f"Promises were broken: {', '.join(broken)}", "bad"
    elif outcome.verdicts:
        headline, style = "Every promise that could be checked was kept", "good"
    else:
        headline, style = "No promise was checked in this run", "open"
    problems = "".join(f'<p class="bad">{escape(each)}.</p>' for each in outcome.problems)
    sections = [_group(each, outcome) for each in figures]
    entries = ", ".join(f"{count:,} {word}" for word, count in sorted(outcome.standings.items()))
    entries = f"<p>Entries of all groups: {escape(entries)}.</p>" if entries else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Coterie report</title><style>{_style()}</style></head><body><main>"
        f'<h1>Coterie report</h1><p class="{style} headline">{escape(headline)}.</p>'
        f"{problems}{entries}{''.join(sections)}{_violations(outcome)}{_findings(findings)}"
        "<footer>Times are those of the replicas' own clocks. Latency is from the client's clock "
        "when it asked to the replica's when it answered.</footer></main></body></html>\n"
    )


def _style() -> str:
    return files("coterie.pipeline").joinpath("report.css").read_text(encoding="utf-8")


def _group(figures: Figures, outcome: Outcome) -> str:
    verdicts = [row for row in outcome.verdicts if row["group"] == figures.group]
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
        f"<section><h2>Group {escape(figures.group)}</h2>{_facts(figures)}"
        "<h3>Views and partitions</h3>"
        "<p>One row a replica, one colour a view: replicas of one colour were together. Strong "
        "colours are primary views, pale ones took no updates; grey is down, or silent.</p>"
        f"{timeline(figures)}{plots}{_changes(figures)}{_verdicts(verdicts)}</section>"
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
            row["check"],
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
    return f"<h3>Verdicts</h3><p>{escape(said)}.</p>" + _table(heads, rows, styles)


def _violations(outcome: Outcome) -> str:
    if not outcome.violations:
        return ""
    rows = [
        (
            row["check"],
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
    heads = ("check", "position", "replicas", "evidence", "records (replica/life/number)")
    more = _more(len(outcome.violations))
    return "<section><h2>Violations</h2>" + _table(heads, rows) + more + "</section>"


def _findings(findings: Sequence[dict[str, Any]]) -> str:
    if not findings:
        return "<section><h2>Findings</h2><p>All journals could be read whole.</p></section>"
    rows = [
        (row["group"], row["replica"], str(row["kind"]), row["reason"], row["path"])
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
