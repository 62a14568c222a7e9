"""Real processes over a network that is cut: five replicas and their callers, in namespaces.

    python -m tests.colours.cut_network --seconds 12 --rate 100 --out FOLDER

as root. Each machine has one replica and one caller. They are cut 2-3, then 2-2-1, meet in a chain
that never joins all, and merge; everybody is killed in a primary component, and as one is
constructed, and starts again. In the end all replicas have the same ledger, and every caller was
told right (`problems`). The journals are left in FOLDER for `coterie pipeline run`.
"""

# ruff: noqa: T201 -- printing is what it is for

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec
from tests.colours.sides import Ledger, Told
from tests.patience import PATIENCE

from coterie.bench.harness.wire import Wire, apart
from coterie.colours.states import ServerState
from coterie.journal.disk import FileDisk
from coterie.journal.reader import JournalReader
from coterie.kernel.records import StateEntered, ViewInstalled
from coterie.runtime.loop import run as run_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

IDS = "abcde"
STACK = "COLOURS:DYNSEQ:VSYNC"
CUTS: tuple[tuple[str, ...], ...] = (
    ("ab", "cde"),
    ("ab", "cd", "e"),
    # A chain of meetings: what e has goes by d, c and b to a, and all are never in touch.
    ("a", "bc", "de"),
    ("ab", "cd", "e"),
    ("ac", "bde"),
)
APART_MS = 20.0
"""How far apart all are while a component is constructed, so that it takes a while."""


class Machine:
    """One machine: a replica and a caller, in a namespace of their own."""

    def __init__(self, world: World, id: str) -> None:
        self._world = world
        self.id = id
        self.notes = world.folder / f"{id}.told"
        self._reader = JournalReader(FileDisk(world.folder / id), "ledger", id)
        self._replica: asyncio.subprocess.Process | None = None
        self._caller: asyncio.subprocess.Process | None = None
        self.last: StateEntered | None = None
        """What its replica last wrote of where it is."""
        self.view: ViewInstalled | None = None
        """The view that its replica last wrote down."""

    async def start(self, *options: str) -> None:
        """Start the replica; what its life before wrote says nothing of where it is."""
        self.look()
        self.last = self.view = None
        log = (self._world.folder / f"{self.id}.log").open("a")
        with log:
            self._replica = await asyncio.create_subprocess_exec(
                *self._world.wire.inside(self.id, sys.executable, "-m", "coterie.cli", "replica"),
                *("--config", str(self._world.config), "--id", self.id, *options),
                stderr=log,
            )

    def kill(self) -> None:
        """Kill the replica, as kill -9 does."""
        assert self._replica is not None
        self._replica.kill()

    async def killed(self) -> None:
        """Wait until it is gone."""
        assert self._replica is not None
        await self._replica.wait()

    async def stop(self) -> None:
        """Have the replica leave in good order."""
        assert self._replica is not None
        self._replica.send_signal(signal.SIGTERM)
        assert await self._replica.wait() == 0

    async def call(self, rate: float) -> None:
        """Start a caller, which knows its own replica first."""
        own = self._world.addresses.index(self._world.address(self.id))
        addresses = self._world.addresses[own:] + self._world.addresses[:own]
        self._caller = await asyncio.create_subprocess_exec(
            *self._world.wire.inside(self.id, sys.executable, "-m", "tests.colours.sides"),
            *("--call", self.id, str(rate), str(self.notes), *addresses),
            stdin=asyncio.subprocess.PIPE,
        )

    async def hang_up(self) -> None:
        """Have the caller make no more calls, and wait for the outcomes of all."""
        assert self._caller is not None
        assert self._caller.stdin is not None
        self._caller.stdin.close()
        assert await self._caller.wait() == 0

    async def end(self) -> None:
        """End whatever still runs."""
        for process in (self._replica, self._caller):
            if process is not None and process.returncode is None:
                process.kill()
                await process.wait()

    def look(self) -> StateEntered | None:
        """Read on in the journal; give what it says last of where the replica is."""
        for record in self._reader.records(growing=True):
            if isinstance(record, StateEntered):
                self.last = record
            elif isinstance(record, ViewInstalled):
                self.view = record
        return self.last

    @property
    def in_touch(self) -> set[str]:
        """With whom its replica is in a view, if it has come to a state in that view."""
        if self.view is None or self.last is None or self.view.view != self.last.view:
            return set()
        return {member.id for member in self.view.members}


