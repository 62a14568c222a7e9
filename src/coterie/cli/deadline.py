"""`--deadline`: how long a command may try, as every command that takes one reads it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from coterie.cli.errors import UsageError

if TYPE_CHECKING:
    from coterie.cli.parser import Parser


def add_deadline(parser: Parser, default: float, what: str) -> None:
    """Add the option; *what* says what takes no longer than that."""
    parser.add_argument(
        "--deadline",
        type=_deadline,
        default=default,
        metavar="SECONDS",
        help=f"{what} (default: %(default)g)",
    )


def _deadline(word: str) -> float:
    try:
        seconds = float(word)
    except ValueError:
        raise UsageError(
            f"--deadline {word!r} is no number of seconds; give one such as 2.5"
        ) from None
    if not seconds > 0:
        raise UsageError(f"--deadline {word} leaves no time; give seconds above 0")
    if math.isinf(seconds):
        raise UsageError(f"--deadline {word} never comes; give a number of seconds")
    return seconds
