"""What clients see over the network is one object, whatever fails in between."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.client.test_failover import SETTINGS, be_nasty, run
from tests.seeded import seeded
from tests.service.groups import Counter, PortGroup

import coterie
from coterie.checking.linearizability import UNSEEN, Linearizable, Operation, check
from coterie.checking.linearizability.models import Add, CounterModel, Total
from coterie.client import NotDone, OutcomeUnknown, open_client
from coterie.kernel.engine import Role

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from random import Random


class Watch:
    """Writes down what callers saw, by the one clock that all of them share."""

    def __init__(self) -> None:
        self.operations: list[Operation[Add | Total, int]] = []
        self.is_closed = False

    async def see(self, process: object, command: Add | Total, call: Awaitable[int]) -> None:
        clock = asyncio.get_running_loop().time
        called = clock()
        try:
            result = await call
        except NotDone:
            return
        except OutcomeUnknown:
            self._note((process, called), command, called, None, UNSEEN)
        else:
            self._note(process, command, called, clock(), result)

    def _note(
        self,
        process: object,
        command: Add | Total,
        called: float,
        returned: float | None,
        result: object,
    ) -> None:
        self.operations.append(
            Operation(
                process=process,
                command=command,
                called=called,
                returned=returned,
                result=result,  # type: ignore[arg-type]
            )
        )

    @property
    def is_linearizable(self) -> bool:
        return isinstance(check(self.operations, CounterModel()), Linearizable)


async def be_busy(counter: type[Counter], name: int, watch: Watch, random: Random) -> None:
    while not watch.is_closed:
        if random.random() < 0.5:
            await watch.see(name, Total(), counter.read.options(deadline=2.0)())
        else:
            amount = random.randrange(1, 4)
            await watch.see(name, Add(amount), counter.add.options(deadline=2.0)(amount))
        await asyncio.sleep(0.02)


@pytest.mark.slow  # real time-outs
@pytest.mark.parametrize("seed", range(3))
def test_clients_see_one_object_through_faults(seed: int) -> None:
    async def story() -> None:
        random = seeded("linearizable clients", seed)
        watch = Watch()
        async with PortGroup(relayed=True) as group:
            addresses = list(group.addresses.values())
            async with (
                coterie.connect(Counter, addresses, settings=SETTINGS) as one,
                coterie.connect(Counter, addresses, settings=SETTINGS) as other,
            ):
                callers = [
                    asyncio.ensure_future(be_busy(counter, name, watch, random))
                    for name, counter in enumerate([one, other] * 3)
                ]
                await be_nasty(group, random)
                watch.is_closed = True
                await asyncio.gather(*callers)
        assert len(watch.operations) > len(callers)
        assert watch.is_linearizable

    run(story)


@pytest.mark.slow  # suspicion takes wall time
def test_dirty_reads_in_a_minority_are_told_apart() -> None:
    """The check sees what it is there for: a level that promises less gives less."""

    async def story() -> None:
        watch = Watch()
        async with (
            PortGroup() as group,
            open_client(group.addresses["r1"], settings=SETTINGS, spread=False) as left_behind,
            coterie.connect(Counter, group.addresses["r2"], settings=SETTINGS) as counter,
        ):
            await watch.see(1, Add(1), counter.add(1))
            group.part("r1", "r2 r3")
            await group.until(lambda: group.replicas["r1"].role is Role.MINORITY)
            await watch.see(1, Add(2), counter.add(2))
            assert watch.is_linearizable
            nothing = msgspec.msgpack.encode([])
            read = left_behind.query("read", nothing, msgspec.msgpack.decode, level="dirty")
            await watch.see(2, Total(), read)  # type: ignore[arg-type]
            assert not watch.is_linearizable

    run(story)
