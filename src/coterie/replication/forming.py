"""How a view becomes primary: at most one view at a time may change the history.

**objects** section 4, appendix A. In a new view each member multicasts its *credentials*: what its
history holds, and whether it has lost its memory (a zombie). When all credentials are here:

1. The configuration is that of the most advanced history among those who are no zombies; its
   members that are no zombies must be a quorum of it, or the view is a *minority* and takes no
   updates.
2. The credentials say what the *initial history* of the view is. It contains every authoritative
   entry, since each was accepted by a majority, and two majorities meet.
3. Who holds the initial history *accepts* the view at once, on record first; the others are
   *learners*: they fetch what they miss (`Transfer`) and accept when they have it.
4. Where the acceptances of a majority are here the view is *confirmed*. Only now are entries
   proposed in it.

What a history is, what the initial one is and how entries follow is for the subclasses: `PRIMARY`
keeps one sequence, `UNION` keeps sets.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar
from zlib import crc32

import msgspec

from coterie.kernel.clock import seconds
from coterie.kernel.configuration import ChunksAfter, first_chunk, take_off
from coterie.kernel.decoding import Decoder
from coterie.kernel.engine import Checkpoint, Role, Standing, Status, Version
from coterie.kernel.errors import BadMessage
from coterie.kernel.layers import Service
from coterie.kernel.records import (
    ConfigurationSettled,
    Delivery,
    PrimaryAccepted,
    PrimaryConfirmed,
    Recovered,
    TransitionalInstalled,
    ViewEnded,
)
from coterie.kernel.transfer import ENCODER_POLL
from coterie.kernel.views import NO_VIEW, ChangedConfiguration, Configuration, Member, View, ViewId
from coterie.replication.layer import EngineLayer
from coterie.replication.log import NO_VERSION, Log
from coterie.replication.messages import Accept, Credentials, FetchChunk, PrimaryMessage
from coterie.replication.transfer import Donor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.kernel.engine import Chunks
    from coterie.kernel.layers import Batch, Context, Ending, Side

WORD_LASTS = seconds(60)
"""How long the word of an operator who accepts loss holds, if nothing comes of it."""
CONTROL = 1
"""The mark of ordered messages that are no entries."""


class _AliveValue(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What merge partners know of each other beforehand."""

    is_zombie: bool
    version: Version
    configuration: ChangedConfiguration | None = None
    """The settled one, unless it is the first."""


_encoder = msgspec.msgpack.Encoder()
_decoder: Decoder[PrimaryMessage] = Decoder(PrimaryMessage)
decode_direct_quickly = _decoder.decode_quickly
"""Reads a message of the primary-view layer; raises one of `DECODE_ERRORS` if it is none."""
_alive_decoder = Decoder(_AliveValue)


PATIENCE = 5
"""How many times a donor is asked again before another one is asked."""


class Phase(enum.Enum):
    """How far a view has come."""

    GATHERING = "gathering credentials"
    MINORITY = "minority"
    FORMING = "waiting for a majority to accept"
    CONFIRMED = "confirmed"


class Fetching(Protocol):
    """The receiving side of a transfer, as far as the exchange of messages needs to know it."""

    @property
    def donor(self) -> Member:
        """The member asked at present."""

    @property
    def is_complete(self) -> bool:
        """Whether everything that was to be fetched is here."""

    @property
    def fetched(self) -> int:
        """How many bytes of a state have come."""

    def requests(self) -> Sequence[PrimaryMessage]:
        """Give what to ask for now."""

    def ask_again(self) -> None:
        """What was asked for does not come: ask for it again."""

    def change_donor(self) -> None:
        """Ask another member from now on."""


_UNCOUNTED_MAX = 64


class _Delivered:
    """What was delivered in one part of a view."""

    def __init__(self) -> None:
        self._digest = 0
        self._counts: dict[Member, int] = {}
        # Not counted yet, because nobody waits for it: rank, sender, first number, how many.
        self._uncounted: list[tuple[int, Member, int, int]] = []

    def add(self, batch: Batch) -> None:
        uncounted = self._uncounted
        uncounted.append((batch.rank, batch.sender, batch.first, len(batch.payloads)))
        if len(uncounted) >= _UNCOUNTED_MAX:
            self._count()

    def _count(self) -> None:
        uncounted, self._uncounted = self._uncounted, []
        for rank, sender, first, count in uncounted:
            self._counts[sender] = self._counts.get(sender, 0) + count
            self._digest = crc32(b"%d %d %d," % (rank, first, count), self._digest)

    @property
    def digest(self) -> int:
        self._count()
        return self._digest

    def counts(self, members: Sequence[Member]) -> list[int]:
        self._count()
        return [self._counts.get(member, 0) for member in members]


