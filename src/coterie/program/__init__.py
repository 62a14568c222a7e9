"""Unmodified Python programs made deterministic: led, followed, and rehearsed on one machine."""
