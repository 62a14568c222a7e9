"""What is replicated in the demo: the records of a telephone exchange.

Billing must go on in every weather, and a record that was confirmed must be billed once: the
example with which the paper on replicated objects opens its section on optimistic delivery.
"""

from __future__ import annotations

from coterie.objects import query, update


class Exchange:
    """Call records, as they come in."""

    seconds: dict[str, int] = {}  # noqa: RUF012 -- copied for each object
    calls: int = 0

    @update
    def record(self, account: str, call: str, duration: int) -> int:
        """Record a call of so many seconds; give how many seconds the account has used."""
        if not call:
            raise ValueError("a call needs a name")
        self.calls += 1
        used = self.seconds.get(account, 0) + duration
        self.seconds[account] = used
        return used

    @query
    def used(self, account: str) -> int:
        """Give the seconds an account has used."""
        return self.seconds.get(account, 0)
