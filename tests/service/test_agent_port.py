"""Strangers and damaged managers at the port of an agent."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack
from random import Random
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests import idle_time
from tests.fuzz.mutations import mutate, put_together, take_apart
from tests.patience import PATIENCE
from tests.runtime.test_listening import until

from coterie.kernel.errors import CoterieError, Refused
from coterie.manager.orders import (
    LISTED_MAX,
    AgentAnswer,
    HostReport,
    LookAround,
    Permit,
    PlaceReplica,
    ReplicaPlace,
    ReplicaReport,
    StartReplica,
    StopReplica,
    Turnstile,
)
from coterie.runtime.address import Address
from coterie.runtime.loop import run
from coterie.service.manage.agent_config import AgentConfig
from coterie.service.manage.channel import (
    _FRAMING,
    CONNECTIONS_MAX,
    FRAME_BYTES_MAX,
    AgentLink,
    AgentPort,
    AgentReply,
    ManagerHello,
    NoAgent,
    _encode,
    _from_agent,
)
from coterie.service.manage.host_agent import HostAgent
from coterie.service.manage.keeping import STATE, AgentDisk, KeptReplica
from coterie.service.operate.founding import free_port

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from coterie.manager.orders import AgentOrder

SECRET = b"a secret of some length"


async def obey(order: AgentOrder) -> AgentAnswer:
    return AgentAnswer(refusal=type(order).__name__)


def tell(story: Callable[[AgentPort, Address], Awaitable[None]]) -> None:
    """Run a story with a port, and see to it that a manager is served afterwards."""

    async def begin() -> None:
        port = AgentPort("h1", [SECRET], obey)
        with ExitStack() as held:
            address = Address("127.0.0.1", free_port(held))
        async with port.listening(address):
            await story(port, address)
            link = AgentLink("h1", address, SECRET)
            answer = await link.ask(LookAround(Permit(1)), seconds=PATIENCE)
            assert answer.refusal == "LookAround"
            await link.close()

    run(begin())


def test_a_silent_crowd_keeps_no_manager_out() -> None:
    """Whoever opened as many connections as there may be, again and again, was alone there."""

    async def story(port: AgentPort, address: Address) -> None:
        crowd = [
            await asyncio.open_connection(address.host, address.port)
            for _ in range(2 * CONNECTIONS_MAX)
        ]
        link = AgentLink("h1", address, SECRET)
        answer = await link.ask(LookAround(Permit(1)), seconds=PATIENCE)
        assert answer.refusal == "LookAround"
        assert port.events.counters["too_many"] >= CONNECTIONS_MAX
        for _, writer in crowd:
            writer.close()
        await link.close()

    tell(story)


def test_strangers_cost_no_memory() -> None:
    """Each connection comes from another port, and each port was remembered for good."""

    async def story(port: AgentPort, address: Address) -> None:
        for number in range(60):
            with socket.create_connection((address.host, address.port)) as each:
                each.sendall(b"what is this? " * number)
                each.setblocking(False)  # noqa: FBT003
                await asyncio.sleep(0)
        await until(lambda: sum(port.events.counters.values()) >= 50)
        assert len(port.events._logged_at) < 5

    tell(story)


def test_wrong_greetings_and_orders_end_a_connection_alone() -> None:
    random = Random(7)  # noqa: S311 -- reproducible on purpose
    hello = msgspec.msgpack.encode(ManagerHello("h1", b"n" * 16))

    async def story(port: AgentPort, address: Address) -> None:
        for _ in range(100):
            body = put_together(mutate(take_apart(hello), random, changes=2))
            reader, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(_FRAMING.encode(body))
            writer.write_eof()
            async with asyncio.timeout(PATIENCE):
                await reader.read()
            writer.close()
        assert port.events.counters.keys() <= {"malformed", "broken_off", "wrong_secret", "ended"}

    tell(story)


@pytest.mark.parametrize("name", ["../x", "", "a/b", "a\nb", "x" * 100])
def test_names_of_replicas_are_no_paths(tmp_path: Path, name: str) -> None:
    config = AgentConfig(
        host="h1", listen="127.0.0.1:1", dir=str(tmp_path), secret_file=str(tmp_path / "secret")
    )
    disk = AgentDisk(config, SECRET)
    with pytest.raises(Refused, match="is no name"):
        disk.place("group", name)
    with pytest.raises(Refused, match="is no name"):
        disk.place(name, "group-1")


def test_a_manager_that_says_nothing_more_gives_its_place_back() -> None:
    """One whose machine was lost kept it for good, and after 32 of them nobody was let in."""

    async def story() -> None:
        port = AgentPort("h1", [SECRET], obey, silent_max=0.3)
        with ExitStack() as held:
            address = Address("127.0.0.1", free_port(held))
        async with port.listening(address):
            links = [AgentLink("h1", address, SECRET) for _ in range(CONNECTIONS_MAX)]
            for link in links:
                await link.ask(LookAround(Permit(1)), seconds=PATIENCE)
            await until(lambda: port.events.counters.get("broken_off") == CONNECTIONS_MAX)
            for link in links:  # each opens another connection when it is needed
                await link.ask(LookAround(Permit(1)), seconds=PATIENCE)
                await link.close()

    idle_time.run(story())


def test_an_order_that_was_begun_is_carried_out_though_nobody_waits_for_it() -> None:
    """It was cancelled with the connection: half of stopping a process left it running for good."""
    begun, go_on, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow(order: AgentOrder) -> AgentAnswer:
        if isinstance(order, StopReplica):
            begun.set()
            await go_on.wait()
            done.set()
        return AgentAnswer()

    async def story() -> None:
        port = AgentPort("h1", [SECRET], slow)
        with ExitStack() as held:
            address = Address("127.0.0.1", free_port(held))
        async with port.listening(address):
            link = AgentLink("h1", address, SECRET)
            asking = asyncio.ensure_future(
                link.ask(StopReplica(Permit(1), "g", "g-1"), seconds=PATIENCE)
            )
            await begun.wait()
            await link.close()
            await until(lambda: not port._connections)
            go_on.set()
            async with asyncio.timeout(PATIENCE):
                await done.wait()
            asking.cancel()
            await asyncio.wait([asking])

    run(story())


def test_an_agent_that_cannot_be_understood_is_hung_up_on() -> None:
    """The manager opened another connection with each question, and kept those before."""

    async def wrong(order: AgentOrder) -> AgentAnswer:
        del order
        report = HostReport(host="h1", life="l", at=float("nan"))
        return AgentAnswer(report=report)

    async def story() -> None:
        port = AgentPort("h1", [SECRET], wrong)
        with ExitStack() as held:
            address = Address("127.0.0.1", free_port(held))
        async with port.listening(address):
            link = AgentLink("h1", address, SECRET)
            with pytest.raises(NoAgent):
                await link.ask(LookAround(Permit(1)), seconds=PATIENCE)
            await until(lambda: not port._connections)
            await link.close()

    run(story())


def agent_in(folder: Path) -> HostAgent:
    """Give an agent that has lived on this disk, and has not begun to listen."""
    config = AgentConfig(
        host="h1", listen="127.0.0.1:1", dir=str(folder), secret_file=str(folder / "secret")
    )
    agent = HostAgent(config)
    agent._disk = AgentDisk(config, SECRET)
    agent.turnstile = Turnstile("life", 1)
    return agent


PERMIT = Permit(1, "life", 1e12)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"sync": "always"}, "says of g what no replica can be: Invalid enum value 'always'"),
        ({"colour": "red"}, "unknown field `colour`"),
        ({"dump_interval": "often"}, "Expected `int`, got `str`"),
        ({"engine": "steam"}, "steam"),
    ],
)
def test_a_policy_that_no_replica_can_keep_is_said_to_be_one(
    tmp_path: Path, settings: dict[str, str | int], reason: str
) -> None:
    """What it says of a group is read where a replica of it starts."""
    agent = agent_in(tmp_path)
    agent._disk.keep(KeptReplica(group="g", id="g-1", peers="h:1", clients="h:2"))
    order = StartReplica(
        PERMIT, "g", "g-1", founds=True, others=(), settings={"class": "m:C", **settings}
    )
    answer = run(agent.obey(order))
    assert reason in answer.refusal
    assert agent._disk.replicas["g-1"].state == "placed"


def test_a_disk_that_fails_is_an_answer(tmp_path: Path) -> None:
    agent = agent_in(tmp_path)
    agent._disk._write = _fail  # type: ignore[method-assign]
    for order in (LookAround(Permit(2)), PlaceReplica(PERMIT, "g", "g-1")):
        assert "no room" in run(agent.obey(order)).refusal


def _fail(state: object) -> None:
    del state
    raise OSError("no room")


def test_all_that_ever_were_on_a_host_fit_into_its_answer(tmp_path: Path) -> None:
    """After some thousands the answer was larger than a frame, and the host was never reached."""
    agent = agent_in(tmp_path)
    id = "a-group-with-a-name-of-some-length"
    there = KeptReplica(group=id, id=f"{id}-1", peers="h:1", clients="h:2", state="started")
    many = {
        f"{id}-{number}": KeptReplica(
            group=id, id=f"{id}-{number}", peers="h:1", clients="h:2", state="stopped"
        )
        for number in range(2, 20_000)
    }
    agent._disk._state = msgspec.structs.replace(
        agent._disk._state, replicas={there.id: there, **many}
    )
    answer = run(agent.obey(LookAround(Permit(1))))
    body = _encode(AgentReply(1, answer))
    assert len(body) < FRAME_BYTES_MAX // 2
    _from_agent.decode(body)
    assert answer.report is not None
    assert answer.report.find(there.id) is not None
    assert answer.report.find(f"{id}-19999") is not None


def reply(**parts: object) -> bytes:
    """Give the answer of an agent, as bytes."""
    report = HostReport(**{"host": "h1", "life": "l", "at": 1.0, **parts})  # type: ignore[arg-type]
    return _encode(AgentReply(1, AgentAnswer(report=report)))


REPLICA = ReplicaReport(group="g", id="g-1", state="x", place=ReplicaPlace("g-1", "h:1", "h:2"))


@pytest.mark.parametrize(
    "body",
    [
        reply(load=float("inf")),
        reply(load=float("nan")),
        reply(at=float("nan")),
        reply(at=-1.0),
        reply(replicas=(REPLICA,) * (LISTED_MAX + 1)),
        reply(replicas=(msgspec.structs.replace(REPLICA, in_view=("a",) * 2000),)),
        reply(labels={str(number): "" for number in range(LISTED_MAX + 1)}),
    ],
    ids=["endless load", "no load", "no time", "before all time", "replicas", "view", "labels"],
)
def test_what_no_agent_tells_is_not_believed(body: bytes) -> None:
    """A load that was none ended the manager; lists were compared with each other for hours."""
    _from_agent.decode(reply())
    with pytest.raises(msgspec.DecodeError):
        _from_agent.decode(body)


@pytest.mark.parametrize(
    "replica",
    [
        {"group": "g", "id": "../x", "peers": "h:1", "clients": "h:2"},
        {"group": "../g", "id": "g-1", "peers": "h:1", "clients": "h:2"},
        {"group": "g", "id": "g-1", "peers": "nowhere", "clients": "h:2"},
    ],
)
def test_what_an_agent_keeps_is_read_as_what_others_say(
    tmp_path: Path, replica: dict[str, str]
) -> None:
    (tmp_path / STATE).write_bytes(
        msgspec.json.encode({"fence": 1, "replicas": {replica["id"]: replica}})
    )
    with pytest.raises(CoterieError):
        agent_in(tmp_path)
