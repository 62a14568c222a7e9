"""Journals of transactions, of any number, as two groups of cohorts write them.

Every transaction moves an amount from an account of one group to an account of the other: a call
in each, which read and write one object, the decision of its coordinator, an installation in each,
and the coordinator's note that all is done. They end in the order in which they began, as many
at a time as a turn has; nothing is lost, and every cohort knows every event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.msgpack import Encoder

from coterie.journal import FileDisk, JournalSettings, begin_life, recover
from coterie.journal.format import Sync
from coterie.journal.stable import found_group
from coterie.kernel.records import EventsKnown, Forced, Record, Started, ViewStarted
from coterie.kernel.views import Configuration, Member, ViewId, Viewstamp

if TYPE_CHECKING:
    from pathlib import Path

GROUPS = ("north", "south")
COHORTS = ("a", "b", "c")
_MEMBERS = tuple(Member(name, 1) for name in COHORTS)
_VIEW = ViewId(1, COHORTS[0], 1)
_TURN = 256
"""Transactions in a turn."""
_ACCOUNTS = 4096
_SEGMENT_BYTES = 8 << 20
_TURN_MICROSECONDS = 1000
_CALL, _DECIDED, _DONE, _INSTALLED = 1, 3, 4, 5
"""The kinds of events, as the format of journals numbers them."""

_encode = Encoder().encode


class _Group:
    """What one group has written."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.known = 0
        self.versions: dict[str, Viewstamp] = {}
        self.turn: list[bytes] = []

    def add(self, event: tuple[object, ...]) -> Viewstamp:
        """Write an event; give its viewstamp."""
        self.turn.append(_encode(event))
        self.known += 1
        return Viewstamp(_VIEW, self.known)


def write_transactions(folder: Path, count: int) -> int:
    """Write journals with *count* transactions; give how many events one cohort of each knows."""
    groups = [_Group(name) for name in GROUPS]
    disk = FileDisk(folder)
    settings = JournalSettings(sync=Sync.NONE, segment_bytes=_SEGMENT_BYTES)
    writers = {}
    for group in groups:
        for name in COHORTS:
            found_group(disk, group.name, name)
            writer = begin_life(disk, recover(disk, group.name, name), settings)
            writer.append(_beginning(group.name, name))
            writers[group.name, name] = writer
    for turn, first in enumerate(range(0, count, _TURN)):
        at = (turn + 2) * _TURN_MICROSECONDS
        for number in range(first, min(first + _TURN, count)):
            _transfer(groups, number)
        for group in groups:
            events, group.turn = group.turn, []
            for name in COHORTS:
                common = (group.name, Member(name, 1), at)
                start = group.known - len(events) + 1
                records: list[Record] = [
                    EventsKnown(*common, view=_VIEW, first=start, events=events)
                ]
                if name == _VIEW.proposer:
                    records.append(Forced(*common, view=_VIEW, number=group.known))
                writers[group.name, name].append(records)
    for writer in writers.values():
        writer.close()
    return sum(group.known for group in groups)


def _beginning(group: str, name: str) -> list[Record]:
    common = (group, Member(name, 1), _TURN_MICROSECONDS)
    return [
        Started(*common, stack="VSR", configuration=Configuration(1, COHORTS)),
        ViewStarted(
            *common,
            view=_VIEW,
            primary=_MEMBERS[0],
            members=_MEMBERS,
            history=(Viewstamp(_VIEW, 0),),
        ),
    ]


def _transfer(groups: list[_Group], number: int) -> None:
    """Move an amount between accounts that no transaction of the same turn touches."""
    coordinator = groups[number % len(groups)]
    aid = (coordinator.name, _VIEW, number + 1)
    calls: list[tuple[_Group, str, Viewstamp]] = []
    for place, group in enumerate(groups):
        account = f"account-{number * (place + 1) % _ACCOUNTS}"
        reads = [(account, group.versions.get(account))]
        writes = [(account, b"%d" % number)]
        calls.append((group, account, group.add((_CALL, aid, str(place + 1), reads, writes))))
    parts = [(group.name, (stamp,)) for group, _, stamp in calls]
    coordinator.add((_DECIDED, aid, parts))
    for group, account, stamp in calls:
        group.versions[account] = group.add((_INSTALLED, aid, (stamp,), False))
    coordinator.add((_DONE, aid))
