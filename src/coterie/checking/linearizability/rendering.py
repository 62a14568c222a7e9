"""How evidence is shown: a few sentences, a small timeline, and the order that gets furthest.

    Not linearizable: key 'x' (operations: 9).
    All that returned earlier (4) fit; get 'x' → '1' by c does not fit as well.
    These 2 contradict each other, whichever of the others (7) happened:

      b  put 'x' '2'    ├─┤
      c  get 'x' → '1'      ├─┤

    The order that gets furthest, from '':

      b  put 'x' '2'    leaves '2'
      c  get 'x' → '1'  does not fit

Time runs to the right and is drawn to order, not to scale: each call and each return of the core
has a column.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from coterie.checking.linearizability.history import UNSEEN

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.checking.linearizability.evidence import Evidence
    from coterie.checking.linearizability.history import Operation

__all__ = ["render"]

S = TypeVar("S")
C = TypeVar("C")
R = TypeVar("R")

Place: TypeAlias = "Callable[[Operation[C, R]], str] | None"

_TEXT_WIDTH_MAX = 48
_CORE_SHOWN_MAX = 20
_PLACED_SHOWN_MAX = 8
_STATES_SHOWN_MAX = 4
_COLUMN_WIDTH = 2


def render(evidence: Evidence[S, C, R], place: Place[C, R] = None) -> str:
    """Tell the story of *evidence*, in lines of plain text; *place* says where operations stand."""
    blocks = [
        [_title(evidence), _prefix(evidence), *_beginning(evidence), _claim(evidence)],
        _timeline(evidence, place),
        [f"The order that gets furthest, from {_short(repr(evidence.start))}:"],
        _order(evidence, place),
    ]
    return "\n\n".join("\n".join(block) for block in blocks)


def _title(evidence: Evidence[S, C, R]) -> str:
    what = "the history" if evidence.key is None else f"key {evidence.key!r}"
    return f"Not linearizable: {what} (operations: {evidence.operations_count})."


def _prefix(evidence: Evidence[S, C, R]) -> str:
    stuck = f"{_text(evidence, evidence.stuck)} by {evidence.stuck.process}"
    if not evidence.prefix_count:
        return f"The first to return, {stuck}, cannot be placed."
    return f"All that returned earlier ({evidence.prefix_count}) fit; {stuck} does not fit as well."


def _beginning(evidence: Evidence[S, C, R]) -> list[str]:
    if evidence.begins == -inf:
        return []
    states = [_short(repr(each)) for each in evidence.starts[:_STATES_SHOWN_MAX]]
    hidden = len(evidence.starts) - len(states)
    more = f" or {hidden} more" if hidden else ""
    return [f"At time {evidence.begins} the state can only be {' or '.join(states)}{more}."]


def _claim(evidence: Evidence[S, C, R]) -> str:
    core = len(evidence.core)
    others = evidence.operations_count - core
    claim = "" if evidence.begins == -inf else "From there on, "
    claim += "it is impossible" if core == 1 else f"these {core} contradict each other"
    if evidence.begins > -inf:
        claim += ", whichever of the others happened meanwhile"
    elif others:
        claim += f", whichever of the others ({others}) happened"
    claim += "" if evidence.is_minimal else " (fewer may do: the reduction reached its limit)"
    return f"{claim[0].upper()}{claim[1:]}:"


def _timeline(evidence: Evidence[S, C, R], place: Place[C, R]) -> list[str]:
    """One line for each operation of the core, with its interval."""
    shown = evidence.core[-_CORE_SHOWN_MAX:]
    times = {time for each in shown for time in _interval(each)}
    column = {time: index * _COLUMN_WIDTH for index, time in enumerate(sorted(times))}
    rows = []
    for each in shown:
        start, end = (column[time] for time in _interval(each))
        bar = "├" + "─" * (end - start - 1) + "┤" if end > start else "│"
        rows.append((_who(each, place), _text(evidence, each), " " * start + bar))
    return _hidden(len(evidence.core) - len(shown)) + _table(rows)


def _interval(operation: Operation[C, R]) -> tuple[float, float]:
    # The core holds no lost operation: one that need not happen contradicts nothing.
    assert operation.returned is not None, operation
    return operation.called, operation.returned


def _order(evidence: Evidence[S, C, R], place: Place[C, R]) -> list[str]:
    """The end of the furthest order, and the operation that has no place in it."""
    trusted = {id(each) for each in evidence.core}
    rows = []
    for placed in evidence.order[-_PLACED_SHOWN_MAX:]:
        each = placed.operation
        # Of an operation outside the core only the effect was used, not the result.
        result = each.result if id(each) in trusted else UNSEEN
        text = _short(evidence.model.describe(each.command, result))
        rows.append((_who(each, place), text, f"leaves {_short(repr(placed.state))}"))
    misfit = evidence.misfit
    rows.append((_who(misfit, place), _text(evidence, misfit), "does not fit"))
    return _hidden(len(evidence.order) - _PLACED_SHOWN_MAX) + _table(rows)


def _who(operation: Operation[C, R], place: Place[C, R]) -> str:
    who = str(operation.process)
    return who if place is None else f"{place(operation)}: {who}"


def _hidden(count: int) -> list[str]:
    return [f"  ({count} earlier)"] if count > 0 else []


def _text(evidence: Evidence[S, C, R], operation: Operation[C, R]) -> str:
    return _short(evidence.model.describe(operation.command, operation.result))


def _short(text: str) -> str:
    """Make one line of it, and cut the middle out: both ends tell it apart from others."""
    text = text.replace("\n", " ")
    if len(text) <= _TEXT_WIDTH_MAX:
        return text
    half = _TEXT_WIDTH_MAX // 2
    return f"{text[: half - 1]}…{text[-half:]}"


def _table(rows: list[tuple[str, str, str]]) -> list[str]:
    processes, texts, _ = zip(*rows, strict=True)
    process_width, text_width = max(map(len, processes)), max(map(len, texts))
    return [
        f"  {process:<{process_width}}  {text:<{text_width}}  {last}"
        for process, text, last in rows
    ]
