"""Deliberately broken variants of UNION; see `variants.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.broken.variants import Broken

from coterie.journal.format import Sync
from coterie.kernel.engine import Role
from coterie.replication.gathering import Gathering
from coterie.replication.union import UnionViews
from coterie.replication.vectors import add

if TYPE_CHECKING:
    from coterie.kernel.engine import Run
    from coterie.kernel.views import Member
    from coterie.replication.messages import Credentials


class AmnesiacsCounted(UnionViews):
    """Counts members that have lost their memory."""

    def counts(self, credentials: Credentials) -> bool:
        del credentials
        return True


class OneHistoryWins(UnionViews):
    """Takes the most advanced history for the initial one, instead of the union."""

    def _begin_forming(self, counted: list[Member]) -> None:
        best = max(counted, key=lambda member: self._credentials[member].version)
        self._credentials = dict.fromkeys(self._credentials, self._credentials[best])
        super()._begin_forming(counted)


class AcceptsWithWhatItHas(UnionViews):
    """Accepts a view before it holds the union, and is counted."""

    def _start_transfer(self, transfer: Gathering) -> None:
        super()._start_transfer(transfer)
        if not self._has_accepted:
            self._accept()


class SettlesWhatItTook(UnionViews):
    """Calls an entry authoritative as soon as it is here."""

    def _settle_what_is_stable(self) -> None:
        add(self._authoritative, self.log.contained.items())
        super()._settle_what_is_stable()


class TakesAgain(UnionViews):
    """Takes what came during the transfer without looking whether it is there already."""

    def _accept(self) -> None:
        tail, self._tail = self._tail, []
        super()._accept()
        contained, self.log.contained = self.log.contained, {}
        self._take(tail)
        add(self.log.contained, contained.items())


class EntriesWaitBelow(UnionViews):
    """Lets entries wait in VSYNC, so that they may leave in another view."""

    def finish_turn(self) -> None:
        if self.role is Role.PRIMARY:
            for _, _, payloads, _ in self._backlog.packets(lambda: True):
                self.below.cast(payloads)
        super().finish_turn()


class TailCountsAsTaken(UnionViews):
    """Accepts without what came while it was learning."""

    def _accept(self) -> None:
        self._tail: list[Run] = []
        super()._accept()


UNION_BROKEN = (
    Broken(AmnesiacsCounted, "PVSYNC", ("authoritative for ever",), first_seed=27, sync=Sync.NONE),
    Broken(OneHistoryWins, "PVSYNC", ("authoritative for ever", "beginning"), first_seed=2),
    Broken(AcceptsWithWhatItHas, "PVSYNC", ("authoritative for ever", "beginning"), first_seed=2),
    Broken(SettlesWhatItTook, "PVSYNC", ("authoritative majority",), first_seed=2),
    Broken(TakesAgain, "PVSYNC", ("once",)),
    Broken(EntriesWaitBelow, "PVSYNC", ("beginning",), first_seed=2),
    Broken(TailCountsAsTaken, "PVSYNC", ("beginning", "authoritative majority"), first_seed=2),
)
