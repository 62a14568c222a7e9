"""Where a client asks: at the replica that orders calls while it asks for little, else anywhere."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace
from tests.client.fakes import QUICK, FakeReplica, serving
from tests.client.test_faults import connect, run
from tests.service.groups import PortGroup, Replica

from coterie.client import connection_of, open_client
from coterie.client.group import FEW
from coterie.kernel.engine import Role
from coterie.protocol.messages import Peer
from coterie.service.settings import PortSettings


def _home(replicated: object) -> str:
    home = connection_of(replicated).client.replicas.home
    assert home is not None
    return home.replica


def test_a_client_goes_to_the_replica_that_orders_calls() -> None:
    async def story() -> None:
        one, orderer = FakeReplica("one"), FakeReplica("orderer")
        one.preferred = orderer.preferred = "orderer"
        async with serving(one, orderer):
            for _ in range(4):  # by chance it would be there half of the time
                async with connect(one) as counter:
                    assert _home(counter) == "orderer"
                    await counter.add(1)
        assert not one.updates
        assert len(orderer.updates) == 4

    run(story)


def test_a_client_stays_away_from_one_that_has_no_room() -> None:
    async def story() -> None:
        one, orderer = FakeReplica("one"), FakeReplica("orderer")
        one.preferred = "orderer"  # which itself says nothing any more
        async with serving(one, orderer):
            one.peers = [Peer("orderer", orderer.address, is_in_view=False)]
            async with connect(one) as counter:
                assert _home(counter) == "one"
                await counter.add(1)
        assert not orderer.updates

    run(story)


def test_a_client_that_asks_for_much_goes_elsewhere() -> None:
    async def story() -> None:
        one, orderer = FakeReplica("one"), FakeReplica("orderer")
        one.preferred = orderer.preferred = "orderer"
        async with serving(one, orderer):
            orderer.peers = [Peer("one", one.address, is_in_view=True)]
            async with connect(one) as counter:
                await counter.add(1)
                assert _home(counter) == "orderer"
                await asyncio.gather(*(counter.add(1) for _ in range(FEW)))
                while _home(counter) == "orderer":
                    await counter.add(1)
                await counter.add(1)
                assert _home(counter) == "one"
        assert one.updates

    run(story)


def test_a_client_that_wants_to_is_with_the_nearest() -> None:
    async def story() -> None:
        far, near, other = FakeReplica("far"), FakeReplica("near"), FakeReplica("other")
        far.is_far = other.is_far = True
        far.preferred = near.preferred = "far"  # it is the one that orders, too
        async with serving(far, near, other):
            for _ in range(3):
                opening = open_client([far.address], settings=replace(QUICK, nearest=True))
                async with opening as client:
                    assert client.replicas.home is not None
                    assert client.replicas.home.replica == "near"
                    # The others are not kept busy with connections that nobody uses.
                    assert len(client.replicas.ready()) == 1

    run(story)


@pytest.mark.parametrize("stack", ["SAFE:DYNSEQ:PVSYNC", "SAFE:TOKEN:PVSYNC"])
def test_replicas_say_which_of_them_orders_calls_while_it_has_room(stack: str) -> None:
    async def story() -> None:
        settings = PortSettings(preferred_max=0)
        async with PortGroup(stack=stack, port_settings=settings) as group:
            replicas = group.replicas
            await group.until(lambda: all(_is_whole(each) for each in replicas.values()))
            orderer = "" if "TOKEN" in stack else _members(replicas["r1"])[0]
            said = {each.port.fronts[group.name].preferred for each in replicas.values()}
            assert said == {orderer}
            busy = orderer or "r1"
            async with open_client(group.addresses[busy], spread=False):
                assert replicas[busy].port.callers == 1
                assert not replicas[busy].port.fronts[group.name].preferred

    run(story)


def _members(replica: Replica) -> list[str]:
    status = replica.hosted.status
    return [] if status is None else [member.id for member in status.members]


def _is_whole(replica: Replica) -> bool:
    return replica.role is Role.PRIMARY and len(_members(replica)) == 3
