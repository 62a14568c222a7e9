"""What Horus is to the paper, in memory: an order, settling, transfer, clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.kernel.engine import Role, Run, Standing, Status
from coterie.kernel.views import Member, ViewId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.objects.paper import Client, ObjectReplica


class Seat:
    """One member."""

    def __init__(self, system: FakeSystem, replica: ObjectReplica, me: Member) -> None:
        self.system = system
        self.replica = replica
        self.me = me
        self.waiting: list[bytes] = []
        self.is_behind = False

    def propose(self, payloads: Sequence[bytes]) -> int:
        self.waiting += payloads
        return 0

    def leave(self) -> None:
        self.system.seats.remove(self)
        self.system.tell_views()


class FakeSystem:
    """The test says when anything happens."""

    def __init__(self) -> None:
        self.seats: list[Seat] = []
        self.clients: dict[str, Client] = {}
        self.replies: list[tuple[str, Member, bytes]] = []
        self.history: list[Run] = []
        self.settled = 0
        self.view = 0
        self.ask_at = 0
        self.is_primary = True
        self.is_optimistic = False
        self.lives: dict[str, int] = {}

    def join(self, replica: ObjectReplica, *, optimistic: bool, max_group_size: int) -> Seat:
        self.is_optimistic = optimistic
        name = chr(ord("a") + len(self.seats))
        assert len(self.seats) < max_group_size
        self.lives[name] = self.lives.get(name, 0) + 1
        seat = Seat(self, replica, Member(name, self.lives[name]))
        seat.is_behind = bool(self.history)
        self.seats.append(seat)
        self.tell_views()
        return seat

    def tell_views(self) -> None:
        self.view += 1
        for seat in list(self.seats):
            seat.replica.status_changed(
                Status(
                    role=Role.PRIMARY if self.is_primary else Role.MINORITY,
                    view=ViewId(self.view, "a", 1),
                    members=tuple(each.me for each in self.seats),
                    position=self.position,
                    settled=self.settled,
                    is_zombie=False,
                )
            )

    @property
    def position(self) -> int:
        return self.history[-1].last_position if self.history else 0

    def work(self) -> None:
        """Order and deliver all that waits; settle it unless the group is optimistic."""
        for seat in self.seats:
            if seat.is_behind:
                self._bring_up(seat)
        while waiting := [seat for seat in self.seats if seat.waiting]:
            for seat in waiting:
                payloads, seat.waiting = seat.waiting, []
                at = self.position + 1
                run = Run(ViewId(self.view, "a", 1), at, at, seat.me, at, payloads)
                self.history.append(run)
                standing = Standing.OPTIMISTIC if self.is_optimistic else Standing.AUTHORITATIVE
                for each in self.seats:
                    each.replica.deliver([run], standing)
            if not self.is_optimistic:
                self.settle(self.position)

    def _bring_up(self, seat: Seat) -> None:
        seat.is_behind = False
        seat.replica.restore(self.seats[0].replica.snapshot(), self.settled)
        later = [
            run.after(self.settled) for run in self.history if run.last_position > self.settled
        ]
        if later:
            seat.replica.deliver(later, Standing.OPTIMISTIC)

    def settle(self, position: int) -> None:
        self.settled = position
        for seat in self.seats:
            seat.replica.settle(position)

    def roll_back(self, position: int) -> None:
        self.history = [run.up_to(position) for run in self.history if run.position <= position]
        for seat in self.seats:
            seat.replica.roll_back(position)

    def send_request(self, client: Client, request: bytes) -> None:
        self.clients[client.id] = client
        self.seats[self.ask_at].replica.client_request_callback(client.id, request)

    def reply(self, client: str, origin: Member, reply: bytes) -> None:
        self.replies.append((client, origin, reply))
        self.clients[client].receive_reply_callback(origin, reply)
