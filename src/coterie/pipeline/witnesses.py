"""What each replica's journal says of itself as a whole, in a form that every task can have.

Whether an entry that a replica accepted stayed in its history, and whether the replica called it
authoritative, is said by few records that may stand far from it: later adoptions and settlements.
A *witness* is these few, in order, for one replica over all its lives; a *group's testimony* is
all witnesses, and which replicas there should be. Both are small whatever the history is, so they
travel to all tasks, and no join is needed.

An event can *void* what a replica held above a position:

- adopting a history keeps the entries up to `kept`;
- taking over a whole state keeps what was settled; above that the replica's own entries may or may
  not be those that the state contains. The state's entries are accepted implicitly;
- beginning a life with less than was known: a loss of memory;
- an operator's `Recovered`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from coterie.journal import Kind, Sync
from coterie.kernel.views import Configuration
from coterie.pipeline.cohort_history import cohort_groups
from coterie.pipeline.findings import findings_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa
    from numpy.typing import NDArray

    from coterie.pipeline.lake import Lake

_LIFE_SHIFT = 40
_SEQUENCE_MAX = 1 << _LIFE_SHIFT
REPLICAS_MAX = 63
"""Replicas of one group; sets of them are bits of one number."""
_NEVER = (1 << 62) - 1
_INCOMPLETE = {Kind.DAMAGED, Kind.MISSING, Kind.UNREADABLE, Kind.MISPLACED}
"""Findings after which a journal may lack records that the replica once wrote."""


class Void(enum.IntEnum):
    """Why a replica no longer holds what it held."""

    ADOPTED = 0
    RESTORED = 1
    LOST = 2
    RECOVERED = 3


def key_of(incarnation: int, sequence: int) -> int:
    """Give one number by which the records of a replica are in order over all its lives."""
    return incarnation << _LIFE_SHIFT | sequence


def place_of(key: int) -> tuple[int, int]:
    """Give incarnation and sequence back."""
    return key >> _LIFE_SHIFT, key & (_SEQUENCE_MAX - 1)


@dataclass(slots=True)
class Voiding:
    """One event that voided what a replica held above a position."""

    key: int
    above: int
    kind: Void
    given_up_above: int
    """Above this, entries were surely given up for a history without them."""
    settled: int
    """Up to where the replica called everything authoritative just before."""

    @property
    def is_adoption(self) -> bool:
        """Whether a history was fetched from another replica."""
        return self.kind in {Void.ADOPTED, Void.RESTORED}


@dataclass(slots=True)
class Breach:
    """A replica went back on its own word: it settled a position and gave up lower ones."""

    key: int
    position: int
    settled: int
    how: str


@dataclass(slots=True)
class Witness:
    """What one replica's journal says as a whole."""

    replica: str
    voidings: list[Voiding] = field(default_factory=list)
    breaches: list[Breach] = field(default_factory=list)
    lapses: list[Breach] = field(default_factory=list)
    """Lives that began with less than the ones before had settled, and did not say so."""
    settled: int = 0
    """Up to where it calls everything authoritative at its end."""
    settled_max: int = 0
    """The same at any time."""
    covered: int = 0
    """Entries up to here it accepted as part of a state, or its records of them are removed."""
    unseen: int = 0
    """Entries up to here it may have accepted in records that are removed."""
    views: list[tuple[int, int]] = field(default_factory=list)
    """When it installed views, and their ranks among all views of the group."""
    settlements: list[tuple[int, int]] = field(default_factory=list)
    """In which views, by rank, it settled positions, and up to where; both rise."""
    restorations: list[tuple[int, int]] = field(default_factory=list)
    """In which views, by rank, it took over states, and of which positions."""
    acceptances: list[tuple[int, int]] = field(default_factory=list)
    """When it accepted primary views, and how long their initial histories were."""
    is_complete: bool = True
    """Whether all of its journal could be read."""
    is_shortened: bool = False
    """Whether some of it was removed before it could be read."""
    gaps: list[int] = field(default_factory=list)
    """Where records follow others that are not there."""

    def ranks(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Give the ranks of the views in which it wrote some of its records; 0 is before all."""
        begun = np.array([0, *(key for key, _ in self.views)], np.int64)
        ranked = np.array([0, *(rank for _, rank in self.views)], np.int64)
        found: NDArray[np.int64] = ranked[np.searchsorted(begun, keys, side="right") - 1]
        return found

    def settled_in(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Give the ranks of the views in which it settled positions; -1 where it did not."""
        reached = np.array([position for _, position in self.settlements], np.int64)
        ranked = np.array([*(rank for rank, _ in self.settlements), -1], np.int64)
        found: NDArray[np.int64] = ranked[np.searchsorted(reached, positions)]
        return found

    def fates(
        self, positions: NDArray[np.int64], keys: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
        """Say what became of entries that were accepted at *positions* in the records *keys*.

        Gives the key of the event that voided each (or a number above all keys), whether it was
        given up for a history without it, and whether the replica called it authoritative.
        """
        until = np.full(len(positions), _NEVER, np.int64)
        given_up = np.zeros(len(positions), np.bool_)
        settled = np.full(len(positions), self.settled, np.int64)
        highest = int(positions.max(initial=0))
        first = int(keys.min(initial=_NEVER))
        for event in self.voidings:
            if event.above >= highest or event.key <= first:
                continue
            hit = (keys < event.key) & (positions > event.above) & (until == _NEVER)
            until[hit] = event.key
            settled[hit] = event.settled
            given_up[hit] = positions[hit] > event.given_up_above
        return until, given_up, positions <= settled


@dataclass(slots=True)
class Testimony:
    """What all journals of one group say as a whole."""

    group: str
    stack: str
    configuration: Configuration
    witnesses: list[Witness]
    """In the order of their bits; the replicas of the configuration come first."""
    has_accepted_loss: bool = False
    """Whether an operator ended a loss of memory by hand: what was before may be gone."""

    @property
    def names(self) -> list[str]:
        """The replicas in the order of their bits."""
        return [witness.replica for witness in self.witnesses]

    @property
    def counted(self) -> int:
        """The bits of the replicas that count for a majority."""
        return (1 << len(self.configuration.members)) - 1

    @property
    def missing(self) -> int:
        """The bits of the counted replicas whose journals are not there, or not whole."""
        return sum(
            1 << bit
            for bit, witness in enumerate(self.witnesses)
            if not witness.is_complete and witness.replica in self.configuration.members
        )

    @property
    def silent(self) -> set[str]:
        """The replicas that may have said more than is at hand."""
        known = {
            witness.replica
            for witness in self.witnesses
            if witness.is_complete and not witness.is_shortened
        }
        return set(self.names) - known

    def is_contiguous(self, replica: str, incarnation: int, sequence: int) -> bool:
        """Say whether nothing is missing behind a record in the life it belongs to."""
        key = key_of(incarnation, sequence)
        end = key_of(incarnation + 1, 0)
        witness = next(each for each in self.witnesses if each.replica == replica)
        return not any(key < gap <= end for gap in witness.gaps)

    def names_of(self, bits: int) -> list[str]:
        """Give the replicas that a set of bits stands for."""
        return [name for bit, name in enumerate(self.names) if bits >> bit & 1]


def testimonies_of(lake: Lake) -> dict[str, Testimony]:
    """Gather what the journals of each group in a lake say as a whole; but of cohorts' groups."""
    of_cohorts = cohort_groups(lake)
    return {group: testimony_of(lake, group) for group in lake.groups() if group not in of_cohorts}


def testimony_of(lake: Lake, group: str) -> Testimony:
    """Gather what the journals of one group say as a whole."""
    gathering = _Gathering(group)
    for row in _rows(lake.table("lives", group), event="started"):
        gathering.started(row)
    for row in _rows(lake.table("lives", group), event="stopped"):
        gathering.stopped.add((row["replica"], row["incarnation"]))
    segments = lake.table("segments", group).drop_columns(["files", "digest", "follows_digest"])
    for row in segments.to_pylist():
        if row["sync"] is not None:  # or its head cannot be read
            gathering.segment(row)
    few = ["replica", "incarnation", "sequence", "event", "position"]
    for row in _rows(lake.table("standings", group).select([*few, "restored"])):
        gathering.note(row, 1)
    views = lake.table("views", group).select([*few, "view", "members"])
    for row in _rows(views, event="accepted"):
        gathering.note(row, 1)
    for row in _rows(views, event="installed"):
        gathering.note({**row, "view": tuple(row["view"].values())}, 1)
        gathering.seen.update(member["id"] for member in row["members"])
    kinds = {kind.value for kind in _INCOMPLETE}
    for row in findings_of(lake, group).to_pylist():
        if row["kind"] in kinds:
            # Where it is not known how much is lost, all of that life may be.
            last = row["last"] or _SEQUENCE_MAX - 1
            gathering.damage.setdefault(row["replica"], []).append(
                key_of(row["incarnation"], last + 1)
            )
    return gathering.testimony()


def _rows(table: pa.Table, *, event: str | None = None) -> Iterable[dict[str, Any]]:
    if event is not None:
        table = table.filter(pc.field("event") == event)
    for batch in table.to_batches():
        yield from batch.to_pylist()


class _Gathering:
    """Collects the rows of one group."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.stack = ""
        self.configuration = Configuration(0, ())
        self.damage: dict[str, list[int]] = {}
        """Behind which places of which journals something could not be read."""
        self.seen: set[str] = set()
        """Replicas that were in any view."""
        self.stopped: set[tuple[str, int]] = set()
        """Lives that ended on purpose: what they wrote is all there is."""
        self._notes: dict[str, list[tuple[int, int, dict[str, Any]]]] = {}

    def started(self, row: dict[str, Any]) -> None:
        """Take the start of a life: who belongs to the group."""
        if row["configuration"] >= self.configuration.number:
            self.configuration = Configuration(row["configuration"], tuple(row["replicas"]))
            self.stack = row["stack"]
        self._notes.setdefault(row["replica"], [])

    def segment(self, row: dict[str, Any]) -> None:
        """Take what the replica remembered at the beginning of a segment."""
        self.note({**row, "event": "segment", "sequence": row["first"]}, 0)

    def note(self, row: dict[str, Any], order: int) -> None:
        """Take an event of a replica."""
        key = key_of(row["incarnation"], row["sequence"])
        self._notes.setdefault(row["replica"], []).append((key, order, row))

    def testimony(self) -> Testimony:
        """Give what was gathered."""
        if not self.configuration.members:
            # Every record that says who belongs to the group is gone.
            self.configuration = Configuration(0, tuple(sorted(self.seen | self._notes.keys())))
        members = self.configuration.members
        others = sorted(set(self._notes) - set(members))
        names = [*members, *others]
        if len(names) > REPLICAS_MAX:
            raise ValueError(
                f"group {self.group} has {len(names)} replicas, at most {REPLICAS_MAX}"
            )
        result = Testimony(self.group, self.stack, self.configuration, [])
        views = {
            row["view"]
            for notes in self._notes.values()
            for _, _, row in notes
            if row["event"] == "installed"
        }
        ranks = {view: rank for rank, view in enumerate(sorted(views), 1)}
        for name in names:
            notes = self._notes.get(name)
            witness = Witness(name, is_complete=notes is not None and name not in self.damage)
            witness.gaps += self.damage.get(name, [])
            in_order = sorted(notes or [], key=lambda note: note[:2])
            segments = [row for _, _, row in in_order if row["event"] == "segment"]
            _mark_gaps(segments)
            witness.is_complete &= not (
                _lost_writes(segments, self.stopped) or _lost_lives(segments)
            )
            # Journals that grow are read one after the other: those read first may lack what the
            # others already answer to.
            witness.is_complete &= all(row["is_over"] for row in segments)
            for key, _, row in in_order:
                if row["event"] == "installed":
                    witness.views.append((key, ranks[row["view"]]))
                _tell(witness, key, row)
                result.has_accepted_loss |= row["event"] == "recovered"
            result.witnesses.append(witness)
        return result


def _mark_gaps(segments: list[dict[str, Any]]) -> None:
    """Say of each segment whether what came before it is not there."""
    ends: dict[int, int] = {}
    for row in segments:
        life, first = row["incarnation"], row["first"]
        if first > 1:
            is_after_gap = first > ends.get(life, 0) + 1
        else:
            follows, sequence = row["follows_incarnation"], row["follows_sequence"]
            is_after_gap = follows > 0 and ends.get(follows, 0) < sequence
        row["is_after_gap"] = is_after_gap
        ends[life] = row["last"]


def _lost_writes(segments: list[dict[str, Any]], stopped: set[tuple[str, int]]) -> bool:
    """Say whether records may be gone with a machine because they were not synced every turn."""
    return any(
        one["sync"] != Sync.TURN
        and one["boot_id"] != other["boot_id"]
        and (one["replica"], one["incarnation"]) not in stopped
        for one, other in pairwise(segments)
    )


def _lost_lives(segments: list[dict[str, Any]]) -> bool:
    """Say whether there was an earlier life of which a later one knew nothing any more."""
    return any(
        row["first"] == 1 and row["incarnation"] > 1 and not row["follows_incarnation"]
        for row in segments
    )


def _tell(witness: Witness, key: int, row: dict[str, Any]) -> None:
    """Let a witness say one thing more."""
    position, settled = row.get("position") or 0, witness.settled
    match row["event"]:
        case "segment":
            _tell_segment(witness, key, row)
        case "accepted":
            witness.acceptances.append((key, position))
        case "settled":
            witness.settled = position
            _tell_settlement(witness, position)
        case "rolled back":
            _tell_breach(witness, key, position, "rolled back what is above it")
        case "adopted" if row["restored"]:
            restored = row["restored"]
            _tell_breach(witness, key, restored, "took over a state from before it")
            witness.voidings.append(Voiding(key, settled, Void.RESTORED, restored, settled))
            witness.settled = restored
            witness.covered = max(witness.covered, restored)
            witness.restorations.append((witness.views[-1][1] if witness.views else 0, restored))
        case "adopted":
            _tell_breach(witness, key, position, "adopted a history without it")
            witness.voidings.append(Voiding(key, position, Void.ADOPTED, position, settled))
            witness.settled = min(settled, position)
        case "recovered":
            witness.voidings.append(Voiding(key, position, Void.RECOVERED, position, settled))
            witness.settled = min(settled, position)
    witness.settled_max = max(witness.settled_max, witness.settled)


def _tell_segment(witness: Witness, key: int, row: dict[str, Any]) -> None:
    if row["first"] == 1:
        # A life begins, with all or less of what the one before knew.
        known, settled = row["version_position"], witness.settled
        witness.voidings.append(Voiding(key, known, Void.LOST, _NEVER, settled))
        witness.settled = row["settled"]
        if row["settled"] < settled and not row["is_zombie"]:
            witness.lapses.append(Breach(key, row["settled"], settled, "began without it"))
    # Where the records before a segment are not there, what it remembered stands for them.
    if row["is_after_gap"]:
        witness.gaps.append(key)
        if row["first"] > 1:
            # What became in between of entries that were not settled before is not known.
            kept, settled = min(witness.settled, row["settled"]), witness.settled
            witness.voidings.append(Voiding(key, kept, Void.LOST, _NEVER, settled))
            witness.settled = row["settled"]
        witness.covered = max(witness.covered, row["settled"])
        witness.unseen = max(witness.unseen, row["version_position"])
        witness.is_shortened = True


def _tell_settlement(witness: Witness, position: int) -> None:
    rank = witness.views[-1][1] if witness.views else 0
    if witness.settlements and witness.settlements[-1][1] >= position:
        return  # known from an earlier life
    if witness.settlements and witness.settlements[-1][0] == rank:
        witness.settlements.pop()
    witness.settlements.append((rank, position))


def _tell_breach(witness: Witness, key: int, position: int, how: str) -> None:
    if position < witness.settled:
        witness.breaches.append(Breach(key, position, witness.settled, how))
