"""`coterie replace`: put a new replica in the place of an old one."""

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
        "replace",
        help="put a new replica in the place of an old one",
        description="Have a new replica join a group while it serves, and then the old one "
        "removed: what 'coterie add' and 'coterie remove' do, one after the other, so that there "
        "is never one replica less. The old one may be lost for good.",
    )
    add_target(parser, may_be_address=False)
    parser.add_argument("old", metavar="OLD", help="the replica that is to go")
    parser.add_argument(
        "id", nargs="?", default="", metavar="NEW", help="the new replica (default: a free name)"
    )
    add_deadline(parser, DEADLINE_SECONDS, "how long to watch it; it goes on afterwards")
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Replace it, and say so when that is done."""

    def replace(it: MemberChange) -> str:
        new = it.add(args.id)
        it.remove(args.old)
        return f"{new} is in the place of {args.old} in {args.name}"

    return change(args, replace)
