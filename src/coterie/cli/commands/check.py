"""`coterie check`: says whether a recorded history of any system is linearizable."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from coterie.cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Hashable

    from coterie.checking.recorded.judging import HistoryReport
    from coterie.checking.recorded.objects import Recorded
    from coterie.checking.recorded.reading import RecordedCall, RecordedHistory
    from coterie.cli.parser import Parser, Subparsers

EXIT_KEPT, EXIT_BROKEN, EXIT_UNDECIDED = 0, 1, 3
BYTES_MAX = 256 << 20
LIST_APPEND = "list-append"
_STATUS_SECONDS = 10.0

_EPILOG = """models:
  register        read, write, cas: one value
  kv              get, put, append, delete: values by key
  counter         add, read: a number
  queue           enqueue, dequeue: first in, first out
  numbered-queue  a queue whose enqueue answers 1, 2, 3 ...
  lock            acquire, release, holder: one owner at a time
  list-append     transactions of appends and reads: serializable?
  FILE.py:CLASS   a model of your own

exit status:
  0  the history is linearizable (serializable)
  1  it is not; the evidence names the lines that contradict each other
  2  the command is wrong, or the file is no history; the message names the line
  3  no verdict within the limits of steps, time or memory
"""


def add_parser(subparsers: Subparsers) -> Parser:
    """Describe the command."""
    parser = subparsers.add_parser(
        "check",
        help="say whether a recorded history of any system is linearizable",
        description="Reads what clients of a system saw, as JSON lines or as Jepsen writes it, and "
        "says whether it could be: whether there is one order of all calls that explains every "
        "answer. The format is in docs/use/checking.md.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE", help="the history; - reads standard input")
    parser.add_argument("--model", required=True, metavar="MODEL", help="what was used (see below)")
    parser.add_argument(
        "--format",
        choices=("auto", "json", "edn", "text"),
        default="auto",
        help="the notation of the file (default: by how it begins)",
    )
    parser.add_argument(
        "--start", metavar="JSON", help="the state before the first call, for example 0 or [1,2]"
    )
    parser.add_argument(
        "--independent",
        action="store_true",
        help="values are pairs of key and value, as jepsen.independent writes them",
    )
    parser.add_argument(
        "--widen",
        type=float,
        default=0.0,
        metavar="T",
        help="how far any clock may be from true time, in the unit of the file's times",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="for list-append: what returned before another was called comes before it, too",
    )
    parser.add_argument("--steps", type=int, metavar="N", help="steps for each key (default 10^6)")
    parser.add_argument("--time", type=float, metavar="SECONDS", help="how long it may take")
    parser.add_argument("--html", metavar="PAGE", help="write the contradiction as a page")
    parser.add_argument("--svg", metavar="PICTURE", help="write the picture alone")
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Read, judge, and say what came of it."""
    from coterie.checking.recorded.errors import NoHistory  # noqa: PLC0415 -- start-up stays fast
    from coterie.checking.recorded.judging import HistoryVerdict  # noqa: PLC0415
    from coterie.checking.recorded.reading import read_calls  # noqa: PLC0415

    _refuse_wrong_numbers(args)
    recorded = None if args.model == LIST_APPEND else _recorded(args.model)
    text = _text(args.file)
    name = "standard input" if args.file == "-" else args.file
    try:
        found = read_calls(text, args.format, by_time=args.widen > 0)
        if args.independent:
            found.calls = [_with_key(call) for call in found.calls]
        report = _judge(args, found, recorded)
    except NoHistory as error:
        raise UsageError(error.at(name)) from None
    except RecursionError:
        raise UsageError(f"{name}: a value is nested too deeply") from None
    if report.verdict is HistoryVerdict.BROKEN:
        _draw(args, report, name)
    if args.json:
        _print_json(args, found, report)
    else:
        _print(name, found, report)
    exits = {HistoryVerdict.KEPT: EXIT_KEPT, HistoryVerdict.BROKEN: EXIT_BROKEN}
    return exits.get(report.verdict, EXIT_UNDECIDED)


