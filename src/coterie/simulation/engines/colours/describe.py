"""Records of **transis** as lines for people, in the words of its slides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.kernel.records import (
    ActionsGreen,
    ActionsKnown,
    ComponentAttempted,
    ComponentInstalled,
    ComponentState,
    GreenLines,
    StateAdopted,
    StateEntered,
    WordGiven,
)
from coterie.simulation.engines.stack.describe import describe as describe_stack
from coterie.simulation.wording import span

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coterie.kernel.components import ActionId, Promises
    from coterie.kernel.records import Record


def describe(record: Record) -> str:  # noqa: PLR0911 -- one answer a kind
    """Say what a record says, in a few words."""
    match record:
        case StateEntered(state=state, reason=reason):
            return f"is in {state}{f' ({reason})' if reason else ''}"
        case ActionsKnown(actions=actions):
            return f"marks red {_ids(action.id for action in actions)}"
        case ActionsGreen(actions=actions, position=position):
            return f"marks green {_ids(actions)} at {span(position, len(actions))}"
        case GreenLines(lines=lines):
            return "knows green lines " + " ".join(f"{id}:{at}" for id, at in lines)
        case ComponentState(promises=promises, position=position):
            return f"forces its state: {position} green, {_promises(promises)}"
        case ComponentAttempted(promises=promises):
            return f"forces its attempt: {_promises(promises)}"
        case ComponentInstalled(promises=promises):
            return f"installs primary component {promises.prim}"
        case StateAdopted(source=source, position=position):
            return f"takes over the state of {source} at {position}"
        case WordGiven(prim=prim, position=position):
            return f"is to count, by an operator's word, with {position} green after {prim}"
        case _:
            return describe_stack(record)


def _ids(ids: Iterable[ActionId]) -> str:
    parts: list[list[ActionId]] = []
    for id in ids:
        last = parts[-1][-1] if parts else None
        if last is not None and last.creator == id.creator and last.index + 1 == id.index:
            parts[-1].append(id)
        else:
            parts.append([id])
    return " ".join(f"{part[0].creator}:{span(part[0].index, len(part))}" for part in parts)


def _promises(promises: Promises) -> str:
    words = [f"after {promises.prim}"]
    if promises.yellow is None:
        words.append("yellow invalid")
    elif promises.yellow.actions:
        words.append(f"yellow {_ids(promises.yellow.actions)}")
    if promises.vulnerable is not None:
        attempt = promises.vulnerable
        words.append(f"vulnerable by {attempt.attempt}{{{','.join(attempt.members)}}}")
    if promises.is_zombie:
        words.append("zombie")
    return ", ".join(words)
