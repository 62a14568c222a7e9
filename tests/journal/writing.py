"""Small journals for the tests."""

from __future__ import annotations

from coterie.journal.disk import Disk
from coterie.journal.engines.stack import recover
from coterie.journal.format import Sync
from coterie.journal.keyed import SealKey
from coterie.journal.life import begin_life
from coterie.journal.stable import found_group
from coterie.journal.writer import JournalSettings, JournalWriter
from coterie.kernel.engine import Run, Version
from coterie.kernel.records import (
    EntriesAccepted,
    PrimaryAccepted,
    PrimaryConfirmed,
    Settled,
    Stopped,
)
from coterie.kernel.views import Member, ViewId

GROUP, ID = "g", "a"
ME = Member("a", 1)
VIEW = ViewId(3, "b", 1)


def begin(
    disk: Disk,
    *,
    sync: Sync = Sync.TURN,
    segment_bytes: int = 64 << 20,
    preallocate: bool = False,
    seal_key: SealKey | None = None,
) -> JournalWriter:
    """The next life of a replica that may found its group."""
    found_group(disk, GROUP, ID)
    settings = JournalSettings(
        sync=sync, segment_bytes=segment_bytes, preallocate=preallocate, seal_key=seal_key
    )
    return begin_life(disk, recover(disk, GROUP, ID), settings)


def note(at: int) -> Stopped:
    """A small record; *at* tells it from others."""
    return Stopped(group=GROUP, member=ME, at=at)


def taken(position: int, *payloads: bytes) -> EntriesAccepted:
    run = Run(VIEW, position, position, ME, position, list(payloads))
    return EntriesAccepted(group=GROUP, member=ME, at=7, run=run)


def accepted(position: int = 0, *, view: ViewId = VIEW) -> PrimaryAccepted:
    return PrimaryAccepted(
        group=GROUP, member=ME, at=5, view=view, members=(ME,), version=Version(view, position)
    )


def confirmed(position: int = 0, *, view: ViewId = VIEW) -> PrimaryConfirmed:
    return PrimaryConfirmed(
        group=GROUP, member=ME, at=6, view=view, position=position, accepted_by=(ME,)
    )


def settled(position: int) -> Settled:
    return Settled(group=GROUP, member=ME, at=9, position=position)


def segment(first: int, *, incarnation: int = 1) -> str:
    return f"g/a/{incarnation:06}/{first:015}.segment"
