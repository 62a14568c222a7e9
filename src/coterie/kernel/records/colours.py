"""What a replica over a partitioned network reports (**transis**): colours, and components."""

from __future__ import annotations

from coterie.kernel.components import Action, ActionId, Component, Promises
from coterie.kernel.decoding import Int64
from coterie.kernel.records.base import Record
from coterie.kernel.views import Member, ReplicaId, ViewId


class ActionsKnown(Record, tag=-1, frozen=True, kw_only=True):
    """This replica created actions, or received them: they are red here."""

    actions: list[Action]


class ActionsGreen(Record, tag=-2, frozen=True, kw_only=True):
    """This replica knows the global order of actions: positions from `position` on.

    Their viewstamps begin with (`view`, `number`): in which primary component they were ordered.
    """

    view: ViewId
    number: Int64
    position: Int64
    actions: list[ActionId]
    digests: list[Int64]
    """A checksum of each command, so that contents can be compared without them."""


class GreenLines(Record, tag=-3, frozen=True, kw_only=True):
    """This replica knows how many actions are green at each; what is so at all is white."""

    lines: tuple[tuple[ReplicaId, Int64], ...]
    white: Int64


class ComponentState(Record, tag=-4, frozen=True, kw_only=True):
    """What this replica says, or has learned, in an exchange. On disk before it says it."""

    view: ViewId
    promises: Promises
    position: Int64


class ComponentAttempted(Record, tag=-5, frozen=True, kw_only=True):
    """This replica is about to say that it is ready for a primary component. On disk before."""

    view: ViewId
    promises: Promises


class ComponentInstalled(Record, tag=-6, frozen=True, kw_only=True):
    """This replica is in a new primary component. On disk before anything rests on it."""

    view: ViewId
    promises: Promises
    position: Int64
    """How many actions were green before."""


class StateAdopted(Record, tag=-7, frozen=True, kw_only=True):
    """This replica took over the state of another at a position; what was green here is in it."""

    source: Member
    position: Int64
    greens: tuple[tuple[Member, Int64], ...]


class WordGiven(Record, tag=-8, frozen=True, kw_only=True):
    """An operator said that what this replica knows is to count, whatever else was lost."""

    prim: Component
    position: Int64


class StateEntered(Record, tag=-9, frozen=True, kw_only=True):
    """Which of the states of **transis** slide 32 this replica is in. Nothing rests on it."""

    view: ViewId
    state: str
    reason: str = ""


ColoursRecord = (
    ActionsKnown
    | ActionsGreen
    | GreenLines
    | ComponentState
    | ComponentAttempted
    | ComponentInstalled
    | StateAdopted
    | WordGiven
    | StateEntered
)
"""What an engine of colours reports."""
