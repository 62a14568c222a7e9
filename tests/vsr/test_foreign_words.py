"""Transactions belong to who began them: what others say about them is refused."""

from __future__ import annotations

import pytest
from tests.vsr.bank_world import EU, US, BankWorld, is_committed

from coterie.kernel.clock import milliseconds, seconds
from coterie.kernel.errors import BadMessage
from coterie.kernel.views import Member, ViewId, Viewstamp
from coterie.simulation.engines.vsr.modules import Bank, encode
from coterie.vsr.calls.executor import ObjectAccess, Running
from coterie.vsr.calls.messages import CallRequest, Commit, Elsewhere, EndTransaction
from coterie.vsr.commit.events import CompletedCall, ObjectWritten
from coterie.vsr.commit.psets import Aid, CallsProgress, is_of, number_for
from coterie.vsr.commit.server import Server
from coterie.vsr.objects.group_state import Ended, GroupState

STRANGER = Member("y", 1)


def end(actor: str, aid: Aid) -> EndTransaction:
    return EndTransaction(actor, aid, commit=False, pset=(), groups=(EU, US), reason="spite")


def server_of(world: BankWorld, group: str) -> Server:
    server = world.server(world.leads(group), group)
    assert server is not None
    return server


def test_a_participant_takes_no_end_from_a_client() -> None:
    """It aborted what was prepared; then no primary of the group could ever serve again."""
    world = BankWorld()
    story = world.story(EU)
    story.call(US, "deposit", "alice", 5)
    assert story.transaction is not None
    assert story.transaction.aid is not None
    participant = server_of(world, US)
    with pytest.raises(BadMessage, match="another group coordinates"):
        participant.receive(STRANGER, end("@y", story.transaction.aid))
    assert is_committed(story.commit())
    world.settle()


def test_nobody_ends_the_transaction_of_another_client() -> None:
    world = BankWorld()
    story = world.story(EU)
    story.call(EU, "deposit", "alice", 5)
    assert story.transaction is not None
    assert story.transaction.aid is not None
    coordinator = server_of(world, EU)
    with pytest.raises(BadMessage, match="another client began"):
        coordinator.receive(STRANGER, end("@y", story.transaction.aid))
    assert is_committed(story.commit())
    world.settle()


@pytest.mark.parametrize(
    "aid",
    [
        Aid("nowhere", ViewId(1, "a", 1), 1),
        Aid(EU, ViewId(1, "a", 1), 10**9),
        Aid(EU, ViewId(10**9, "a", 1), 1),
        Aid(US, ViewId(10**9, "z", 7), -5),
    ],
    ids=str,
)
def test_who_waits_for_a_made_up_name_waits_for_no_second(aid: Aid) -> None:
    """A polite client waited for a second, was aborted, and had to begin again.

    A group asks about a transaction of which it has heard nothing for a second; and whoever makes
    up a name can speak in it again and again.
    """
    world = BankWorld()
    primary = world.leads(US)
    server = server_of(world, US)
    view = server.cohort.cur_viewid

    def speak(call: int) -> None:
        request = CallRequest(
            *("@y", view, aid, str(call), "deposit", encode(["alice", 5]), ()),
            CallsProgress(1, (call,)),
        )
        world.machines[primary].call(lambda: server.receive(STRANGER, request))

    speak(1)
    world.run(milliseconds(20))
    story = world.story(EU)
    begun = server.context.now
    speak(2)
    assert story.call(US, "deposit", "alice", 1) == 101
    assert server.context.now - begun < milliseconds(400)
    assert is_committed(story.commit())
    world.settle()


@pytest.mark.parametrize(
    "aid",
    [
        Aid("nowhere", ViewId(1, "a", 1), 1),
        Aid(EU, ViewId(1, "a", 1), 10**9),
        Aid(EU, ViewId(10**9, "a", 1), 1),
        Aid(US, ViewId(10**9, "z", 7), -5),
    ],
    ids=str,
)
def test_a_made_up_name_locks_nothing_for_long(aid: Aid) -> None:
    """Nobody could say how it ended, and the account stayed locked for ever."""
    world = BankWorld()
    primary = world.leads(US)
    server = server_of(world, US)
    view = server.cohort.cur_viewid
    request = CallRequest(
        "@y", view, aid, "1", "deposit", encode(["alice", 5]), (), CallsProgress(1, (1,))
    )
    world.machines[primary].call(lambda: server.receive(STRANGER, request))
    world.run(seconds(12))
    story = world.story(EU)
    assert story.call(US, "deposit", "alice", 1) == 101
    assert is_committed(story.commit())
    assert not server.state.transactions


