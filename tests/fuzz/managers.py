"""Hostile words between the availability manager and the agents of hosts, once the secret is shown.

A damaged manager orders what it never would, and a damaged agent tells it what cannot be. The agent
answers each order, and one step of the manager never raises; what it asks for then can be sent, and
read at the other end. What was believed of a lie is not looked at.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import msgspec
from tests.fuzz.mutations import mutate, put_together, take_apart
from tests.fuzz.tally import Tally
from tests.manager.world import World

from coterie.kernel.errors import Refused
from coterie.manager.instance import CallManagement, Instance, ManagerReply, ManagerSettings
from coterie.manager.orders import (
    AdmitReplica,
    AgentAnswer,
    DismissReplica,
    GroupMembers,
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
from coterie.manager.policy import GroupPolicy, HostPolicy, Policy
from coterie.service.manage.agent_config import AgentConfig
from coterie.service.manage.channel import (
    FRAME_BYTES_MAX,
    AgentReply,
    AgentRequest,
    _encode,
    _from_agent,
    _from_manager,
)
from coterie.service.manage.host_agent import HostAgent
from coterie.service.manage.keeping import AgentDisk, KeptReplica

if TYPE_CHECKING:
    from coterie.manager.instance import ManagerAsk
    from coterie.manager.orders import AgentOrder
    from coterie.protocol.messages import Report

HOSTS = ("h1", "h2", "h3")
LIFE = "life"
PERMIT = Permit(3, LIFE, 1e12)
STEP = 0.25
POLICY = Policy(
    number=1,
    hosts={host: HostPolicy(agent=f"10.0.0.{number}:1") for number, host in enumerate(HOSTS, 1)},
    groups={
        "g": GroupPolicy(class_="m:C", replicas=2, spread=("zone",), replace_after=5.0),
        "k": GroupPolicy(class_="m:C", replicas=3, prefer=("h2",)),
    },
    changes_per_hour=100_000,
)


# ---- orders, to an agent


class _Disk(AgentDisk):
    """Keeps all but the files of replicas in memory."""

    def keep_fence(self, fence: int) -> None:
        del fence  # another order may come

    def _write(self, state: object) -> None:
        self._state = state  # type: ignore[assignment]

    def _write_secret(self, path: Path, of: str) -> None:
        del of
        assert path.parent.parent == self.root / "secrets", f"a secret outside: {path}"

    def _found(self, config: object, replica: KeptReplica) -> None:
        del config, replica


class _Agent(HostAgent):
    """Starts no processes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            AgentConfig(host="h1", listen="127.0.0.1:1", dir=str(folder), secret_file="s")  # noqa: S106 -- a path
        )
        self._disk = _Disk(self.config, b"5" * 32)
        self.turnstile = Turnstile(LIFE, 1)
        for id in ("g-1", "g-2"):
            self._disk.keep(KeptReplica(group="g", id=id, peers="h:1", clients="h:2"))

    def _keep(self, id: str) -> None:
        assert Path(self.command(id)[-3]).parent.parent == self._disk.root / "replicas", id

    async def _ask(self, replica: KeptReplica) -> Report:
        raise Refused(f"{replica.id} is not there")


def _orders() -> list[AgentRequest]:
    place = ReplicaPlace("g-3", "10.0.0.2:1", "10.0.0.2:2")
    settings: dict[str, str | int] = {
        "class": "m:C",
        "engine": "stack",
        "stack": "SAFE:TOKEN:PVSYNC",
        "sync": "turn",
        "dump_interval": 5,
    }
    orders: tuple[AgentOrder, ...] = (
        LookAround(PERMIT, {"g": ("g-1", "g-2", "g-3")}),
        PlaceReplica(PERMIT, "g", "g-4"),
        StartReplica(PERMIT, "g", "g-1", founds=True, others=(place,), settings=settings),
        AdmitReplica(PERMIT, "g", place, 7),
        DismissReplica(PERMIT, "g", "g-1", 7),
        StopReplica(PERMIT, "g", "g-2"),
    )
    return [AgentRequest(number, order) for number, order in enumerate(orders, 1)]


