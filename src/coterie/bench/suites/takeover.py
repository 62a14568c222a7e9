"""How long programs are without a leader, and how much is sent for them: `coterie bench takeover`.

Everything runs in the simulator, in virtual time, so the figures tell of the protocol and of its
intervals, not of a machine. The primary's machine is cut off from power at a random moment while
clients ask. *Detection* ends when a backup proposes itself, *takeover* when one leads behind all
that the edge holds, *answer* when a client is answered again. Messages are counted while nothing
fails, and those of an idle group are taken off.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

import msgspec

from coterie.bench.harness.figures import Figure
from coterie.bench.harness.tables import comma_separated, figures_table, write_forms
from coterie.kernel.clock import milliseconds, seconds
from coterie.kernel.records import ClaimPromised, LeadingBegun, OutputReleased
from coterie.llft.settings import DEFAULT, Guard
from coterie.simulation.engines.llft.clients import ProgramClients
from coterie.simulation.engines.llft.world import ProgramWorld

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from coterie.kernel.records import Record

PROGRAM = "counter"
WARM = 10
"""So many requests are answered before the primary dies."""
LEGEND = (
    "*detection*: from the death of the primary to the first proposal; *takeover*: from there "
    "until a backup leads; *answer*: from the death until a client is answered. *frames a "
    "request*: what replicas and edge send each other for it, beside what an idle group sends; "
    "several messages of a turn to one process are one frame. The paper (its text for figures 16 "
    "and 17) has about 30 ms for detection, less than 50 microseconds for the change of view with "
    "one backup and more with more backups, and 200 microseconds less for two replicas than for "
    "three; a request and its reply are one multicast each there, and orders and "
    "acknowledgements ride on them.\n"
)


class TakeoverPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured."""

    replicas: tuple[int, ...] = (2, 3, 4, 5, 6, 7)
    deaths: int = 40
    requests: int = 300


QUICK = TakeoverPlan(replicas=(2, 3), deaths=5, requests=50)


class TakeoverReport(msgspec.Struct, kw_only=True):
    """What came of it."""

    plan: TakeoverPlan
    figures: list[Figure] = []


class _WatchedWorld(ProgramWorld):
    """A world that notes when claims are made, and when somebody leads by one."""

    def __init__(self, seed: int, replicas: int) -> None:
        self.proposed: list[int] = []
        self.led: list[int] = []
        self.released: list[int] = []
        super().__init__(seed=seed, program=PROGRAM, replicas=replicas, guard=Guard.QUORUM)
        self.clients = ProgramClients(self, self.simulation.random)
        self.start()

    def record(self, record: Record) -> None:
        """Note claims of replicas."""
        super().record(record)
        now = self.simulation.now
        if isinstance(record, LeadingBegun):
            self.led.append(now)
        elif isinstance(record, OutputReleased):
            self.released.append(now)
        elif isinstance(record, ClaimPromised) and record.claim.life == record.member:
            self.proposed.append(now)


def measure(plan: TakeoverPlan, progress: Callable[[str], None]) -> TakeoverReport:
    """Measure all that is planned."""
    report = TakeoverReport(plan=plan)
    for size in plan.replicas:
        deaths = [_death(seed, size) for seed in range(plan.deaths)]
        for place, name in enumerate(("detection", "takeover", "answer")):
            waits = [each[place] for each in deaths]
            report.figures.append(_figure(f"{name} p50", size, median(waits), "ms"))
            report.figures.append(_figure(f"{name}, longest", size, max(waits), "ms"))
        report.figures.append(
            _figure("frames a request", size, _frames_a_request(size, plan.requests), "frames")
        )
        for figure in report.figures[-7:]:
            progress(str(figure))
    return report


def _death(seed: int, replicas: int) -> tuple[float, float, float]:
    """Have the primary die; give detection, takeover and the wait for an answer in milliseconds."""
    world = _WatchedWorld(seed, replicas)
    clients, random = world.clients, world.simulation.random
    clients.start()
    assert world.run_until(lambda: world.is_whole(PROGRAM), within=seconds(20))
    assert world.run_until(lambda: clients.answered >= WARM, within=seconds(20))
    world.run(milliseconds(random.randrange(1000)))
    [first] = [each for each in world.replicas_of(PROGRAM) if each.leading is not None]
    world.proposed.clear()
    world.led.clear()
    died = world.simulation.now
    world.machines[first.me.id].crash()
    assert world.run_until(lambda: bool(world.led), within=seconds(20))
    world.released = [at for at in world.released if at > world.led[0]]
    assert world.run_until(lambda: bool(world.released), within=seconds(20))
    led = world.led[0]
    proposed = max(at for at in world.proposed if at <= led)
    times = proposed - died, led - proposed, world.released[0] - died
    return times[0] / 1000, times[1] / 1000, times[2] / 1000


def _frames_a_request(replicas: int, requests: int) -> float:
    """Give how many frames a request costs, beside those of an idle group."""
    world = _WatchedWorld(1, replicas)
    network = world.simulation.network
    assert world.run_until(lambda: world.is_whole(PROGRAM), within=seconds(20))
    begun, frames = world.simulation.now, network.frames
    world.run(seconds(5))
    idle = (network.frames - frames) / (world.simulation.now - begun)
    begun, frames = world.simulation.now, network.frames
    world.clients.start()
    assert world.run_until(lambda: world.clients.answered >= requests, within=seconds(300))
    sent = network.frames - frames - idle * (world.simulation.now - begun)
    return sent / world.clients.answered


def _figure(what: str, replicas: int, value: float, unit: str) -> Figure:
    return Figure(section="takeover", what=what, replicas=replicas, value=value, unit=unit)


# ---- the report


def setting(report: TakeoverReport) -> str:
    """Say how it was measured, in one paragraph."""
    return (
        f"Simulated time, program {PROGRAM!r}, guard quorum; {report.plan.deaths} deaths and "
        f"{report.plan.requests} requests a size. A primary is suspected after "
        f"{DEFAULT.suspect_after // 1000} ms by the first backup, and {DEFAULT.rank_step // 1000} "
        f"ms later by each further one; everybody is heard every {DEFAULT.beat // 1000} ms."
    )


def tables(report: TakeoverReport) -> str:
    """Give all results as text, for a terminal and as Markdown."""
    return figures_table(report.figures)


def write_files(report: TakeoverReport, folder: Path) -> list[Path]:
    """Write all forms of the report into a folder, and give the files."""
    page = f"# Takeover of programs\n\n{setting(report)}\n\n{tables(report)}\n\n{LEGEND}"
    return write_forms(
        "takeover", report, folder, rows=comma_separated(report.figures), page=page, draw=None
    )
