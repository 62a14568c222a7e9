"""What a family of engines gives the simulator, and what users can ask of it.

A family is one object. `coterie sim`, `coterie campaign` and tests find it by its name in
`coterie.simulation.engines`; nothing outside a family's own modules knows which families there are.

    class Toys(Family):
        name = "toys"
        about = "a protocol that is a toy"

        def options(self, asked): return ToyOptions(replicas=asked.replicas, ...)
        def trial(self, seed, options, *, trace=None): return ToyTrial(seed, options, trace=trace)

    register(Toys())

The first part of a family describes it and is read at every start of the command line, so a module
that defines one imports what is slow only inside its methods. What a run of it does is a *trial*
(`coterie.simulation.campaign`).
"""

from __future__ import annotations

import abc
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from coterie.kernel.clock import Duration
    from coterie.simulation.campaign import Options, SeedRun, Trial


class NotOffered(ValueError):
    """A family was asked for something that it does not have; the message says what it has."""


class Extra(NamedTuple):
    """An option of the command line that a family adds; without it, its value is None.

    The options of a run have a field of the same name.
    """

    flag: str
    help: str
    kind: Callable[[str], object] = str
    metavar: str | None = None

    @property
    def name(self) -> str:
        """The flag as the name of a field."""
        return self.flag.removeprefix("--").replace("-", "_")


class Asked(NamedTuple):
    """What a user asked for, as far as it means the same for all families."""

    replicas: int
    duration: Duration
    faults: tuple[str, ...]
    object: str
    """A kind of object that the family has, or nothing."""
    sync: str
    """One of the family's ways to sync journals, or nothing."""
    journals: str = ""
    """The folder that gets the journals of each run."""
    wants_journals: bool = False
    """Whether the journals are the point, so that they should be kept if the family can."""
    old: bool = False
    """Whether runs are to begin with what years leave on disks; only where `can_be_old`."""
    extras: Mapping[str, Any] = MappingProxyType({})
    """The family's own options, by their names; those that were not given are None."""


class Family(abc.ABC):
    """How one family of engines is simulated."""

    name: ClassVar[str]
    """Its key here and on every other side of the project."""
    about: ClassVar[str]
    """What it is, for the help of the command line, in half a sentence."""
    extras: ClassVar[tuple[Extra, ...]] = ()
    objects: ClassVar[tuple[str, ...]] = ()
    """The kinds of objects that clients can use."""
    syncs: ClassVar[tuple[str, ...]] = ("turn",)
    """When journals can be synced."""
    can_be_old: ClassVar[bool] = False
    """Whether its runs can begin old (`coterie.simulation.world.age`)."""
    replicas: ClassVar[int] = 3
    """How many replicas a group has unless the user says so."""
    replicas_max: ClassVar[int] = 26

    @property
    @abc.abstractmethod
    def faults(self) -> tuple[str, ...]:
        """The faults that it must survive: what `--faults all` means."""

    @property
    def more_faults(self) -> tuple[str, ...]:
        """Faults that can be asked for by name only."""
        return ()

    # ---- runs

    @abc.abstractmethod
    def options(self, asked: Asked) -> Options:
        """Give the options of runs. Raises `NotOffered` where it cannot do what is asked."""

    @abc.abstractmethod
    def trial(
        self,
        seed: int,
        options: Any,  # noqa: ANN401 -- of its own kind
        *,
        trace: Callable[[str], None] | None = None,
    ) -> Trial:
        """Prepare the run of one seed; *options* are such as `options` gives."""

    def keeps_journals(self, options: Any) -> bool:  # noqa: ANN401 -- of its own kind
        """Say whether the replicas of such runs keep journals."""
        del options
        return True

    # ---- what is said of runs

    def title(self, options: Any) -> str:  # noqa: ANN401 -- of its own kind
        """Say what is run, as the beginning of a line."""
        return f"{self.name}, {options.replicas} replicas"

    def facts(self, options: Any) -> dict[str, Any]:  # noqa: ANN401 -- of its own kind
        """Say what is run (`title`) as values, for programs."""
        return {each.name: getattr(options, each.name) for each in self.extras}

    def lines(self, runs: Sequence[SeedRun]) -> list[str]:
        """Say what came of runs, beside what is said of all families."""
        del runs
        return []
