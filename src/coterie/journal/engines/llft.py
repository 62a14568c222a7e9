"""Recovery of replicas and edges of programs (**llft**): what they wrote down, as they wrote it.

Both keep journals of the same kind. What their records amount to is known to the engine
(`coterie.llft.memory`); here they are found again: the newest snapshot whose place the journal
reaches, which holds all that was known there, and the records behind it.

Every turn is written, and synced if the machine's death is to be survived, before anything of it
leaves. So a promised claim is stable before it is heard of, an order before it is reflected, and
output before it is released.

A *replica* that has lost something begins as one that was never there: it joins, and is sent a
state. Nothing rests on it, because what counts is stored at the edge. An *edge* that has lost
something would let a primary go on that it had fenced, or release what it had released. It cannot
take part, and says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from coterie.journal.above_snapshot import AboveSnapshot, ReadingBack
from coterie.journal.facts import Facts, Memory
from coterie.journal.family import JournalFamily, LifeFound
from coterie.journal.format import Kind, Sync, WrongJournal, folder_of
from coterie.kernel.records import ClaimPromised, LlftRecord
from coterie.kernel.views import Viewstamp

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coterie.journal.disk import Disk
    from coterie.journal.snapshots import Snapshot
    from coterie.journal.stable import StableValues
    from coterie.kernel.engine import Checkpoint
    from coterie.kernel.records import Record
    from coterie.kernel.views import Configuration

EDGE = "@edge"
"""How the group of an edge ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LlftFound(LifeFound):
    """What a replica or an edge wrote down in earlier lives."""

    records: list[Record]
    """Those behind the snapshot, in order."""
    is_new: bool
    """Whether it founds its group, and has written nothing yet."""

    @property
    def family(self) -> JournalFamily:
        return LLFT


class LlftHistory(Memory, AboveSnapshot):
    """The records of all lives, behind a snapshot."""

    def __init__(self, base: Snapshot | None) -> None:
        Memory.__init__(self, Facts())
        AboveSnapshot.__init__(self, base)
        self.records: list[Record] = []

    def take_base(self, base: Snapshot) -> None:
        del base
        self.forget()

    def forget(self) -> None:
        self.records.clear()

    def apply(self, records: Iterable[Record]) -> None:
        """Take the records of one turn."""
        self.reach_base()
        self.records += records


class _Recovering(ReadingBack[LlftHistory]):
    """One run of a recovery."""

    def begin_at(self, base: Snapshot | None) -> LlftHistory:
        return LlftHistory(base)

    def recover(self, incarnation_min: int, *, is_whole: bool = False) -> LlftFound:
        """Read the journal back, and judge whether anything is lost that others rest on."""
        stable = self.stable
        who = f"{self.replica} of {self.group}"
        if not LLFT.owns(stable.values):
            raise WrongJournal(f"{who} has another engine by its journal: it cannot be changed")
        history, stages = self._read_from(None) if is_whole else self.read_back()
        lost = self._what_is_lost(history)
        if lost and self.group.endswith(EDGE):
            raise WrongJournal(
                f"the edge {who} cannot take part, because {lost}: it may have fenced primaries, "
                "and released output, that it has forgotten. Start it with its own disk"
            )
        if lost:
            self.find(Kind.CONTRADICTION, folder_of(self.group, self.replica), lost)
        is_new = self.newest is None and stable.values.is_founder and not lost
        return LlftFound(
            group=self.group,
            replica=self.replica,
            incarnation=self.next_incarnation(incarnation_min),
            reason=lost or "its journal is whole",
            facts=Facts(is_fresh=bool(lost)),
            snapshot=None if lost else history.base,
            records=[] if lost else history.records,
            is_new=is_new,
            findings=tuple(self.findings),
            end=self.end,
            unsynced=tuple(file.path for stage in stages for file in stage.segments),
            useless=self._all_snapshots() if is_whole else self.useless(history.base),
        )

    def _all_snapshots(self) -> tuple[str, ...]:
        return tuple(each.path for each in self.snapshots.all)

    def _what_is_lost(self, history: LlftHistory) -> str:
        """Say what is missing, in words; nothing if nothing is."""
        stable = self.stable
        if not stable.exists:
            return "its stable values are gone" if self.newest is not None else "its disk is empty"
        if stable.damage:
            return f"its stable values cannot be read: {stable.damage}"
        if stable.has_been_primary and self.newest is None:
            return "it has promised claims, and its journal is gone"
        return history.lost


class LlftJournal(JournalFamily):
    """The journals of replicas and edges of programs."""

    name = "llft"
    syncs = frozenset({Sync.TURN, Sync.NONE})
    kinds = frozenset(get_args(LlftRecord))
    sets_recovery_bit = frozenset({ClaimPromised})
    syncs_before_snapshots = True

    def owns(self, values: StableValues) -> bool:
        # A replica whose disk was replaced has a file that says nothing yet.
        return values.family == self.name or not (values.family or values.is_founder)

    def stored(self, checkpoint: Checkpoint) -> Checkpoint:
        # A snapshot belongs to a place in the journal, not to a position: its head says so.
        version = checkpoint.version
        return checkpoint._replace(history=(Viewstamp(version.view, version.position),))

    def recover(
        self,
        disk: Disk,
        group: str,
        replica: str,
        configuration: Configuration | None = None,
        *,
        incarnation_min: int = 1,
    ) -> LlftFound:
        del configuration  # rosters are in the orders
        return _Recovering(disk, group, replica).recover(incarnation_min)

    def recover_whole(self, disk: Disk, group: str, replica: str) -> LlftFound:
        """Read everything, whatever snapshots there are; the life that begins with it has none.

        For an edge that must remember what it had freed: no snapshot holds that.
        """
        return _Recovering(disk, group, replica).recover(1, is_whole=True)


LLFT = LlftJournal()
