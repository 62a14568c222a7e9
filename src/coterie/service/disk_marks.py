"""Which disks a process has met, and by which mark it is known itself (`coterie.runtime.marks`).

The mark of a founder is drawn when groups are founded in a new folder, and kept there in the file
`marks`; a folder in which others have worked already gets none, and neither has one that joins, or
that replaces a lost one. Each process keeps the first mark that each peer has shown, on stable
storage, before it counts anything else that the peer says. So:

- a founder with another mark than is known is refused by whoever knew it, whatever it says;
- it ends, with a sentence, if it has no history yet: a second founding beside a disk that has one;
- if it has one by now, because nobody was there who knew, the two stay apart, and both say so.

No single id is agreed on: founders begin on their own, on different machines, perhaps long after
each other, and none can choose for the rest. That each is known by its own mark says the same, and
nobody has to wait for anybody.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from coterie.journal.disk import replace_file
from coterie.journal.format import encode_fixed, read_fixed
from coterie.journal.segments import list_journals
from coterie.journal.stable import Stable
from coterie.kernel.decoding import Decoder
from coterie.kernel.errors import CoterieError
from coterie.runtime.marks import MARK_BYTES, Marks
from coterie.service.engines.family import Slot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from coterie.journal.disk import Disk
    from coterie.kernel.views import ReplicaId
    from coterie.service.config import ClusterConfig

_NAME = "marks"
_MAGIC = b"COTMARK\n"


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    mark: bytes = b""
    groups: tuple[str, ...] = ()
    """Which were founded here under it."""
    known: dict[str, bytes] = {}


_encoder = msgspec.msgpack.Encoder()
_decoder = Decoder(_Kept)


class DiskMarks(Marks):
    """The marks in the folder of one process."""

    def __init__(self, disk: Disk, id: ReplicaId) -> None:
        self._disk = disk
        self._id = id
        self._kept = self._read()
        self.refused: Callable[[ReplicaId, str], None] = _nobody_asks
        """Is told when a peer knew this replica with another folder."""

    @property
    def mark(self) -> bytes:  # type: ignore[override]
        """Ours; empty if nothing was founded in a new folder."""
        return self._kept.mark

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that were founded here under it."""
        return self._kept.groups

    def draw(self) -> None:
        """Have a mark, if there is none."""
        if not self.mark:
            self._keep(mark=os.urandom(MARK_BYTES))

    def note_founded(self, groups: Iterable[str]) -> None:
        """Note that groups were founded here."""
        new = tuple(each for each in groups if each not in self.groups)
        if self.mark and new:
            self._keep(groups=(*self.groups, *new))

    # ---- meeting others

    def why_not(self, peer: ReplicaId, mark: bytes) -> str:
        if len(mark) not in {0, MARK_BYTES}:
            return f"no mark has {len(mark)} bytes"
        known = self._kept.known.get(peer)
        if not mark or known is None or mark == known:
            return ""
        return (
            f"replica {peer!r} was founded apart: its folder is not the one with which "
            f"{self._id!r} has met it. If that one is lost, empty the new one and start it without "
            f"--found, or replace {peer!r}"
        )

    def met(self, peer: ReplicaId, mark: bytes) -> None:
        if peer not in self._kept.known:
            self._keep(known={**self._kept.known, peer: mark})

    def sent_away(self, peer: ReplicaId, reason: str) -> None:
        self.refused(peer, reason)

    # ---- the file

    def _read(self) -> _Kept:
        if _NAME not in self._disk.names(""):
            return _Kept()
        try:
            return _decoder.decode(read_fixed(self._disk, _NAME, _MAGIC, "file of marks")[0])
        except (ValueError, msgspec.DecodeError) as error:
            raise CoterieError(
                f"the file {_NAME!r} in the folder of {self._id} cannot be read ({error}): put it "
                "back, or remove it if the rest of the folder is whole"
            ) from None

    def _keep(self, **changed: object) -> None:
        kept = msgspec.structs.replace(self._kept, **changed)
        replace_file(self._disk, ".", _NAME, encode_fixed(_MAGIC, _encoder.encode(kept)))
        self._kept = kept


def found_groups(disk: Disk, config: ClusterConfig, id: ReplicaId, groups: Iterable[str]) -> None:
    """Make a replica one of those its groups begin with, under a mark if its folder is new.

    Raises `ValueError` if the disk holds anything of it already, or held it.
    """
    groups = tuple(groups)
    marks = DiskMarks(disk, id)
    for group in groups:
        if group in marks.groups and not Stable(disk, group, id).exists:
            raise ValueError(
                f"replica {id} of group {group} was founded on this disk before, and what it kept "
                "there is gone"
            )
    if not list_journals(disk):
        marks.draw()  # before anything is founded, so that nothing is founded without
    for group in groups:
        config.all_groups[group].family.found(disk, Slot(config, group, id))
    marks.note_founded(groups)


def _nobody_asks(peer: ReplicaId, reason: str) -> None:
    del peer, reason
