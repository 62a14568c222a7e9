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
CHANGE_EVERY = 60
"""Where members change, one comes or goes after so many."""


def fuzz(stack: str, seed: int, inputs: int = INPUTS_A_RUN, *, has_changes: bool = False) -> str:
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
        if has_changes and number % CHANGE_EVERY == 0:
            change_members(group, random)
        if number % 7 == 0:
            host = random.choice(list(group))
            work = host.propose if simulation.has_engine else host.cast
            work(b"%d" % number)
        destination, frame = random.choice(seen)
        group[destination].take(wrong(frame, random))
        simulation.run(milliseconds(random.choice(PAUSES)))

    def is_over() -> bool:
        return is_whole(group) or orders_differ(group)

    assert simulation.run_until(is_over, within=seconds(60)) or members_differ(group), (
        f"after {inputs} wrong frames {stack} does not become whole again: "
        f"{[(host.id, host.place) for host in group]}; seed {seed}"
    )
    return f"{stack}, members change" if has_changes else stack


def change_members(group: Group, random: Random) -> None:
    """Have a replica come or go, if that is known there."""
    if group.can_change_members:
        random.choice((group.join, group.dismiss))(random)


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


def members_differ(group: Group) -> bool:
    """Say whether somebody believes in members that no history tells of, or histories differ.

    A made-up configuration with a high number is looked for until the group has changed so often; a
    packet with another change in it may have come to one replica alone. Both are lies in words
    that are well-formed, and an empty folder cures them.
    """
    seen = [host.ledger.status for host in group if host.ledger is not None]
    told = [
        each.configuration for each in seen if each is not None and each.configuration is not None
    ]
    found = {each.number: each for each in told}
    return any(found[each.number] != each for each in told) or any(
        found.get(host.configuration.number) != host.configuration for host in group
    )


def run(stacks: tuple[str, ...], seed: int, inputs: int) -> Tally:
    """Fuzz the stack that is the seed's turn."""
    stack = stacks[seed % len(stacks)]
    has_changes = bool(seed // len(stacks) % 2)
    return Tally(inputs, Counter({fuzz(stack, seed, inputs, has_changes=has_changes): inputs}))
