"""From the lines of a file to calls.

Three notations are read, and told apart by how a file begins:

- *JSON lines*, one object a line: either whole operations (`called`, `returned`) or events (`type`:
  `invoke`, `ok`, `fail`, `info`);
- *EDN*, as Jepsen writes `history.edn`: one map for each event;
- *text*, as Jepsen writes `history.txt` and its log: process, type, function and value with tabs.

Events stand in the order in which they happened; times, where there are any, are shown. Operations
bring their own times and may stand in any order. Everything that is no client's (a process with a
name such as `:nemesis` in a history of numbered ones) is left out and counted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from coterie.checking.recorded.edn import forms
from coterie.checking.recorded.errors import NoHistory
from coterie.kernel.decoding import JsonDecoder

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

__all__ = [
    "FORMATS",
    "MISSING",
    "CallEnd",
    "NotSaid",
    "RecordedCall",
    "RecordedHistory",
    "freeze",
    "read_calls",
]

NEMESIS = frozenset({":nemesis", "nemesis"})


class NotSaid(Enum):
    """The type of `MISSING`."""

    MISSING = "missing"


MISSING: Final = NotSaid.MISSING
"""Stands where a line says nothing, which is not the same as null."""


class CallEnd(Enum):
    """How a call ended, as far as its caller knows."""

    RETURNED = "returned"
    LOST = "lost"
    FAILED = "failed"


class RecordedCall(NamedTuple):
    """What one process asked for, and what came of it.

    value: what it was called with.
    ended_with: the value of the event that ended it, which for Jepsen is the argument again or
        the answer, depending on the function.
    result: the answer, where a line says so by name.
    lines: where in the file it begins and ends.
    times: when, as the file has it, for the reader; None where it does not say.
    """

    process: Hashable
    name: str
    key: Hashable
    value: Hashable
    ended_with: Hashable
    result: Hashable
    outcome: CallEnd
    called: float
    returned: float | None
    lines: tuple[int, ...]
    times: tuple[float | None, float | None] = (None, None)

    @property
    def where(self) -> str:
        """The lines, for a reader."""
        return "-".join(map(str, dict.fromkeys(self.lines)))


@dataclass(slots=True)
class RecordedHistory:
    """All calls of a file, by the time of call."""

    calls: list[RecordedCall] = field(default_factory=list)
    skipped: int = 0
    """Lines that are no client's."""
    has_times: bool = False
    """Whether `called` and `returned` are times, not places in the file."""


class _Event(NamedTuple):
    line: int
    process: Hashable
    type: str
    name: str
    key: Hashable
    value: Hashable
    result: Hashable
    time: float | None


def read_calls(text: str, notation: str = "auto", *, by_time: bool = False) -> RecordedHistory:
    """Read a history. With *by_time* events take place at their times, not in their order.

    Raises `NoHistory`, with the line.
    """
    if notation == "auto":
        notation = _notation_of(text)
    if notation == "json":
        return _from_json(text, by_time=by_time)
    events = _edn_events(text) if notation == "edn" else _text_events(text)
    return _from_events(events, by_time=by_time)


FORMATS = ("auto", "json", "edn", "text")


_JSON_OBJECT = re.compile(r'\{\s*"[^"]*"\s*:')
_JSON_ARRAY = re.compile(r'\[\s*\{\s*"[^"]*"\s*:')


def _notation_of(text: str) -> str:
    text = text.lstrip()
    if not text:
        raise NoHistory("there is nothing in it")
    if _JSON_ARRAY.match(text):
        raise NoHistory(
            "this is one JSON array: write one object a line (`jq -c '.[]' FILE` does it)", 1
        )
    if _JSON_OBJECT.match(text):
        return "json"
    return "edn" if text[0] in "{[(#;" else "text"


# ---- JSON lines


def _from_json(text: str, *, by_time: bool) -> RecordedHistory:
    lines = list(_objects(text))
    events = [(line, each) for line, each in lines if "type" in each]
    if not events:
        return _from_operations(lines)
    if len(events) < len(lines):
        line = next(line for line, each in lines if "type" not in each)
        raise NoHistory(
            "this line has no `type`, but others have: write either events (with `type`) or whole"
            " operations (with `called` and `returned`)",
            line,
        )
    return _from_events((_event(line, each) for line, each in events), by_time=by_time)


_read_object = JsonDecoder(dict[str, Any]).decode


