"""Objects section 7: the paper's interface, sentence by sentence, and its example."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.objects.paper_system import FakeSystem

from coterie.kernel.engine import Run, Standing
from coterie.kernel.views import Member, ViewId
from coterie.objects.errors import BadSnapshot, NotPrimary, TransferUnfinished
from coterie.objects.paper import Client, ObjectReplica

if TYPE_CHECKING:
    from collections.abc import Iterator


def load_example() -> Any:  # noqa: ANN401 -- a program outside any package
    path = Path(__file__).parent.parent.parent / "examples" / "replicated_value.py"
    spec = importlib.util.spec_from_file_location("replicated_value", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


EXAMPLE = load_example()


class Diary(ObjectReplica):
    """Writes down everything it is told; its state is the messages, in two portions."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[bytes] = []
        self.told: list[tuple[object, ...]] = []
        self.asks = [b"even", b"odd"]

    def view_callback(self, members: tuple[Member, ...], primary: bool) -> None:  # noqa: FBT001
        self.told.append(("view", "".join(member.id for member in members), primary))

    def multicast_callback(self, origin: Member, message: bytes, safe: bool) -> None:  # noqa: FBT001
        self.messages.append(message)
        self.told.append(("message", origin.id, message, safe))
        if message.startswith(b"answer"):
            self.reply_to_client("client", message)

    def safe_callback(self, origin: Member, nsafe: int) -> None:
        self.told.append(("safe", origin.id, nsafe))

    def client_request_callback(self, client: str, request: bytes) -> None:
        self.told.append(("request", client, request))
        self.multicast(request)

    def state_requests(self) -> tuple[bytes, ...]:
        return (b"even", b"odd")

    def state_transfer_callback(self, transfer: int) -> None:
        self.told.append(("transfer",))
        self.received: dict[int, bytes] = {}
        for request in self.asks:
            self.request_state(transfer, request)
        self.messages = [self.received[index] for index in sorted(self.received)]
        self.state_transfer_done(transfer)

    def state_request_callback(self, origin: Member, transfer: int, request: bytes) -> None:
        for index, message in enumerate(self.messages):
            if index % 2 == (request == b"odd"):
                self.send_state(origin, transfer, bytes([index]) + message)

    def receive_state_callback(self, origin: Member, transfer: int, state: bytes) -> None:
        del origin, transfer
        self.received[state[0]] = state[1:]

    def state_transfer_terminated_callback(self, transfer: int) -> None:
        del transfer
        self.told.append(("terminated",))


class Listener(Client):
    def __init__(self, system: FakeSystem) -> None:
        super().__init__(system, "client")
        self.replies: list[tuple[str, bytes]] = []

    def receive_reply_callback(self, origin: Member, reply: bytes) -> None:
        self.replies.append((origin.id, reply))


def diaries(system: FakeSystem, count: int = 3, *, optimistic: bool = False) -> list[Diary]:
    made = [Diary() for _ in range(count)]
    for diary in made:
        diary.join(system, optimistic=optimistic, max_group_size=5)
    return made


def test_7_1_members_hear_of_views_and_whether_they_are_primary() -> None:
    system = FakeSystem()
    one, two, _three = diaries(system)
    two.leave()
    assert [told for told in one.told if told[0] == "view"] == [
        ("view", "a", True),
        ("view", "ab", True),
        ("view", "abc", True),
        ("view", "ac", True),
    ]


def test_7_1_updates_may_be_begun_in_a_primary_view_only() -> None:
    system = FakeSystem()
    one, *_ = diaries(system)
    system.is_primary = False
    system.tell_views()
    assert one.told[-1] == ("view", "abc", False)
    with pytest.raises(NotPrimary):
        one.multicast(b"x")


def test_7_2_globally_safe_messages_are_delivered_when_they_are_safe() -> None:
    system = FakeSystem()
    one, two, _ = diaries(system)
    two.multicast(b"x")
    system.work()
    assert one.told[-1] == ("message", "b", b"x", True)
    assert not [told for told in one.told if told[0] == "safe"]


def test_7_2_optimistic_messages_become_safe_later_and_are_counted() -> None:
    system = FakeSystem()
    one, two, three = diaries(system, optimistic=True)
    for message in (b"x", b"y"):
        two.multicast(message)
    three.multicast(b"z")
    system.work()
    assert [told for told in one.told if told[0] != "view"][-3:] == [
        ("message", "b", b"x", False),
        ("message", "b", b"y", False),
        ("message", "c", b"z", False),
    ]
    system.settle(1)
    assert one.told[-1] == ("safe", "b", 1)
    system.settle(3)
    assert one.told[-2:] == [("safe", "b", 2), ("safe", "c", 1)]


