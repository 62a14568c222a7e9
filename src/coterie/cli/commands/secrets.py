"""`coterie secrets`: write the secrets that a configuration names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from coterie.cli import exits
from coterie.cli.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from coterie.cli.parser import Parser, Subparsers


def add_parser(subparsers: Subparsers) -> Parser:
    """Describe the command and its options."""
    parser = subparsers.add_parser(
        "secrets",
        help="write the secrets that a configuration names",
        description="Write the secrets of replicas and clients that a configuration file names "
        "and that are not there yet, each to a file that only you can read. Then take to the "
        "machine of each replica those that have its name in theirs and those of all clients, and "
        "to each client its own.",
    )
    parser.add_argument("config", type=Path, metavar="FILE", help="the configuration file")
    return parser


def run(args: argparse.Namespace) -> int:
    """Write what is missing, and say what was written."""
    from coterie.kernel.errors import CoterieError  # noqa: PLC0415 -- start-up stays fast
    from coterie.service.config import load_config  # noqa: PLC0415
    from coterie.service.security import write_secrets  # noqa: PLC0415

    try:
        written = write_secrets(load_config(args.config))
    except CoterieError as error:
        raise UsageError(str(error)) from None
    for path in written:
        print(path)
    if not written:
        print("all secrets are there already")
    return exits.DONE
