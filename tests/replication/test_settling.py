"""When members tell each other what they have, and what is settled."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from tests.replication.stories import direct, engine, everywhere, group_on_script, settled, write

from coterie.kernel.clock import milliseconds
from coterie.membership.messages import Data
from coterie.replication.messages import AckEntries, SettledUpTo

if TYPE_CHECKING:
    from tests.simulation.scripted import Rule, ScriptedNetwork

    from coterie.membership.messages import VsyncMessage
    from coterie.simulation import Group

STACK = "SAFE:DYNSEQ:PVSYNC"


def watch(group: Group, network: ScriptedNetwork, rule: Rule) -> list[tuple[int, str, str]]:
    """Note when messages that *rule* means were sent, from whom to whom."""
    seen: list[tuple[int, str, str]] = []

    def note(source: str, destination: str, message: VsyncMessage) -> bool:
        if rule(source, destination, message):
            seen.append((group.simulation.now, source, destination))
        return False

    network.lose(note)
    return seen


def is_packet(_source: str, _destination: str, message: VsyncMessage) -> bool:
    return isinstance(message, Data)


def orderer(group: Group) -> str:
    return engine(group, "a")._view.members[0].id


def test_a_sequencer_acknowledges_with_the_order() -> None:
    """So whoever proposed has a majority of three after one round trip."""
    group, network = group_on_script(STACK)
    first = orderer(group)
    proposer, bystander = (host.id for host in group if host.id != first)
    orders = watch(group, network, is_packet)
    acks = watch(group, network, direct(AckEntries, to=proposer))
    network.lose(
        lambda source, destination, message: (
            source == bystander and direct(AckEntries)(source, destination, message)
        )
    )
    network.lose(direct(SettledUpTo))
    group[proposer].propose(b"x")
    group.run(milliseconds(20))
    assert settled(group, proposer) == 1
    [order] = [each for each in orders if each[1:] == (first, proposer)]
    assert [ack for ack in acks if ack[1] == first] == [order]


def test_what_is_settled_is_told_together_and_after_a_while_at_the_latest() -> None:
    group, network = group_on_script(STACK)
    first = orderer(group)
    casts = watch(group, network, is_packet)
    told = watch(group, network, direct(SettledUpTo))
    count = 100
    for number in range(1, count + 1):
        group[first].propose(b"x/%d" % number)
        assert group.simulation.run_until(
            lambda: settled(group, first) == number,  # noqa: B023 -- called at once
            within=milliseconds(4),
        )
    last = group.simulation.now
    group.run(milliseconds(20))
    assert everywhere(group) == {count}
    moments = sorted({now for now, *_ in told})
    assert len(moments) < count * 3 / 4, "members that wait for nothing hear of several at once"
    between = [later - earlier for earlier, later in pairwise(moments)]
    assert max(between) <= milliseconds(5) + max(
        later - earlier for earlier, later in pairwise(sorted({now for now, *_ in casts}))
    )
    assert moments[-1] <= last + milliseconds(5)
    write(group, first)
    group.check()
