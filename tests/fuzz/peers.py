"""Hostile peers: frames of a real group with something wrong inside, given to its replicas.

A peer that is who it says it is sends what it never would. Whatever it sends, no turn may raise,
and when it has stopped the group must become whole again without a restart, or say who has to begin
anew. What the group holds
then is not looked at: who lies in well-formed words can say false things about the history, and
no promise covers that (`docs/use/guarantees.md`).
"""

from __future__ import annotations

from collections import Counter, deque
from random import Random
from typing import TYPE_CHECKING, cast

from tests.fuzz.mutations import body_of, mutate, put_together, reframe, take_apart
from tests.fuzz.tally import Tally

from coterie.colours.layer import Colours
from coterie.kernel.clock import milliseconds, seconds
from coterie.simulation import Simulation

if TYPE_CHECKING:
    from coterie.simulation import Group

STACKS = ("VSYNC", "DYNSEQ:VSYNC", "TOKEN:VSYNC", "PVSYNC", "DYNSEQ:PVSYNC", "SAFE:TOKEN:PVSYNC")
COLOURS = ("COLOURS:DYNSEQ:VSYNC", "COLOURS:TOKEN:VSYNC")
PAUSES = (0, 0, 0, 1, 1, 1, 2, 5, 30)
"""How many milliseconds pass between two wrong frames."""
INPUTS_A_RUN = 600
"""After so many the group must be whole again, and another one begins."""


def fuzz(stack: str, seed: int, inputs: int = INPUTS_A_RUN) -> None:
    """Give a group wrong frames; raise what a turn raises, or say that it stays apart."""
    random = Random(f"{seed}/hostile")  # noqa: S311 -- reproducible on purpose
    simulation = Simulation(seed=seed, stack=stack)
    group = simulation.group("a", "b", "c")
    seen: deque[tuple[str, bytes]] = deque(maxlen=300)
    note_frame = simulation.note_frame

    def keep(source: str, destination: str, frame: bytes) -> None:
        seen.append((destination, frame))
        note_frame(source, destination, frame)

    simulation.note_frame = keep  # type: ignore[method-assign]
    simulation.run(seconds(1))
    for number in range(inputs):
        if number % 7 == 0:
            host = random.choice(list(group))
            work = host.propose if simulation.has_engine else host.cast
            work(b"%d" % number)
        destination, frame = random.choice(seen)
        group[destination].take(wrong(frame, random))
        simulation.run(milliseconds(random.choice(PAUSES)))

    def is_over() -> bool:
        return is_whole(group) or orders_differ(group)

    assert simulation.run_until(is_over, within=seconds(60)), (
        f"after {inputs} wrong frames {stack} does not become whole again: "
        f"{[(host.id, host.place) for host in group]}; seed {seed}"
    )


def wrong(frame: bytes, random: Random, *, has_actions: bool = False) -> bytes:
    """Give a frame with something wrong inside, from who it says it is from.

    Another name or another life does not pass the transport, which knows whom it speaks with.
    """
    body = take_apart(body_of(frame), has_actions=has_actions)
    sender = cast("list[object]", body)[:2]
    body = mutate(body, random, changes=random.choice((1, 1, 1, 2, 3)))
    if isinstance(body, list) and len(body) > 1:
        body[:2] = sender
    return reframe(frame, put_together(body))


def is_whole(group: Group) -> bool:
    """Say whether all replicas are in one view of all of them."""
    places = [host.place for host in group]
    first = places[0]
    return first is not None and len(first[1]) == len(places) and places.count(first) == len(places)


def servers(group: Group) -> list[Colours]:
    """Give the servers of a group over a partitioned network that are up."""
    tops = [host.replica.layers[0] for host in group if host.replica is not None]
    return [top for top in tops if isinstance(top, Colours)]


def orders_differ(group: Group) -> bool:
    """Say whether all know who has made other actions green: nothing but an empty folder cures it.

    That is the one lie of this kind that blocks, since what is green is never taken back.
    """
    found = servers(group)
    return bool(found) and all("has made other actions green" in each.why for each in found)


def run(stacks: tuple[str, ...], seed: int, inputs: int) -> Tally:
    """Fuzz the stack that is the seed's turn."""
    stack = stacks[seed % len(stacks)]
    fuzz(stack, seed, inputs)
    return Tally(inputs, Counter({stack: inputs}))
