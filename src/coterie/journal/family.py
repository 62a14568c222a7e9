"""What the journal has to know of an engine family, and of nothing else of the engine.

Segments, blocks, lives, snapshots and retention are the same for all families. What differs is what
a replica remembers by its records (`Memory`), what it must never forget (its *promises*, on stable
storage), which turns have to be synced before anything of them leaves, and what a start makes of
the journal (`LifeFound`). A `JournalFamily` says all of that; `coterie.journal.engines` has those
there are, by the names that every side of the platform uses.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from coterie.journal.facts import Facts, Memory
from coterie.journal.format import Mark, Sync
from coterie.journal.stable import found_group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.journal.disk import Disk
    from coterie.journal.format import Finding
    from coterie.journal.keeper import Keeper, KeeperSettings
    from coterie.journal.snapshots import Snapshot
    from coterie.journal.stable import StableValues
    from coterie.journal.writer import JournalWriter
    from coterie.kernel.engine import Checkpoint
    from coterie.kernel.records import Record
    from coterie.kernel.views import Configuration


_NOWHERE = Mark()


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeFound(abc.ABC):
    """What was found of a replica's earlier lives, with which its next life begins."""

    group: str
    replica: str
    incarnation: int
    """The number of the next life; `dataclasses.replace` it if others know of a higher one."""
    reason: str
    """Why the replica has lost something, or why it has not, in words for an operator."""
    facts: Facts
    snapshot: Snapshot | None
    """The state to begin with, if any."""
    findings: tuple[Finding, ...] = ()
    end: Mark = _NOWHERE
    """What the next life goes on from."""
    unsynced: tuple[str, ...] = ()
    """Files that must be synced before anything rests on them."""
    useless: tuple[str, ...] = ()
    """Snapshots that nothing will ever refer to."""

    @property
    @abc.abstractmethod
    def family(self) -> JournalFamily:
        """The engine family whose journal this is."""

    @property
    def promises(self) -> msgspec.Struct | None:
        """What must be on stable storage when the life begins; None to leave what is there."""
        return None

    @property
    def counted(self) -> object:
        """Numbers besides the facts and promises that the next life counts on from."""
        return None

    @property
    def has_been_primary(self) -> bool:
        """Whether the recovery bit is to be set when the life begins."""
        return False

    @property
    def bytes_above(self) -> int:
        """How much is to be applied above the snapshot."""
        return 0

    def chunks(self) -> tuple[bytes, ...]:
        """Take the state of the snapshot, which was read when it was checked."""
        return () if self.snapshot is None else self.snapshot.take_chunks()


class Adoption(NamedTuple):
    """Where a state that a turn takes over belongs."""

    after: Mark
    adopts: int = 0


class JournalFamily(abc.ABC):
    """One engine family, as the journal sees it."""

    name: str
    syncs: frozenset[Sync] = frozenset({Sync.TURN, Sync.INTERVAL, Sync.NONE})
    """The modes of syncing that mean something to it."""
    kinds: frozenset[type[Record]] = frozenset()
    """Records that only its replicas write."""
    promises_nothing: frozenset[type[Record]] = frozenset()
    """Records of what follows from others' promises. An answer rests on what a majority has on
    disk; that this replica knew it, and answered, need not survive the loss of its machine."""
    may_follow: frozenset[type[Record]] = frozenset()
    """Those of them that may be written when the frames and the answers of their turn have left,
    in the same turn, because what they say is known from what others have on record. A process
    that is killed in between has answered without a record of it."""
    forced: frozenset[type[Record]] = frozenset()
    """Records that are on stable storage when they are written, whatever the mode of syncing."""
    sets_recovery_bit: frozenset[type[Record]] = frozenset()
    """Records that are not written before the recovery bit is on stable storage."""
    syncs_before_snapshots: bool = False
    """Whether the journal must lead to the record after which a snapshot was taken, also where
    turns are not synced: then a segment that ends is synced in every mode, too."""

    # ---- stable values

    def found(
        self, disk: Disk, group: str, replica: str, configuration: Configuration | None = None
    ) -> None:
        """Set the bootstrap mark on the disk of a new replica (`found_group`)."""
        del configuration
        found_group(disk, group, replica, family=self.name)

    def owns(self, values: StableValues) -> bool:
        """Say whether stable values are those of a replica of this family."""
        return values.family == self.name

    # ---- turns

    def memory(self, facts: Facts, promises: msgspec.Raw | None = None) -> Memory:
        """Give what follows the records of a life that begins with these facts.

        *promises* are those on stable storage; None if there are none, or a reader has no need.
        """
        del promises
        return Memory(facts)

    def is_due(self, sync: Sync, memory: Memory, records: Sequence[Record]) -> bool:
        """Say whether a turn must be synced before anything of it leaves."""
        del memory
        return sync is Sync.TURN and not self.promises_nothing.issuperset(map(type, records))

    def adoption(self, writer: JournalWriter, records: Sequence[Record]) -> Adoption | None:
        """Say where the state belongs that a turn takes over from another replica, if it does."""
        del writer, records
        return None

    def stored(self, checkpoint: Checkpoint) -> Checkpoint:
        """Give a checkpoint as a snapshot names it."""
        return checkpoint

    # ---- lives

    @abc.abstractmethod
    def recover(
        self,
        disk: Disk,
        group: str,
        replica: str,
        configuration: Configuration | None = None,
        *,
        incarnation_min: int = 1,
    ) -> LifeFound:
        """Read what a replica knows of its earlier lives; write nothing.

        *incarnation_min* is for a replica whose disk was replaced: its peers know how many lives it
        has had, and refuse a lower number. Raises `VersionUnknown` if a later release wrote the
        journal, and `WrongJournal` if it is another family's or another configuration's.
        """

    def open(
        self, disk: Disk, found: LifeFound, settings: KeeperSettings | None = None, *, at: int = 0
    ) -> Keeper:
        """Begin the life that follows what `recover` found.

        *at* is the time for records that are written at once, if any are. Raises `StorageFailed` if
        the journal cannot be begun.
        """
        from coterie.journal.keeper import Keeper  # noqa: PLC0415 -- keepers ask their family

        return Keeper(disk, found, settings, at=at)

    def first_facts(self, found: LifeFound) -> Facts:
        """Give the facts with which a life begins."""
        return found.facts

    def begun(self, writer: JournalWriter, found: LifeFound, *, at: int) -> None:  # noqa: B027
        """Write what a life writes down of earlier ones, if anything."""
