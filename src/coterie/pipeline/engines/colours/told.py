"""What the journals of one group say as a whole: its components, and who left them how.

After the word of an operator less is promised: what only those knew who were given up is void. The
first component that is installed after a word says from which position on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from coterie.pipeline.history.gathering import testimony_of
from coterie.pipeline.history.witnesses import NEVER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coterie.pipeline.history.results import Place
    from coterie.pipeline.history.witnesses import Testimony
    from coterie.pipeline.lake.lake import Lake

Row = dict[str, Any]
View = tuple[int, str, int]
Life = tuple[str, int]
Name = tuple[str, int, int]
"""An action: its creator, the creator's life, and its index."""


class Left(NamedTuple):
    """A member left a component alive, with this many green actions, and these yellow ones."""

    view: View
    position: int
    yellow: tuple[Name, ...]
    place: Place


@dataclass(slots=True)
class InstalledComponent:
    """A primary component, as its members put it on record."""

    index: int
    view: View
    members: tuple[str, ...]
    places: list[Place] = field(default_factory=list)


@dataclass(slots=True)
class ToldColours:
    """What is known of one group before anybody looks at its actions."""

    group: str
    testimony: Testimony
    rows: list[Row]
    """All of `components`, in the order of every life."""
    zombies: set[Life]
    """Lives that began without what the disk had had."""
    partial: set[str]
    """Replicas whose journals lack something: what they do not say proves nothing."""
    is_synced: bool = True
    """Whether every turn was synced, so that no machine took anything along."""
    components: dict[View, InstalledComponent] = field(default_factory=dict)
    left: list[Left] = field(default_factory=list)
    failed: list[tuple[View, Place]] = field(default_factory=list)
    """Attempts of which somebody came to know, by case 0, that nobody installs them."""
    given_up: int = NEVER
    """Above which position an operator's word lets go what is not held."""
    given_up_component: int = NEVER

    @property
    def is_open(self) -> bool:
        """Whether replicas are still at work, so that some journals were read before others."""
        return any(witness.is_open for witness in self.testimony.witnesses)

    def may_go_on(self, replica: str, view: View) -> bool:
        """Say whether a replica may have spoken of a view behind the end of its journal."""
        return replica in self.partial or any(
            (witness.is_open or witness.is_cut_off) and witness.last_view <= view
            for witness in self.testimony.witnesses
            if witness.replica == replica
        )

    @property
    def has_word(self) -> bool:
        """Whether an operator accepted a loss."""
        return self.given_up != NEVER


def view_key(view: Row | None) -> View:
    """Give a view id as a key."""
    return (0, "", 0) if view is None else (view["number"], view["proposer"], view["incarnation"])


def place_of(row: Row) -> Place:
    """Say where a row is from."""
    return row["replica"], row["incarnation"], row["sequence"]


def name_of(id: Row) -> Name:
    """Give the name of an action."""
    return id["creator"]["id"], id["creator"]["incarnation"], id["index"]


def read_group(lake: Lake, group: str) -> ToldColours:
    """Read the small tables of a group."""
    testimony = testimony_of(lake, group)
    rows = sorted(lake.table("components", group).to_pylist(), key=place_of)
    lives = lake.table("lives", group).to_pylist()
    found = ToldColours(
        group,
        testimony,
        rows,
        {(row["replica"], row["incarnation"]) for row in lives if row["is_zombie"]},
        _partial(lake, group, testimony, _joined(rows)),
        all(each in {"turn", None} for each in lake.table("segments", group)["sync"].to_pylist()),
    )
    for row in rows:
        if row["event"] == "installed":
            view = view_key(row["attempt"])
            known = found.components.setdefault(
                view, InstalledComponent(row["component"], view, tuple(row["members"]))
            )
            known.places.append(place_of(row))
    _follow(found)
    return found


def _joined(rows: list[Row]) -> set[str]:
    """Give all who are said to have been in a component, or how far they are."""
    return {
        *(id for row in rows for id in row["members"] or ()),
        *(line["replica"] for row in rows for line in row["lines"] or ()),
    }


def _partial(lake: Lake, group: str, testimony: Testimony, joined: Iterable[str]) -> set[str]:
    """Give the replicas whose journals have a beginning that is missing, or a hole."""
    partial = {*testimony.configuration.members, *joined}
    first: dict[str, tuple[int, int, int]] = {}
    for row in lake.table("segments", group).to_pylist():
        begun = (row["incarnation"], row["first"], row["follows_incarnation"] or 0)
        first[row["replica"]] = min(first.get(row["replica"], begun), begun)
    for witness in testimony.witnesses:
        incarnation, sequence, follows = first.get(witness.replica, (0, 0, 1))
        if witness.is_complete and (incarnation, sequence, follows) == (1, 1, 0):
            partial.discard(witness.replica)
    return partial


def _follow(found: ToldColours) -> None:  # noqa: C901 -- one case a kind of row
    """Go through the states of every life: how it left components, and what came of attempts."""
    life: Life = ("", 0)
    state = ""
    doubt: View | None = None
    was_prim = has_word = False
    for row in found.rows:
        mine = (row["replica"], row["incarnation"])
        if mine != life:
            life, state, doubt, was_prim, has_word = mine, "", None, False, False
        match row["event"]:
            case "attempted":
                doubt = view_key(row["doubt_attempt"])
            case "installed":
                if has_word:
                    found.given_up = min(found.given_up, row["position"])
                    found.given_up_component = min(found.given_up_component, row["component"])
                    has_word = False
            case "word":
                has_word = True
            case "entered":
                if state == "No" and row["state"] == "ExchangeStates" and doubt is not None:
                    found.failed.append((doubt, place_of(row)))
                was_prim = state == "TransPrim" and row["state"] == "ExchangeStates"
                state = row["state"]
            case "state":
                view = view_key(row["attempt"])
                if was_prim and row["yellow"] is not None and view in found.components:
                    names = tuple(name_of(id) for id in row["yellow"])
                    found.left.append(Left(view, row["position"], names, place_of(row)))
                was_prim = False
            case _:
                pass