class World:
    """The machines, and the wire between them; to be entered."""

    def __init__(self, folder: Path, *, rate: float) -> None:
        self.folder = folder
        self.config = folder / "group.toml"
        self.wire = Wire(IDS)
        self.machines = {id: Machine(self, id) for id in IDS}
        self.story: list[str] = []
        """What was done, and how long it took."""
        self._rate = rate
        self._began = time.monotonic()

    def address(self, id: str) -> str:
        """Give where a replica takes callers."""
        return f"{self.wire.address(id)}:7001"

    @property
    def addresses(self) -> list[str]:
        return [self.address(id) for id in IDS]

    async def __aenter__(self) -> Self:
        await self.wire.__aenter__()
        lines = ['cluster = "cut"', "[security]", "allow_open = true", "[groups.ledger]"]
        lines += [f'class = "{Ledger.__module__}:{Ledger.__qualname__}"', f'stack = "{STACK}"']
        for id in IDS:
            own = self.wire.address(id)
            lines += [f"[replicas.{id}]", f'listen = "{own}:7000"', f'clients = "{own}:7001"']
            lines += [f'dir = "{self.folder / id}"']
        self.config.write_text("\n".join(lines), encoding="utf-8")
        return self

    async def __aexit__(self, *error: object) -> None:
        for machine in self.machines.values():
            await machine.end()
        await self.wire.__aexit__(*error)

    def tell(self, what: str) -> None:
        """Note what was done."""
        self.story.append(f"{time.monotonic() - self._began:7.2f} s  {what}")

    async def until(self, is_so: Callable[[dict[str, StateEntered]], bool]) -> None:
        """Wait until something is true of what the journals say last."""
        async with asyncio.timeout(PATIENCE):
            while True:
                looks = {id: machine.look() for id, machine in self.machines.items()}
                if is_so({id: seen for id, seen in looks.items() if seen is not None}):
                    return
                await asyncio.sleep(0.005)

    async def cut(self, sides: Sequence[str]) -> None:
        """Cut the network, and wait until each side is a component of its own."""
        await self.wire.rule(sides=sides)
        await self.until(lambda seen: _are_components(seen, sides) and self._know_it(sides))
        primary = [side for side in sides if self._state(side[0]) is ServerState.REG_PRIM]
        self.tell(f"in touch: {' '.join(sides)}; primary: {' '.join(primary) or 'none'}")
        assert len(primary) <= 1

    def _know_it(self, sides: Sequence[str]) -> bool:
        """Say whether everybody is in a view of its side: a cut is not noticed at once."""
        return all(self.machines[id].in_touch == set(side) for side in sides for id in side)

    def _state(self, id: str) -> ServerState:
        last = self.machines[id].last
        assert last is not None
        return ServerState(last.state)

    async def heal(self) -> None:
        """Have everybody in touch, and wait for the one primary component."""
        await self.wire.rule()
        await self.until(_is_one_component)
        self.tell("one primary component")

    async def kill_all_as(self, state: ServerState) -> bool:
        """Kill all replicas when each is in a state; say whether they still were."""
        await self.until(lambda seen: {each.state for each in seen.values()} == {state.value})
        for machine in self.machines.values():
            machine.kill()
        for machine in self.machines.values():
            await machine.killed()
        states = [seen.state for each in self.machines.values() if (seen := each.look())]
        self.tell(f"all are killed; they were in {' '.join(states)}")
        return states == [state.value] * len(IDS)

    async def start(self, *options: str) -> None:
        for machine in self.machines.values():
            await machine.start(*options)

    async def kill_all_in_construct(self) -> None:
        """Kill all as they construct a component, a little apart, so that it takes a moment."""
        while True:
            await self.cut(("ab", "cde"))
            await self.wire.rule(delay_ms=apart(IDS, APART_MS))
            was_hit = await self.kill_all_as(ServerState.CONSTRUCT)
            await self.wire.rule()
            await self.start()
            await self.heal()
            if was_hit:
                return
            # One had the last word of the others in the moment in which it was killed.

    async def play(self, seconds: float) -> None:
        """Play the whole story; each part of it lasts for so long under load."""
        await self.start("--found")
        await self.heal()
        for machine in self.machines.values():
            await machine.call(self._rate)
        await asyncio.sleep(seconds)
        for sides in CUTS:
            await self.cut(sides)
            await asyncio.sleep(seconds)
        await self.heal()
        await asyncio.sleep(seconds)
        await self.kill_all_as(ServerState.REG_PRIM)
        await self.start()
        await self.heal()
        await asyncio.sleep(seconds)
        await self.kill_all_in_construct()
        await asyncio.sleep(seconds)
        for machine in self.machines.values():
            await machine.hang_up()
        self.tell("all callers have their answers")

    async def ledgers(self) -> dict[str, list[str]]:
        """Read the ledger at each replica."""
        reader = await asyncio.create_subprocess_exec(
            *self.wire.inside(IDS[0], sys.executable, "-m", "tests.colours.sides"),
            *self.addresses,
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await reader.communicate()
        return dict(zip(IDS, json.loads(out), strict=True))

    async def stop(self) -> None:
        """Have all replicas leave in good order."""
        await asyncio.gather(*(machine.stop() for machine in self.machines.values()))

    def told(self) -> list[Told]:
        """Give what all callers were told."""
        return [
            told
            for machine in self.machines.values()
            for told in msgspec.json.decode(machine.notes.read_bytes(), type=list[Told])
        ]


def _are_components(seen: dict[str, StateEntered], sides: Sequence[str]) -> bool:
    settled = {ServerState.REG_PRIM.value, ServerState.NON_PRIM.value}
    views = [{seen[id].view for id in side if id in seen} for side in sides]
    return (
        len(seen) == len(IDS)
        and {each.state for each in seen.values()} <= settled
        and all(len(each) == 1 for each in views)
        and len(set().union(*views)) == len(sides)
    )


def _is_one_component(seen: dict[str, StateEntered]) -> bool:
    return _are_components(seen, [IDS]) and seen[IDS[0]].state == ServerState.REG_PRIM.value


def problems(told: Sequence[Told], ledgers: dict[str, list[str]]) -> list[str]:
    """Say who was told wrong, from the definitions; *ledgers* is what each replica has."""
    ledger = ledgers[IDS[0]]
    places = {name: place for place, name in enumerate(ledger, start=1)}
    found = [f"{id} has another ledger" for id, other in ledgers.items() if other != ledger]
    if len(places) < len(ledger):
        found.append("a name was entered twice")
    found += [
        f"{name} was never asked for" for name in places.keys() - {each.name for each in told}
    ]
    for each in told:
        place = places.get(each.name, 0)
        if each.green and each.green != place:
            found.append(f"{each.name} was told {each.green} and is {place}")
        if each.red and not place:
            found.append(f"{each.name} was answered red and is lost")
        if each.red and not each.green:
            found.append(f"{each.name} was red and never settled: {each.error}")
        if each.red and each.green and each.has_changed != (each.red != each.green):
            found.append(f"{each.name} was told {each.red}, then {each.green}: {each.has_changed}")
        if each.error == "NotDone" and place:
            found.append(f"{each.name} is there, and was surely not done")
    return found


def summary(told: Sequence[Told]) -> str:
    """Say in a line what callers were told."""
    red = [each for each in told if each.red]
    kinds = [each.error for each in told if each.error]
    return (
        f"{len(told)} names, {len(red)} answered red, "
        f"{sum(each.has_changed for each in red)} of them changed; "
        f"{kinds.count('OutcomeUnknown')} unknown, {kinds.count('NotDone')} not done"
    )


async def run(folder: Path, *, seconds: float, rate: float) -> tuple[list[str], World]:
    """Play the story in a folder; give what was wrong."""
    async with World(folder, rate=rate) as world:
        try:
            await world.play(seconds)
            ledgers = await world.ledgers()
            await world.stop()
        finally:
            print("\n".join(world.story), flush=True)
    return problems(world.told(), ledgers), world


def main() -> int:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=12.0, help="how long each part lasts")
    parser.add_argument("--rate", type=float, default=100.0, help="red calls of each caller")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="an empty one")
    args = parser.parse_args()
    args.out.mkdir(parents=True)
    found, world = run_loop(run(args.out.resolve(), seconds=args.seconds, rate=args.rate))
    print(summary(world.told()))
    print("\n".join(found) or "one ledger; every caller was told right")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
