"""How results are shown and kept, whichever benchmark they are of."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from coterie.bench.harness.figures import Figure

BUSY = 0.25
"""Which part of the cores other work may take before a report says so."""
FIGURE_COLUMNS = (
    *("", "replicas", "bytes", "journal", "", "x echo", "us CPU", "us client", "others"),
    "target",
)
"""*others*: how many cores other work kept busy meanwhile, where that was too many."""


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Give rows, the head first, as aligned text, for a terminal and as Markdown."""
    columns = range(len(rows[0]))
    widths = [max(3, *(len(row[column]) for row in rows)) for column in columns]
    lines = [
        "| "
        + " | ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        + " |"
        for row in rows
    ]
    rule = [
        ("-" * width if column == 0 else "-" * (width - 1) + ":")
        for column, width in enumerate(widths)
    ]
    lines.insert(1, "| " + " | ".join(rule) + " |")
    return "\n".join(lines)


def figures_table(figures: Sequence[Figure]) -> str:
    """Give figures as a table for each section."""
    parts: list[str] = []
    for section in dict.fromkeys(figure.section for figure in figures):
        rows = [_figure_row(figure) for figure in figures if figure.section == section]
        head = (section, *FIGURE_COLUMNS[1:])
        # A column that says nothing in this section is left out.
        kept = [0, 4, *(c for c in (1, 2, 3, 5, 6, 7, 8, 9) if any(row[c] for row in rows))]
        kept.sort()
        parts.append(aligned([[row[column] for column in kept] for row in (head, *rows)]))
    return "\n\n".join(parts)


def _figure_row(figure: Figure) -> tuple[str, ...]:
    return (
        figure.what,
        str(figure.replicas or ""),
        str(figure.message_bytes or ""),
        figure.journal,
        figure.shown,
        f"{figure.echoes:.1f}" if figure.echoes else "",
        f"{figure.cpu_us:.1f}" if figure.cpu_us else "",
        f"{figure.client_cpu_us:.1f}" if figure.client_cpu_us else "",
        "" if figure.is_clean else f"{figure.others_cores:.1f}",
        figure.shown_target,
    )


def machine_line(machine: dict[str, str | int]) -> str:
    """Say in a few words what machine it was, for a picture."""
    return f"{machine['cores']} cores, {machine['python']}, {machine['loop']}"


def machine_words(machine: Mapping[str, str | int]) -> str:
    """Say on what it was measured."""
    return (
        f"{machine['cores']} cores of {machine['processor']}, {machine['system']}, "
        f"{machine['python']} ({machine['loop_ns']} ns for a step of a plain loop), "
        f"{machine['loop']}, Coterie {machine['coterie']}"
    )


def disk_words(disk: str, sync_ms: float) -> str:
    """Say where the journals are kept, and how long that disk takes."""
    return (
        f"Journals on {disk or 'a file system'}, where a small write and its fdatasync take "
        f"{sync_ms:.1f} ms."
    )


def troubles_note(troubles: Sequence[str]) -> str:
    """Say what could not be measured, in a sentence; otherwise nothing."""
    return f" Not measured: {'; '.join(troubles)}." if troubles else ""


def busy_note(machine: Mapping[str, str | int], busy_cores: float = 0.0) -> str:
    """Say so, in a sentence, if others used the machine as well; otherwise nothing."""
    limit = int(machine["cores"]) * BUSY
    if busy_cores > limit:
        return (
            f" Other work kept {busy_cores:.1f} cores busy during the run, so the machine can do "
            "better than this."
        )
    if float(machine["load_average"]) > limit:
        return (
            " The machine was busy with other work (load average "
            f"{machine['load_average']} before the run), so it can do better than this."
        )
    return ""


def comma_separated(rows: Sequence[msgspec.Struct]) -> str:
    """Give rows of one kind as CSV, without their repeats."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [
        name
        for name in (rows[0].__struct_fields__ if rows else ())
        if not name.endswith("repeats") and name != "target"
    ]
    has_targets = bool(rows) and hasattr(rows[0], "target")
    writer.writerow([*names, *(["target", "verdict"] if has_targets else [])])
    for row in rows:
        values = [getattr(row, name) for name in names]
        if has_targets:
            target = getattr(row, "target", None)
            values += ["" if target is None else target.limit, getattr(row, "verdict", "")]
        writer.writerow(values)
    return text.getvalue()


def write_forms(  # noqa: PLR0913 -- a report has these forms
    name: str,
    report: msgspec.Struct,
    folder: Path,
    *,
    rows: str,
    page: str,
    draw: Callable[[Path], None] | None,
) -> list[Path]:
    """Write all forms of a report into a folder, and give the files."""
    folder.mkdir(parents=True, exist_ok=True)
    json = msgspec.json.format(msgspec.json.encode(report), indent=2)
    texts = {"json": json.decode() + "\n", "csv": rows, "md": page}
    files: list[Path] = []
    for form, text in texts.items():
        files.append(folder / f"{name}.{form}")
        files[-1].write_text(text, encoding="utf-8")
    if draw is not None:
        files.append(folder / f"{name}.png")
        draw(files[-1])
    return files
