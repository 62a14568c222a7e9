"""How long tests wait for what must happen."""

from __future__ import annotations

PATIENCE = 180.0
"""Seconds. What works takes a small part of it, on the slowest and busiest of machines; it bounds
only how long a test hangs that has found something. A test that waits for something *not* to
happen does not use it: it lets time pass on a clock of its own (`tests.idle_time`), or waits for
something that happens later."""