# ---- what is asked for


def _refuse_wrong_numbers(args: argparse.Namespace) -> None:
    if not 0 <= args.widen < float("inf"):
        raise UsageError(f"--widen is 0 or more, not {args.widen:g}")
    if args.steps is not None and args.steps < 1:
        raise UsageError(f"--steps is at least 1, not {args.steps}")
    if args.time is not None and not args.time > 0:
        raise UsageError(f"--time is above 0 seconds, not {args.time:g}")
    if args.model == LIST_APPEND:
        for flag in ("widen", "start", "independent", "steps", "time"):
            if getattr(args, flag):
                raise UsageError(f"--{flag} means nothing for --model {LIST_APPEND}")
    elif args.strict:
        raise UsageError(f"--strict is for --model {LIST_APPEND}; others are always strict")


def _recorded(model: str) -> Recorded:
    from coterie.checking.recorded.errors import NoHistory  # noqa: PLC0415 -- start-up stays fast
    from coterie.checking.recorded.objects import OBJECTS, of_own_model  # noqa: PLC0415
    from coterie.cli.parser import suggestion  # noqa: PLC0415
    from coterie.service.classes import ClassNotFound, find_class  # noqa: PLC0415

    if model in OBJECTS:
        return OBJECTS[model]
    if ":" not in model:
        known = (*OBJECTS, LIST_APPEND)
        hint = suggestion(model, known) or f" (there are {', '.join(known)}, and FILE.py:CLASS)"
        raise UsageError(f"there is no model '{model}'{hint}")
    try:
        return of_own_model(find_class(model))
    except (ClassNotFound, NoHistory) as error:
        raise UsageError(str(error)) from None


