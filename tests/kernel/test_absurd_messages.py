"""Well-formed messages with impossible values: each is dropped, and the replica goes on.

Peers are not malicious in our fault model, but a peer of another release, or with a bug of its
own, must not stop a process that hosts other groups as well. What arrives is theirs: count it and
drop it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from tests.kernel.puppet import (
    CONFIGURATION,
    TOGETHER,
    A,
    B,
    Puppet,
    encode,
    time_limit,
)

from coterie.kernel.clock import milliseconds
from coterie.kernel.layers import Layer
from coterie.kernel.views import ChangedConfiguration, Configuration, Member, ViewId
from coterie.membership.messages import (
    Ack,
    Alive,
    Cut,
    Data,
    Direct,
    Flush,
    Install,
    Leave,
    MergeRequest,
    Nak,
    Propose,
    Refuse,
    Removed,
    Repair,
    VsyncMessage,
)
from coterie.membership.vsync import VIEW_LEAP_MAX
from coterie.ordering.delivery import OrderLayer
from coterie.ordering.dynseq import SequencerHeader
from coterie.ordering.token import Token, TokenArrived, TokenHeader
from coterie.stacks import STACKS

if TYPE_CHECKING:
    from collections.abc import Callable

HUGE = 2**62
LAST = 2**64 - 1
"""The largest number that MessagePack can hold."""
NEXT = ViewId(3, "a", 1)


def ack(*received: int) -> Ack:
    return Ack(TOGETHER, list(received), wants_answer=True)


def packet(header: SequencerHeader | TokenHeader | bytes, *, number: int = 1) -> Data:
    raw = header if isinstance(header, bytes) else encode(header)
    return Data(TOGETHER, number, number, [number, 0], is_urgent=False, header=raw, payloads=[b"x"])


def token(**changes: object) -> Direct:
    """The token as a would pass it on, with some of its fields changed."""
    passed_on = Token(2, order=0, have=[0, 0], sent=[0, 0], wanted=[], idle=0)
    return Direct(TOGETHER, encode(replace(passed_on, **changes)))


# ---- dropped, as they should be


ABSURD: dict[str, VsyncMessage] = {
    "negative vector": ack(-1, -1),
    "empty vector": ack(),
    "impossible ranges": Nak(
        TOGETHER, [(7, 1, 1), (-1, 1, 1), (0, HUGE, LAST), (0, -5, LAST), (1, 1, 0)]
    ),
    "many ranges": Nak(TOGETHER, [(0, 1, HUGE)] * 5000),
    "repair of rank -1": Repair(TOGETHER, -1, 1, 1, b"", []),
    "repair of rank 7": Repair(TOGETHER, 7, 1, 1, b"", []),
    "repair of our own packet": Repair(TOGETHER, 1, 1, 1, b"", [b"x"]),
    "direct of no kind": Direct(TOGETHER, b"\xc1"),
    "direct of an unknown kind": Direct(TOGETHER, encode([99])),
    "token arrived that was never passed": Direct(TOGETHER, encode(TokenArrived(LAST))),
    "token of hop -1": token(hop=-1),
    "token of an earlier hop": token(hop=0),
    "token with a short vector": token(have=[0]),
    "token with a long vector": token(sent=[0, 0, 0]),
    "header of no kind": packet(b"\xc1"),
    "header without fields": packet(b"\x90"),
    "alive in no view": Alive(ViewId(-1, "", -1), (), b""),
    "alive with a stranger": Alive(TOGETHER, (Member("z", 9),), b"\xff"),
    "merge with no one": MergeRequest(ViewId(9, "z", 1), (), b""),
    "merge with doubles": MergeRequest(
        ViewId(9, "a", 1), (A, A, Member("a", 7), Member("", 0)), b""
    ),
    "proposal of no one": Propose(NEXT, ()),
    "proposal without us": Propose(NEXT, (A,)),
    "proposal with doubles": Propose(NEXT, (A, A, B, B)),
    "proposal below zero": Propose(ViewId(-7, "a", 1), (A, B)),
    "refusal of nothing": Refuse(NEXT, ViewId(8, "z", 1)),
    "flush that was not asked for": Flush(NEXT, TOGETHER, (), [], [], b"", CONFIGURATION),
    "cut that was not asked for": Cut(NEXT, [], []),
    "install that was not asked for": Install(NEXT, (), (), (), CONFIGURATION, [], []),
    "removal by others": Removed(TOGETHER, ChangedConfiguration(9, ("z",), (), (), ("b",))),
    "removal of who stays": Removed(TOGETHER, ChangedConfiguration(9, ("a", "b"), (), (), ("b",))),
    "removal by a number that cannot be": Removed(
        TOGETHER, ChangedConfiguration(2**63 - 1, ("a",), (), (), ("b",))
    ),
}


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("name", ABSURD)
def test_an_absurd_message_is_dropped_and_the_replica_goes_on(stack: str, name: str) -> None:
    puppet = Puppet(stack)
    puppet.join()
    with time_limit(0.5):
        puppet.hear(ABSURD[name])
        puppet.wait(milliseconds(30))
        puppet.turn(call=lambda: puppet.replica.cast([b"still alive"], safe=True))
        puppet.wait(milliseconds(700))
        puppet.promise(ViewId(50, "a", 1))


# ---- in the middle of something: each of these once stopped a process


@dataclass(frozen=True)
class Scene:
    """What happens to a replica with this stack."""

    stack: str
    story: Callable[[Puppet], None]


def text_that_is_not_utf8(puppet: Puppet) -> None:
    puppet.hear(encode(Alive(ViewId(1, "#", 1), (), b"")).replace(b"#", b"\xff"))


def vector_with_a_huge_number(puppet: Puppet) -> None:
    """The repair timer then lists every number that is missing."""
    puppet.hear(ack(HUGE, 0))
    puppet.wait(milliseconds(11))


def vector_that_has_more_than_we_sent(puppet: Puppet) -> None:
    puppet.hear(ack(0, HUGE))
    puppet.wait(milliseconds(11))


def packet_with_a_huge_vector(puppet: Puppet) -> None:
    data = Data(TOGETHER, 1, 1, [HUGE, 0], is_urgent=False, header=b"", payloads=[b"x"])
    puppet.hear(data)
    puppet.wait(milliseconds(11))


def token_that_tells_of_a_huge_number_of_packets(puppet: Puppet) -> None:
    puppet.hear(token(sent=[HUGE, 0]))
    puppet.hear(token(sent=[HUGE, 0], hop=4))


def cut_with_a_huge_number(puppet: Puppet) -> None:
    puppet.promise(NEXT)
    puppet.hear(Cut(NEXT, [HUGE, 0], [A, A]))


def flush_with_a_huge_number(puppet: Puppet) -> None:
    alone = puppet.vsync.current.id
    view = become_proposer(puppet)
    puppet.hear(Flush(view, alone, (B,), [HUGE], [0], b"", CONFIGURATION))


def view_number_at_the_end_of_its_range(puppet: Puppet) -> None:
    """The next view proposed here would have a number that no message can hold."""
    puppet.hear(Alive(ViewId(LAST, "a", 1), (A,), b""))
    puppet.wait(milliseconds(700))


def hop_at_the_end_of_its_range(puppet: Puppet) -> None:
    puppet.hear(token(hop=LAST))


def order_at_the_end_of_its_range(puppet: Puppet) -> None:
    puppet.turn(call=lambda: puppet.replica.cast([b"x"]))
    puppet.hear(token(order=LAST))


def become_proposer(puppet: Puppet) -> ViewId:
    """Alone, be asked by a to propose a joint view; give its id."""
    puppet.hear(MergeRequest(ViewId(1, "a", 1), (A,), b""))
    puppet.now += milliseconds(20)
    puppet.hear()
    propose = puppet.answer(Propose)
    assert isinstance(propose, Propose)
    return propose.view


def flush_with_a_vector_of_another_length(puppet: Puppet) -> None:
    alone = puppet.vsync.current.id
    view = become_proposer(puppet)
    puppet.hear(Flush(view, alone, (B,), [0, 0], [0], b"", CONFIGURATION))


def flush_with_stability_of_another_length(puppet: Puppet) -> None:
    alone = puppet.vsync.current.id
    view = become_proposer(puppet)
    puppet.hear(Flush(view, alone, (B,), [0], [0, 0], b"", CONFIGURATION))


def cut_without_holders(puppet: Puppet) -> None:
    puppet.promise(NEXT)
    puppet.hear(Cut(NEXT, [1, 0], []))


def _installed_with(puppet: Puppet, **changes: object) -> None:
    install = puppet.install_of(puppet.promise(NEXT))
    puppet.hear(replace(install, **changes))


def install_with_a_cut_of_another_length(puppet: Puppet) -> None:
    _installed_with(puppet, cut=[0])


def install_with_a_cut_that_is_not_here(puppet: Puppet) -> None:
    _installed_with(puppet, cut=[1, 0])


def install_without_the_receiver(puppet: Puppet) -> None:
    _installed_with(puppet, members=(A,), previous=(TOGETHER,), values=(b"",))


def install_with_too_few_previous_views(puppet: Puppet) -> None:
    _installed_with(puppet, previous=(TOGETHER,))


def install_with_too_few_values(puppet: Puppet) -> None:
    _installed_with(puppet, values=())


def install_with_stability_of_another_length(puppet: Puppet) -> None:
    """Our own safe message has its place in the order, but a has not acknowledged it."""
    puppet.turn(call=lambda: puppet.replica.cast([b"x"], safe=True))
    puppet.hear(packet(SequencerHeader(safe=False, runs=[(1, 1)])))
    _installed_with(puppet, stable=[])


def order_of_a_rank_that_does_not_exist(puppet: Puppet) -> None:
    puppet.hear(packet(SequencerHeader(safe=False, runs=[(7, 1)])))


def order_of_a_huge_count(puppet: Puppet) -> None:
    puppet.hear(packet(SequencerHeader(safe=False, runs=[(0, HUGE)])))


def two_packets_with_one_number(puppet: Puppet) -> None:
    puppet.hear(
        packet(TokenHeader(safe=False, order=2)), packet(TokenHeader(safe=False, order=2), number=2)
    )


def token_that_wants_packets_of_a_rank_that_does_not_exist(puppet: Puppet) -> None:
    puppet.hear(token(wanted=[(7, 1, 1)]))


ANY = "VSYNC"
DYNSEQ = "DYNSEQ:VSYNC"
TOKEN = "TOKEN:VSYNC"  # noqa: S105 -- the name of a stack

IN_VIEW = [
    Scene(ANY, text_that_is_not_utf8),
    Scene(ANY, vector_with_a_huge_number),
    Scene(ANY, vector_that_has_more_than_we_sent),
    Scene(ANY, packet_with_a_huge_vector),
    Scene(TOKEN, token_that_tells_of_a_huge_number_of_packets),
    Scene(ANY, cut_with_a_huge_number),
    Scene(ANY, view_number_at_the_end_of_its_range),
    Scene(TOKEN, hop_at_the_end_of_its_range),
    Scene(TOKEN, order_at_the_end_of_its_range),
    Scene(ANY, cut_without_holders),
    Scene(ANY, install_with_a_cut_of_another_length),
    Scene(ANY, install_with_a_cut_that_is_not_here),
    Scene(ANY, install_without_the_receiver),
    Scene(ANY, install_with_too_few_previous_views),
    Scene(ANY, install_with_too_few_values),
    Scene(DYNSEQ, install_with_stability_of_another_length),
    Scene(DYNSEQ, order_of_a_rank_that_does_not_exist),
    Scene(DYNSEQ, order_of_a_huge_count),
    Scene(TOKEN, two_packets_with_one_number),
    Scene(TOKEN, token_that_wants_packets_of_a_rank_that_does_not_exist),
]
ALONE = [
    Scene(ANY, flush_with_a_huge_number),
    Scene(ANY, flush_with_a_vector_of_another_length),
    Scene(ANY, flush_with_stability_of_another_length),
]


def name_of(scene: Scene) -> str:
    return scene.story.__name__.replace("_", "-")


@pytest.mark.parametrize("scene", IN_VIEW, ids=name_of)
def test_a_message_in_a_view_does_not_stop_the_process(scene: Scene) -> None:
    puppet = Puppet(scene.stack)
    puppet.join()
    with time_limit(0.15):
        scene.story(puppet)
        puppet.wait(milliseconds(50))


@pytest.mark.parametrize("scene", ALONE, ids=name_of)
def test_an_answer_to_a_proposal_does_not_stop_the_process(scene: Scene) -> None:
    puppet = Puppet(scene.stack)
    puppet.hear()
    with time_limit(0.15):
        scene.story(puppet)
        puppet.wait(milliseconds(50))


def test_a_bad_value_of_another_member_leaves_the_layers_in_one_view() -> None:
    """TOKEN cannot read what some member said, when VSYNC has installed the view already."""
    puppet = Puppet(TOKEN)
    puppet.join()
    install = puppet.install_of(puppet.promise(NEXT))
    own = install.values[1]
    puppet.hear(replace(install, previous=(ViewId(1, "a", 1), TOGETHER), values=(b"\xc1", own)))
    order: Layer = puppet.replica.layers[0]
    assert isinstance(order, OrderLayer)
    assert order.members == puppet.vsync.current.members
    assert puppet.inbox.current is not None
    assert puppet.inbox.current.id == puppet.vsync.current.id


def test_a_stranger_in_a_view_gets_no_frames() -> None:
    """No driver knows the address of a process that is not among the peers."""
    puppet = Puppet("VSYNC")
    puppet.join()
    install = puppet.install_of(puppet.promise(NEXT))
    stranger = Member("stranger", 1)
    puppet.hear(
        replace(
            install,
            members=(A, B, stranger),
            previous=(*install.previous, ViewId(1, "stranger", 1)),
            values=(*install.values, b""),
        )
    )
    puppet.turn(call=lambda: puppet.replica.cast([b"x"]))
    assert {destination for destination, _ in puppet.sent} <= {"a", "c"}


def test_a_refusal_does_not_poison_the_view_numbers() -> None:
    """The next view proposed here would have a number that no message can hold."""
    puppet = Puppet("VSYNC")
    puppet.join()
    puppet.hear(Refuse(NEXT, ViewId(LAST, "a", 1)), Leave(TOGETHER))
    puppet.wait(milliseconds(700))


def test_the_largest_view_number_does_not_poison_the_view_numbers() -> None:
    """The next view proposed here would have a number that nobody accepts, not even ourselves."""
    puppet = Puppet("VSYNC")
    puppet.join()
    puppet.hear(Alive(ViewId(VIEW_LEAP_MAX, "a", 1), (A,), b""))
    puppet.wait(milliseconds(700))


def test_who_has_just_begun_finds_a_group_whose_view_numbers_are_high() -> None:
    """Two damaged words had made them so, and nobody could ever join the group again."""
    puppet = Puppet("VSYNC")
    alive = Alive(ViewId(2 * VIEW_LEAP_MAX, "a", 1), (A, Member("c", 1)), b"")
    puppet.hear(alive)
    assert "process.messages_malformed" not in puppet.process.counters
    puppet.hear(replace(alive, view=ViewId(4 * VIEW_LEAP_MAX, "a", 1)))
    assert puppet.process.counters["process.messages_malformed"] == 1


@pytest.mark.parametrize(
    "view",
    [
        ViewId(VIEW_LEAP_MAX * 2, "a", 1),
        ViewId(2**52 + 1, "a", 1),
        ViewId(9, "b", 1),
        ViewId(9, "a", 2),
        ViewId(9, "zz", 1),
    ],
    ids=str,
)
def test_nobody_promises_itself_to_a_view_that_its_proposer_cannot_mean(view: ViewId) -> None:
    """It would refuse its own later proposals, and fail an assertion or recurse without end."""
    puppet = Puppet("VSYNC")
    puppet.join()
    puppet.hear(Propose(view, (A, B)), Leave(TOGETHER))
    for _ in range(4):
        puppet.wait(milliseconds(700))
    assert puppet.process.counters["process.messages_malformed"] >= 1


def test_a_proposal_that_names_a_replica_twice_is_dropped() -> None:
    puppet = Puppet("VSYNC")
    puppet.join()
    puppet.hear(Propose(ViewId(9, "a", 1), (A, B, Member("b", 2))))
    assert puppet.process.counters["process.messages_malformed"] == 1


def test_a_refusal_for_the_sake_of_an_earlier_view_is_dropped() -> None:
    """Its proposer would try again at once with the same members, again and again in one turn."""
    puppet = Puppet("VSYNC")
    puppet.join()
    puppet.hear(Refuse(ViewId(9, "b", 1), ViewId(8, "a", 1)))
    assert puppet.process.counters["process.messages_malformed"] == 1


def test_a_stranger_in_a_configuration_gets_no_frames() -> None:
    puppet = Puppet("VSYNC")
    puppet.join()
    install = puppet.install_of(puppet.promise(NEXT))
    configuration = Configuration(2, ("b", "stranger"))
    puppet.hear(replace(install, members=(B, A), configuration=configuration))
    for _ in range(20):
        puppet.now += milliseconds(10)
        puppet.hear()
        assert {destination for destination, _ in puppet.sent} <= {"a", "c"}
