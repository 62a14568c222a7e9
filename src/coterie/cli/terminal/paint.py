"""Colour, for terminals only and for those who want it (NO_COLOR is respected)."""

from __future__ import annotations

import os
import sys
from typing import TextIO

_CODES = {"bold": 1, "faint": 2, "red": 31, "green": 32, "yellow": 33, "blue": 34}


def as_one_line(text: str) -> str:
    """Give text from elsewhere so that it neither breaks a line nor steers a terminal."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


class Paint:
    """Paints text for one stream, or leaves it as it is."""

    def __init__(self, stream: TextIO | None = None) -> None:
        stream = sys.stdout if stream is None else stream
        self.is_on = (
            stream.isatty()
            and not os.environ.get("NO_COLOR")
            and os.environ.get("TERM", "") != "dumb"
        )

    def __call__(self, text: str, colour: str) -> str:
        """Give *text* in a colour."""
        return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if self.is_on else text