F = TypeVar("F", bound=Fetching)


class FormingViews(EngineLayer, Generic[F]):
    """The part of a primary-view layer that is the same whatever a history is."""

    needs = frozenset({Service.VIEWS, Service.STABILITY})
    gives = frozenset({Service.PRIMARY_VIEWS, Service.HISTORY})
    is_ordered: ClassVar[bool]
    """Whether all members deliver in the same order, so that digests of it can be compared."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.me = context.me
        self.log = Log(
            bytes_max=context.settings.history_bytes, configuration=context.configuration
        )
        self.is_zombie = False
        self.is_by_hand = False
        """Whether an operator said a moment ago that our history counts."""
        self._donor = Donor(self.log, self._state, context.settings.packet_bytes_max)
        self._view = View(NO_VIEW, (self.me,), (NO_VIEW,), (b"",), context.configuration)

    def _begin_view(self) -> None:
        """Know nothing yet of a view; a subclass calls it first when it is made."""
        self._phase = Phase.GATHERING
        self._is_ending = False
        self._delivered = (_Delivered(), _Delivered())
        self._credentials: dict[Member, Credentials] = {}
        self._initial = NO_VERSION
        self._accepted_by: list[Member] = []
        self._configuration = self.log.configuration
        """The one under which the view is formed: that of its initial history."""
        self._has_accepted = False
        self._transfer: F | None = None
        self._stalls = 0
        self._donor.forget()

    def assembled(self) -> None:
        past = self.context.past
        if past is None:
            return
        self.is_zombie = past.is_zombie
        if past.position:
            configuration, chunks = take_off(past.chunks)
            self.log.reset(past.position, dict(past.origins), configuration)
            self.above.restore(chunks, past.position)
        for run in past.runs:
            self.log.append(run)
        self.log.version = past.version
        if past.runs:
            self.above.deliver_runs(list(past.runs), Standing.OPTIMISTIC)
        if past.settled > self.log.settled:
            self.log.settle(past.settled)
            self.above.settle(past.settled)
        self.context.acquaint(self.log.settled_configuration)

    @property
    def version(self) -> Version:
        """How advanced the history is."""
        return self.log.version

    @property
    def position(self) -> int:
        """The position of the last entry here."""
        return self.log.end

    @property
    def settled(self) -> int:
        """Up to which position the history is authoritative."""
        return self.log.settled

    @property
    def fetched(self) -> int:
        """How many bytes have come of a state that is being fetched."""
        return 0 if self._transfer is None else self._transfer.fetched

    def checkpoint(self) -> Checkpoint:
        """Give the authoritative part of the history, as it is now."""
        log = self.log
        origins = tuple(sorted(log.origins(log.settled).items()))
        return Checkpoint(log.settled, log.version, self._state(), origins)

    def _state(self) -> Chunks:
        """Give the state at the last settled position, with its configuration."""
        first = first_chunk(self.log.settled_configuration)
        state = self.above.snapshot()
        return state if first is None else ChunksAfter(first, state)

    # ---- what a subclass says

    def _my_credentials(self) -> Credentials:
        """Give what we bring to the view."""
        raise NotImplementedError

    def _begin_forming(self, counted: list[Member]) -> None:
        """Find the initial history; accept it if it is here, else begin to fetch it."""
        raise NotImplementedError

    def _enter_confirmed(self) -> None:
        """Learn that we hold the initial history and that a majority does."""
        raise NotImplementedError

    def _on_entries(self, batch: Batch) -> None:
        """Take a batch of entries that the layer below delivered."""
        raise NotImplementedError

    def _adopt(self, transfer: F) -> None:
        """Make what was fetched our history, then accept the view."""
        raise NotImplementedError

    # ---- what the host asks for

    def recover(self) -> None:
        """Let our history count, on the word of an operator who accepts the loss of the rest.

        This is the way out for a group whose majority has lost its memory: a view with us needs no
        majority that remembers, but it is still a majority that must accept our history before
        anything goes on. The word holds for a while only, and not for a later life: said about one
        situation it must not decide in another. Where nothing came of it, it can be said again.
        """
        self.is_zombie = False
        self.is_by_hand = True
        self.context.set_timer("by hand", WORD_LASTS, self._forget_word)
        self._report(Recovered, version=self.log.version)
        self._cast(self._my_credentials())

    def _forget_word(self) -> None:
        self.is_by_hand = False

    @property
    def role(self) -> Role:
        """What this replica may do at present."""
        phase = self._phase
        if phase is Phase.CONFIRMED:
            return Role.PRIMARY if self._has_accepted else Role.LEARNER
        return Role.MINORITY if phase is Phase.MINORITY else Role.FORMING

    # ---- a view begins and ends

    def view(self, view: View) -> None:
        if self._view.id == NO_VIEW:
            self._report_configuration(*self.log.configurations[0])
        self._report_ended()
        self._view = view
        self.context.cancel_timer("transfer")
        self._begin_view()
        self._cast(self._my_credentials())
        self._tell_status()

    def _report_configuration(self, position: int, configuration: Configuration) -> None:
        """Say by which configuration quorums are counted from a position on, unless the first."""
        if isinstance(configuration, ChangedConfiguration):
            self._report(ConfigurationSettled, position=position, configuration=configuration)

    def _report_ended(self) -> None:
        """Say what was delivered in the view that is over."""
        if self._view.id == NO_VIEW:
            return
        regular, late = self._delivered
        self._report(
            ViewEnded,
            view=self._view.id,
            counts=regular.counts(self._view.members),
            digest=regular.digest if self.is_ordered else 0,
            transitional_counts=late.counts(self._view.members),
            transitional_digest=late.digest if self.is_ordered else 0,
        )

    def transitional(self, view: ViewId, members: tuple[Member, ...]) -> None:
        # What still comes are facts about the old view; nothing new can be begun in it.
        self._is_ending = True
        self._report(TransitionalInstalled, view=view, members=members)

    def end_view(self, ending: Ending) -> None:
        self.transitional(ending.view, ending.transitional)

    def deliver(self, batches: list[Batch]) -> None:
        for batch in batches:
            if batch.delivery is Delivery.AFTER_HOLE:
                # Its place may differ elsewhere; it is as if it had never been ordered.
                self.context.count("primary.dropped_after_hole", len(batch.payloads))
                continue
            self._delivered[batch.delivery].add(batch)
            if self._mark(batch) == CONTROL:
                for payload in batch.payloads:
                    self._on_control(batch.sender, payload)
            else:
                self._on_entries(batch)

    def _mark(self, batch: Batch) -> int:
        """Give the mark that tells messages of this layer (`CONTROL`) from entries."""
        return batch.mark

    # ---- credentials, acceptance, confirmation

    def _on_control(self, sender: Member, payload: bytes) -> None:
        try:
            message = _decoder.decode(payload)
        except msgspec.DecodeError:
            self.context.count("primary.malformed")
            return
        match message:
            case Credentials(view=view) if view == self._view.id:
                self._on_credentials(sender, message)
            case Accept(view=view) if view == self._view.id:
                self._on_accept(sender)
            case _:
                self.context.count("primary.stale")

    def _on_credentials(self, sender: Member, message: Credentials) -> None:
        if self._phase not in {Phase.GATHERING, Phase.MINORITY} or self._is_ending:
            return
        self._credentials[sender] = message
        if len(self._credentials) == len(self._view.members):
            self._decide()

    def counts(self, credentials: Credentials) -> bool:
        """Say whether a member with these credentials helps to make a view primary."""
        return not credentials.is_zombie

    def _decide(self) -> None:
        """All credentials are here: everyone comes to the same conclusion."""
        credentials = self._credentials
        sound = [member for member in self._view.members if self.counts(credentials[member])]
        self._configuration = self._configuration_of([credentials[member] for member in sound])
        ids = {member.id for member in sound}
        is_by_hand = any(credentials[member].is_by_hand for member in sound)
        if not self._configuration.is_quorum(ids) and not is_by_hand:
            self._phase = Phase.MINORITY
            self._tell_status()
            return
        self._phase = Phase.FORMING
        self._begin_forming(sound)

    def _configuration_of(self, sound: list[Credentials]) -> Configuration:
        """Give the configuration of the history that wins.

        Not the highest that anybody names: it may be of an entry that never settled, and who knows
        of a later one has the longer history. Whoever settled something did so jointly, so every
        majority of the members before finds somebody who knows.
        """
        winner = max(sound, key=_rank, default=None)
        if winner is None or winner.configuration is None:
            return self._view.configuration
        return winner.configuration

    def _accept(self) -> None:
        """We hold the initial history: say so, on record first."""
        self._has_accepted = True
        self.is_zombie = False
        self._transfer = None
        self.context.cancel_timer("transfer")
        self._report(
            PrimaryAccepted,
            view=self._view.id,
            members=self._view.members,
            version=self._initial,
        )
        self._cast(Accept(self._view.id))
        if self._phase is Phase.CONFIRMED:
            self._enter_confirmed()

    def _on_accept(self, sender: Member) -> None:
        if self._phase not in {Phase.FORMING, Phase.CONFIRMED} or sender in self._accepted_by:
            return
        self._accepted_by.append(sender)
        accepted = frozenset(member.id for member in self._accepted_by)
        if self._phase is Phase.FORMING and self._configuration.is_quorum(accepted):
            self._phase = Phase.CONFIRMED
            if self._has_accepted:
                self._enter_confirmed()
            else:
                self._tell_status()

    def _report_confirmed(self) -> None:
        self.is_by_hand = False
        self._report(
            PrimaryConfirmed,
            view=self._view.id,
            position=self._initial.position,
            accepted_by=tuple(self._accepted_by),
        )

    # ---- fetching the initial history

    def _start_transfer(self, transfer: F) -> None:
        self._transfer = transfer
        self._tell_status()
        self._go_on_with_transfer()

    def _go_on_with_transfer(self) -> None:
        """Something came: fetch what is still missing."""
        transfer = self._transfer
        assert transfer is not None
        self._stalls = 0
        if transfer.is_complete:
            self._adopt(transfer)
        else:
            self._ask_donor(transfer)

    def _ask_donor(self, transfer: F) -> None:
        for request in transfer.requests():
            self._send(request, transfer.donor)
        wait = self.context.settings.transfer_resend
        self.context.set_timer("transfer", wait, self._transfer_stalls)

    def _transfer_stalls(self) -> None:
        """No answer: ask again, and after a while ask another donor."""
        if self._transfer is not None and not self._is_ending:
            self._stalls += 1
            self._transfer.ask_again()
            if self._stalls % PATIENCE == 0:
                self._transfer.change_donor()
            self._ask_donor(self._transfer)

    # ---- giving a state

    def _donate(self, member: Member, message: FetchChunk) -> None:
        self._donor.ask_chunk(member, message)
        self._give_chunks()

    def _give_chunks(self) -> None:
        """Send the chunks that are encoded; the state may still be being encoded elsewhere."""
        for member, chunk in self._donor.ready_chunks():
            self._send(chunk, member)
        if self._donor.is_waited_for:
            self.context.set_timer("donate", ENCODER_POLL, self._give_chunks)

    # ---- merging

    def flush_value(self) -> bytes:
        return b""

    def stability_rose(self) -> None:
        pass

    def alive_value(self) -> bytes:
        settled = self.log.settled_configuration
        news = settled if isinstance(settled, ChangedConfiguration) else None
        return _encoder.encode(_AliveValue(self.is_zombie, self.log.version, news))

    def alive_heard(self, value: bytes) -> None:
        news = _alive_decoder.decode(value).configuration
        if news is not None and self.me.id in news.everyone:
            self.context.acquaint(news)

    def proposes_merge(self, ours: Side, theirs: Side) -> bool | None:
        """The side with the more advanced history proposes, so that its members come first."""

        def rank(side: Side) -> tuple[bool, Version, int]:
            value = _alive_decoder.decode(side.value)
            return (not value.is_zombie, value.version, len(side.members))

        mine, other = rank(ours), rank(theirs)
        if mine != other:
            return mine > other
        return ours.contact < theirs.contact

    # ---- helpers

    @staticmethod
    def _decode_direct(body: bytes) -> PrimaryMessage:
        try:
            return _decoder.decode(body)
        except msgspec.DecodeError as error:
            raise BadMessage(f"not a message of the primary-view layer: {error}") from None

    def _cast(self, message: Credentials | Accept) -> None:
        self.below.cast([_encoder.encode(message)], mark=CONTROL)

    def _send(self, message: PrimaryMessage, *members: Member) -> None:
        self.below.send_direct(members, _encoder.encode(message))

    def _report(self, kind: type, **fields: object) -> None:
        context = self.context
        context.report(kind(group=context.group, member=self.me, at=context.now, **fields))

    def _tell_status(self) -> None:
        self.above.status_changed(
            Status(
                role=self.role,
                view=self._view.id,
                members=self._view.members,
                position=self.log.end,
                settled=self.log.settled,
                is_zombie=self.is_zombie,
                configuration=self.log.settled_configuration,
            )
        )


def _rank(credentials: Credentials) -> tuple[Version, int]:
    configuration = credentials.configuration
    return credentials.version, 0 if configuration is None else configuration.number
