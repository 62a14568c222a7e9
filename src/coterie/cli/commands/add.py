"""`coterie add`: have a replica join a group that serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.cli.commands.member_change import DEADLINE_SECONDS, change
from coterie.cli.deadline import add_deadline
from coterie.cli.target import add_target

if TYPE_CHECKING:
    import argparse

    from coterie.cli.parser import Parser, Subparsers


def add_parser(subparsers: Subparsers) -> Parser:
    """Describe the command and its options."""
    parser = subparsers.add_parser(
        "add",
        help="have a replica join a group that serves",
        description="Have a new replica join a group while it serves: it is brought up to date "
        "first, and counts when it knows all. Where 'coterie serve' runs the group the replica is "
        "started, too; elsewhere start it first, with a file that says what it joins. Exit status "
        "1 if nothing was changed, 3 if it is still on its way.",
    )
    add_target(parser, may_be_address=False)
    parser.add_argument(
        "id", nargs="?", default="", metavar="ID", help="the new replica (default: a free name)"
    )
    add_deadline(parser, DEADLINE_SECONDS, "how long to watch it; it goes on afterwards")
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Have it join, and say so when it is a member."""
    return change(args, lambda it: f"{it.add(args.id)} is a member of {args.name} now")
