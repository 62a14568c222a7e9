"""`coterie members`: who belongs to a group, and how far newcomers are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.cli import exits
from coterie.cli.deadline import add_deadline
from coterie.cli.errors import UsageError
from coterie.cli.target import add_target, find_target
from coterie.cli.terminal.paint import as_one_line

if TYPE_CHECKING:
    import argparse

    from coterie.cli.parser import Parser, Subparsers
    from coterie.kernel.views import ChangedConfiguration
    from coterie.service.operate.overview import Overview


def add_parser(subparsers: Subparsers) -> Parser:
    """Describe the command and its options."""
    parser = subparsers.add_parser(
        "members",
        help="list who belongs to a group, as its history has it",
        description="List the members of a group, those that are on their way in or out, and "
        "those that were removed, as the group's own history has it. Exit status 1 if no replica "
        "answers.",
    )
    add_target(parser, may_be_address=True)
    add_deadline(parser, 3.0, "how long a replica may take to answer")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Show who belongs to the group."""
    import msgspec  # noqa: PLC0415 -- start-up stays fast

    from coterie.cli.commands.status import see  # noqa: PLC0415
    from coterie.kernel.errors import CoterieError  # noqa: PLC0415

    try:
        seen = see(find_target(args), deadline=args.deadline)
    except CoterieError as error:
        raise UsageError(str(error)) from None
    now = seen.configuration
    rows = [{"id": each.id, "standing": "member"} for each in seen.named]
    if now is not None and now.members:
        rows = [{"id": id, "standing": standing(now, id)} for id in now.everyone]
    addresses = {each.id: each.address for each in seen.replicas}
    for row in rows:
        row["clients_at"] = addresses.get(row["id"], "")
        row["role"] = _role(seen, row["id"])
    gone = () if now is None else now.gone
    if args.json:
        number = 1 if now is None else now.number
        told = {"group": args.name, "number": number, "members": rows, "removed": gone}
        print(msgspec.json.encode(told).decode())
    else:
        width = max((len(row["id"]) for row in rows), default=0)
        for row in rows:
            rest = "  ".join([row["standing"].ljust(7), row["clients_at"], row["role"]])
            print(as_one_line(f"{row['id'].ljust(width)}  {rest}".rstrip()))
        if gone:
            print(as_one_line(f"removed: {', '.join(gone)}"))
    return exits.DONE if seen.up else exits.NOT_DONE


def standing(now: ChangedConfiguration, id: str) -> str:
    """Say in a word how a replica belongs to a group."""
    if id in now.learners:
        return "learner"
    if not now.before or (id in now.members and id in now.before):
        return "member"
    return "joining" if id in now.members else "leaving"


def _role(seen: Overview, id: str) -> str:
    report = next((each.report for each in seen.replicas if each.id == id), None)
    if report is None:
        return "does not answer"
    fetched = report.details.get("fetched")
    return f"{report.role}, {fetched} fetched" if fetched else report.role
