"""Ready-made objects in groups: replicas stay equal, time passes, what is full costs nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests import idle_time
from tests.objects.fake_engine import FakeGroup
from tests.seeded import seeded

import coterie
from coterie import ready
from coterie.kernel.clock import seconds
from coterie.kernel.engine import Role
from coterie.objects import HostSettings, Level, NotTaken, define

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    Arguments = tuple[object, ...]


class Prices(ready.Dictionary[int]):
    items_max = 6


class Jobs(ready.Queue[str]):
    items_max = 6


class Names(ready.Set):
    items_max = 6


class Disks(ready.Locks):
    locks_max = 3


class Office(ready.Election):
    candidates_max = 3


class Limits(ready.RateLimiter):
    keys_max = 3


def name(random: Random) -> str:
    return random.choice("abcdefgh")


def number(random: Random) -> int:
    return random.randint(0, 9)


def lease(random: Random) -> float:
    return random.choice([0.5, 2.0, 60.0])


CALLS: dict[type, dict[str, Callable[[Random], Arguments]]] = {
    ready.Counter: {"add": lambda r: (number(r) - 5,)},
    Prices: {
        "put": lambda r: (name(r), number(r)),
        "put_if": lambda r: (name(r), number(r), number(r)),
        "compare_and_set": lambda r: (name(r), None, number(r)),
        "touch": lambda r: (name(r),),
        "delete": lambda r: (name(r),),
    },
    Names: {"add": lambda r: (name(r),), "remove": lambda r: (name(r),)},
    Jobs: {
        "put": lambda r: (name(r),),
        "take": lambda _: (),
        "claim": lambda r: (name(r), lease(r)),
        "confirm": lambda r: (number(r), 1),
        "extend": lambda r: (number(r), 1, lease(r)),
        "give_back": lambda r: (number(r), 1),
    },
    Disks: {
        "acquire": lambda r: (name(r), name(r), lease(r)),
        "renew": lambda r: (name(r), number(r), lease(r)),
        "release": lambda r: (name(r), number(r)),
    },
    Office: {
        "campaign": lambda r: (name(r), lease(r)),
        "resign": lambda r: (name(r),),
    },
    Limits: {
        "acquire": lambda r: (name(r), 1 + number(r)),
        "configure": lambda r: (1 + number(r), 5 + number(r)),
    },
    ready.Sequence: {"next": lambda _: (), "take": lambda r: (1 + number(r),)},
}
ALL = pytest.mark.parametrize("cls", CALLS, ids=lambda cls: cls.__name__)


@ALL
@pytest.mark.parametrize("optimistic", [False, True])
def test_replicas_stay_equal_through_time_roll_backs_and_transfers(
    cls: type,
    optimistic: bool,  # noqa: FBT001
) -> None:
    random = seeded(f"{cls.__name__} {optimistic}")
    definition = define(cls)
    group = FakeGroup(definition, optimistic=optimistic, settings=HostSettings(digest_interval=7))
    session = group.open()
    for request in range(1, 300):
        method, arguments = random.choice(list(CALLS[cls].items()))
        group.ask(random.choice("abc"), session, request, method, *arguments(random))
        if random.random() < 0.3:
            group.advance_clocks(random.choice([10_000, seconds(1), seconds(3)]))
            group[random.choice("abc")].host.tick()
        group.turn(settle=random.random() < 0.5)
        if optimistic and random.random() < 0.1:
            group.roll_back(random.randint(group.settled, group.position))
        if random.random() < 0.05:
            group.replace("c", random.choice("ab"), incarnation=request + 1)
        if random.random() < 0.2:
            assert group.digests_agree()
    group.settle(group.position)
    assert group.digests_agree()
    for replica in group.replicas.values():
        definition.check(replica.host.replicated)
        assert not replica.host.faults
        # What raised had changed nothing, and that was known without looking.
        assert "host.rebuilt" not in replica.context.counters


def test_items_expire_and_leaders_are_replaced_where_nobody_calls() -> None:
    prices = FakeGroup(define(Prices))
    arguments = prices.definition.encode_call("put", ("tea", 3), {"expires_in": 5})
    session = prices.open()
    prices["a"].host.call(session, 1, "put", arguments)
    prices.turn()
    office = FakeGroup(define(Office))
    session = office.open()
    office.call("a", session, 1, "campaign", "ada", 3.0)
    office.call("a", session, 2, "campaign", "bob", 60.0)
    for _ in range(4):
        for group in (prices, office):
            group.advance_clocks(seconds(1))
            for replica in group.replicas.values():
                replica.host.tick()
            group.turn()
    assert prices.look("count") == 1
    assert office.look("leader") == ready.Term(2, "bob")
    prices.advance_clocks(seconds(2))
    prices["b"].host.tick()
    prices.turn()
    assert prices.look("count") == 0


def test_without_a_majority_nothing_is_taken_and_time_stands_still() -> None:
    """What docs/use/ready-made.md says of a partition."""
    group = FakeGroup(define(Disks))
    session = group.open()
    assert group.result("a", session, 1, "acquire", "disk", "ada", 5.0) == 1
    group.tell_role("c", Role.MINORITY)
    cut_off = group.replicas.pop("c")

    holder = cut_off.host.definition.method("holder").encode(("disk",), {})
    cut_off.host.read(Level.CONSISTENT, 7, "holder", holder)
    arguments = group.definition.encode_call("acquire", ("tape", "cy"), {})
    cut_off.host.call(session, 2, "acquire", arguments)
    for outcome in (*cut_off.desk.of(0, 7), *cut_off.desk.of(session, 2)):
        assert isinstance(outcome, NotTaken)
        assert "no majority" in outcome.reason

    # On the other side the lease ends, and the lock goes to somebody else.
    for _ in range(6):
        group.advance_clocks(seconds(1))
        cut_off.surroundings.now = group["a"].surroundings.now
        cut_off.host.tick()
        group["a"].host.tick()
        group.turn()
    assert not cut_off.waiting
    assert group.look("holder", "disk") is None
    assert group.result("b", session, 3, "acquire", "disk", "bob") == 2
    shown = cut_off.host.query(Level.WEAK, "holder", "disk")
    assert isinstance(shown, ready.Holding)
    assert (shown.owner, shown.fence) == ("ada", 1)

    # When it is over, it takes over what the others did.
    group.replace("c", "a")
    assert group.look("is_current", "disk", 2) is True
    assert group.look("is_current", "disk", 1) is False


def test_a_counter_runs_without_total_order() -> None:
    group = FakeGroup(define(ready.Counter), is_ordered=False)
    session = group.open()
    group.call("a", session, 1, "add", 3)
    group.call("b", session, 2, "add", 4)
    assert group.look("total") == 7


def test_all_of_it_through_a_local_group() -> None:
    async def run() -> None:
        async with coterie.local(Prices) as prices:
            assert await prices.put("tea", 3, expires_in=60) == 1
            assert await prices.compare_and_set("tea", 3, 4)
            assert await prices.get("tea") == 4
            assert await prices.find("tea") == ready.Found(4, 2, None)
        async with coterie.local(Jobs) as jobs:
            await jobs.put("sweep")
            claimed = await jobs.claim("ada", 30.0)
            assert claimed == ready.Claimed(1, 1, "sweep")
            assert await jobs.confirm(claimed.number, claimed.attempt)
            assert await jobs.take() is None
        async with coterie.local(Disks) as disks:
            fence = await disks.acquire("disk", "ada")
            assert fence is not None
            assert await disks.acquire("disk", "bob") is None
            assert await disks.is_current("disk", fence)
        async with coterie.local(Office) as office:
            assert await office.campaign("ada") == ready.Term(1, "ada")
        async with coterie.local(Limits) as limits:
            verdict = await limits.acquire("ada", 20)
            assert verdict == ready.Verdict(is_allowed=True, left=0, retry_in=0)
        async with coterie.local(Names) as names:
            assert await names.add("ada")
            assert await names.members() == ["ada"]
        async with coterie.local(ready.Sequence) as numbers:
            assert await numbers.take(5) == ready.Block(1, 5)
        async with coterie.local(ready.Counter, stack="PVSYNC") as counter:
            await counter.add(3)
            assert await counter.total.options(level="dirty")() == 3

    idle_time.run(run())
