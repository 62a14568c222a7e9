"""What an engine promises, checked from the records of all replicas.

The tracker below follows every life's history as its records tell it: entries accepted, histories
adopted, positions settled. The checks speak of what it finds:

- *one authoritative entry*: no position has two authoritative entries (**objects** 5.4.1);
- *authoritative majority*: what is called authoritative had been accepted by a majority (4.1);
- *authoritative for ever*: it is never rolled back, nor left out of a later adopted history;
- *confirmed chain*: confirmed primary views form one chain: a majority accepted each, and each
  shares with the one before a member that accepted both;
- *memory*: a life that is no zombie begins with all that the one before had on record;
- *counted rightly*: who accepted a view held its whole initial history; zombies fetched it first;
- *active replication*: equal histories give equal states (3.4.2), and replaying the authoritative
  history alone gives the same (4.1.1);
- *acknowledged means authoritative*, and *once*: what a client was told is in the history, once.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from zlib import crc32

from coterie.checking.confirmed_chain import ConfirmedChain
from coterie.checking.history import Violation
from coterie.kernel.configuration import decode_change, follows
from coterie.kernel.records import (
    EntriesAccepted,
    HistoryAdopted,
    PrimaryAccepted,
    PrimaryConfirmed,
    Recovered,
    Replied,
    Reply,
    RolledBack,
    Settled,
    Started,
    StateDigest,
)
from coterie.kernel.views import NO_VIEW

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.kernel.engine import Past, Run
    from coterie.kernel.records import Record
    from coterie.kernel.views import ChangedConfiguration, Configuration, Member, ViewId

EntryKey = tuple["ViewId", int, str, int, int, int]
"""Viewstamp, origin, its life, its number, checksum of the payload."""

_NO_KEY: EntryKey = (NO_VIEW, 0, "", 0, 0, 0)


def _keys(run: Run) -> list[tuple[int, EntryKey, bytes]]:
    return [
        (
            run.position + index,
            (
                run.view,
                run.number + index,
                run.origin.id,
                run.origin.incarnation,
                run.first + index,
                crc32(payload),
            ),
            payload,
        )
        for index, payload in enumerate(run.payloads)
    ]


@dataclass(slots=True)
class _Life:
    """The history of one life, as its records tell it."""

    member: Member
    is_zombie: bool = False
    has_adopted: bool = False
    has_accepted: bool = False
    """Whether it accepted a primary view, and so has the history of the group."""
    entries: dict[int, EntryKey] = field(default_factory=dict)
    end: int = 0
    settled: int = 0
    state_from: int = 0
    """Positions up to here came with a state, not as entries."""
    digests: dict[int, bytes] = field(default_factory=dict)
    replies: list[Reply] = field(default_factory=list)


class EngineTracker:
    """Takes the records of all replicas in true order; collects violations."""

    def __init__(self, configuration: Configuration, *, beginning: int = 0) -> None:
        self._configuration = configuration
        self._beginning = beginning
        """Of entries up to here nothing is known: every replica began with the state there."""
        self._lives: dict[Member, _Life] = {}
        self._holders: dict[EntryKey, set[str]] = {}
        self.authoritative: dict[int, EntryKey] = {}
        self.payloads: dict[EntryKey, bytes] = {}
        self._state: dict[int, tuple[bytes, Member]] = {}
        self._chain = ConfirmedChain(configuration, self._fail)
        self._is_losing = False
        """Whether an operator accepted loss, and no view was confirmed since."""
        self.lost: set[EntryKey] = set()
        """What was authoritative once, and is not since an operator accepted its loss."""
        self._newest: dict[str, _Life] = {}
        self._changed_disks: set[str] = set()
        self._changes: dict[EntryKey, ChangedConfiguration] = {}
        """The entries that change the members."""
        self._change_places: list[int] = []
        self.violations: list[Violation] = []
        self.rolled_back = 0
        self.transfers = 0

    def add(self, record: Record) -> None:  # noqa: C901 -- a dispatch table
        """Take one record."""
        life = self._lives.get(record.member)
        if life is None:
            life = self._lives[record.member] = _Life(record.member)
        match record:
            case Started(is_zombie=is_zombie):
                life.is_zombie = is_zombie
            case EntriesAccepted(run=run):
                self._on_entries(life, run)
            case HistoryAdopted():
                self._on_adopted(life, record)
            case PrimaryAccepted():
                self._on_accepted(life, record)
            case PrimaryConfirmed():
                self._on_confirmed(life, record)
            case Settled(position=position):
                self._on_settled(life, position)
            case RolledBack(position=position):
                self._cut(life, position, "rolled back")
            case StateDigest(position=position, digest=digest):
                self._on_digest(life, position, digest)
            case Replied(replies=replies):
                life.replies.extend(replies)
            case Recovered(version=version):
                life.is_zombie = False
                life.settled = min(life.settled, version.position)
                self._cut(life, version.position, "recovered by hand")
                self._is_losing = True
            case _:
                pass

    def inherit(self, member: Member, past: Past) -> None:
        """Learn with what a life began: what its replica recovered from its journal."""
        life = self._lives[member] = _Life(member)
        life.end = past.version.position
        life.settled = past.settled
        life.state_from = past.position
        for position in self._places(past.position):
            key = self.authoritative.get(position)
            if key is not None:
                life.entries[position] = key
        for run in past.runs:
            for position, key, payload in _keys(run):
                life.entries[position] = key
                self.payloads[key] = payload
        # The last turn before a crash may be on record although nobody heard of it.
        for key in life.entries.values():
            self._holders.setdefault(key, set()).add(member.id)
        before = self._newest.get(member.id)
        self._newest[member.id] = life
        if before is not None and not past.is_zombie and member.id not in self._changed_disks:
            self._compare_memory(before, life)
        self._changed_disks.discard(member.id)

    def disk_was_changed(self, id: str) -> None:
        """Learn that a replica has someone else's memory now, or an old one of its own."""
        self._changed_disks.add(id)

    def _compare_memory(self, before: _Life, life: _Life) -> None:
        """Who is counted on must know all entries that it ever said it knew.

        That they were settled follows from what others know, too, and may have to be found out
        again; that what was settled stays is another check.
        """
        lost = [
            position
            for position, key in before.entries.items()
            if life.entries.get(position, key) != key or position > life.end
        ]
        if lost or life.end < before.settled:
            self._fail(
                "memory",
                f"{life.member} knows {life.end} entries, {life.settled} settled, and is no zombie;"
                f" {before.member} knew {before.end} and {before.settled}",
            )

    def _fail(self, check: str, evidence: str) -> None:
        self.violations.append(Violation(check, evidence))

    def _places(self, last: int) -> range:
        """Give the positions up to *last* whose entries can be known."""
        return range(self._beginning + 1, last + 1)

    def _on_entries(self, life: _Life, run: Run) -> None:
        if run.position != life.end + 1:
            self._fail(
                "counted rightly",
                f"{life.member} took entry {run.position} where {life.end + 1} comes next",
            )
        for position, key, payload in _keys(run):
            life.entries[position] = key
            self._holders.setdefault(key, set()).add(life.member.id)
            self.payloads[key] = payload
            to = decode_change(payload)
            if to is not None:
                self._changes[key] = to
                if position not in self._change_places:
                    insort(self._change_places, position)
            known = self.authoritative.get(position)
            # An entry behind the authoritative one at its place is void, wherever it stands.
            if known is not None and known != key and position <= life.settled:
                self._fail("one authoritative entry", f"{position} at {life.member}")
        life.end = run.last_position

    def _on_adopted(self, life: _Life, record: HistoryAdopted) -> None:
        self.transfers += 1
        life.has_adopted = True
        if not record.restored:
            self._cut(life, record.kept, "adopted a history without")
            return
        if record.restored < life.settled and not self.has_lost:
            self._fail(
                "authoritative for ever",
                f"{life.member} had settled {life.settled} and took over a state at "
                f"{record.restored}",
            )
        life.entries = {}
        for position in self._places(record.restored):
            key = self.authoritative.get(position)
            if key is not None:
                life.entries[position] = key
                self._holders.setdefault(key, set()).add(life.member.id)
        life.state_from = life.end = life.settled = record.restored
        life.digests.clear()

    def _cut(self, life: _Life, position: int, how: str) -> None:
        if position < life.settled and not self.has_lost:
            self._fail(
                "authoritative for ever",
                f"{life.member} had settled {life.settled} and {how} what is above {position}",
            )
        for place in range(position + 1, life.end + 1):
            if life.entries.pop(place, None) is not None:
                self.rolled_back += 1
            life.digests.pop(place, None)
        life.end = min(life.end, position)

    def _on_accepted(self, life: _Life, record: PrimaryAccepted) -> None:
        self._chain.accepted(record.view, life.member)
        life.has_accepted = True
        if life.end < record.version.position:
            self._fail(
                "counted rightly",
                f"{life.member} accepted {record.view} with {life.end} entries of "
                f"{record.version.position}",
            )
        if life.is_zombie and not life.has_adopted:
            self._fail(
                "counted rightly",
                f"{life.member} is a zombie and accepted {record.view} with nothing",
            )
        for position in self._places(min(record.version.position, life.end)):
            expected = self.authoritative.get(position)
            mine = life.entries.get(position)
            is_other = expected is not None and mine is not None and mine != expected
            if is_other and not self.has_lost:
                self._fail(
                    "authoritative for ever",
                    f"{life.member} accepted {record.view} with another entry at {position}",
                )

    @property
    def has_lost(self) -> bool:
        """Whether an operator accepted the loss of something."""
        return self._is_losing or bool(self.lost)

    def _on_confirmed(self, life: _Life, record: PrimaryConfirmed) -> None:
        if self._is_losing and self._chain.is_news(record):
            self._accept_loss(life, record)
        self._chain.confirmed(record, self._configuration_at(life, record.position))

    def _accept_loss(self, life: _Life, record: PrimaryConfirmed) -> None:
        """The history of the view that follows an operator's word is the one that counts."""
        self._is_losing = False
        self._chain.begin_anew(record.view)
        gone = {
            position: key
            for position, key in self.authoritative.items()
            if position > record.position or life.entries.get(position, key) != key
        }
        if not gone:
            return
        self.lost.update(gone.values())
        first = min(gone)
        self.authoritative = {p: key for p, key in self.authoritative.items() if p < first}
        self._state = {p: state for p, state in self._state.items() if p < first}
        for other in self._lives.values():
            other.settled = min(other.settled, first - 1)

    def _on_settled(self, life: _Life, position: int) -> None:
        if position > life.end:
            self._fail("authoritative majority", f"{life.member} settled {position} of {life.end}")
        for place in range(life.settled + 1, position + 1):
            key = life.entries.get(place)
            if key is None or key in self.lost:
                continue
            known = self.authoritative.setdefault(place, key)
            if known != key:
                self._fail(
                    "one authoritative entry",
                    f"at {place} {life.member} settled {key}, and {known} was settled before",
                )
            holders = self._holders.get(key, set())
            # Whoever counts an entry counts those before it as well.
            configurations = (self._configuration_at(life, each) for each in (place, position))
            if not any(each.is_quorum(holders) for each in configurations):
                self._fail(
                    "authoritative majority",
                    f"{life.member} settled {place}, accepted by {sorted(holders)} only",
                )
            digest = life.digests.pop(place, None)
            if digest is not None:
                self._compare_state(life, place, digest)
        life.settled = max(life.settled, position)

    def _configuration_at(self, life: _Life, place: int) -> Configuration:
        """Give the configuration in force at a position, by the history of a life."""
        now = self._configuration
        for position in self._change_places:
            if position > place:
                break
            key = life.entries.get(position)
            if key is None and position <= life.state_from:
                key = self.authoritative.get(position)
            to = None if key is None else self._changes.get(key)
            if to is not None and follows(to, now):
                now = to
        return now

    def configurations(self) -> list[Configuration]:
        """Give those that are in force, or may come to be: by what is settled, and above."""
        now = self._configuration
        for position in self._change_places:
            to = self._changes.get(self.authoritative.get(position, _NO_KEY))
            if to is not None and follows(to, now):
                now = to
        later = [to for to in self._changes.values() if to.number > now.number]
        return [now, *dict.fromkeys(later)]

    def _on_digest(self, life: _Life, position: int, digest: bytes) -> None:
        if self.has_lost and not life.has_accepted:
            return  # it may still have a history that was lost
        if position <= life.settled:
            # Under SAFE an entry is settled before it is executed.
            self._compare_state(life, position, digest)
        else:
            life.digests[position] = digest

    def _compare_state(self, life: _Life, place: int, digest: bytes) -> None:
        known, by = self._state.setdefault(place, (digest, life.member))
        if known != digest:
            self._fail(
                "active replication", f"{by} and {life.member} differ in their state at {place}"
            )

    # ---- at the end

    def finish(self, replay: Callable[[list[bytes]], dict[int, bytes]] | None = None) -> None:
        """Check what can only be said of the whole.

        Without *replay* the entries are commands of clients, which may ask for the same again;
        that each is executed once is for the host, and shows in what the clients saw.
        """
        self._chain.check()
        self._check_replies()
        if replay is not None:
            self._check_once()
        if replay is not None:
            self._check_replay(replay)

    def _check_replies(self) -> None:
        lost = {(key[0], key[1]) for key in self.lost}
        for life in self._lives.values():
            for reply in life.replies:
                if not reply.standing.is_final:
                    continue
                key = self.authoritative.get(reply.position)
                stamp = (reply.viewstamp.view, reply.viewstamp.number)
                if stamp in lost:
                    continue
                if key is None or (key[0], key[1]) != stamp:
                    self._fail(
                        "acknowledged means authoritative",
                        f"{life.member} acknowledged {reply.request} at {reply.position}, "
                        f"{reply.viewstamp}, where the history has {key}",
                    )

    def _check_once(self) -> None:
        seen: dict[bytes, int] = {}
        for position in sorted(self.authoritative):
            payload = self.payloads.get(self.authoritative[position], b"")
            if decode_change(payload) is not None:
                continue  # two members may take the same step; the second entry is void
            if payload in seen:
                self._fail("once", f"{payload!r} stands at {seen[payload]} and at {position}")
            seen[payload] = position

    def _check_replay(self, replay: Callable[[list[bytes]], dict[int, bytes]]) -> None:
        end = max(self.authoritative, default=self._beginning)
        missing = [place for place in self._places(end) if place not in self.authoritative]
        if missing:
            self._fail("replicated state machine", f"nobody settled {missing[:5]} of {end}")
            return
        history = [self.payloads[self.authoritative[place]] for place in self._places(end)]
        states = replay(history)
        for place, (digest, member) in self._state.items():
            if states.get(place, digest) != digest:
                self._fail(
                    "replicated state machine",
                    f"replaying the history gives another state at {place} than {member} had",
                )
