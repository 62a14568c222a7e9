"""From the small tables of a group to its testimony: what each journal says, record by record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from coterie.kernel.errors import CoterieError
from coterie.kernel.views import ChangedConfiguration, Configuration
from coterie.pipeline.history.witnesses import (
    NEVER,
    NO_VIEW_KNOWN,
    REPLICAS_MAX,
    SEQUENCE_MAX,
    Breach,
    Testimony,
    Void,
    Voiding,
    Witness,
)
from coterie.pipeline.lake.ends import End, ends_of, lost_writes, stopped_lives
from coterie.pipeline.lake.findings import INCOMPLETE, findings_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from coterie.pipeline.history.witnesses import View
    from coterie.pipeline.lake.lake import Lake

Row = dict[str, Any]
_HEAD, _RECORD, _LACK = range(3)
"""What comes first of several at one place."""


class TooManyReplicas(CoterieError):
    """A group has more replicas than the checks can count."""


def testimony_of(lake: Lake, group: str) -> Testimony:
    """Gather what the journals of one group say as a whole."""
    gathering = _Gathering(group)
    for row in _rows(lake.table("lives", group), event="started"):
        gathering.started(row)
    gathering.stopped = stopped_lives(lake, group)
    gathering.ends = ends_of(lake, group)
    segments = lake.table("segments", group).drop_columns(["files", "digest", "follows_digest"])
    for row in segments.to_pylist():
        if row["sync"] is not None:  # or its head cannot be read
            gathering.note({**row, "event": "segment", "sequence": row["first"]}, _HEAD)
    few = ["replica", "incarnation", "sequence", "event", "position"]
    standings = lake.table("standings", group).select([*few, "restored", "version_position"])
    for row in _rows(standings):
        gathering.note(row, _RECORD)
    for row in _rows(lake.table("configurations", group)):
        gathering.configured(row)
    views = lake.table("views", group).select([*few, "view", "members"])
    for row in _rows(views):
        gathering.view(row)
    for row in findings_of(lake, group).to_pylist():
        if row["kind"] in INCOMPLETE and row["incarnation"]:
            gathering.lack(row)
    return gathering.testimony()


def _rows(table: pa.Table, *, event: str | None = None) -> Iterable[Row]:
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
        """The one with the lowest number: who founded the group."""
        self.changes: dict[int, tuple[int, Configuration]] = {}
        self._newcomers: set[tuple[str, int]] = set()
        """Lives that knew of no group yet."""
        self._known_from = (1 << 62, 1 << 62)
        self.seen: set[str] = set()
        """Replicas that were in any view."""
        self.stopped: set[tuple[str, int]] = set()
        self.ends: dict[str, End] = {}
        self._notes: dict[str, list[tuple[tuple[int, int], int, Row]]] = {}
        self._lacking: set[str] = set()
        self._latest: dict[str, View] = {}

    def started(self, row: Row) -> None:
        """Take the start of a life: who belongs to the group."""
        self.stack = row["stack"]
        number = row["configuration"]
        known_from = (number, row["recorded_at"])
        # 0 is what a newcomer calls those whom it looks for.
        if not number:
            self._newcomers.add((row["replica"], row["incarnation"]))
        if number and known_from < self._known_from:
            self._known_from = known_from
            self.configuration = Configuration(number, tuple(row["replicas"]))
        self._notes.setdefault(row["replica"], [])

    def configured(self, row: Row) -> None:
        """Take by whom quorums are counted from a position on."""
        number, position = row["configuration"], row["position"]
        if number not in self.changes or position < self.changes[number][0]:
            lists = (tuple(row[name]) for name in ("members", "learners", "before", "removed"))
            self.changes[number] = (position, ChangedConfiguration(number, *lists))

    def view(self, row: Row) -> None:
        """Take what a replica says of a view."""
        number, proposer, incarnation = row["view"].values()
        view: View = (number, proposer, incarnation)
        replica = row["replica"]
        self._latest[replica] = max(self._latest.get(replica, NO_VIEW_KNOWN), view)
        if row["event"] in {"accepted", "installed"}:
            self.note({**row, "view": view}, _RECORD)
        if row["event"] == "installed":
            self.seen.update(member["id"] for member in row["members"])

    def note(self, row: Row, order: int) -> None:
        """Take an event of a replica."""
        place = (row["incarnation"], row["sequence"])
        self._notes.setdefault(row["replica"], []).append((place, order, row))

    def lack(self, row: Row) -> None:
        """Take that something of a journal is not there."""
        self._lacking.add(row["replica"])
        # Where it is not known how much is lost, all of that life may be.
        until = (row["last"] or SEQUENCE_MAX - 2) + 1
        place = (row["incarnation"], max(row["first"], 1))
        lacking = {"event": "lack", "until": until, "view": None}
        self._notes.setdefault(row["replica"], []).append((place, _LACK, lacking))

    def testimony(self) -> Testimony:
        """Give what was gathered."""
        if not self.configuration.members:
            # Every record that says who belongs to the group is gone.
            self.configuration = Configuration(0, tuple(sorted(self.seen | self._notes.keys())))
        later = sorted(number for number in self.changes if number > self.configuration.number)
        changes = [self.changes[number] for number in later]
        if not self.configuration.number and changes:
            self.configuration = changes[0][1]
        counted = [*self.configuration.members]
        for _, each in changes:
            counted += [*each.members, *each.before]
        members = [*dict.fromkeys(counted)]
        names = [*members, *sorted(set(self._notes) - set(members))]
        if len(names) > REPLICAS_MAX:
            raise TooManyReplicas(
                f"group {self.group} has {len(names)} replicas, and the checks count up to "
                f"{REPLICAS_MAX}"
            )
        views = {
            row["view"]
            for notes in self._notes.values()
            for _, _, row in notes
            if row["event"] == "installed"
        }
        result = Testimony(
            self.group, self.stack, self.configuration, [], views=sorted(views), changes=changes
        )
        ranks = {view: rank for rank, view in enumerate(result.views, 1)}
        for name in names:
            notes = sorted(self._notes.get(name, []), key=lambda note: note[:2])
            result.witnesses.append(self._witness(name, notes, ranks))
            result.has_accepted_loss |= any(row["event"] == "recovered" for _, _, row in notes)
        return result

    def _lost_lives(self, name: str, segments: list[Row]) -> list[Row]:
        """Give the lives before which there was one that they knew nothing of any more.

        Before the first life of a newcomer there was none, whatever its number.
        """
        first = min((row["incarnation"] for row in segments), default=0)
        is_newcomer = (name, first) in self._newcomers
        return [
            row
            for row in segments
            if row["first"] == 1
            and row["incarnation"] > 1
            and not row["follows_incarnation"]
            and not (is_newcomer and row["incarnation"] == first)
        ]

    def _witness(
        self,
        name: str,
        notes: list[tuple[tuple[int, int], int, Row]],
        ranks: dict[View, int],
    ) -> Witness:
        witness = Witness(name, sorted({life for (life, _), _, _ in notes}))
        witness.last_view = self._latest.get(name, NO_VIEW_KNOWN)
        segments = [row for _, _, row in notes if row["event"] == "segment"]
        _mark_gaps(segments)
        lost = [*lost_writes(segments, self.stopped), *self._lost_lives(name, segments)]
        for row in lost:
            row["is_after_loss"] = True
        witness.is_complete = bool(segments) and name not in self._lacking and not lost
        telling = _Telling(witness)
        if name not in self._notes:
            telling.fall_silent(0)
        for place, _, row in notes:
            key = witness.key(*place)
            if row["event"] == "installed":
                witness.views.append((key, ranks[row["view"]]))
            telling.tell(key, row)
        # Journals that grow are read one after the other: those read first may lack what the
        # others already answer to.
        witness.is_open = self.ends.get(name) is End.OPEN
        witness.is_cut_off = self.ends.get(name) in {End.LOST, End.UNSTOPPED}
        telling.finish(is_whole=self.ends.get(name, End.UNSTOPPED) is End.UNSTOPPED)
        return witness


def _mark_gaps(segments: list[Row]) -> None:
    """Say of each segment whether what came before it is not there."""
    ends: dict[int, int] = {}
    for row in segments:
        life, first = row["incarnation"], row["first"]
        if first > 1:
            is_after_gap = first > ends.get(life, 0) + 1
        else:
            follows, sequence = row["follows_incarnation"], row["follows_sequence"]
            is_after_gap = follows > 0 and ends.get(follows, 0) < sequence
        row["is_after_gap"], row["is_after_loss"] = is_after_gap, False
        ends[life] = row["last"]


class _Telling:
    """Lets a witness say one thing after the other."""

    def __init__(self, witness: Witness) -> None:
        self._witness = witness
        self._silent_above: int | None = None
        """Above which position it may have accepted something, since it fell silent."""
        self._is_unsure = False
        """Whether what it had settled may have changed in records that are not there."""

    def tell(self, key: int, row: Row) -> None:
        """Let it say one thing more."""
        witness = self._witness
        position, settled = row.get("position") or 0, witness.settled
        match row["event"]:
            case "segment":
                self._tell_segment(key, row)
            case "lack":
                self._tell_lack(key, row)
            case "accepted":
                witness.acceptances.append((key, position))
                self._speak(position)
            case "settled":
                self._tell_breach(key, position, "then called less authoritative")
                witness.settled = position
                self._tell_settlement(position)
            case "rolled back":
                self._tell_breach(key, position, "rolled back what is above it")
            case "adopted" if row["restored"]:
                self._tell_restored(key, row)
            case "adopted":
                self._tell_breach(key, position, "adopted a history without it")
                witness.voidings.append(Voiding(key, position, Void.ADOPTED, position, settled))
                witness.settled = min(settled, position)
                self._speak(row["version_position"] or 0)
            case "recovered":
                witness.voidings.append(Voiding(key, position, Void.RECOVERED, position, settled))
                witness.settled = min(settled, position)
        if row["event"] in {"settled", "adopted", "recovered"}:
            self._is_unsure = False
        self._tell_most(key)
        witness.length = max(witness.length, witness.settled)

    def fall_silent(self, above: int) -> None:
        """Learn that what it accepted above a position may not be there from here on."""
        known = self._silent_above
        self._silent_above = above if known is None else min(known, above)

    def finish(self, *, is_whole: bool) -> None:
        """Learn that this was all there is, and whether it is all that was written."""
        if not is_whole:
            self.fall_silent(self._witness.settled)
        self._speak(NEVER)

    # ---- inside

    def _speak(self, length: int) -> None:
        """Learn how long its history was here: above that, nothing was in what is not there."""
        if self._silent_above is not None:
            self._witness.silences.append((self._silent_above, length))
            self._silent_above = None
        if length < NEVER:
            self._witness.length = max(self._witness.length, length)

    def _tell_segment(self, key: int, row: Row) -> None:
        witness = self._witness
        if row["first"] == 1:
            # A life begins, with all or less of what the one before knew.
            known, settled = row["version_position"], witness.settled
            witness.voidings.append(Voiding(key, known, Void.LOST, NEVER, settled))
            witness.settled = row["settled"]
            if row["settled"] < settled and not row["is_zombie"]:
                witness.lapses.append(Breach(key, row["settled"], settled, "began without it"))
            if row["is_after_loss"]:
                self.fall_silent(min(settled, row["settled"]))
        elif not row["is_zombie"]:
            # Who has lost its memory says nothing of what it had before, until it fetches a state.
            self._speak(row["version_position"])
        self._is_unsure = False
        # Where the records before a segment are not there, what it remembered stands for them.
        if row["is_after_gap"]:
            witness.gaps.append((key, key))
            if row["first"] > 1:
                # What became in between of entries that were not settled before is not known.
                kept, settled = min(witness.settled, row["settled"]), witness.settled
                witness.voidings.append(Voiding(key, kept, Void.LOST, NEVER, settled))
                witness.settled = row["settled"]
            witness.covered = max(witness.covered, row["settled"])
            witness.unseen = max(witness.unseen, row["version_position"])
            witness.is_shortened = True
        witness.length = max(witness.length, row["version_position"])

    def _tell_lack(self, key: int, row: Row) -> None:
        """Take that records are not there: what they may have said, they may have said."""
        witness = self._witness
        start = key & ~(SEQUENCE_MAX - 1)
        witness.gaps.append((key, start + min(row["until"], SEQUENCE_MAX - 1)))
        witness.voidings.append(Voiding(key, witness.settled, Void.LOST, NEVER, witness.settled))
        self.fall_silent(witness.settled)
        self._is_unsure = True

    def _tell_restored(self, key: int, row: Row) -> None:
        witness, restored = self._witness, row["restored"]
        settled = witness.settled
        self._tell_breach(key, restored, "took over a state from before it")
        witness.voidings.append(Voiding(key, settled, Void.RESTORED, restored, settled))
        witness.settled = restored
        witness.covered = max(witness.covered, restored)
        witness.restorations.append((witness.views[-1][1] if witness.views else 0, restored))
        self._speak(max(row["version_position"] or 0, restored))

    def _tell_settlement(self, position: int) -> None:
        witness = self._witness
        rank = witness.views[-1][1] if witness.views else 0
        if witness.settlements and witness.settlements[-1][1] >= position:
            return  # known from an earlier life
        if witness.settlements and witness.settlements[-1][0] == rank:
            witness.settlements.pop()
        witness.settlements.append((rank, position))

    def _tell_most(self, key: int) -> None:
        """Note where it called the most authoritative."""
        witness = self._witness
        if witness.settled > witness.settled_max:
            witness.settled_max, witness.settled_where = witness.settled, witness.place(key)

    def _tell_breach(self, key: int, position: int, how: str) -> None:
        witness = self._witness
        if position < witness.settled:
            breach = Breach(key, position, witness.settled, how)
            (witness.doubts if self._is_unsure else witness.breaches).append(breach)
