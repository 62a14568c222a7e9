"""Methods that do what no method should: the transaction learns of it, and no cohort minds."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from tests import idle_time

from coterie.client import NotDone
from coterie.local_transactions import LocalGroups, local_groups
from coterie.objects import MethodFailed, query, update
from coterie.transactional import Table, other


class Stop(BaseException):
    """No `Exception`, so that whoever catches those does not catch it."""


class Nothing:
    """Can be awaited, and yields nothing that anybody waits for."""

    def __await__(self) -> Any:  # noqa: ANN401
        yield None


class Odd:
    """Does what no method should."""

    things: Table[str, int] = {}  # noqa: RUF012 -- copied for each object

    @update
    def put(self, name: str, value: int) -> int:
        self.things[name] = value
        return value

    @query
    def get(self, name: str) -> int:
        return self.things.get(name, 0)

    @update
    def leave(self, how: str) -> None:
        self.things["left"] = 1
        if how == "exit":
            sys.exit(3)
        raise {"stop": Stop, "generator": GeneratorExit, "iteration": StopIteration}[how]

    @query
    def look_and_leave(self) -> int:
        sys.exit(3)

    @update
    async def leave_later(self, group: str) -> None:
        await other(group, Odd).put("x", 1)
        raise Stop

    @update
    async def on_the_way(self, group: str, further: str) -> int:
        """Have somebody called who calls and then raises; go on all the same."""
        try:
            await other(group, Odd).leave_later(further)
        except MethodFailed:
            return 7
        return 8

    @update
    async def wait_for_nobody(self) -> None:
        await Nothing()

    @update
    async def call_a_list(self) -> int:
        groups: Any = ["eu"]
        return int(await other(groups, Odd).get("x"))

    @update
    def swallow(self, name: str) -> str:
        """Take a lock, and make nothing of not having got it."""
        try:
            self.things[name] += 1
        except BaseException:  # noqa: BLE001 -- that is the point
            return "swallowed"
        return "done"

    @update
    async def hold_on(self, group: str, name: str) -> int:
        """Do something at the end, however it ends."""
        try:
            return int(await other(group, Odd).put(name, 5))
        finally:
            await other(group, Odd).put("end", 1)


def test_what_a_method_that_raises_had_called_is_undone_too() -> None:
    async def story(groups: LocalGroups) -> None:
        with pytest.raises(MethodFailed, match="Stop"):
            await groups.eu.leave_later("us")
        assert await groups.us.get("x") == 0
        # The transaction goes on, and sees nothing of it, nor does whoever comes later.
        async with groups.transaction() as t:
            with pytest.raises(MethodFailed, match="Stop"):
                await t.eu.leave_later("us")
            assert await t.us.get("x") == 0
            await t.us.put("y", 2)
        assert [await groups.us.get(name) for name in "xy"] == [0, 2]
        # Two steps down, and caught in between.
        async with groups.transaction() as t:
            assert await t.eu.on_the_way("us", "asia") == 7
            assert await t.asia.get("x") == 0
        assert await groups.eu.on_the_way("us", "asia") == 7
        assert await groups.asia.get("x") == 0
        assert await groups.asia.put("x", 3) == 3

    tell(story)


@pytest.mark.parametrize("how", ["exit", "stop", "generator", "iteration"])
def test_whatever_a_method_raises_is_an_answer(how: str) -> None:
    async def story(groups: LocalGroups) -> None:
        with pytest.raises(MethodFailed):
            await groups.eu.leave(how)
        assert await groups.eu.get("left") == 0
        with pytest.raises(MethodFailed, match="SystemExit"):
            await groups.eu.look_and_leave()
        with pytest.raises(MethodFailed, match="Stop"):
            await groups.eu.leave_later("us")
        assert await groups.us.get("x") == 0

    tell(story)


def test_an_update_awaits_other_groups_and_nothing_else() -> None:
    async def story(groups: LocalGroups) -> None:
        with pytest.raises(MethodFailed, match="no replica waits inside a turn"):
            await groups.eu.wait_for_nobody()
        with pytest.raises(MethodFailed, match="a group has a name"):
            await groups.eu.call_a_list()

    tell(story)


def test_a_lock_that_was_not_given_is_not_swallowed() -> None:
    async def story(groups: LocalGroups) -> None:
        await groups.eu.put("a", 1)
        async with groups.transaction() as t:
            await t.eu.put("a", 2)
            with pytest.raises(NotDone, match="waited too long"):
                await groups.eu.swallow("a")
        assert await groups.eu.swallow("a") == "done"
        assert await groups.eu.get("a") == 3

    tell(story)


def test_a_method_that_is_given_up_may_hold_on_to_its_end() -> None:
    async def story(groups: LocalGroups) -> None:
        await groups.us.put("a", 1)
        async with groups.transaction() as t:
            await t.us.put("a", 2)
            with pytest.raises(NotDone):
                await groups.eu.hold_on("us", "a")
        assert await groups.eu.hold_on("us", "a") == 5
        assert await groups.us.get("end") == 1

    tell(story)


def tell(story: Any) -> None:  # noqa: ANN401
    """Run a story over two groups."""

    async def run() -> None:
        async with local_groups(eu=Odd, us=Odd, asia=Odd) as groups:
            await story(groups)

    idle_time.run(run())
