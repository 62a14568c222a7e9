"""What happens in the demo, step by step, and what its callers saw.

A caller's *record* of a call is answered at once (optimistic: delivered, not yet accepted by a
majority) and settles a moment later. When the network is cut, the replicas on the small side go on
answering until they notice; those answers may be void. Some callers hang up in that moment: they
will never ask again, and their calls must not be billed unless they are in the history.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from coterie.client.connecting import connect, open_client
from coterie.client.errors import NotDone, OutcomeUnknown
from coterie.client.methods import GroupConnection, RemoteObject
from coterie.demo.exchange import GROUP, SwitchedGroup
from coterie.demo.phone import Exchange
from coterie.kernel.errors import CoterieError
from coterie.objects import define

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

IDS = "abcde"
STACK = "DYNSEQ:PVSYNC"
ACCOUNTS = [f"account-{number:02}" for number in range(1, 13)]
_DEADLINE = 10.0


class DemoFailed(CoterieError):
    """Something the demo promises did not happen."""


@dataclass
class PhoneCall:
    """A call of one account, and what its caller heard of it."""

    name: str
    account: str
    duration: int


@dataclass
class Heard:
    """What all callers were told."""

    confirmed: list[PhoneCall] = field(default_factory=list)
    """A majority has it: to be billed, once."""
    unconfirmed: list[PhoneCall] = field(default_factory=list)
    """Answered optimistically, and then the caller hung up."""
    unknown: list[PhoneCall] = field(default_factory=list)
    """No answer in time: billed once or not at all."""


@dataclass
class Told:
    """What came out of the story, for whoever checks it."""

    heard: Heard
    folder: Path
    rolled_back: dict[str, int]
    """How many entries each replica rolled back."""
    ids: tuple[str, ...] = tuple(IDS)
    group: str = GROUP


class _Callers:
    """Callers that record calls through one replica each, one call at a time."""

    def __init__(self, group: SwitchedGroup, heard: Heard, random: Random) -> None:
        self._group = group
        self._heard = heard
        self._random = random
        self._names = 0
        self.is_over = False
        self.are_ready = asyncio.Event()
        self.may_talk = asyncio.Event()

    def call(self) -> PhoneCall:
        """Think of a call."""
        self._names += 1
        account = self._random.choice(ACCOUNTS)
        return PhoneCall(f"call-{self._names:06}", account, self._random.randrange(5, 900))

    async def talk(self, id: str) -> None:
        """Record calls, wait for each to be confirmed, until told to stop."""
        async with connect(
            Exchange, self._group.addresses[id], network=self._group.callers
        ) as exchange:
            while not self.is_over:
                call = self.call()
                try:
                    answer = await exchange.record.detailed(call.account, call.name, call.duration)
                    await answer.settled()
                    self._heard.confirmed.append(call)
                except (NotDone, OutcomeUnknown):
                    self._heard.unknown.append(call)
                await asyncio.sleep(self._random.uniform(0, 0.01))

    async def talk_and_hang_up(self, id: str, count: int) -> None:
        """Record calls, hear the optimistic answers, and never ask again."""
        # A client goes to a replica chosen by chance; this one stays with the one it is given.
        async with open_client(
            self._group.addresses[id], network=self._group.callers, spread=False
        ) as client:
            session = client.session()
            await session.open()
            exchange = RemoteObject(GroupConnection(client, session), define(Exchange))
            self.are_ready.set()
            await self.may_talk.wait()
            calls = [self.call() for _ in range(count)]
            # All at once: the replica answers them before it can know that it is cut off.
            answers = await asyncio.gather(
                *(
                    exchange.record.detailed(each.account, each.name, each.duration)
                    for each in calls
                )
            )
            for call, answer in zip(calls, answers, strict=True):
                if answer.standing.is_final:
                    self._heard.confirmed.append(call)
                else:
                    self._heard.unconfirmed.append(call)


async def tell(folder: Path, say: Callable[[str], None], *, seed: int = 7) -> Told:
    """Let it happen; *say* is given each step in words."""
    random = Random(seed)  # noqa: S311 -- invents callers
    heard = Heard()
    rolled_back = dict.fromkeys(IDS, 0)
    async with SwitchedGroup(Exchange, IDS, stack=STACK, folder=folder) as group:
        await group.wait_whole()
        say(f"five replicas form a primary view; they answer optimistically ({STACK})")
        callers = _Callers(group, heard, random)
        async with asyncio.TaskGroup() as tasks:
            talking = [tasks.create_task(callers.talk(id)) for id in "bbccddee"]
            try:
                await asyncio.sleep(2)
                say(f"{len(talking)} callers have had {len(heard.confirmed)} calls confirmed")

                await group.kill("e")
                await group.wait_whole("abcd")
                say("replica e is killed; a, b, c, d go on, its callers went elsewhere")
                await asyncio.sleep(1)

                # Who gives the order can answer before it knows that nobody hears it.
                lone = _sequencer(group)
                others = [id for id in "abcd" if id != lone]
                hasty = tasks.create_task(callers.talk_and_hang_up(lone, 40))
                await callers.are_ready.wait()
                group.cut([lone], [*others, "e"])
                callers.may_talk.set()
                await asyncio.wait([hasty])
                say(
                    f"the network is cut: {lone} | {' '.join(others)}. {lone} does not know yet, "
                    f"and answered {len(heard.unconfirmed)} calls optimistically; those callers "
                    "hung up"
                )
                await group.wait_whole(others)
                say(
                    f"{', '.join(others)} are a majority of five and go on; {lone} is a minority "
                    "and takes nothing"
                )
                await asyncio.sleep(1.5)
                void = group[lone].host.position - group[lone].host.settled_position
                await group.kill(lone)
                say(f"{lone} is killed with {void} optimistic entries in its journal")

                group.heal()
                group.start(lone)
                group.start("e")
                await group.wait_whole(IDS)
                for id in IDS:
                    rolled_back[id] = group[id].replica.context.counters.get("host.rolled_back", 0)
                say(
                    f"the network is whole and {lone} and e are back from their journals; "
                    f"{lone} rolled back {rolled_back[lone]} entries that no majority ever had"
                )
                await asyncio.sleep(1.5)
            finally:
                callers.is_over = True
        await _quiet(group)
        say(f"the exchange closes: {len(heard.confirmed)} calls confirmed")
    if not heard.unconfirmed or not rolled_back[lone]:
        raise DemoFailed("nothing was rolled back, so there is nothing to show: run it again")
    return Told(heard, folder, rolled_back)


def _sequencer(group: SwitchedGroup) -> str:
    """Say which replica gives the order: the first of the view."""
    status = group[group.running[0]].status
    assert status is not None, "the group is whole"
    return status.members[0].id


async def _quiet(group: SwitchedGroup) -> None:
    """Wait until all replicas have settled the same history."""
    async with asyncio.timeout(_DEADLINE):
        while True:
            places = {
                (group[id].host.position, group[id].host.settled_position) for id in group.running
            }
            if len(places) == 1 and len(set(next(iter(places)))) == 1:
                return
            await asyncio.sleep(0.02)
