"""The `coterie` command: chooses a subcommand, runs it, and turns its end into an exit status.

A subcommand is a module of `commands/` with two functions, and its name in `COMMANDS`:

    def add_parser(subparsers: Subparsers) -> Parser     describes the command and its options
    def run(args: argparse.Namespace) -> int             does it, and returns the exit status

Where a command is named only its module is imported; otherwise all are, so that `--help` can list
them. What is slow to import is imported inside `run`.
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
        "add",
        "agent",
        "backup",
        "bench",
        "call",
        "campaign",
        "check",
        "completion",
        "demo",
        "drain",
        "manage",
        "member",
        "members",
        "pipeline",
        "program",
        "recover",
        "remove",
        "replace",
        "replica",
        "restore",
    ),
    *("secrets", "serve", "sim", "status", "stop", "version"),
)


class CommandModule(Protocol):
    """What a subcommand's module offers."""

    def add_parser(self, subparsers: Subparsers) -> Parser:
        """Describe the command and its options."""

    def run(self, args: argparse.Namespace) -> int:
        """Do what was asked; return the exit status."""


def build_parser(commands: Sequence[str] = COMMANDS) -> Parser:
    """Build the parser of the whole command line, or of some of its commands."""
    parser = Parser(
        prog="coterie",
        description="Replication for Python.",
        epilog=exits.TABLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    subparsers = parser.add_subparsers(title="commands", metavar="<command>")
    for name in commands:
        command = cast("CommandModule", import_module(f"coterie.cli.commands.{name}"))
        command.add_parser(subparsers).set_defaults(run=command.run)
    return parser


def run(argv: Sequence[str] | None) -> int:
    """Run the subcommand that *argv* names."""
    words = sys.argv[1:] if argv is None else argv
    named = [word for word in words[:1] if word in COMMANDS]
    parser = build_parser(named or COMMANDS)
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
