"""Whatever a message says, a cohort takes it, ignores it, or calls it bad; it never falls over."""

from __future__ import annotations

import types
import typing
from random import Random

import msgspec
import pytest
from tests.vsr.bank_world import EU, BankWorld
from tests.vsr.table import Table

from coterie.kernel.errors import BadMessage
from coterie.kernel.views import ChangedConfiguration, Member, ViewId
from coterie.simulation.engines.vsr.modules import Bank, encode
from coterie.vsr.calls import messages as call_messages
from coterie.vsr.calls.messages import TransactionMessage
from coterie.vsr.commit.client import Fate
from coterie.vsr.commit.server import Server
from coterie.vsr.views import messages
from coterie.vsr.views.cohort import Cohort
from coterie.vsr.views.messages import MODULE_TAGS, CohortMessage, NewEvents, NoMember

NUMBERS = (-(1 << 60), -1, 0, 1, 2, 3, 7, 1 << 60)
NAMES = ("a", "b", "c", "z", "", "table", "us", "client x")


def absurd(type_: object, random: Random) -> object:  # noqa: PLR0911 -- one answer a type
    """Make a value of a type, with no sense in it."""
    origin, arguments = typing.get_origin(type_), typing.get_args(type_)
    if origin in {types.UnionType, typing.Union}:
        return absurd(random.choice(arguments), random)
    if origin in {list, tuple}:
        if origin is tuple and (len(arguments) != 2 or arguments[1] is not Ellipsis):
            return tuple(absurd(each, random) for each in arguments)
        made = [absurd(arguments[0], random) for _ in range(random.randrange(4))]
        return made if origin is list else tuple(made)
    if type_ is ViewId and random.random() < 0.5:
        return ViewId(random.choice((1, 2)), "a", 1)
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        hints = typing.get_type_hints(type_)
        return type_(**{name: absurd(hints[name], random) for name in type_.__struct_fields__})
    if type_ is bool:
        return random.random() < 0.5
    if type_ is int:
        return random.choice(NUMBERS)
    if type_ is str:
        return random.choice(NAMES)
    if type_ is bytes:
        return random.choice((b"", b"x", encode([1, 2])))
    assert type_ is type(None), type_
    return None


@pytest.mark.parametrize("seed", range(12))
def test_a_cohort_survives_nonsense(seed: int) -> None:
    random = Random(seed)  # noqa: S311 -- reproducible on purpose

    def module(context: object) -> Server:
        return Server(context, Bank(), {}, table.settings)  # type: ignore[arg-type]

    table = Table(start=False)
    table.module = module
    table.start_all()
    table["a"].manage()
    table.deliver()
    kinds = [*typing.get_args(CohortMessage), *typing.get_args(TransactionMessage)]
    bad = 0
    for _ in range(400):
        name = random.choice("abc")
        sender = Member(random.choice(("a", "b", "c", "z")), random.choice((1, 2)))
        message = absurd(random.choice(kinds), random)
        try:
            table[name].receive(sender, message)
        except BadMessage:
            bad += 1
        table[name].finish_turn()
        table.mail.clear()
    assert bad


def test_all_kinds_of_messages_have_tags_of_their_own() -> None:
    kinds = [*typing.get_args(CohortMessage), *typing.get_args(TransactionMessage)]
    tags = [kind.__struct_config__.tag for kind in kinds]
    assert len(set(tags)) == len(tags)
    for union, is_module in ((CohortMessage, False), (TransactionMessage, True)):
        for kind in typing.get_args(union):
            assert (bytes([kind.__struct_config__.tag]) >= MODULE_TAGS) is is_module
            # The tag stands where a cohort looks for it.
            assert len(kind.__struct_fields__) < 15
    for module in (messages, call_messages):
        for kind in vars(module).values():
            if isinstance(kind, type) and getattr(kind, "__struct_config__", None):
                is_message = kind.__struct_config__.tag is not None  # type: ignore[attr-defined]
                assert not is_message or kind in kinds or kind.__module__ != module.__name__


def test_nobody_is_removed_by_what_cannot_be() -> None:
    """It leaves for good, and its disk says so; anybody who was a peer could have said it."""
    world = BankWorld()
    [cohort] = [
        each.replica.bottom
        for each in world.machines["b"].residents.values()
        if each.replica is not None
    ]
    assert isinstance(cohort, Cohort)
    stranger, member = Member("f", 1), Member("a", 1)
    for sender, configuration in (
        (stranger, ChangedConfiguration(9, ("a", "c"), (), (), ("b",))),
        (member, ChangedConfiguration(9, ("c", "d"), (), (), ("b",))),
        (member, ChangedConfiguration(9, ("a", "b", "c"), (), (), ("b",))),
        (member, ChangedConfiguration(0, ("a", "c"), (), (), ("b",))),
    ):
        with pytest.raises(BadMessage, match="no removal"):
            cohort.receive(sender, NoMember(configuration))
    assert not cohort.has_left
    cohort.receive(member, NoMember(ChangedConfiguration(9, ("a", "c"), (), (), ("b",))))
    assert cohort.has_left


def told(world: BankWorld, *, first: int, forced: int) -> None:
    """Have both backups of a group take a damaged word of who leads it."""
    leader = world.cohort(world.leads(EU), EU)
    assert leader is not None
    view = leader.cur_viewid
    damaged = NewEvents(view, view, first, [], forced)
    for id in world.groups[EU].members:
        backup = world.cohort(id, EU)
        if backup is not None and backup is not leader:
            backup.receive(leader.me, damaged)


def test_backups_that_were_told_of_events_that_there_are_not_go_on_acknowledging() -> None:
    """They looked for these for ever, and said no more what they had: nothing was forced again."""
    world = BankWorld()
    told(world, first=1 << 32, forced=-1)
    story = world.story(EU)
    story.call(EU, "transfer", "a", "b", 1)
    outcome = story.commit()
    assert outcome is not None
    assert outcome.fate is Fate.COMMITTED
    assert not any(
        cohort.is_behind for id in world.groups[EU].members if (cohort := world.cohort(id, EU))
    )


def test_a_backup_does_not_take_for_forced_what_it_does_not_know_yet() -> None:
    """One damaged number stood for all events of the view, also for those still to come."""
    world = BankWorld()
    told(world, first=1, forced=(1 << 64) - 1)
    for id in world.groups[EU].members:
        cohort = world.cohort(id, EU)
        assert cohort is not None
        assert cohort.forced <= cohort.log.last.number
