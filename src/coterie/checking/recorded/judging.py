"""The verdict on a recorded history, with evidence that names the lines of the file."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from coterie.checking.linearizability import (
    Dequeue,
    Linearizable,
    NotLinearizable,
    ReadRegister,
    check,
)
from coterie.checking.linearizability.checker import STEPS_MAX
from coterie.checking.linearizability.model import At
from coterie.checking.recorded.errors import NoHistory
from coterie.checking.recorded.objects import operations_of
from coterie.checking.recorded.picture import Arrow, Bar
from coterie.checking.recorded.reading import CallEnd
from coterie.checking.recorded.transactions import check_appends

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from coterie.checking.linearizability import Evidence, Operation
    from coterie.checking.recorded.objects import Recorded
    from coterie.checking.recorded.reading import RecordedCall
    from coterie.checking.recorded.transactions import Anomaly

    Found = dict[int, tuple[Operation[Any, Any], RecordedCall]]

__all__ = ["HistoryReport", "HistoryVerdict", "judge_appends", "judge_operations"]

_OTHERS_SHOWN_MAX = 24
_SOURCES_SHOWN_MAX = 5
_ANOMALIES_SHOWN_MAX = 5


class HistoryVerdict(Enum):
    """What can be said of a history."""

    KEPT = "kept"
    BROKEN = "broken"
    UNDECIDED = "undecided"


@dataclass(slots=True)
class HistoryReport:
    """A verdict for a reader.

    promise: what was checked, for example *linearizable*.
    said: the verdict and the evidence, in paragraphs.
    drawing: the same as plain text with a small timeline, where there is one.
    bars, arrows: what a picture shows.
    rows: the order that gets furthest, or the steps of a circle.
    """

    verdict: HistoryVerdict
    promise: str
    said: list[str] = field(default_factory=list)
    drawing: str = ""
    bars: list[Bar] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)
    rows: list[tuple[str, ...]] = field(default_factory=list)
    rows_title: str = ""
    steps: int = 0


def judge_operations(  # noqa: PLR0913 -- what a judgement is made of
    calls: Sequence[RecordedCall],
    recorded: Recorded,
    *,
    start: Hashable = None,
    widen: float = 0,
    steps_max: int = STEPS_MAX,
    deadline: Callable[[], bool] | None = None,
) -> HistoryReport:
    """Say whether calls of an object are linearizable. Raises `NoHistory`."""
    model, found = operations_of(calls, recorded, start)
    history = [operation for operation, _ in found.values()]
    try:
        verdict = check(history, model, widen=widen, steps_max=steps_max, deadline=deadline)
    except ValueError as error:
        raise NoHistory(str(error)) from None
    if isinstance(verdict, Linearizable):
        return HistoryReport(HistoryVerdict.KEPT, "linearizable", steps=verdict.steps)
    if not isinstance(verdict, NotLinearizable):
        keys = [repr(key) for key in verdict.keys if key is not None]
        about = f" (undecided keys: {', '.join(keys[:5])}{' …' if len(keys) > 5 else ''})"  # noqa: PLR2004 -- shown
        said = f"{verdict.reason[0].upper()}{verdict.reason[1:]}{about if keys else ''}."
        advice = "More steps (--steps) or more time (--time) may decide it."
        return HistoryReport(
            HistoryVerdict.UNDECIDED, "linearizable", [said, advice], steps=verdict.steps
        )
    return _broken(verdict, history, found, widen)


# ---- operations


def _broken(
    verdict: NotLinearizable[Any, Any, Any],
    history: list[Operation[Any, Any]],
    found: Found,
    widen: float,
) -> HistoryReport:
    evidence = verdict.evidence
    sentences, _, rest = evidence.told(_place(found)).partition("\n\n")
    *said, claim = sentences.split("\n")[1:]
    others = evidence.operations_count - len(evidence.core)
    if others:
        said.append(
            f"Nothing else helps: each of the other {others} was allowed to take effect at any"
            " moment between its call and its return, with any answer, or not at all, and none of"
            " it makes room."
        )
    if evidence.is_minimal and len(evidence.core) > 1:
        said.append("If any one of them is doubted as well, there is an order.")
    said += _sources(evidence, history, found, widen)
    if len(verdict.keys) > 1:
        named = ", ".join(repr(key) for key in verdict.keys[:_SOURCES_SHOWN_MAX])
        said.append(f"{len(verdict.keys)} keys have no order; this is one of them: {named}.")
    title = "the history" if evidence.key is None else f"key {evidence.key!r}"
    said.append(claim)
    said.insert(0, f"There is no order for {title} (operations: {evidence.operations_count}).")
    return HistoryReport(
        HistoryVerdict.BROKEN,
        "linearizable",
        said,
        drawing=rest,
        bars=_bars(evidence, history, found),
        rows=_rows(evidence, found),
        rows_title="The order that gets furthest",
        steps=verdict.steps,
    )


def _place(found: Found) -> Callable[[Operation[Any, Any]], str]:
    return lambda operation: f"line {found[id(operation)][1].where}"


def _sources(
    evidence: Evidence[Any, Any, Any],
    history: list[Operation[Any, Any]],
    found: Found,
    widen: float,
) -> list[str]:
    """Say where the answer that does not fit can come from."""
    misfit, model = evidence.misfit, evidence.model
    answer = misfit.result
    if answer is None or isinstance(answer, bool):
        return []
    sources = [
        each
        for each in history
        if model.key_of(each.command) == model.key_of(misfit.command)
        and answer in _arguments(each.command)
        and each.called <= (misfit.returned or 0) + 2 * widen
    ]
    if not sources:
        is_plain = isinstance(_plain(misfit.command), ReadRegister | Dequeue)
        return [f"Nobody had given it {answer!r} by then."] if is_plain else []
    texts = [
        f"line {found[id(each)][1].where} ({model.describe(each.command, each.result)} by"
        f" {each.process})"
        for each in sources[:_SOURCES_SHOWN_MAX]
    ]
    more = len(sources) - len(texts)
    tail = f", and {more} more" if more else ""
    return [f"{answer!r} was given to it by {', '.join(texts)}{tail}."]


def _plain(command: Any) -> Any:  # noqa: ANN401 -- of any model
    return command.command if isinstance(command, At) else command


def _arguments(command: Any) -> list[object]:  # noqa: ANN401 -- of any model
    command = _plain(command)
    names = getattr(type(command), "__match_args__", ())
    return [getattr(command, name) for name in names if name not in ("key", "expected")]


def _bars(
    evidence: Evidence[Any, Any, Any], history: list[Operation[Any, Any]], found: Found
) -> list[Bar]:
    """The core, and as many others of its key and time as there is room for."""
    model = evidence.model
    core = {id(each) for each in evidence.core}
    begin = min(each.called for each in evidence.core)
    end = max(each.returned or each.called for each in evidence.core)
    helping = {id(placed.operation) for placed in evidence.order}
    near = [
        each
        for each in history
        if id(each) not in core
        and model.key_of(each.command) == evidence.key
        and (
            id(each) in helping
            or (each.called <= end and (each.returned is None or each.returned >= begin))
        )
    ]
    near.sort(key=lambda each: (id(each) not in helping, abs(each.called - end)))
    bars = []
    for each in [*evidence.core, *near[:_OTHERS_SHOWN_MAX]]:
        kind = "core" if id(each) in core else "other"
        call = found[id(each)][1]
        bars.append(
            Bar(
                row=str(each.process),
                text=model.describe(each.command, each.result),
                begin=each.called,
                end=each.returned,
                kind="misfit" if each is evidence.misfit else kind,
                note=_note(call),
            )
        )
    return bars


def _note(call: RecordedCall) -> str:
    begin, end = call.times
    if begin is None:
        return f"line {call.where}"
    until = "no return" if end is None or call.returned is None else f"{end:.12g}"
    return f"line {call.where}, time {begin:.12g} to {until}"


def _rows(evidence: Evidence[Any, Any, Any], found: Found) -> list[tuple[str, ...]]:
    core = {id(each) for each in evidence.core}
    rows = []
    for placed in evidence.order[-20:]:
        each = placed.operation
        result = each.result if id(each) in core else "?"
        text = evidence.model.describe(each.command, result) if id(each) in core else None
        rows.append(
            (
                found[id(each)][1].where,
                str(each.process),
                text or str(getattr(each.command, "command", each.command)),
                f"leaves {placed.state!r}",
            )
        )
    misfit = evidence.misfit
    text = evidence.model.describe(misfit.command, misfit.result)
    where = found[id(misfit)][1].where
    return [*rows, (where, str(misfit.process), text, "does not fit")]


# ---- transactions


def judge_appends(calls: Sequence[RecordedCall], *, strict: bool = False) -> HistoryReport:
    """Say whether transactions that append to lists are serializable. Raises `NoHistory`."""
    promise = "strictly serializable" if strict else "serializable"
    anomalies = check_appends(calls, strict=strict)
    if not anomalies:
        return HistoryReport(HistoryVerdict.KEPT, promise, steps=len(calls))
    report = HistoryReport(HistoryVerdict.BROKEN, promise, steps=len(calls))
    for each in anomalies[:_ANOMALIES_SHOWN_MAX]:
        report.said.append(_told(each))
    more = len(anomalies) - _ANOMALIES_SHOWN_MAX
    if more > 0:
        report.said.append(f"And {more} more of this kind.")
    first = anomalies[0]
    if first.steps:
        report.said.append(
            "Nothing else helps: which list each of them read, and who appended what, leaves no"
            " other order, and no circle is shorter."
        )
        report.rows_title = "Why each comes before the next"
        following = (*first.calls[1:], first.calls[0])
        for one, other, why in zip(first.calls, following, first.steps, strict=True):
            report.rows.append((one.where, f"{why}", f"so it comes before line {other.where}"))
        report.arrows = [
            Arrow(number, (number + 1) % len(first.calls), why)
            for number, why in enumerate(first.steps)
        ]
    report.bars = [_transaction_bar(each) for each in dict.fromkeys(first.calls)]
    return report


def _told(anomaly: Anomaly) -> str:
    head = f"{anomaly.name[0].upper()}{anomaly.name[1:]}, line {anomaly.calls[0].where}"
    return f"{head}: {anomaly.evidence}." if not anomaly.steps else f"A circle: {anomaly.evidence}."


def _transaction_bar(call: RecordedCall) -> Bar:
    words = call.ended_with if call.outcome is CallEnd.RETURNED else call.value
    if not isinstance(words, tuple):
        words = call.result if isinstance(call.result, tuple) else ()
    text = ", ".join(
        f"{str(each[0]).removeprefix(':')} {each[1]} {_listed(each[2])}"
        for each in words
        if isinstance(each, tuple)
    )
    return Bar(
        row=str(call.process),
        text=text,
        begin=call.called,
        end=call.returned,
        kind="core",
        note=_note(call),
    )


def _listed(value: object) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value)
