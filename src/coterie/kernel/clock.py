"""Time as the protocols see it: whole microseconds handed in by the driver.

Integers, so that the same seed gives the same trace on any machine; no protocol reads a clock.
"""

from typing import NewType

Instant = NewType("Instant", int)
"""A moment on the driver's monotone clock, in microseconds."""

Duration = NewType("Duration", int)
"""A length of time in microseconds."""


def seconds(amount: float) -> Duration:
    """Give *amount* seconds as a duration."""
    return Duration(round(amount * 1_000_000))


def milliseconds(amount: float) -> Duration:
    """Give *amount* milliseconds as a duration."""
    return Duration(round(amount * 1_000))


def after(start: Instant, *waits: Duration) -> Instant:
    """Give the moment that lies all of *waits* after *start*."""
    return Instant(start + sum(waits))
