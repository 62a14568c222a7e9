"""Orders of events in which something once went wrong; each has a name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.broken.cohort_variants import FollowsEveryone
from tests.broken.server_variants import SiblingsSeeEachOther
from tests.vsr.bank_world import EU, US, BankWorld, is_committed
from tests.vsr.chain import ChainWorld
from tests.vsr.table import Table

from coterie.kernel.clock import Duration, milliseconds, seconds
from coterie.kernel.errors import BadMessage
from coterie.kernel.views import Configuration, Member, ViewId, Viewstamp
from coterie.simulation.engines.vsr.modules import Bank, encode
from coterie.vsr import Cohort
from coterie.vsr.calls.executor import Nested
from coterie.vsr.calls.messages import (
    Abort,
    CallRefused,
    CallReply,
    CallRequest,
    EndTransaction,
    TransactionEnded,
)
from coterie.vsr.commit.psets import Aid, CallsProgress, Pair
from coterie.vsr.commit.server import Server
from coterie.vsr.views.messages import NewEvents

if TYPE_CHECKING:
    from coterie.simulation.engines.vsr.modules import Steps
    from coterie.vsr.calls.executor import ObjectAccess

CLIENT = Member("z", 1)


def bank_table() -> Table:
    """One group of banks in its first view, with messages moved by hand; it knows another group."""

    def module(context: object) -> Server:
        groups = {"table": table.configuration, "other": Configuration(1, ("m",))}
        return Server(context, Bank(), groups, table.settings)  # type: ignore[arg-type]

    table = Table(start=False)
    table.module = module
    table.start_all()
    table["a"].manage()
    table.deliver()
    assert table["a"].is_primary
    table.mail.clear()
    return table


def say(table: Table, message: msgspec.Struct) -> list[msgspec.Struct]:
    """Give the primary a message of the client; take what it sends to clients and other groups."""
    table["a"].receive(CLIENT, message)
    table["a"].module.finish_turn()
    table["a"].finish_turn()
    said = [message for _, to, message in table.mail if to not in table.names]
    table.mail = [mail for mail in table.mail if mail[1] in table.names]
    return said


def call(
    table: Table, aid: Aid, id: str, method: str, *arguments: object, given_up: str = ""
) -> CallRequest:
    view = table["a"].cur_viewid
    names = (given_up,) if given_up else ()
    progress = CallsProgress(9, (1, 2))
    return CallRequest("z", view, aid, id, method, encode(list(arguments)), names, progress)


def test_who_cannot_force_an_abort_tells_no_participant_of_it() -> None:
    """The transaction may go on at the primary before, if that one comes to lead again.

    A client that asks twice made a new primary tell participants of an abort that only it knew.
    """
    table = bank_table()
    aid = Aid("table", ViewId(0, "b", 1), 1)
    pset = (Pair("other", Viewstamp(ViewId(1, "m", 1), 1)),)
    end = EndTransaction("z", aid, True, pset, ("other",), "")  # noqa: FBT003
    assert say(table, end) == []
    assert say(table, end) == []
    table.deliver(losing=False)  # a majority knows
    told = [(to, type(message)) for _, to, message in table.mail if to not in table.names]
    assert told == [("z", TransactionEnded), ("m", Abort), ("z", TransactionEnded)]


def test_dropping_a_call_leaves_the_locks_of_its_siblings() -> None:
    """One call waits for another group, a sibling completes, and the first one is given up."""
    table = bank_table()
    one, other = (Aid("other", ViewId(1, "m", 1), number) for number in (1, 2))
    say(table, call(table, one, "1.1", "send", "alice", 10, "other", "bob"))
    [reply] = say(table, call(table, one, "2.1", "deposit", "carol", 5))
    assert isinstance(reply, CallReply)
    say(table, call(table, one, "3.1", "balance", "dave", given_up="1"))
    said = say(table, call(table, other, "1", "balance", "carol"))
    assert not any(isinstance(message, CallReply) for message in said)


@pytest.mark.parametrize(("kind", "balance"), [(Server, 85), (SiblingsSeeEachOther, 90)])
def test_a_call_that_waits_for_another_group_is_not_overtaken_by_its_sibling(
    kind: type[Server], balance: int
) -> None:
    """Both take money from one account at the same time, in one transaction."""
    world = BankWorld(server_kind=kind)
    story = world.story(EU)
    story.ask(EU, "send", "alice", 10, US, "bob")
    story.ask(EU, "withdraw", "alice", 5)
    world.wait(lambda: len(story.answers) == 2)
    assert is_committed(story.commit())
    world.settle()
    assert (world.balance(EU, "alice"), world.balance(US, "bob")) == (balance, 110)


def test_a_reader_whose_end_was_lost_in_a_view_change_frees_its_locks() -> None:
    """All have voted, nobody wrote: the coordinator keeps no record, and must answer all the same.

    The voting primary knew that the transaction is over; its backups did not.
    """
    world = BankWorld()
    story = world.story(EU)
    assert story.call(US, "balance", "bob") == 100
    world.run(milliseconds(50))  # the read lock is known to the backups
    primary = world.leads(US)
    backups = [name for name in world.groups[US].members if name != primary]
    world.simulation.network.cut([(primary, name) for name in backups])
    assert is_committed(story.commit())
    world.machines[primary].crash()
    world.simulation.network.heal(world.arrive)
    world.wait(lambda: world.primary(US) is not None)
    writer = world.story(EU, client="y")
    world.run(seconds(3))
    assert writer.call(US, "deposit", "bob", 1) == 101
    assert is_committed(writer.commit())
    world.settle()


@pytest.mark.parametrize(("kind", "forces_always"), [(Cohort, True), (FollowsEveryone, False)])
def test_a_cohort_without_its_state_that_is_cut_off_from_the_primary_disturbs_nobody(
    kind: type[Cohort], *, forces_always: bool
) -> None:
    """It can form no view without the primary, but kept calling the others out of theirs."""
    world = ChainWorld("abc", kind=kind)
    world.run_until_whole()
    world.tell(b"one")
    world.run(milliseconds(50))
    world.simulation.network.cut([("a", "c"), ("c", "a")])
    world.machines["c"].restart()
    world.run(seconds(2))
    views = world.tracker.views
    forced = []
    for _ in range(10):
        world.run(seconds(1))
        before = len(world.forced)
        world.tell(b"more")
        world.run(milliseconds(20))
        forced.append(len(world.forced) > before)
    assert all(forced) is forces_always
    if not forces_always:
        return
    assert world.tracker.views == views
    world.heal()
    world.run_until_whole()
    assert world.tracker.views <= views + 1
    world.check()


@pytest.mark.parametrize("names", ["acb", "abc"])
def test_a_replaced_primary_that_still_hears_a_majority_is_told(names: str) -> None:
    """The others have gone on without it, and it can reach some of them: it must not go on."""
    world = ChainWorld(names)
    world.run_until_whole()
    view = world["a"].cur_viewid
    world.simulation.network.cut([("a", "c"), ("c", "a")])
    world.machines["c"].call(world["c"].manage)
    world.run(Duration(300))
    world.run(seconds(1))
    world.tell(b"in vain?", at="a")
    world.run(seconds(2))
    leaders = [name for name in names if world[name].is_serving]
    assert len(leaders) == 1
    before = len(world.forced)
    world.tell(b"counts")
    world.run(milliseconds(20))
    assert len(world.forced) > before or world["a"].cur_viewid == view
    world.heal()
    world.run_until_whole()
    world.check()


def test_an_event_that_cannot_be_read_is_not_known() -> None:
    """It went into the log before it was read, so that the log was ahead of the state."""
    table = bank_table()
    backup = table["b"]
    known = backup.log.last
    with pytest.raises(BadMessage):
        backup.receive(table["a"].me, NewEvents(known.view, known.view, known.number + 1, [b"?"]))
    assert backup.log.last == known


@pytest.mark.parametrize("coordinator", [EU, US])
def test_an_abort_reaches_groups_that_only_calls_have_called(coordinator: str) -> None:
    """They were left to ask a second later, and everyone who met their locks waited that long."""
    world = BankWorld()
    story = world.story(coordinator)
    story.call(EU, "send", "alice", 10, US, "bob")
    story.abort()
    world.run(milliseconds(20))
    other = world.story(EU, client="y")
    assert other.call(US, "deposit", "bob", 1) == 101
    assert is_committed(other.commit())
    world.settle()


def test_an_abort_reaches_groups_whose_caller_still_waits_for_them() -> None:
    world = BankWorld()
    story = world.story(EU)
    story.call(US, "balance", "other")
    # The answer to the call that the call makes is lost.
    link = (world.leads(US), world.leads(EU))
    world.simulation.network.cut([link])
    story.ask(EU, "send", "alice", 10, US, "bob")
    world.run(milliseconds(20))
    story.abort()
    world.simulation.network.mend([link])
    world.run(milliseconds(20))
    other = world.story(US, client="y")
    assert other.call(US, "deposit", "bob", 1) == 101
    assert is_committed(other.commit())
    world.settle()


def test_a_call_that_comes_after_the_abort_does_not_run() -> None:
    table = bank_table()
    aid = Aid("other", ViewId(1, "m", 1), 1)
    assert say(table, Abort("other", aid, "changed its mind")) == []
    [refused] = say(table, call(table, aid, "1.1", "deposit", "carol", 5))
    assert isinstance(refused, CallRefused)


def test_a_call_refused_after_it_made_calls_says_whom_it_called() -> None:
    """One call waits for a lock after it has called the other group, and too long."""

    class SendsFirst(Bank):
        def do_send(
            self, access: ObjectAccess, account: str, amount: int, group: str, to: str
        ) -> Steps:
            yield Nested(group, "deposit", encode([to, amount]))
            return self.do_withdraw(access, account, amount)

    world = BankWorld(executor=SendsFirst)
    holder = world.story(EU, client="y")
    holder.call(EU, "deposit", "alice", 1)
    story = world.story(EU)
    assert "waited too long" in str(story.call(EU, "send", "alice", 10, US, "bob"))
    story.abort()
    world.run(milliseconds(20))
    assert holder.call(US, "deposit", "bob", 1) == 101
    assert is_committed(holder.commit())
    world.settle()


def test_who_does_not_hear_the_primary_does_not_call_it_away() -> None:
    """The link works one way: its invitations arrive, and the answers are lost."""
    world = ChainWorld("abc")
    world.run_until_whole()
    world.tell(b"one")
    world.run(milliseconds(50))
    world.simulation.network.cut([("a", "c")])
    world.machines["c"].restart()
    world.run(seconds(2))
    views = world.tracker.views
    for _ in range(10):
        world.run(seconds(1))
        before = len(world.forced)
        world.tell(b"more")
        world.run(milliseconds(20))
        assert len(world.forced) > before
    assert world.tracker.views == views
    world.heal()
    world.run_until_whole()
    world.check()
