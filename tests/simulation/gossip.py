"""A toy family of engines: replicas that spread rumours, and keep nothing but what they remember.

Whatever a replica hears it tells all others, all of it, ten times a second. What is promised is
little: nobody hears what nobody began, nobody forgets while he lives, and in the end all have heard
the same. Nothing outside of this module knows of it.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from coterie.checking.history import Violation
from coterie.kernel.clock import Duration, milliseconds, seconds
from coterie.kernel.layers import Layer
from coterie.kernel.replica import Replica
from coterie.kernel.views import Configuration
from coterie.simulation.campaign import Options, SeedRun, Trial
from coterie.simulation.engines import Asked, Extra, Family
from coterie.simulation.world.resident import Resident
from coterie.simulation.world.virtual_time import VirtualTime
from coterie.simulation.world.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from coterie.kernel.layers import Context
    from coterie.kernel.process import Process
    from coterie.kernel.views import Member
    from coterie.simulation.world.machine import Machine

FAULTS = ("loss", "duplication", "delay", "partition", "crash", "pause", "clock-jump")


# ---- the protocol


class Rumours(msgspec.Struct, frozen=True):
    """Everything that the sender has heard."""

    heard: list[str]


_decoder = msgspec.msgpack.Decoder(Rumours)


class Gossip(Layer):
    """One who spreads rumours."""

    name = "GOSSIP"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.has_left = False
        self.highest = 0
        self.heard: set[str] = set()

    def begin(self, rumour: str) -> None:
        self.heard.add(rumour)

    def start(self) -> None:
        self._tell()

    def _tell(self) -> None:
        others = [id for id in self.context.configuration.members if id != self.context.me.id]
        self.context.send(others, Rumours(sorted(self.heard)))
        self.context.set_timer("tell", milliseconds(100), self._tell)

    def decode(self, message: msgspec.Raw) -> Rumours:
        return _decoder.decode(message)

    def receive(self, sender: Member, message: Rumours) -> None:
        del sender
        self.heard.update(message.heard)

    def reachability_changed(self, restarted: Sequence[str]) -> None:
        pass


class Forgetful(Gossip):
    """Listens to the last one only."""

    def receive(self, sender: Member, message: Rumours) -> None:
        del sender
        self.heard = set(message.heard)


# ---- in the simulated world


class GossipReplica(Resident):
    """One who spreads rumours on a machine, and what was heard there in this life."""

    def __init__(
        self, machine: Machine, configuration: Configuration, kind: type[Gossip] = Gossip
    ) -> None:
        super().__init__(machine, "gossip", configuration)
        self._kind = kind
        self._before: set[str] = set()
        self.forgotten: list[str] = []

    @property
    def gossip(self) -> Gossip | None:
        bottom = None if self.replica is None else self.replica.bottom
        assert bottom is None or isinstance(bottom, Gossip)
        return bottom

    def build(self, process: Process) -> Replica:
        context = self.make_context(process)
        bottom = self._kind(context)
        self._before = set()
        return Replica(context, Layer(context), [bottom], bottom)

    def end_turn(self) -> None:
        gossip = self.gossip
        assert gossip is not None
        self.forgotten += sorted(self._before - gossip.heard)
        self._before = set(gossip.heard)


class GossipOptions(Options, frozen=True, kw_only=True):
    family: ClassVar[str] = "gossip"
    duration: Duration = seconds(10)
    faults: tuple[str, ...] = FAULTS
    pace: int = 5
    """How many rumours begin a second."""


class GossipTrial(Trial):
    """One seed: rumours begin here and there while things fail."""

    options: GossipOptions

    def __init__(
        self,
        seed: int,
        options: GossipOptions,
        *,
        kind: type[Gossip] = Gossip,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self.seed = seed
        self.options = options
        self.random = Random(f"{seed}/gossip")  # noqa: S311 -- reproducible on purpose
        self.world = World(VirtualTime(seed=seed))
        self.world.simulation.trace = trace
        configuration = Configuration(1, tuple("abcdefg"[: options.replicas]))
        self.replicas = []
        for id in configuration.members:
            machine = self.world.machine(id)
            self.replicas.append(GossipReplica(machine, configuration, kind))
            machine.put(self.replicas[-1])
        self.world.start()
        self.begun: list[str] = []
        self._is_active = True

    def load(self) -> GossipTrial:
        return self

    def start(self) -> None:
        self._begin()

    def stop(self) -> None:
        self._is_active = False

    def _begin(self) -> None:
        if not self._is_active:
            return
        replica = self.random.choice(self.replicas)
        gossip = replica.gossip
        if gossip is not None:
            self.begun.append(f"rumour {len(self.begun)}")
            rumour = self.begun[-1]
            replica.machine.call(lambda: gossip.begin(rumour))
        wait = self.random.expovariate(self.options.pace / seconds(1))
        self.world.simulation.at(int(wait), self._begin)

    def heal(self) -> None:
        self.world.heal()
        self.world.mend()

    def converge(self, run: SeedRun) -> Iterable[Violation]:
        begun = self.world.simulation.now
        # What the last to crash had heard is lost with him, so there need not be any.
        if not self.world.run_until(self._is_one, within=self.options.converge_within):
            yield Violation("all hear the same", f"{[sorted(each) for each in self._heard()]}")
        run.converged_after = self.world.simulation.now - begun

    def _heard(self) -> list[set[str]]:
        return [each.gossip.heard for each in self.replicas if each.gossip is not None]

    def _is_one(self) -> bool:
        heard = self._heard()
        return len(heard) == len(self.replicas) and all(each == heard[0] for each in heard)

    def violations(self) -> Iterable[Violation]:
        for replica in self.replicas:
            for rumour in replica.forgotten[:1]:
                yield Violation("nobody forgets", f"{replica.machine.id} forgot {rumour}")
        for heard in self._heard():
            for rumour in sorted(heard - set(self.begun)):
                yield Violation("somebody began it", rumour)

    def report(self, run: SeedRun) -> None:
        run.figures = {"rumours": len(self.begun)}


class GossipFamily(Family):
    """As the command line sees it."""

    name = "gossip"
    about = "rumours, for a test"
    extras = (Extra("--pace", "how many rumours begin a second", kind=int, metavar="N"),)
    replicas = 3
    replicas_max = 7
    kind: type[Gossip] = Gossip

    @property
    def faults(self) -> tuple[str, ...]:
        return FAULTS

    def options(self, asked: Asked) -> GossipOptions:
        return GossipOptions(
            replicas=asked.replicas,
            duration=asked.duration,
            faults=asked.faults,
            pace=asked.extras["pace"] or 5,
        )

    def trial(
        self,
        seed: int,
        options: Any,  # noqa: ANN401 -- its own kind
        *,
        trace: Callable[[str], None] | None = None,
    ) -> GossipTrial:
        return GossipTrial(seed, options, kind=self.kind, trace=trace)

    def keeps_journals(self, options: Any) -> bool:  # noqa: ANN401
        del options
        return False
