"""Hostile peers of an object: wrong frames, with wrong commands inside them, while clients call.

What is ordered is executed by all, so a command that makes no sense must fail alike everywhere. A
lie in well-formed words may still leave one replica with another state than the others: it finds
out by the digests, and stops (decision 71). Then the run is over.
"""

from __future__ import annotations

from collections import Counter, deque
from random import Random
from typing import TYPE_CHECKING

from tests.fuzz.peers import (
    CHANGE_EVERY,
    PAUSES,
    change_members,
    is_whole,
    members_differ,
    orders_differ,
    wrong,
)
from tests.fuzz.tally import Tally

from coterie.kernel.clock import milliseconds, seconds
from coterie.kernel.errors import ReplicaBroken
from coterie.objects.execution.outcomes import Opened
from coterie.simulation import Simulation
from coterie.simulation.engines.servers.trial import ServerSimulation

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.objects import Answer, ObjectHost
    from coterie.simulation import Group

OBJECTS = (
    ("SAFE:DYNSEQ:PVSYNC", "dictionary"),
    ("ONUS:SAFE:DYNSEQ:PVSYNC", "queue"),
    ("COLOURS:DYNSEQ:VSYNC", "dictionary"),
    ("DYNSEQ:PVSYNC", "locks"),
    ("ONUS:SAFE:TOKEN:PVSYNC", "counter"),
    ("PVSYNC", "counter"),
)


class Callers:
    """Call a group now and then, and do not care what is answered."""

    def __init__(self, group: Group, random: Random) -> None:
        self._group = group
        self._random = random
        self._kind = group.clients.kind
        self._sessions = [1]
        self._number = 0
        group.clients.answered = self._answered  # type: ignore[method-assign]

    def _answered(self, answer: Answer) -> None:
        if isinstance(answer.outcome, Opened):
            self._sessions.append(answer.outcome.session)

    def call(self) -> None:
        """Have something done at one of the replicas."""
        random = self._random
        self._number += 1
        use = self._kind.draw(random, str(self._number))
        arguments = self._kind.definition.method(use.method).encode(use.arguments, {})
        session, number = random.choice(self._sessions), self._number

        def call(host: ObjectHost) -> None:
            if use.method in self._kind.definition.updates:
                host.call(session, number, use.method, arguments, 0)

        def request(host: ObjectHost) -> None:
            host.request(random.randrange(1, 4), number, use.method, arguments, relay=True)

        asks: list[Callable[[ObjectHost], None]] = [lambda host: host.open_session(number), call]
        if "ONUS" in self._group.simulation.stack:
            asks.append(request)
        random.choice(list(self._group)).ask(random.choice(asks))


def fuzz(stack: str, kind: str, seed: int, inputs: int, *, has_changes: bool = False) -> str:
    """Give a group that serves an object wrong frames; say in a word how it ended."""
    random = Random(f"{seed}/objects")  # noqa: S311 -- reproducible on purpose
    world = ServerSimulation if "ONUS" in stack else Simulation
    simulation = world(seed=seed, stack=stack, has_object=True, object_kind=kind)
    group = simulation.group("a", "b", "c")
    seen: deque[tuple[str, bytes]] = deque(maxlen=300)
    note_frame = simulation.note_frame

    def keep(source: str, destination: str, frame: bytes) -> None:
        seen.append((destination, frame))
        note_frame(source, destination, frame)

    simulation.note_frame = keep  # type: ignore[method-assign]
    simulation.run(seconds(1))
    callers = Callers(group, random)
    try:
        for number in range(inputs):
            if has_changes and number % CHANGE_EVERY == 0:
                change_members(group, random)
            if number % 5 == 0:
                callers.call()
            destination, frame = random.choice(seen)
            group[destination].take(wrong(frame, random, has_actions="COLOURS" in stack))
            simulation.run(milliseconds(random.choice(PAUSES)))
        is_over = simulation.run_until(
            lambda: is_whole(group) or orders_differ(group), within=seconds(60)
        )
    except ReplicaBroken:
        return "strayed, and stopped"
    assert is_over or members_differ(group), (
        f"after {inputs} wrong frames {stack} with a {kind} does not become whole again: "
        f"{[(host.id, host.place) for host in group]}; seed {seed}"
    )
    return "whole"


def run(seed: int, inputs: int) -> Tally:
    """Fuzz the object that is the seed's turn."""
    stack, kind = OBJECTS[seed % len(OBJECTS)]
    has_changes = bool(seed // len(OBJECTS) % 2)
    outcome = fuzz(stack, kind, seed, inputs, has_changes=has_changes)
    return Tally(inputs, Counter({outcome: inputs}))