def test_what_no_group_coordinates_is_aborted_by_who_begins_to_lead() -> None:
    """A state from a disk may hold such a transaction, and its locks stayed for good."""
    world = BankWorld()
    primary = world.leads(US)
    server = server_of(world, US)
    aid = Aid("nowhere", ViewId(1, "a", 1), 1)
    wrote = [ObjectWritten("alice", encode(5))]

    def lead_with_it() -> None:
        server.add(CompletedCall(aid, "1", [], wrote, b"", is_failure=False, pset=()))
        server.lead(server.cohort.cur_view)

    world.machines[primary].call(lead_with_it)
    world.run(seconds(1))
    assert aid not in server.state.transactions
    story = world.story(EU)
    assert story.call(US, "deposit", "alice", 1) == 101
    assert is_committed(story.commit())
    world.settle()


def test_the_commit_of_what_was_aborted_is_refused() -> None:
    """It was an assertion: one message of a peer killed the primary."""
    world = BankWorld()
    story = world.story(EU)
    story.call(US, "deposit", "alice", 5)
    assert story.transaction is not None
    aid = story.transaction.aid
    assert aid is not None
    story.abort()
    world.run(seconds(1))
    with pytest.raises(BadMessage, match="has aborted"):
        server_of(world, US).receive(STRANGER, Commit(EU, aid, ()))


def test_where_groups_are_that_nobody_knows_is_not_remembered() -> None:
    """Every made-up name stayed in memory."""
    server = server_of(BankWorld(), EU)
    before = dict(server.requests._known)
    for number in range(100):
        server.receive(STRANGER, Elsewhere(f"made up {number}", ViewId(1, "a", 1), "a"))
    assert server.requests._known == before


class CarelessBank(Bank):
    """Names an object by what is no text, so that the event cannot be read by anybody."""

    def run(self, method: str, arguments: bytes, access: ObjectAccess) -> Running:
        if method == "careless":
            access.read(21)  # type: ignore[arg-type]
        return (yield from super().run(method, arguments, access))


def test_what_backups_could_not_read_is_never_added() -> None:
    """It stopped the group: no backup acknowledged anything any more."""
    world = BankWorld(executor=CarelessBank)
    story = world.story(EU)
    answer = story.call(US, "careless")
    assert "cannot be recorded" in str(answer)
    story.abort()
    later = world.story(EU)
    assert later.call(US, "deposit", "alice", 1) == 101
    assert is_committed(later.commit())
    assert world.is_whole(US)


def test_more_commits_under_way_than_ends_are_remembered_are_kept() -> None:
    """To find one to forget ended in an exception of the turn."""
    state = GroupState(ended_max=2, chunk_bytes=1000)
    view = ViewId(1, "a", 1)
    for number in range(1, 5):
        aid = Aid(EU, view, number)
        state.committing[aid] = []
        ended = Ended(committed=True, vs=Viewstamp(view, number))
        state._end(aid, ended)
    assert len(state.ended) == 4


def test_nobody_calls_in_the_transaction_of_another_client() -> None:
    """A wrong method under the name of a client's next call was what that client was answered."""
    mine, theirs = "@0000001.aa", "@0000002.aa"
    aid = Aid(EU, ViewId(1, "a", 1), number_for(mine, 1))
    assert is_of(aid, mine)
    assert is_of(aid, "@0000001.bb"), "another program of the same client"
    assert is_of(aid, "a"), "a replica, for a call of that transaction"
    assert not is_of(aid, theirs)
    assert not is_of(Aid(EU, ViewId(1, "a", 1), number_for("@x", 1)), "@y")
    assert is_of(Aid(EU, ViewId(1, "a", 1), 1), theirs), "an earlier release began it"
    assert number_for(theirs, 2) > number_for(mine, 1), "they stay in their order"

    world = BankWorld()
    server = server_of(world, US)
    view, arguments = server.cohort.cur_viewid, encode(["ada", 1])
    call = CallRequest(theirs, view, aid, "1", "deposit", arguments, (), CallsProgress(1))
    with pytest.raises(BadMessage, match="another client began"):
        server.receive(Member(theirs, 1), call)
