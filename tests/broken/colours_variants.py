"""Deliberately broken variants of COLOURS, most of them from the slides' own reasons.

Each is the layer with the one line changed. Runs are of few kinds of faults, so that the order of
events that matters comes soon: cuts, crashes, merges, and disks where a disk matters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from unittest.mock import patch

from coterie.colours.knowledge import Judge
from coterie.colours.layer import Colours
from coterie.colours.queue import ActionsQueue
from coterie.colours.states import ServerState
from coterie.kernel.clock import milliseconds
from coterie.kernel.components import Component, Promises, Vulnerable, Yellow
from coterie.kernel.engine import Run
from coterie.kernel.records import ComponentAttempted, ComponentState
from coterie.objects import coloured_copies
from coterie.objects.applied_once import AppliedOnce
from coterie.objects.execution.commands import Tick, encode_command
from coterie.simulation import RunOptions, seconds
from coterie.simulation.campaign import run_trial
from coterie.simulation.engines.colours.trial import ColoursTrial
from coterie.simulation.faults import FAULTS
from coterie.stacks import LAYERS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from random import Random

    from coterie.colours.exchange import ActionExchange
    from coterie.colours.knowledge import Knowledge
    from coterie.colours.messages import State
    from coterie.kernel.components import Action
    from coterie.kernel.layers import Batch
    from coterie.kernel.views import Configuration, Member
    from coterie.objects.answering import Answering
    from coterie.simulation.world.world import World


def orphaned(world: World, random: Random) -> Callable[[], None]:
    """Cut a machine off and crash all others at once: it alone may know what was green."""
    lone = random.choice(list(world.machines))
    others = [name for name in world.machines if name != lone]
    links = world.links_between([lone], others)
    world.simulation.network.cut(links)
    for name in others:
        world.machines[name].crash()

    def start() -> None:
        for name in others:
            world.machines[name].start()
        world.simulation.at(random.randrange(2_000_000), world.simulation.network.mend, links)

    return start


ORPHANED = ("orphaned", "delay", "isolation")
FAULTS["orphaned"] = orphaned
CUTS = ("partition", "isolation", "flapping", "one-way", "delay", "loss", "clogging")
DEATHS = (*CUTS, "crash", "restart", "pause")
DISKS = (*DEATHS, "new-machine", "restart-all")


class AgreedIsEnough(Colours):
    """Makes actions green that some member may not have."""

    casts_safe = False


class YellowIsRed(Colours):
    """Forgets the place of what was received as the primary component ended."""

    def _mark_yellow(self, actions: list[Action]) -> None:
        self._mark_red(actions)


class YellowStaysValid(Colours):
    """Says after a crash in a primary component that nothing can be green elsewhere."""

    def _yellow_after_install(self) -> None:
        pass

    @property
    def yellow(self) -> Yellow | None:
        yellow = super().yellow
        return Yellow(0) if yellow is None else yellow


class UnknownIsFailed(Colours):
    """Takes case ? for case 0."""

    def _attempt_unknown(self) -> None:
        self.vulnerable = None


class AttemptNotStored(Colours):
    """Says that it is ready without a word of it on disk."""

    def _force(self, kind: type, **fields: object) -> None:
        if kind is not ComponentAttempted:
            super()._force(kind, **fields)


class RestartIsSure(Colours):
    """Believes after a restart that it knows what came of its attempt."""

    def _remember(self, promises: Promises) -> None:
        super()._remember(promises)
        self.vulnerable = None


class FailedIsUnknown(Colours):
    """Stays vulnerable although nobody can have installed the component."""

    def _attempt_failed(self) -> None:
        pass


class FirstCpcInstalls(Colours):
    """Installs a component that not all are ready for."""

    def _has_all_cpcs(self) -> bool:
        return bool(self._cpcs)


class _Halves(Judge):
    def is_quorum(self, prim: Component, here: Iterable[str]) -> bool:
        present = set(here) & set(prim.members)
        return 2 * len(present) >= len(prim.members)


class HalfIsEnough(Colours):
    """Decides no tie: both halves may be primary."""

    judge = _Halves()


class _Static(Judge):
    members: tuple[str, ...] = ()

    def compute(self, states: Mapping[Member, State], configuration: Configuration) -> Knowledge:
        self.members = configuration.members
        return super().compute(states, configuration)

    def is_quorum(self, prim: Component, here: Iterable[str]) -> bool:
        del prim
        return 2 * len(set(here)) > len(self.members)


class StaticMajority(Colours):
    """Counts against the configuration, whoever was primary last."""

    judge = _Static()


class _CountsZombies(Judge):
    def counts(self, state: State) -> bool:
        del state
        return True


class ZombiesCount(Colours):
    """Believes a replica that has lost its disk to know that nothing happened."""

    judge = _CountsZombies()


class RedsAsTheyCame(Colours):
    """Orders red actions as they arrived, which differs."""

    def _red_order(self, reds: list[Action]) -> list[Action]:
        return reds


class _Gaps(ActionsQueue):
    def follows(self, action: Action) -> bool:
        return action.index > self.red_cut.get(action.creator, 0)


class GapsInTheCut(Colours):
    """Takes an action whose predecessor is missing."""

    queue_kind = _Gaps


class LinesNotMerged(Colours):
    """Keeps to itself what it has heard of others."""

    def _merge_lines(self, lines: dict[str, int]) -> None:
        here = {member.id for member in self._view.members}
        super()._merge_lines({id: at for id, at in lines.items() if id in here})


class MajorityIsWhite(Colours):
    """Discards what a majority has."""

    @property
    def white_end(self) -> int:
        lines = sorted(self.lines.values(), reverse=True)
        return lines[len(lines) // 2] if lines else 0


class KnowsBeforeItHolds(Colours):
    """Learns what was decided before it holds the actions that it speaks of."""

    def _decide(self) -> None:
        super()._decide()
        known = self._knowledge
        if known is not None and self.state is ServerState.EXCHANGE_ACTIONS:
            self.prim = known.prim
            self.vulnerable = known.records.get(self.me.id)
            self.yellow_is_valid = known.yellow is not None
            self._force(ComponentState, position=self.green_end)


class ReadyBeforeItHolds(Colours):
    """Is ready for a primary component with the green actions, but not all red ones."""

    def _holds_union(self, exchange: ActionExchange) -> bool:
        return exchange.has_greens


class _NoBeta(Judge):
    def beta(self, record: Vulnerable, sound: Mapping[Member, State]) -> bool:
        del record, sound
        return False


class WitnessesProveNothing(Colours):
    """Stays vulnerable although somebody is there who knows what came of the attempt."""

    judge = _NoBeta()


class _NoGamma(Judge):
    def gamma(self, record: Vulnerable, seen: set[str]) -> bool:
        del record, seen
        return False


class AllTogetherStillDoubt(Colours):
    """Stays vulnerable although all that were to take part are there."""

    judge = _NoGamma()


class LeavesSure(Colours):
    """Stops in good order as if nothing were green elsewhere that it has not delivered."""

    def leaving(self) -> None:
        self.vulnerable = None
        self.yellow_is_valid = True
        self._force(ComponentState, position=self.green_end)


class RecordsWhenDelivered(Colours):
    """Acknowledges actions that are on no record here: they are green with one disk behind them."""

    def received_batches(self, batches: list[Batch]) -> None:
        del batches


class LeaversVoteOffRecord(Colours):
    """Counts who is to go for a quorum, and has no record of it there: it can vote twice."""

    def _participants(self, *, without: Collection[str] = ()) -> tuple[str, ...]:
        members = self.configuration.members
        return tuple(each for each in super()._participants(without=without) if each in members)


class ChangesAtOnce(Colours):
    """Has a change of members count from its place on, and not from the next component on."""

    def _after_green(self) -> None:
        super()._after_green()
        if self.state is ServerState.REG_PRIM:
            members = self.configuration.members
            self.prim = Component(self.prim.index, self.prim.attempt, members)


class _LeavesOut(Judge):
    def compute(self, states: Mapping[Member, State], configuration: Configuration) -> Knowledge:
        known = super().compute(states, configuration)
        slow = self.slow(states, known.green_end) if known.is_quorum else []
        return known._replace(left_out=slow)


class LeavesOutWhoIsNeeded(Colours):
    """Goes on without who needs a whole state, although the rest are no quorum."""

    judge = _LeavesOut()


class LivesGoTooSoon(Colours):
    """Takes lives that are over out of what is said although somebody is missing."""

    def _is_everybody_in(self, now: Configuration) -> bool:
        del now
        return True


class _Trial(ColoursTrial):
    """Components shrink to one, as the slides have it: more of them, so more can go wrong."""

    least_sizes = (1,)
    past_lives = (3,)


class _TrialOfLives(_Trial):
    """Every life goes as soon as it can."""

    past_lives = (0,)


@dataclass(frozen=True)
class BrokenColours:
    """A variant, and the checks of which one must name it."""

    kind: type[Colours]
    caught_by: tuple[str, ...]
    faults: tuple[str, ...] = DEATHS
    replicas: int = 3
    first_seed: int = 0
    stack: str = "COLOURS:DYNSEQ:VSYNC"
    trial: type[ColoursTrial] = _Trial

    @property
    def name(self) -> str:
        """What it is called in reports."""
        return self.kind.__name__

    def fires(self, seed: int) -> set[str]:
        """Run a seed with the variant; give the checks that fired."""
        options = RunOptions(
            stack=self.stack,
            replicas=self.replicas,
            duration=seconds(15),
            faults=self.faults,
            cast_interval=milliseconds(50),
        )
        layers = {**LAYERS, Colours.name: self.kind}
        run = run_trial(self.trial(seed, options, layers=layers))
        return {violation.partition(":")[0] for violation in run.violations}


class _AppliedAgain(AppliedOnce):
    def _is_news(self, run: Run) -> bool:
        del run
        return True


class _NothingApplied(AppliedOnce):
    def _on_dirty(self, run: Run, answering: Answering | None) -> Run:
        # What is green is on the authoritative copy, and must be on this one, too.
        payloads = [encode_command(Tick(0))] if answering is None else run.payloads
        at = Run(run.view, run.number, run.position, run.origin, run.first, payloads)
        return super()._on_dirty(at, answering)


@dataclass(frozen=True)
class BrokenOnce:
    """A variant of how updates that commute are applied at red."""

    kind: type[AppliedOnce]
    caught_by: tuple[str, ...] = ("dirty is green plus red",)
    first_seed: int = 0

    @property
    def name(self) -> str:
        """What it is called in reports."""
        return self.kind.__name__.removeprefix("_")

    def fires(self, seed: int) -> set[str]:
        """Run a seed with the variant; give the checks that fired."""
        options = RunOptions(
            stack="COLOURS:DYNSEQ:VSYNC",
            replicas=3,
            duration=seconds(15),
            faults=CUTS,
            object="tally",
        )
        with patch.object(coloured_copies, "AppliedOnce", self.kind):
            run = run_trial(ColoursTrial(seed, options))
        return {violation.partition(":")[0] for violation in run.violations}


ORDER = ("global total order", "global FIFO order", "green prefix", "active replication")
LOST = (*ORDER, "one primary component", "yellow rule", "green for ever")

COLOURS_BROKEN: tuple[BrokenColours | BrokenOnce, ...] = (
    BrokenColours(AgreedIsEnough, LOST),
    BrokenColours(YellowIsRed, LOST),
    BrokenColours(YellowStaysValid, LOST),
    BrokenColours(UnknownIsFailed, ("attempt protected", *LOST), CUTS, first_seed=8),
    BrokenColours(AttemptNotStored, ("ready on record", *LOST)),
    BrokenColours(RestartIsSure, ("attempt protected", *LOST), ORPHANED),
    BrokenColours(FailedIsUnknown, ("availability",), CUTS, first_seed=6),
    BrokenColours(FirstCpcInstalls, ("ready on record", *LOST, "attempt excluded")),
    BrokenColours(HalfIsEnough, LOST, CUTS, replicas=4),
    BrokenColours(
        StaticMajority, ("one primary component", "availability"), CUTS, replicas=5, first_seed=9
    ),
    BrokenColours(ZombiesCount, LOST, DISKS, first_seed=27),
    BrokenColours(RedsAsTheyCame, LOST, CUTS),
    BrokenColours(GapsInTheCut, ("red cut", *LOST), CUTS, first_seed=3),
    BrokenColours(LinesNotMerged, ("eventual path",), CUTS, replicas=4),
    BrokenColours(MajorityIsWhite, ("white means all",), CUTS),
    BrokenColours(KnowsBeforeItHolds, ("eventual path", *LOST)),
    BrokenColours(ReadyBeforeItHolds, ("eventual path", *LOST), CUTS),
    BrokenColours(WitnessesProveNothing, ("availability", "liveness")),
    BrokenColours(AllTogetherStillDoubt, ("availability", "liveness"), (*DEATHS, "restart-all")),
    BrokenColours(LeavesSure, LOST, (*DEATHS, "leave")),
    BrokenColours(RecordsWhenDelivered, ("on record everywhere",), CUTS),
    BrokenColours(LeaversVoteOffRecord, LOST, (*CUTS, "remove", "replace"), first_seed=11),
    BrokenColours(ChangesAtOnce, LOST, (*CUTS, "remove", "replace")),
    BrokenColours(LivesGoTooSoon, ("nothing of past lives is left", *LOST), trial=_TrialOfLives),
    BrokenColours(LeavesOutWhoIsNeeded, LOST, CUTS, first_seed=6),
    BrokenOnce(_AppliedAgain),
    BrokenOnce(_NothingApplied),
)
