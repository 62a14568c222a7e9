"""The family of stacks: group communication, and the engines of **objects** on top of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from coterie.simulation.engines.family import Asked, Extra, Family, NotOffered

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coterie.simulation.campaign import SeedRun
    from coterie.simulation.engines.stack.trial import RunOptions, StackTrial


class StackFamily(Family):
    """One group of replicas, each on a machine of its own, of any stack that can be built."""

    name = "stack"
    about = "layers, written as --stack has them"
    extras: ClassVar[tuple[Extra, ...]] = (
        Extra(
            "--stack",
            "the layers, top first (default: DYNSEQ:VSYNC, for a campaign SAFE:DYNSEQ:PVSYNC)",
        ),
    )
    objects: ClassVar[tuple[str, ...]] = (
        "counter",
        "dictionary",
        "queue",
        "locks",
        "upgrade",
        "tally",
    )
    syncs = ("turn", "interval", "none")
    can_be_old = True
    replicas = 5

    @property
    def faults(self) -> tuple[str, ...]:
        """The faults that it must survive."""
        from coterie.simulation.faults import ALL_FAULTS  # noqa: PLC0415 -- start-up stays fast

        return ALL_FAULTS

    @property
    def more_faults(self) -> tuple[str, ...]:
        """Faults that nothing survives without loss, and changes of members.

        Here a `kill` is a `crash`.
        """
        from coterie.simulation.faults import CHANGES, LOSSES  # noqa: PLC0415 -- start-up stays fast

        return (*LOSSES, *CHANGES, "kill")

    def options(self, asked: Asked) -> RunOptions:
        """Give the options of runs of a stack that fits what is asked."""
        from coterie.journal.format import Sync  # noqa: PLC0415 -- start-up stays fast
        from coterie.kernel.errors import StackError  # noqa: PLC0415
        from coterie.simulation.engines.stack.trial import RunOptions  # noqa: PLC0415
        from coterie.stacks import (  # noqa: PLC0415
            ENGINE_STACKS,
            OBJECT_STACKS,
            STACKS,
            expand,
            has_engine,
            is_ordered,
            parse_stack,
            serves_datagrams,
        )

        default = "SAFE:DYNSEQ:PVSYNC" if asked.wants_journals else "DYNSEQ:VSYNC"
        stack = (asked.extras.get("stack") or default).upper()
        needs_history = bool(asked.journals or asked.object or asked.wants_journals)
        examples = OBJECT_STACKS if needs_history else (*STACKS, *ENGINE_STACKS)
        try:
            parse_stack(stack, examples=examples)
        except StackError as error:
            raise NotOffered(str(error)) from None
        if asked.journals and not has_engine(stack):
            raise NotOffered(
                f"--journals needs a stack that keeps a journal: {', '.join(ENGINE_STACKS)}"
            )
        if asked.object and not has_engine(stack):
            raise NotOffered(
                f"--object needs a stack that keeps a history: {', '.join(ENGINE_STACKS)}"
            )
        if asked.object not in {"", "counter"} and not is_ordered(stack):
            raise NotOffered(
                f"{stack} gives no order, so only updates that commute are right on it: "
                "choose --object counter"
            )
        if "COLOURS" in expand(stack):
            _refuse_for_colours(asked)
        if serves_datagrams(stack):
            _refuse_for_servers(asked)
        if {"join", "remove", "replace"} & set(asked.faults):
            _refuse_changes(asked, stack, can_change=is_ordered(stack) and has_engine(stack))
        return RunOptions(
            stack=stack,
            replicas=asked.replicas,
            duration=asked.duration,
            faults=asked.faults,
            sync=Sync(asked.sync or "turn"),
            object=asked.object,
            old=asked.old,
            journals=asked.journals,
        )

    def trial(
        self, seed: int, options: RunOptions, *, trace: Callable[[str], None] | None = None
    ) -> StackTrial:
        """Prepare the run of one seed."""
        from coterie.simulation.engines.colours.trial import ColoursTrial  # noqa: PLC0415
        from coterie.simulation.engines.stack.trial import StackTrial  # noqa: PLC0415
        from coterie.stacks import expand, serves_datagrams  # noqa: PLC0415

        if serves_datagrams(options.stack):
            from coterie.simulation.engines.servers.trial import ServerTrial  # noqa: PLC0415

            return ServerTrial(seed, options, trace=trace)
        if "COLOURS" in expand(options.stack):
            # Records, recovery and promises of its own; the rest is as for every stack.
            return ColoursTrial(seed, options, trace=trace)
        return StackTrial(seed, options, trace=trace)

    def keeps_journals(self, options: RunOptions) -> bool:
        """Say whether the stack has an engine: group communication alone keeps nothing."""
        from coterie.stacks import has_engine  # noqa: PLC0415

        return has_engine(options.stack)

    # ---- what is said of runs

    def title(self, options: RunOptions) -> str:
        """Say what is run."""
        return f"{options.stack}, {options.replicas} replicas"

    def lines(self, runs: Sequence[SeedRun]) -> list[str]:
        """Say how much was done: a campaign in which nothing was answered shows nothing."""
        views, messages = (
            sum(run.views for run in runs),
            sum(run.deliveries for run in runs),
        )
        calls = sum(run.figures.get("calls", 0) for run in runs)
        answered = sum(run.figures.get("answered", 0) for run in runs)
        done = f"{answered:,} of {calls:,} calls answered" if calls else ""
        done = done or f"{messages:,} messages delivered"
        lines = [f"{views:,} views installed, {done}"]
        undecided = sum(bool(run.figures.get("undecided")) for run in runs)
        if undecided:
            lines.append(f"{undecided:,} runs in which nobody could say if clients saw one order")
        return lines

    def facts(self, options: RunOptions) -> dict[str, Any]:
        """Say what is run (`title`) as values, for programs."""
        return {"stack": options.stack, "replicas": options.replicas}


def _refuse_for_servers(asked: Asked) -> None:
    """Refuse what has no meaning for clients that know nothing of replication."""
    if asked.object not in {"counter", "dictionary"}:
        raise NotOffered(
            "ONUS serves clients that know nothing of replication: choose --object counter or"
            " --object dictionary"
        )
    if asked.old:
        raise NotOffered("--old is not for ONUS yet: leave it out")


def _refuse_changes(asked: Asked, stack: str, *, can_change: bool) -> None:
    """Refuse changes of members where they are not built, or what they do not go with yet."""
    if not can_change:
        raise NotOffered(
            f"the members of {stack} cannot change: join, remove and replace are for PRIMARY and "
            "COLOURS"
        )
    if asked.old:
        raise NotOffered("join, remove and replace do not go with --old yet: leave it out")
    if asked.journals or asked.wants_journals:
        raise NotOffered(
            "the pipeline does not judge histories with changes of members yet: leave the journals"
            " out, or join, remove and replace"
        )
    if set(asked.faults) & {"amnesia", "old-disk"}:
        raise NotOffered("amnesia and old-disk do not go with join, remove and replace")


def _refuse_for_colours(asked: Asked) -> None:
    """Refuse what is not built yet for groups over a partitioned network."""
    if asked.object not in {"", "counter", "dictionary", "tally"}:
        raise NotOffered(
            f"--object {asked.object} is not for COLOURS yet: choose counter, dictionary or tally"
        )
    if asked.old:
        raise NotOffered("--old is not for COLOURS yet: leave it out")
    if set(asked.faults) & {"amnesia", "old-disk"}:
        raise NotOffered("amnesia and old-disk are not for COLOURS yet: leave them out")
