"""How many copies of an object there are while something is red, and after."""

from __future__ import annotations

from tests.objects.fake_engine import Desk, context_for

from coterie.kernel.components import GREEN, RED
from coterie.kernel.engine import Run
from coterie.kernel.views import Member, ViewId
from coterie.objects import ObjectHost, define, query, update
from coterie.objects.applied_once import AppliedOnce
from coterie.objects.coloured_copies import ColouredCopies, copies_for
from coterie.objects.copies import Copies
from coterie.objects.execution.commands import Tick, encode_command

A = Member("a", 1)
VIEW = ViewId(1, "a", 1)


class Plain:
    """Its updates do not commute."""

    last: int = 0

    @update
    def set(self, value: int) -> None:
        self.last = value

    @query
    def get(self) -> int:
        return self.last


class Commuting(Plain):
    commuting = True


def tick(position: int) -> Run:
    return Run(VIEW, position, position, A, position, [encode_command(Tick(position))])


def count(host: ObjectHost) -> int:
    return 1 if host.copies.authoritative is None else 2


def test_the_class_and_the_stack_say_which_copies_there_are() -> None:
    plain, commuting = define(Plain), define(Commuting)
    assert copies_for(plain, has_colours=False) is Copies
    assert copies_for(commuting, has_colours=False) is Copies
    assert copies_for(plain, has_colours=True) is ColouredCopies
    assert copies_for(commuting, has_colours=True) is AppliedOnce


def test_the_second_copy_goes_when_nothing_is_red_any_more() -> None:
    context, _ = context_for("a", "abc")
    host = ObjectHost(define(Plain), context, front=Desk(), has_colours=True)
    host.deliver([tick(1)], GREEN)
    assert count(host) == 1
    host.deliver([tick(2), tick(3)], RED)
    assert count(host) == 2
    host.roll_back(1)
    host.deliver([tick(2)], GREEN)
    host.deliver([tick(3)], RED)  # it is still red
    assert count(host) == 2
    host.roll_back(2)
    host.deliver([tick(3)], GREEN)
    host.settle(3)
    host.deliver([tick(4)], GREEN)
    assert count(host) == 1
    assert host.position == host.settled_position == 4
    host.deliver([tick(5)], RED)
    host.roll_back(4)
    assert host.position == 4
