"""TOKEN: total order by a token that goes round the view.

**objects** section 6.1, after the ring of Totem ([3] there). Who holds the token numbers its own
packets and multicasts them, then passes the token on in the same turn. The token carries

- `order`, the last number given;
- `have`, for each member, up to where it has every number: the least of them is safe;
- `sent`, how many packets each member has multicast, so that a lost one is noticed;
- `wanted`, packets some member misses: whoever holds the token and has them sends them again;
- `idle`, for how many hops nothing has happened.

Numbers and knowledge travel with the data, so under load a turn of the token costs one frame and
waits for nothing. When a round brings nothing new to anyone the token rests at the first member;
who wants to send asks there, and the token comes straight to it.

The token may get lost. Its last sender keeps it and sends it again until it sees a later hop or
is told that it arrived; `hop` tells old from new, so a repeated token is never used twice. A token
that dies with its holder is replaced in the next view.

With `token_hold` a member keeps the token for that long before it sends what waits and passes it
on, as **objects** 6.3 proposes: what gathers meanwhile travels in one packet, and the token costs
fewer frames. It is passed on at once by default, "like a hot potato", which is faster in rounds
(`coterie bench order`).

Totem has one `aru` field that members lower and raise; a vector of one number per member says
the same one round earlier, stays right when the token jumps, and is small for our group sizes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coterie.kernel.decoding import Decoder
from coterie.kernel.errors import BadMessage
from coterie.kernel.views import View
from coterie.ordering.delivery import OrderLayer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coterie.kernel.layers import Batch, Context, Ending
    from coterie.kernel.views import Member


class Token(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=101):
    """The token, at one hop of its way."""

    hop: int
    order: int
    have: list[int]
    sent: list[int]
    wanted: list[tuple[int, int, int]]
    idle: int


class TokenArrived(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=102):
    """Answer to a token that had arrived before: there is no need to send it again."""

    hop: int


class TokenWanted(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=103):
    """A member has something to send and believes the token to be at rest."""


class TokenHeader(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The header of every packet: its number in the order."""

    safe: bool
    order: int
    mark: int = 0


