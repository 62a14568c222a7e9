"""One figure of a benchmark, with what stands beside it: repeats, yardstick, target."""

from __future__ import annotations

from statistics import median

import msgspec

OTHERS_CORES_MAX = 0.3
"""A figure that was taken while others used more than this is marked."""


class Target(msgspec.Struct, frozen=True):
    """What a figure is meant to reach."""

    limit: float
    is_floor: bool = True
    """Whether more is better."""

    def is_met_by(self, value: float) -> bool:
        """Say whether a value is good enough."""
        return value >= self.limit if self.is_floor else value <= self.limit


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """The median of one measurement, and under what it was made."""

    section: str
    what: str
    replicas: int = 0
    message_bytes: int = 0
    journal: str = ""
    value: float
    unit: str
    repeats: list[float] = []
    echoes: float = 0.0
    """A time in raw round trips, or how many are done in the time of one; 0 if it says nothing."""
    cpu_us: float = 0.0
    """Processor time for each command, of all replicas together."""
    client_cpu_us: float = 0.0
    """Processor time for each command, of the process of all clients."""
    others_cores: float = 0.0
    """How many cores other work kept busy while this was measured."""
    target: Target | None = None

    @property
    def is_clean(self) -> bool:
        """Whether others left the machine to the measurement."""
        return self.others_cores <= OTHERS_CORES_MAX

    def __str__(self) -> str:
        words = [self.what]
        if self.replicas:
            words.append(f"{self.replicas} replicas")
        if self.message_bytes:
            words.append(f"{self.message_bytes} B")
        if self.journal:
            words.append(f"journal {self.journal}")
        return f"{self.section + ':':12} {', '.join(words)}: {self.shown}"

    @property
    def verdict(self) -> str:
        """Whether the target is met, in a word; nothing if there is none."""
        if self.target is None:
            return ""
        return "met" if self.target.is_met_by(self.value) else "missed"

    @property
    def shown(self) -> str:
        """The value with its unit."""
        return show(self.value, self.unit)

    @property
    def shown_target(self) -> str:
        """The target as a condition, and whether it holds."""
        if self.target is None:
            return ""
        sign = ">=" if self.target.is_floor else "<="
        return f"{sign} {show(self.target.limit, self.unit)}: {self.verdict}"


def show(value: float, unit: str) -> str:
    """Write a value with as many digits as say something."""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2  # noqa: PLR2004 -- three of them
    return f"{value:,.{digits}f}{'' if unit.startswith('/') else ' '}{unit}"


def rate(  # noqa: PLR0913 -- all by name
    *,
    section: str,
    what: str,
    rates: list[float],
    echo_ms: float,
    cpu_us: float = 0.0,
    client_cpu_us: float = 0.0,
    replicas: int = 0,
    message_bytes: int = 0,
    journal: str = "",
    target: Target | None = None,
) -> Figure:
    """Make a figure of how many are done in a second; the median of *rates*."""
    value = median(rates)
    return Figure(
        section=section,
        what=what,
        replicas=replicas,
        message_bytes=message_bytes,
        journal=journal,
        value=value,
        unit="/s",
        repeats=rates,
        echoes=value * echo_ms / 1000,
        cpu_us=cpu_us,
        client_cpu_us=client_cpu_us,
        target=target,
    )
