"""The `coterie` command: chooses a subcommand, runs it, and turns its end into an exit status.

A subcommand is a module of this folder with two functions, and its name in `COMMANDS`:

    def add_parser(subparsers: Subparsers) -> Parser     describes the command and its options
    def run(args: argparse.Namespace) -> int             does it, and returns the exit status

All of these modules are imported at every start, so that `--help` can list them: what is slow to
import is imported inside `run`.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Protocol, cast

from coterie.cli import exits
from coterie.cli.errors import UsageError
from coterie.cli.parser import Parser, Subparsers

COMMANDS = (
    *(
        "bench",
        "call",
        "campaign",
        "completion",
        "demo",
        "member",
        "pipeline",
        "recover",
        "replica",
    ),
    *("serve", "sim", "status", "stop", "version"),
)


class Command(Protocol):
    """What a subcommand's module offers."""

    def add_parser(self, subparsers: Subparsers) -> Parser:
        """Describe the command and its options."""

    def run(self, args: argparse.Namespace) -> int:
        """Do what was asked; return the exit status."""


def build_parser() -> Parser:
    """Build the parser of the whole command line."""
    parser = Parser(
        prog="coterie",
        description="Replication for Python.",
        epilog=exits.TABLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    subparsers = parser.add_subparsers(title="commands", metavar="<command>")
    for name in COMMANDS:
        command = cast("Command", import_module(f"coterie.cli.{name}"))
        command.add_parser(subparsers).set_defaults(run=command.run)
    return parser


def run(argv: Sequence[str] | None) -> int:
    """Run the subcommand that *argv* names."""
    parser = build_parser()
    args = parser.parse_args(argv)
    if "run" not in args:
        parser.print_help(sys.stderr)
        return exits.MISUSE
    status: int = args.run(args)
    return status


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line *argv*, by default the process's own; return the exit status."""
    try:
        try:
            return run(argv)
        finally:
            # A reader that has gone away should be noticed here, not when the interpreter exits.
            sys.stdout.flush()
    except UsageError as error:
        print(f"coterie: {error}", file=sys.stderr)
        return exits.MISUSE
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except BrokenPipeError:
        # The interpreter flushes once more on its way out; let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.READER_GONE
