"""The paper's own interface (**objects** 7.4) on real engines: portions of a state, by request."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.replication.stories import (
    GIVEN,
    HARDLY_ANY,
    direct,
    everywhere,
    group_on_script,
    is_learning,
    settled,
    write,
)

import coterie.simulation.engines.stack.replica
from coterie.kernel.clock import seconds
from coterie.kernel.engine import Role
from coterie.objects.paper import ObjectReplica

if TYPE_CHECKING:
    from coterie.kernel.engine import EngineHost, Status
    from coterie.kernel.layers import Context
    from coterie.objects.paper import ObjectId, TransferId
    from coterie.simulation import Group

STACKS = pytest.mark.parametrize("stack", ["SAFE:DYNSEQ:PVSYNC", "TOKEN:PVSYNC"])


class Books(NamedTuple):
    position: int
    titles: tuple[bytes, ...]


class Shelf(ObjectReplica):
    """Keeps messages on two boards, and gives each board on request, book by book."""

    def __init__(self, context: Context | None = None, *, is_ordered: bool = True) -> None:
        del context, is_ordered
        super().__init__()
        self.boards: dict[bytes, list[bytes]] = {b"even": [], b"odd": []}
        self.transfers: list[TransferId] = []
        self._asked_for = b""

    def multicast_callback(self, origin: ObjectId, message: bytes, safe: bool) -> None:  # noqa: FBT001
        del origin, safe
        even, odd = self.boards[b"even"], self.boards[b"odd"]
        (odd if len(even) > len(odd) else even).append(message)

    # ---- 7.4

    def state_requests(self) -> tuple[bytes, ...]:
        return (b"even", b"odd")

    def state_transfer_callback(self, transfer: TransferId) -> None:
        self.transfers.append(transfer)
        for board in (b"odd", b"even"):
            self._asked_for, self.boards[board] = board, []
            self.request_state(transfer, board)
        self.state_transfer_done(transfer)

    def state_request_callback(
        self, origin: ObjectId, transfer: TransferId, request: bytes
    ) -> None:
        for book in self.boards[request]:
            self.send_state(origin, transfer, book)

    def receive_state_callback(self, origin: ObjectId, transfer: TransferId, state: bytes) -> None:
        del origin, transfer
        self.boards[self._asked_for].append(state)

    # ---- what the simulator looks at

    @property
    def settled(self) -> Books:
        source = self if self._twin is None else self._twin
        assert isinstance(source, Shelf)
        return Books(self._settled, (*source.boards[b"even"], *source.boards[b"odd"]))

    @property
    def status(self) -> Status | None:
        return self._status

    @property
    def is_primary(self) -> bool:
        return self._status is not None and self._status.role is Role.PRIMARY


def test_an_object_replica_is_a_host_of_engines() -> None:
    """The type checker looks at every method; at run time one must be enough."""
    host: EngineHost = Shelf()
    host.finish_turn()


def shelf(group: Group, id: str) -> Shelf:
    found: object = group[id].ledger
    assert isinstance(found, Shelf)
    return found


@pytest.fixture(autouse=True)
def _shelves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coterie.simulation.engines.stack.replica, "Ledger", Shelf)


@STACKS
def test_7_4_portions_of_the_state_come_on_request(stack: str) -> None:
    group, network = group_on_script(stack, history_bytes=HARDLY_ANY)
    write(group, "a", 7)
    group.partition("c", "ab")
    group.run(seconds(2))
    write(group, "a", 40)
    network.lose(direct(*GIVEN, to="c"))
    group.heal()
    group.run(seconds(2))
    assert is_learning(group, "c")
    assert settled(group, "c") == 7, "nothing was touched while the transfer goes on"
    asked = len(shelf(group, "c").transfers)
    network.lose_no_more()
    group.run_until_whole()
    write(group, "c", 3)
    assert everywhere(group) == {50}
    assert len(shelf(group, "c").transfers) == asked + 1
    assert len({shelf(group, id).settled for id in "abc"}) == 1
    group.check()


@STACKS
def test_7_4_a_transfer_is_begun_again_when_its_donor_is_gone(stack: str) -> None:
    group, network = group_on_script(stack, "abcde", history_bytes=HARDLY_ANY)
    group["c"].crash()
    group.run(seconds(1))
    write(group, "a", 40)
    network.lose(direct(GIVEN[-1], to="c"))
    group["c"].start()
    group.run(seconds(2))
    assert is_learning(group, "c")
    group["a"].crash()
    network.lose_no_more()
    group.run(seconds(3))
    write(group, "b", 2)
    assert everywhere(group) == {42}
    assert len({shelf(group, id).settled for id in "bcde"}) == 1
    group.check()
