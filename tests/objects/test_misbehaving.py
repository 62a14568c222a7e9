"""Methods that leave as no method should: the caller is told, and no replica minds."""

from __future__ import annotations

import sys

import pytest
from tests import idle_time

import coterie
from coterie.objects.errors import is_of_this_machine


class Stop(BaseException):
    """No `Exception`, so that whoever catches those does not catch it."""


class Odd:
    value: int = 0

    @coterie.update
    def add(self, amount: int) -> int:
        self.value += amount
        return self.value

    @coterie.update
    def leave(self, how: str) -> None:
        self.value = 1000
        if how == "exit":
            sys.exit(3)
        raise {"stop": Stop, "generator": GeneratorExit, "iteration": StopIteration}[how]

    @coterie.query
    def look_and_leave(self, how: str) -> int:
        if how == "exit":
            sys.exit(3)
        raise {"stop": Stop, "generator": GeneratorExit, "iteration": StopIteration}[how]


@pytest.mark.parametrize("stack", ["SAFE:DYNSEQ:PVSYNC", "COLOURS:DYNSEQ:VSYNC"])
@pytest.mark.parametrize("how", ["exit", "stop", "generator", "iteration"])
def test_whatever_a_method_raises_is_an_answer(how: str, stack: str) -> None:
    """An update stopped every replica, and would have at each start; a query the one it asked."""

    async def story() -> None:
        async with coterie.local(Odd, replicas=3, stack=stack) as odd:
            with pytest.raises(coterie.MethodFailed):
                await odd.leave(how)
            with pytest.raises(coterie.MethodFailed):
                await odd.look_and_leave(how)
            assert await odd.add(1) == 1

    idle_time.run(story())


def test_what_others_may_not_have_met_is_not_the_methods_doing() -> None:
    assert is_of_this_machine(MemoryError())
    assert is_of_this_machine(KeyboardInterrupt())
    assert not is_of_this_machine(SystemExit(3))
    assert not is_of_this_machine(RecursionError())