def _objects(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, words in enumerate(text.split("\n"), 1):
        if not words.strip():
            continue
        try:
            yield line, _read_object(words)
        except msgspec.DecodeError as error:
            raise NoHistory(f"this is not one JSON object: {error}", line) from None


_OPERATION_FIELDS = frozenset(
    {"process", "f", "key", "value", "result", "called", "returned", "failed"}
)


def _from_operations(lines: Iterable[tuple[int, dict[str, Any]]]) -> RecordedHistory:
    found = RecordedHistory(has_times=True)
    for line, each in lines:
        unknown = sorted(each.keys() - _OPERATION_FIELDS)
        if unknown and "called" not in each:
            raise NoHistory(
                f"there is neither `type` (of an event) nor `called` (of an operation), but"
                f" `{unknown[0]}`",
                line,
            )
        called = _time(each, "called", line)
        if called is None:
            raise NoHistory("`called` is missing: the time at which it was asked for", line)
        returned = _time(each, "returned", line)
        if returned is not None and returned < called:
            raise NoHistory(f"it returned at {returned}, before its call at {called}", line)
        process = _process(each, line)
        if process in NEMESIS:
            found.skipped += 1
            continue
        outcome = CallEnd.LOST if returned is None else CallEnd.RETURNED
        if each.get("failed") is True:
            outcome = CallEnd.FAILED
        if outcome is CallEnd.LOST and each.get("result") is not None:
            raise NoHistory("it has a `result` but no time at which it `returned`", line)
        found.calls.append(
            RecordedCall(
                process=process,
                name=_name(each, line),
                key=freeze(each.get("key", MISSING)),
                value=freeze(each.get("value")),
                ended_with=MISSING,
                result=freeze(each.get("result", MISSING)),
                outcome=outcome,
                called=called,
                returned=returned,
                lines=(line,),
                times=(called, returned),
            )
        )
    found.calls.sort(key=lambda call: call.called)
    _refuse_overlaps(found.calls)
    return found


def _refuse_overlaps(calls: list[RecordedCall]) -> None:
    """A process does one thing at a time; what is lost it has given up."""
    latest: dict[Hashable, RecordedCall] = {}
    for call in calls:
        before = latest.get(call.process)
        if before is not None and before.returned is not None and call.called < before.returned:
            raise NoHistory(
                f"process {call.process} calls {call.name} at {call.called}, while its"
                f" {before.name} of line {before.where} lasts until {before.returned}: give"
                " concurrent callers names of their own",
                call.lines[0],
            )
        latest[call.process] = call


# ---- events


def _event(line: int, fields: dict[str, Any]) -> _Event:
    kind = str(fields["type"]).removeprefix(":")
    if kind not in ("invoke", "ok", "fail", "info"):
        raise NoHistory(f"an event is invoke, ok, fail or info, not {kind!r}", line)
    process = _process(fields, line)
    return _Event(
        line=line,
        process=process,
        type=kind,
        name="" if process in NEMESIS else _name(fields, line),
        key=freeze(fields.get("key", MISSING)),
        value=freeze(fields.get("value")),
        result=freeze(fields.get("result", MISSING)),
        time=_time(fields, "time", line),
    )


def _edn_events(text: str) -> Iterator[_Event]:
    for line, form in forms(text):
        if not isinstance(form, dict):
            raise NoHistory(f"an event is a map, not {str(form)[:40]}", line)
        fields = {str(key).removeprefix(":"): value for key, value in form.items()}
        if "type" not in fields:
            raise NoHistory("an event has a :type", line)
        yield _event(line, fields)


_TEXT_LINE = re.compile(
    r"(?:.*\s-\s+)?(?P<process>:?[\w-]+)\t+(?P<type>:\w+)\t+(?P<f>:[\w-]+)(?:\t+(?P<value>.*))?"
)


def _text_events(text: str) -> Iterator[_Event]:
    for line, words in enumerate(text.split("\n"), 1):
        if not words.strip():
            continue
        found = _TEXT_LINE.fullmatch(words.rstrip("\r"))
        if found is None:
            raise NoHistory(
                "expected a process, :invoke, :ok, :fail or :info, a function and a value, with"
                f" tabs between them, not {words[:60]!r}",
                line,
            )
        fields: dict[str, Any] = found.groupdict()
        process = fields["process"]
        fields["process"] = int(process) if process.isdecimal() else process
        fields["value"] = _text_value(fields["value"] or "nil", fields["type"], line)
        yield _event(line, fields)


def _text_value(words: str, type_: str, line: int) -> Any:  # noqa: ANN401 -- any value
    """Give the first form; what comes behind it is said about it."""
    try:
        for _, inside in forms(f"[[{words}]]"):
            return inside[0] if isinstance(inside, tuple) and inside else None
    except NoHistory as error:
        if type_ in (":invoke", ":ok"):  # others may end in any words
            raise NoHistory(error.message, line) from None
    return None


def _from_events(events: Iterable[_Event], *, by_time: bool) -> RecordedHistory:
    found = RecordedHistory(has_times=by_time)
    outstanding: dict[Hashable, tuple[int, _Event]] = {}
    ended: dict[int, RecordedCall] = {}
    latest: _Event | None = None
    for place, event in enumerate(events):
        if event.process in NEMESIS:
            found.skipped += 1
            continue
        _refuse_going_back(latest, event)
        latest = event if event.time is not None else latest
        if by_time and event.time is None:
            raise NoHistory("clocks can differ only where each event has a `time`", event.line)
        if event.type == "invoke":
            if event.process in outstanding:
                earlier = outstanding[event.process][1]
                raise NoHistory(
                    f"process {event.process} calls {event.name}, while its {earlier.name} of line"
                    f" {earlier.line} has not ended: give concurrent callers names of their own",
                    event.line,
                )
            outstanding[event.process] = place, event
            continue
        if event.process not in outstanding:
            raise NoHistory(
                f"{event.type} for process {event.process}, which has not called anything",
                event.line,
            )
        begun_place, begun = outstanding.pop(event.process)
        if event.name != begun.name:
            raise NoHistory(
                f"{event.type} of {event.name} for process {event.process}, whose call of line"
                f" {begun.line} was {begun.name}",
                event.line,
            )
        ended[begun_place] = _call(begun_place, begun, place, event, by_time=by_time)
    for place, begun in outstanding.values():
        ended[place] = _call(place, begun, place, None, by_time=by_time)
    found.calls = [ended[place] for place in sorted(ended)]
    return found


def _refuse_going_back(before: _Event | None, event: _Event) -> None:
    if before is not None and event.time is not None and event.time < (before.time or 0):
        raise NoHistory(
            f"time {event.time:g} comes after time {before.time:g} of line {before.line}: events"
            " stand in the order in which they happened (sort them, or write whole operations"
            " with `called` and `returned`, which need no order)",
            event.line,
        )


def _call(
    place: int, begun: _Event, end_place: int, end: _Event | None, *, by_time: bool
) -> RecordedCall:
    outcome = CallEnd.LOST
    if end is not None and end.type != "info":
        outcome = CallEnd.RETURNED if end.type == "ok" else CallEnd.FAILED
    is_over = outcome is not CallEnd.LOST
    assert not is_over or end is not None
    called, returned = float(place), float(end_place)
    if by_time:
        called = begun.time or 0.0
        returned = (end.time if end is not None else None) or 0.0
    key = begun.key
    if key is MISSING and end is not None:
        key = end.key
    return RecordedCall(
        process=begun.process,
        name=begun.name,
        key=key,
        value=begun.value,
        ended_with=end.value if end is not None and is_over else MISSING,
        result=end.result if end is not None and is_over else MISSING,
        outcome=outcome,
        called=called,
        returned=returned if is_over else None,
        lines=(begun.line,) if end is None else (begun.line, end.line),
        times=(begun.time, end.time if end is not None else None),
    )


# ---- fields


def _process(fields: dict[str, Any], line: int) -> Hashable:
    process = fields.get("process")
    if process is None:
        raise NoHistory("there is no `process`: who called?", line)
    return freeze(process)


def _name(fields: dict[str, Any], line: int) -> str:
    name = fields.get("f")
    if not isinstance(name, str) or not name:
        raise NoHistory("there is no `f`: the name of what was called", line)
    return name.removeprefix(":")


_TIME_MAX = 1e300


def _time(fields: dict[str, Any], name: str, line: int) -> float | None:
    time: object = fields.get(name)
    if time is None:
        return None
    if isinstance(time, bool) or not isinstance(time, int | float):
        raise NoHistory(f"`{name}` is a number, not {time!r}", line)
    if not -_TIME_MAX < time < _TIME_MAX:
        raise NoHistory(f"`{name}` is a number, but not such a one as {time}", line)
    return time


def freeze(value: Any) -> Hashable:  # noqa: ANN401 -- any value
    """Give a value that can be compared and hashed: lists as tuples, objects as tuples of pairs."""
    if isinstance(value, list | tuple):
        return tuple(map(freeze, value))
    if isinstance(value, dict):
        return tuple((key, freeze(each)) for key, each in sorted(value.items()))
    frozen: Hashable = value
    return frozen