async def _give_orders(random: Random, inputs: int, tally: Tally) -> None:
    templates = [take_apart(_encode(each)) for each in _orders()]
    with tempfile.TemporaryDirectory() as folder:
        agent = _Agent(Path(folder) / "first")
        for number in range(inputs):
            if number % 200 == 199:
                agent = _Agent(Path(folder) / str(number))
            body = wrong(random.choice(templates), random)
            tally.inputs += 1
            try:
                request = _from_manager.decode(body)
            except msgspec.DecodeError:
                tally.outcomes["not read"] += 1
                continue
            if not isinstance(request, AgentRequest):
                continue
            answer = await agent.obey(request.order)
            agent.turnstile.fence = 1
            _read_answer(_encode(AgentReply(request.number, answer)))
            tally.outcomes["refused" if answer.refusal else "obeyed"] += 1


def wrong(template: object, random: Random) -> bytes:
    """Give a message with something wrong inside."""
    whole = take_apart(put_together(template))
    return put_together(mutate(whole, random, changes=random.choice((1, 1, 1, 2, 3))))


def _read_answer(body: bytes) -> None:
    assert len(body) < FRAME_BYTES_MAX, "the answer fits into no frame"
    _from_agent.decode(body)


# ---- answers, to a manager


class _Managed:
    """An instance of the manager that acts, and hosts that tell it the truth."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.world = World(random, len(HOSTS))
        self.world.call("want", (POLICY,))
        self.instance = Instance("one", ManagerSettings(look_seconds=STEP))
        self._replies: list[ManagerReply] = []

    def step(self) -> list[tuple[int, bytes]]:
        """Have it take what came back; give what agents answer to what it asks for now."""
        world = self.world
        world.run_until(world.now + STEP)
        replies, self._replies = self._replies, []
        answers = []
        for asked in self.instance.step(world.now, replies):
            if isinstance(asked.what, CallManagement):
                answer = world.call(asked.what.method, asked.what.arguments)
                self._replies.append(ManagerReply(asked.number, answer))
            else:
                answers.append((asked.number, self._obey(asked)))
        return answers

    def _obey(self, asked: ManagerAsk) -> bytes:
        assert not isinstance(asked.what, CallManagement)
        request = _from_manager.decode(_encode(AgentRequest(asked.number, asked.what)))
        assert isinstance(request, AgentRequest), "what is asked for can be read"
        answer = self.world.obey(self.world.hosts[asked.host], request.order)
        return _encode(AgentReply(asked.number, answer))

    def take(self, number: int, body: bytes) -> str:
        """Have it take what an agent says of an order; say in a word what came of it."""
        try:
            reply = _from_agent.decode(body)
        except msgspec.DecodeError:
            reply = None
        answer = reply.answer if isinstance(reply, AgentReply) else None
        self._replies.append(ManagerReply(number, answer))
        return "not read" if answer is None else "believed"


def _tell(random: Random, inputs: int, tally: Tally) -> None:
    managed = _Managed(random)
    for _ in range(80):  # by now it acts, and there are groups
        for number, body in managed.step():
            managed.take(number, body)
    assert managed.world.groups.keys() == POLICY.groups.keys()
    made_up = _encode(_made_up())
    told = 0
    while told < inputs:
        for number, body in managed.step():
            told += 1
            tally.inputs += 1
            template = take_apart(made_up if random.random() < 0.3 else body)
            tally.outcomes[managed.take(number, wrong(template, random))] += 1


def _made_up() -> AgentReply:
    """Give an answer with everything in it."""
    replica = ReplicaReport(
        group="g",
        id="g-1",
        state="running",
        reason="killed",
        place=ReplicaPlace("g-1", "h:1", "h:2"),
        role="primary",
        is_primary=True,
        in_view=("g-1", "g-2"),
        position=7,
        configuration=GroupMembers(9, ("g-1", "g-2"), ("g-3",), ("g-1",), ("g-0",)),
        knows=("g-2",),
        trouble="none",
    )
    report = HostReport(
        host="h1", life=LIFE, at=5.0, labels={"zone": "a"}, load=0.5, replicas=(replica, replica)
    )
    return AgentReply(1, AgentAnswer(refusal="no", report=report))


def fuzz(seed: int, inputs: int) -> Tally:
    """Give an agent wrong orders, and a manager wrong answers."""
    random = Random(f"{seed}/managers")  # noqa: S311 -- reproducible on purpose
    tally = Tally()
    asyncio.run(_give_orders(random, inputs // 2, tally))
    _tell(random, inputs - tally.inputs, tally)
    return tally