def test_what_is_not_primary_is_not_handed_to_the_object() -> None:
    diary = Diary()
    run = Run(ViewId(1, "a", 1), 0, 0, Member("a", 1), 1, [b"x"])
    diary.deliver([run], Standing.NON_PRIMARY)
    assert diary.messages == []


def test_7_3_a_request_reaches_one_replica_and_its_reply_the_client() -> None:
    system = FakeSystem()
    one, two, _ = diaries(system)
    listener = Listener(system)
    system.ask_at = 1
    listener.send_request(b"answer me")
    system.work()
    assert ("request", "client", b"answer me") in two.told
    assert ("request", "client", b"answer me") not in one.told
    # Relayed to all, and all answer: the client may count a majority of equal replies.
    assert sorted(listener.replies) == [(id, b"answer me") for id in "abc"]


def test_7_4_a_newcomer_asks_for_the_portions_of_the_state_it_wants() -> None:
    system = FakeSystem()
    one, *_ = diaries(system)
    for message in (b"p", b"q", b"r"):
        one.multicast(message)
    system.work()
    newcomer = Diary()
    newcomer.join(system, optimistic=False, max_group_size=5)
    system.work()
    assert newcomer.messages == one.messages
    half = Diary()
    half.asks = [b"odd"]
    half.join(system, optimistic=False, max_group_size=5)
    system.work()
    assert half.messages == [b"q"]


def test_7_4_a_transfer_that_breaks_off_is_terminated_and_nothing_was_received() -> None:
    system = FakeSystem()
    one, *_ = diaries(system)
    one.multicast(b"p")
    system.work()
    whole = b"".join(one.snapshot())
    newcomer = Diary()

    def breaking_off() -> Iterator[bytes]:
        yield whole[:5]
        raise ConnectionError("partitioned")

    for chunks, error in [
        (breaking_off(), ConnectionError),
        (iter([whole[:5]]), BadSnapshot),
    ]:
        with pytest.raises(error):
            newcomer.restore(chunks, 1)
        assert newcomer.told[-2:] == [("transfer",), ("terminated",)]
        assert newcomer.messages == []
    newcomer.asks = [b"prime"]
    with pytest.raises(BadSnapshot, match="was not asked for b'prime'"):
        newcomer.restore([whole], 1)


def test_7_4_an_object_must_say_that_it_is_done() -> None:
    class Forgetful(ObjectReplica):
        pass

    with pytest.raises(TransferUnfinished, match="Forgetful did not call state_transfer_done"):
        Forgetful().restore([b"\x90"], 1)


def test_5_2_what_is_rolled_back_is_taken_from_the_twin_and_nobody_is_answered_twice() -> None:
    system = FakeSystem()
    one, two, _ = diaries(system, optimistic=True)
    listener = Listener(system)
    for message in (b"answer 1", b"answer 2", b"answer 3", b"answer 4"):
        listener.send_request(message)
        system.work()
    system.settle(2)
    replies = list(listener.replies)
    system.roll_back(3)
    assert one.messages == two.messages == [b"answer 1", b"answer 2", b"answer 3"]
    assert listener.replies == replies
    two.multicast(b"after")
    system.work()
    assert one.messages[3:] == [b"after"]
    # A newcomer gets what is settled, then the rest.
    newcomer = Diary()
    newcomer.join(system, optimistic=True, max_group_size=5)
    system.work()
    assert newcomer.messages == one.messages
    assert newcomer.told[1:3] == [("transfer",), ("message", "a", b"answer 3", False)]
    with pytest.raises(AssertionError, match="what is safe is never rolled back"):
        one.roll_back(1)


def test_7_5_the_example_of_the_paper() -> None:
    """Figures 9 and 10."""
    system = FakeSystem()
    assert EXAMPLE.demonstrate(system, system.work) == 42
    late = EXAMPLE.ValueReplica()
    late.join(system, optimistic=False, max_group_size=4)
    system.work()
    assert late.state == 42
    # "When an object receives a read request it can reply immediately with the local value."
    reader = EXAMPLE.ValueClient(system, "late")
    system.ask_at = 3
    assert reader.read().result(timeout=0) == 42
