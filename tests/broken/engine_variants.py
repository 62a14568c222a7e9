"""Deliberately broken variants of PRIMARY and SAFE; see `variants.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace
from tests.broken.variants import FORGETTING, Broken

from coterie.journal.format import Sync
from coterie.replication.forming import Phase
from coterie.replication.log import Log
from coterie.replication.messages import AckEntries
from coterie.replication.primary import PrimaryViews
from coterie.replication.transfer import Transfer

if TYPE_CHECKING:
    from coterie.kernel.views import Member
    from coterie.replication.messages import Credentials


class ZombiesCounted(PrimaryViews):
    """Counts members that have lost their memory."""

    def counts(self, credentials: Credentials) -> bool:
        del credentials
        return True


class NoRecoveryBit(PrimaryViews):
    """Does not notice on starting that there was an earlier life."""

    def assembled(self) -> None:
        if self.context.past is not None:
            self.context.past = replace(self.context.past, is_zombie=False)
        super().assembled()


class ConfirmedByAnyone(PrimaryViews):
    """Takes a view for confirmed as soon as one member accepted it (design 10 d)."""

    def _on_accept(self, sender: Member) -> None:
        if self._phase is Phase.FORMING:
            self._accepted_by.append(sender)
            self._phase = Phase.CONFIRMED
            if self._has_accepted:
                self._enter_confirmed()
            self._accepted_by.remove(sender)
        super()._on_accept(sender)


class LearnerAccepts(PrimaryViews):
    """Accepts the view before it has fetched the history, and is counted."""

    def _go_on_with_transfer(self) -> None:
        transfer = self._transfer
        if transfer is not None and not self._has_accepted and not transfer.is_complete:
            transfer.up_to = transfer.after
        super()._go_on_with_transfer()


class TransferWithoutSuffix(PrimaryViews):
    """Fetches only what the donor has settled, without the entries above."""

    def _decide(self) -> None:
        super()._decide()
        transfer = self._transfer
        if transfer is not None:
            settled = self._credentials[transfer.donor].settled
            transfer.up_to = max(transfer.after, settled)
            self._go_on_with_transfer()


class OwnSuffixKept(PrimaryViews):
    """Keeps its own entries above what it has settled when another history wins."""

    def _adopt(self, transfer: Transfer) -> None:
        transfer.runs = [run for run in transfer.runs if run.last_position > self.log.end]
        if (
            transfer.state.offer is None
            and transfer.runs
            and transfer.runs[0].position <= self.log.end
        ):
            transfer.runs[0] = transfer.runs[0].after(self.log.end)
        agrees, Log.agrees_with = Log.agrees_with, lambda log, _: log.end  # type: ignore[method-assign,assignment]
        try:
            super()._adopt(transfer)
        finally:
            Log.agrees_with = agrees  # type: ignore[method-assign]


class AcknowledgesACount(PrimaryViews):
    """Acknowledges how many entries it has, wherever they came from."""

    def _on_ack(self, sender: Member, message: AckEntries) -> None:
        if sender not in self._accepted_by:
            self._accepted_by.append(sender)
        super()._on_ack(sender, message)

    def finish_turn(self) -> None:
        if self._phase is Phase.CONFIRMED and not self._has_accepted:
            for member in self._view.members:
                if member != self.me:
                    self._send(AckEntries(self._ordered_to, wants_answer=False), member)
        super().finish_turn()


class SettlesWithoutMajority(PrimaryViews):
    """Calls an entry authoritative when one other member has it."""

    def _settle_what_a_majority_has(self) -> None:
        if self._phase is Phase.CONFIRMED and self._has_accepted:
            acks = sorted((self._acks.get(member, 0) for member in self._accepted_by), reverse=True)
            if len(acks) > 1:
                self._settle(acks[1])


class OldestHistoryWins(PrimaryViews):
    """Compares histories by their length alone."""

    def _decide(self) -> None:
        for member, credentials in self._credentials.items():
            version = replace(credentials.version, view=self._view.id)
            self._credentials[member] = replace(credentials, version=version)
        super()._decide()


ENGINE_BROKEN = (
    Broken(
        ZombiesCounted,
        "SAFE:DYNSEQ:PVSYNC",
        ("authoritative for ever", "counted rightly"),
        first_seed=4,
        sync=Sync.NONE,
        faults=FORGETTING,
    ),
    Broken(
        NoRecoveryBit,
        "SAFE:DYNSEQ:PVSYNC",
        ("authoritative for ever", "one authoritative entry"),
        first_seed=18,
        sync=Sync.NONE,
        faults=FORGETTING,
    ),
    Broken(ConfirmedByAnyone, "SAFE:DYNSEQ:PVSYNC", ("confirmed chain",)),
    Broken(LearnerAccepts, "SAFE:DYNSEQ:PVSYNC", ("counted rightly",)),
    Broken(TransferWithoutSuffix, "SAFE:DYNSEQ:PVSYNC", ("counted rightly",)),
    Broken(OwnSuffixKept, "DYNSEQ:PVSYNC", ("authoritative for ever", "one authoritative entry")),
    Broken(
        AcknowledgesACount,
        "SAFE:DYNSEQ:PVSYNC",
        ("authoritative majority", "confirmed chain"),
        first_seed=5,
    ),
    Broken(SettlesWithoutMajority, "SAFE:DYNSEQ:PVSYNC", ("authoritative majority",)),
    Broken(
        OldestHistoryWins,
        "DYNSEQ:PVSYNC",
        ("authoritative for ever", "one authoritative entry"),
        first_seed=32,
        faults=("partition", "isolation", "one-way", "pause", "delay", "slow"),
    ),
)
