"""Log events: a name and fields, and how many of each may be written.

An event is counted every time and logged once a second at most for each name and peer, with the
number of those left out: whoever sends us garbage in a loop must not fill a disk with it.
"""

from __future__ import annotations

import logging
import time

logger = logging.getLogger("coterie.runtime")

_INTERVAL = 1.0
_KEYS_MAX = 1024
"""So many events and peers are told apart."""


class EventLogger:
    """The counters and the log of one part of the runtime."""

    def __init__(self, **bound: object) -> None:
        self.counters: dict[str, int] = {}
        self._bound = bound
        self._logged_at: dict[tuple[str, object], float] = {}
        self._left_out: dict[tuple[str, object], int] = {}

    def count(self, counter: str, amount: int = 1) -> None:
        """Add to a counter."""
        self.counters[counter] = self.counters.get(counter, 0) + amount

    def warn(self, name: str, *, counter: str = "", **fields: object) -> None:
        """Log an event as a warning, and count it if it has a counter."""
        if counter:
            self.count(counter)
        key = (name, fields.get("peer"))
        now = time.monotonic()
        if now - self._logged_at.get(key, -_INTERVAL) < _INTERVAL:
            self._left_out[key] = self._left_out.get(key, 0) + 1
            return
        if len(self._logged_at) >= _KEYS_MAX:
            self._logged_at.clear()  # somebody has a new name each time: a line more is no matter
            self._left_out.clear()
        self._logged_at[key] = now
        left_out = self._left_out.pop(key, 0)
        log(logging.WARNING, name, **self._bound, **fields, **_some(left_out=left_out))


def log(level: int, name: str, **fields: object) -> None:
    """Log one event; a handler finds name and fields on the record, others see one line."""
    line = " ".join([name, *(f"{field}={value!r}" for field, value in fields.items())])
    logger.log(level, "%s", line, extra={"event": name, "fields": fields})


def _some(**fields: int) -> dict[str, int]:
    return {name: value for name, value in fields.items() if value}