def _text(file: str) -> str:
    try:
        if file == "-":
            data = sys.stdin.buffer.read(BYTES_MAX + 1)
        else:
            with Path(file).open("rb") as opened:
                data = opened.read(BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    if len(data) > BYTES_MAX:
        raise UsageError(f"{file} is larger than {BYTES_MAX >> 20} MiB: check it in parts, by key")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UsageError(f"{file}:{line}: this is not UTF-8 text") from None


def _with_key(call: RecordedCall) -> RecordedCall:
    from coterie.checking.recorded.errors import NoHistory  # noqa: PLC0415 -- start-up stays fast
    from coterie.checking.recorded.reading import MISSING  # noqa: PLC0415

    def split(value: Hashable) -> tuple[Any, Any]:
        if not isinstance(value, tuple) or len(value) != 2:  # noqa: PLR2004 -- a pair
            raise NoHistory(f"{value!r} is no pair of key and value", call.lines[0])
        return value

    key, value = split(call.value)
    ended = call.ended_with
    is_pair = isinstance(ended, tuple) and len(ended) == 2  # noqa: PLR2004 -- a pair
    return call._replace(key=key, value=value, ended_with=split(ended)[1] if is_pair else MISSING)


def _judge(
    args: argparse.Namespace, found: RecordedHistory, recorded: Recorded | None
) -> HistoryReport:
    from coterie.checking.linearizability.checker import STEPS_MAX  # noqa: PLC0415 -- as above
    from coterie.checking.recorded.judging import judge_appends, judge_operations  # noqa: PLC0415

    if recorded is None:
        return judge_appends(found.calls, strict=args.strict)
    if args.widen and not found.has_times:
        raise UsageError("--widen needs times in the file")
    with _Clock(args.time) as clock:
        return judge_operations(
            found.calls,
            recorded,
            start=_start(args, found, recorded),
            widen=args.widen,
            steps_max=args.steps or STEPS_MAX,
            deadline=clock.is_over,
        )


def _start(args: argparse.Namespace, found: RecordedHistory, recorded: Recorded) -> Hashable:
    import msgspec  # noqa: PLC0415 -- start-up stays fast

    from coterie.checking.recorded.reading import freeze  # noqa: PLC0415
    from coterie.kernel.decoding import decode_json  # noqa: PLC0415

    if args.start is None:
        is_empty = args.model == "kv" and any(call.ended_with == "" for call in found.calls)
        is_empty |= args.model == "kv" and any(call.result == "" for call in found.calls)
        return "" if is_empty else recorded.start
    try:
        return freeze(decode_json(args.start))
    except msgspec.DecodeError as error:
        raise UsageError(f"--start is no JSON: {error}") from None


class _Clock:
    """Says when time is up, and on the way that the search is still at work."""

    def __init__(self, limit: float | None) -> None:
        self._begun = self._said = time.monotonic()
        self._limit = limit
        self._looks = 0
        self._is_terminal = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._is_terminal and self._said > self._begun:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def is_over(self) -> bool:
        self._looks += 1
        now = time.monotonic()
        if now - self._said > (0.5 if self._is_terminal else _STATUS_SECONDS):
            self._said = now
            words = f"searching for {now - self._begun:.0f} s, about {256 * self._looks:,} steps"
            end = "" if self._is_terminal else "\n"
            sys.stderr.write(f"\r\x1b[K{words}{end}" if self._is_terminal else f"{words}{end}")
            sys.stderr.flush()
        return self._limit is not None and now - self._begun > self._limit


# ---- what is said


def _counted(found: RecordedHistory) -> str:
    from coterie.checking.recorded.reading import CallEnd  # noqa: PLC0415 -- start-up stays fast

    calls = found.calls
    processes = len({call.process for call in calls})
    text = f"{len(calls)} calls of {processes} processes"
    for outcome, words in ((CallEnd.LOST, "with unknown outcome"), (CallEnd.FAILED, "that failed")):
        count = sum(call.outcome is outcome for call in calls)
        text += f", {count} {words}" if count else ""
    return text + (f", {found.skipped} lines that are no client's" if found.skipped else "")


def _title(report: HistoryReport, name: str) -> str:
    from coterie.checking.recorded.judging import HistoryVerdict  # noqa: PLC0415 -- start-up stays fast

    words = {
        HistoryVerdict.KEPT: report.promise,
        HistoryVerdict.BROKEN: f"NOT {report.promise}",
        HistoryVerdict.UNDECIDED: "no verdict",
    }
    return f"{name}: {words[report.verdict]}"


def _print(name: str, found: RecordedHistory, report: HistoryReport) -> None:
    print(f"{_title(report, name)} ({_counted(found)})")
    for each in report.said:
        print(each)
    if report.drawing:
        print(f"\n{report.drawing}")
    elif report.rows:
        print(f"\n{report.rows_title}:\n")
        for where, *words in report.rows:
            print(f"  line {where}  {'; '.join(words)}")


def _print_json(args: argparse.Namespace, found: RecordedHistory, report: HistoryReport) -> None:
    import msgspec  # noqa: PLC0415 -- start-up stays fast

    summary = {
        "file": args.file,
        "model": args.model,
        "promise": report.promise,
        "verdict": report.verdict.value,
        "calls": len(found.calls),
        "steps": report.steps,
        "said": report.said,
        "contradict": [
            {"process": bar.row, "call": bar.text, "where": bar.note, "fits": bar.kind != "misfit"}
            for bar in report.bars
            if bar.kind != "other"
        ],
    }
    print(msgspec.json.encode(summary).decode())


def _draw(args: argparse.Namespace, report: HistoryReport, name: str) -> None:
    from coterie.checking.recorded.picture import page, timeline  # noqa: PLC0415 -- as above

    if args.html:
        drawing = timeline(report.bars, report.arrows, is_alone=False)
        title = _title(report, name)
        _write(args.html, page(title, report.said, drawing, report.rows, report.rows_title))
    if args.svg:
        _write(args.svg, timeline(report.bars, report.arrows) + "\n")


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
