"""`coterie remove`: have a group go on without a replica."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.cli.commands.member_change import DEADLINE_SECONDS, change
from coterie.cli.deadline import add_deadline
from coterie.cli.target import add_target

if TYPE_CHECKING:
    import argparse

    from coterie.cli.commands.member_change import MemberChange
    from coterie.cli.parser import Parser, Subparsers


def add_parser(subparsers: Subparsers) -> Parser:
    """Describe the command and its options."""
    parser = subparsers.add_parser(
        "remove",
        help="have a group go on without a replica",
        description="Remove a replica from a group while it serves. It is told, notes on its disk "
        "that it was removed, and ends; its journals stay for the pipeline, and its id is never "
        "used again. It is refused where the others would have no majority.",
    )
    add_target(parser, may_be_address=False)
    parser.add_argument("id", metavar="ID", help="the replica that is to go")
    add_deadline(parser, DEADLINE_SECONDS, "how long to watch it; it goes on afterwards")
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Remove it, and say so when the group goes on without it."""

    def remove(it: MemberChange) -> str:
        it.remove(args.id)
        return f"{args.name} goes on without {args.id}, whose journals stay"

    return change(args, remove)