class _Value(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What TOKEN says when a view ends: up to where it knows the order to be safe."""

    safe_to: int
    above: bytes


HOLD = "token hold"
"""The name of the timer that runs while the token is kept."""
_TAGS = frozenset({101, 102, 103})
_NUMBER_MAX = 1 << 53

_encoder = msgspec.msgpack.Encoder()
_place_decoder = Decoder(TokenHeader)
_value_decoder = Decoder(_Value)
_message_decoder: Decoder[Token | TokenArrived | TokenWanted] = Decoder(
    Token | TokenArrived | TokenWanted
)


def _read_value(value: bytes) -> _Value:
    """Read what a member said; the first view, of ourselves alone, comes without a value."""
    try:
        return _value_decoder.decode(value)
    except msgspec.DecodeError:
        return _Value(0, b"")


class RotatingToken(OrderLayer):
    """The ring is the view in rank order; the first member makes the token and lets it rest."""

    name = "TOKEN"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.begin_order()

    def assembled(self) -> None:
        super().assembled()
        self.below.carry_repairs()

    def begin_order(self) -> None:
        self.context.cancel_timer("token")
        self.context.cancel_timer("token wanted")
        self.context.cancel_timer(HOLD)
        self._is_held_enough = False
        self._waiting: dict[int, Batch] = {}
        self._have = 0
        self._delivered_to = 0
        self._safe_to = 0
        self._hop = 0
        self._passed: tuple[Token, Member] | None = None
        self._passed_idle = 0
        self._is_wanted = False
        self._has_asked = False
        self._token: Token | None = None
        self._has_arrived = False
        if self.rank == 0:
            size = len(self.members)
            self._take(Token(1, 0, [0] * size, [0] * size, [], 0))

    # ---- the token

    def _take(self, token: Token) -> None:
        self._token = token
        self._hop = token.hop
        self._has_arrived = True
        self._has_asked = False
        self._passed = None

    def receive_direct(self, sender: Member, body: bytes) -> None:
        # An encoded message is an array whose first element, here one byte, is its tag.
        if len(body) > 1 and body[1] not in _TAGS:
            self.above.receive_direct(sender, body)
            return
        try:
            message = _message_decoder.decode(body)
        except msgspec.DecodeError as error:
            raise BadMessage(f"not a message of the token layer: {error}") from None
        match message:
            case Token():
                self._on_token(sender, message)
            case TokenArrived(hop=hop):
                if self._passed is not None and self._passed[0].hop == hop:
                    self._passed = None
            case TokenWanted():
                if self._token is not None and not self._has_arrived:
                    self._pass_to(sender, self._token)
                else:
                    self._is_wanted = True

    def _on_token(self, sender: Member, token: Token) -> None:
        size = len(self.members)
        if (
            not len(token.have) == len(token.sent) == size
            or max(token.hop, token.order, token.idle) > _NUMBER_MAX
            or token.idle < 0
            or len(token.wanted) > self.context.settings.repair_packets_max
        ):
            raise BadMessage("a token that no view of ours can have")
        if token.hop <= self._hop:
            self.below.send_direct([sender], _encoder.encode(TokenArrived(token.hop)))
        else:
            self._take(token)

    def finish_turn(self) -> None:
        if self.below.is_stopped:
            # Whatever we learned now would not be in what we told the proposer of the next view.
            return
        token = self._token
        if token is not None and (self._has_arrived or self.backlog):
            if not self._is_kept():
                self._visit(token)
        elif token is None and self.backlog and self._passed_idle and not self._has_asked:
            # We passed it on idle, so it may rest at the first member by now.
            self._ask_for_token()

    def _is_kept(self) -> bool:
        """Say whether the token is still to be kept, and see to it that this ends."""
        hold = self.context.settings.token_hold
        if not hold or self._is_held_enough or len(self.members) == 1:
            self._is_held_enough = False
            return False
        if not self.context.timer_is_set(HOLD):
            self.context.set_timer(HOLD, hold, self._end_holding)
        return True

    def _end_holding(self) -> None:
        # The end of this turn uses the token; it may have been asked for, and be gone.
        self._is_held_enough = self._token is not None

    def _visit(self, token: Token) -> None:
        """Do what only the holder may do, then pass the token on or let it rest."""
        self._has_arrived = False
        wanted = [
            (rank, first, last)
            for rank, first, last in dict.fromkeys(token.wanted)
            if not self.below.repair(rank, first, last)
        ]
        # What we knew to be missing on the last visit and is still not here is really lost.
        limit = self.context.settings.repair_packets_max
        wanted += [gap for gap in self.below.missing() if gap not in wanted]
        # Who sends puts on the token how much; beyond that nobody has anything, and a want for it
        # would keep the token going round.
        wanted = [gap for gap in wanted if gap[2] <= token.sent[gap[0]]]
        self.below.learn_sent(token.sent)
        order = self._send_backlog(token.order)
        have = list(token.have)
        sent = list(token.sent)
        have[self.rank] = self._have
        sent[self.rank] = self.below.received[self.rank]
        self._learn_safe(min(have))
        quiet = order == token.order == min(have) and not wanted and not self._is_wanted
        self._is_wanted = False
        idle = token.idle + 1 if quiet else 0
        token = Token(token.hop, order, have, sent, wanted[:limit], idle)
        if len(self.members) == 1:
            self._token = token
            return
        if self.rank == 0 and idle >= len(self.members):
            # It rests here; its last sender would otherwise believe it lost.
            self._token = token
            self.below.send_direct([self.members[-1]], _encoder.encode(TokenArrived(token.hop)))
            return
        self._pass_to(self.members[(self.rank + 1) % len(self.members)], token)

    def _send_backlog(self, order: int) -> int:
        """Number and multicast what waits here, within the limit of a visit."""
        for safe, first, payloads, mark in self.backlog.packets(lambda: self.below.can_cast):
            order += 1
            header = _encoder.encode(TokenHeader(safe, order, mark))
            self.below.cast_packet(header, first, payloads, safe=safe, urgent=False)
        return order

    def _pass_to(self, member: Member, token: Token) -> None:
        self._token = None
        self._hop = token.hop
        onward = Token(token.hop + 1, token.order, token.have, token.sent, token.wanted, token.idle)
        self._passed = (onward, member)
        self._passed_idle = token.idle
        self.below.send_direct([member], _encoder.encode(onward))
        self._watch_token()

    def _watch_token(self) -> None:
        self.context.set_timer("token", self.context.settings.token_resend, self._resend)

    def _resend(self) -> None:
        """No sign of the token since we passed it: send it again."""
        if self._passed is not None:
            token, member = self._passed
            self.context.count("token.resent")
            self.below.send_direct([member], _encoder.encode(token))
            self._watch_token()

    def _ask_for_token(self) -> None:
        """Ask the first member for the token, again and again until it comes."""
        if self._token is not None or not self.backlog:
            return
        self._has_asked = True
        if self.rank == 0:
            self._is_wanted = True
            return
        self.below.send_direct([self.members[0]], _encoder.encode(TokenWanted()))
        wait = self.context.settings.token_resend
        self.context.set_timer("token wanted", wait, self._ask_for_token)

    # ---- the order

    def parse(self, header: bytes) -> TokenHeader:
        try:
            return _place_decoder.decode(header)
        except msgspec.DecodeError as error:
            raise BadMessage(f"not a token holder's header: {error}") from None

    def deliver(self, batches: list[Batch]) -> None:
        waiting = self._waiting
        for batch in batches:
            place = batch.header
            assert isinstance(place, TokenHeader)
            if place.order in waiting or place.order <= self._delivered_to:
                # A number is given once; a second packet with it cannot be ordered.
                self.context.count("token.numbers_given_twice")
                continue
            batch.safe = place.safe
            batch.mark = place.mark
            waiting[place.order] = batch
        if self._tells_receipt:
            self.above.received_batches(batches)
        while self._have + 1 in waiting:
            self._have += 1
        self.deliver_in_order()

    def _learn_safe(self, safe_to: int) -> None:
        if safe_to > self._safe_to:
            self._safe_to = safe_to
            self.deliver_in_order()

    def next_in_order(self, *, ignore_stability: bool) -> Iterator[Batch]:
        while (batch := self._waiting.get(self._delivered_to + 1)) is not None:
            if batch.safe and not (ignore_stability or self._delivered_to < self._safe_to):
                return
            self._delivered_to += 1
            del self._waiting[self._delivered_to]
            yield batch

    def left_over(self) -> Iterator[Batch]:
        for order in sorted(self._waiting):
            yield self._waiting[order]

    # ---- the end of a view

    def flush_value(self) -> bytes:
        return _encoder.encode(_Value(self._safe_to, self.above.flush_value()))

    def adopt_stability(self, ending: Ending) -> None:
        self._safe_to = max(
            _read_value(ending.values[member]).safe_to for member in ending.transitional
        )

    def view(self, view: View) -> None:
        values = tuple(_read_value(value).above for value in view.values)
        super().view(View(view.id, view.members, view.previous, values, view.configuration))
