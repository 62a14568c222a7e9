"""The family of viewstamped replication: transactions over several groups of cohorts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coterie.simulation.engines.family import Asked, Extra, Family, NotOffered

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coterie.simulation.campaign import SeedRun
    from coterie.simulation.engines.vsr.trial import TransactionOptions, TransactionTrial


class VsrFamily(Family):
    """Groups that share machines, and clients whose transactions go over several of them."""

    name = "vsr"
    about = "viewstamped replication, with transactions over --groups groups"
    extras = (Extra("--groups", "how many groups there are (default 3)", kind=int, metavar="N"),)
    objects = ("bank", "airline")
    syncs = ("turn", "primary", "interval", "none")
    can_be_old = True
    replicas = 3
    replicas_max = 5

    @property
    def faults(self) -> tuple[str, ...]:
        """The faults that it must survive."""
        from coterie.simulation.engines.vsr.world import COHORT_FAULTS  # noqa: PLC0415

        return COHORT_FAULTS

    @property
    def more_faults(self) -> tuple[str, ...]:
        """Changes of members."""
        from coterie.simulation.faults import CHANGES  # noqa: PLC0415 -- start-up stays fast

        return tuple(CHANGES)

    def options(self, asked: Asked) -> TransactionOptions:
        """Give the options of runs of transactions."""
        from coterie.journal.format import Sync  # noqa: PLC0415 -- start-up stays fast
        from coterie.simulation.engines.vsr.trial import TransactionOptions  # noqa: PLC0415

        groups = asked.extras.get("groups")
        if groups is not None and groups < 1:
            raise NotOffered(f"--groups must be at least 1, not {groups}")
        return TransactionOptions(
            object=asked.object or "bank",
            groups=3 if groups is None else groups,
            replicas=asked.replicas,
            duration=asked.duration,
            faults=asked.faults,
            sync=Sync(asked.sync) if asked.sync else None,
            old=asked.old,
            journals=asked.journals,
        )

    def trial(
        self,
        seed: int,
        options: TransactionOptions,
        *,
        trace: Callable[[str], None] | None = None,
    ) -> TransactionTrial:
        """Prepare the run of one seed."""
        from coterie.simulation.engines.vsr.trial import TransactionTrial  # noqa: PLC0415

        return TransactionTrial(seed, options, trace=trace)

    # ---- what is said of runs

    def title(self, options: TransactionOptions) -> str:
        """Say what is run."""
        return f"VSR {options.object}, {options.groups} groups of {options.replicas}"

    def facts(self, options: TransactionOptions) -> dict[str, Any]:
        """Say what is run (`title`) as values, for programs."""
        return {
            "object": options.object,
            "groups": options.groups,
            "replicas": options.replicas,
        }

    def lines(self, runs: Sequence[SeedRun]) -> list[str]:
        """Say how transactions ended."""
        views = sum(run.views for run in runs)
        sums = {name: sum(run.figures.get(name, 0) for run in runs) for name in FIGURES}
        return [
            f"{views:,} views, {sums['states_taken']:,} whole states sent",
            (
                f"{sums['committed']:,} transactions committed, {sums['aborted']:,} aborted, "
                f"{sums['unknown']:,} unknown to their clients; {sums['checks']:,} looked at "
                "everything and found it right"
            ),
        ]


FIGURES = ("committed", "aborted", "unknown", "checks", "states_taken")
"""What runs of transactions count."""
