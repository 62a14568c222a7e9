"""The front of a group under viewstamped replication: what clients are told, and where to go.

Calls do not come this way. A client of transactions speaks to the cohorts as a process of its own
(`coterie.service.transaction_clients`), and may say only what a client has to say (3.5): the
messages by which replicas form views and commit are not for it. Here it is made welcome, told who
the cohorts are, and given reports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coterie.kernel.records import AskedCall
from coterie.objects import MethodKind
from coterie.objects.errors import NotAllowed
from coterie.protocol.messages import Peer
from coterie.service.admission import QUERY, UPDATE
from coterie.service.engines.front import GroupFront
from coterie.service.engines.vsr import HostedCohort
from coterie.vsr.calls.messages import (
    BeginTransaction,
    CallRefused,
    CallRequest,
    EndTransaction,
    StillHere,
    WhereIs,
    decoder,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.kernel.views import Member
    from coterie.protocol.messages import Ask
    from coterie.service.caller import Caller

_WHY = "this group takes transactions only: its clients need a release that knows them"


class CohortFront(GroupFront[HostedCohort]):
    """Speaks for all clients of one group at one cohort."""

    engine = "vsr"
    guest_tags = frozenset(
        kind.__struct_config__.tag
        for kind in (WhereIs, CallRequest, BeginTransaction, EndTransaction, StillHere)
    )

    def peers(self) -> list[Peer]:
        """The cohorts, and who is in its view if these are others.

        A cohort that has just started knows what is forced by its own disk alone, and those who
        belonged to the group then may all be gone; who is sent to them would never find another.
        """
        found = super().peers()
        known = {peer.id for peer in found}
        addresses = self._port.addresses
        members = self.hosted.status.members
        others = [member.id for member in members if member.id not in known]
        return [*found, *(Peer(id, addresses.get(id, ""), is_in_view=True) for id in others)]

    def admit_guest(
        self, caller: Caller, guest: Member, messages: Sequence[msgspec.Raw]
    ) -> Sequence[msgspec.Raw]:
        """Refuse calls that the client may not make, and note who calls what."""
        if not self.admission.is_needed(caller):
            return messages
        taken = [each for each in messages if self._admits(caller, guest, each)]
        self.admission.report(caller, self.hosted.replica.context)
        return taken

    def _admits(self, caller: Caller, guest: Member, raw: msgspec.Raw) -> bool:
        try:
            message = decoder.decode(raw)
        except msgspec.DecodeError:
            return True  # whoever takes it will count it
        match message:
            case CallRequest(aid=aid, call=call, method=method):
                kind = self.hosted.definition.methods.get(method)
                what = QUERY if kind is not None and kind.kind is MethodKind.QUERY else UPDATE
                asked = AskedCall(what, method, 0, 0, 1, str(aid), "")
                never, later = self.admission.judge(caller, asked)
                if not never and not later:
                    return True
                reason = f"{NotAllowed.__name__}: {never}" if never else later
                refusal = CallRefused(self.group, aid, call, reason)
                self.hosted.server.send(guest, message.actor, refusal)
                return False
            case EndTransaction(aid=aid, commit=is_commit):
                what = "commit" if is_commit else "abort"
                self.admission.note(AskedCall(what, "", 0, 0, 1, str(aid), ""))
            case BeginTransaction():
                return not caller.client.why_unwelcome(self.group)
            case _:
                pass
        return True

    def take(self, caller: Caller, ask: Ask) -> None:
        """Give reports, and refuse anything else."""
        self.report_or_refuse(caller, ask, _WHY)
