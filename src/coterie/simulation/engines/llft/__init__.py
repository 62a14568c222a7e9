"""The family of leader and followers: programs, their edges, and clients behind these."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.simulation.engines.family import Asked, Extra, Family, NotOffered

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coterie.simulation.campaign import SeedRun
    from coterie.simulation.engines.llft.trial import ProgramOptions, ProgramTrial

PROGRAMS = ("relay", "counter", "timers", "pages", "errands")
GUARDS = ("quorum", "none")
BACKUPS = ("active", "logged")
OUTAGES = ("outage", "outage", "outage")
"""With standbys, machines of edges are away for long as often as three other faults happen."""


class LlftFamily(Family):
    """Programs that a leader runs and followers follow."""

    name = "llft"
    about = "leader and followers for programs; it can be simulated only"
    extras = (
        Extra("--program", f"which one runs: {', '.join(PROGRAMS)}", metavar="NAME"),
        Extra(
            "--guard",
            "who must agree before a replica leads: 'quorum' (its edge), or 'none': then a backup "
            "that was cut off may erase what clients have seen",
            metavar="WHO",
        ),
        Extra(
            "--backups",
            "what backups do: 'active' (they execute orders), or 'logged': they keep orders and "
            "states, and who is to lead executes the rest",
            metavar="HOW",
        ),
        Extra(
            "--standby",
            "whether each edge has one ('yes' or 'no'), which takes its place if all replicas on "
            "the roster agree; only with the guard",
            metavar="WHETHER",
        ),
    )
    replicas = 3
    replicas_max = 7

    @property
    def faults(self) -> tuple[str, ...]:
        """The faults that it must survive."""
        from coterie.simulation.engines.llft.trial import FAULTS  # noqa: PLC0415

        return FAULTS

    def options(self, asked: Asked) -> ProgramOptions:
        """Give the options of runs of programs."""
        from coterie.simulation.engines.llft.trial import ProgramOptions  # noqa: PLC0415

        program = asked.extras.get("program") or PROGRAMS[0]
        guard = asked.extras.get("guard") or GUARDS[0]
        backups = asked.extras.get("backups") or BACKUPS[0]
        if backups not in BACKUPS:
            raise NotOffered(f"--backups {backups} is not there: choose {' or '.join(BACKUPS)}")
        if program not in PROGRAMS:
            raise NotOffered(f"--program {program} is not there: choose {' or '.join(PROGRAMS)}")
        if guard not in GUARDS:
            raise NotOffered(f"--guard {guard} is not there: choose {' or '.join(GUARDS)}")
        standby = asked.extras.get("standby") or "no"
        if standby not in {"yes", "no"}:
            raise NotOffered(f"--standby {standby} is not there: choose yes or no")
        if standby == "yes" and (guard != "quorum" or backups != "active"):
            raise NotOffered("--standby yes is there with --guard quorum and active backups alone")
        has_outages = standby == "yes" and asked.faults == self.faults
        return ProgramOptions(
            standby=standby,
            program=program,
            guard=guard,
            backups=backups,
            replicas=asked.replicas,
            duration=asked.duration,
            faults=(*asked.faults, *OUTAGES) if has_outages else asked.faults,
            journals=asked.journals,
        )

    def trial(
        self,
        seed: int,
        options: ProgramOptions,
        *,
        trace: Callable[[str], None] | None = None,
    ) -> ProgramTrial:
        """Prepare the run of one seed."""
        from coterie.simulation.engines.llft.trial import ProgramTrial  # noqa: PLC0415

        return ProgramTrial(seed, options, trace=trace)

    def title(self, options: ProgramOptions) -> str:
        """Say what is run."""
        said = f"llft {options.program}, guard {options.guard}, {options.replicas} replicas"
        said += ", logged" if options.backups == "logged" else ""
        return said + (", with standby edges" if options.standby == "yes" else "")

    def lines(self, runs: Sequence[SeedRun]) -> list[str]:
        """Say how programs fared."""
        views = sum(run.views for run in runs)
        sums = {name: sum(run.figures.get(name, 0) for run in runs) for name in FIGURES}
        said = f"{views:,} primary views entered, {sums['rosters']:,} rosters, "
        said += f"{sums['orders']:,} orders, edges lost {sums['edges lost']:,} times"
        answered = sorted(run.figures.get("answered", 0) for run in runs)
        served = f"{sums['answered']:,} of {sums['asked']:,} requests answered, a run at least "
        served += f"{answered[0]:,}, in the middle {answered[len(answered) // 2]:,}; "
        served += f"{sums['broken']:,} connections broken"
        if sums["edges installed"]:
            said += f", replaced by their standbys {sums['edges installed']:,} times"
        lines = [said, served]
        if sums["discarded"]:
            hit = sum(bool(run.figures.get("discarded")) for run in runs)
            lines.append(
                f"{sums['discarded']:,} stored orders given up in {hit:,} runs: what clients saw "
                "of them is void"
            )
        return lines


FIGURES = (
    "orders",
    "rosters",
    "edges lost",
    "edges installed",
    "asked",
    "answered",
    "broken",
    "discarded",
)
"""What runs of programs count."""
