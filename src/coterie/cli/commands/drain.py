"""`coterie drain`: have the manager empty a host, for maintenance."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from coterie.cli import exits
from coterie.cli.commands.manage import add_manager, manager_target
from coterie.cli.deadline import add_deadline
from coterie.cli.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from coterie.cli.parser import Parser, Subparsers
    from coterie.manager.management import Entered


def add_parser(subparsers: Subparsers) -> Parser:
    """Describe the command and its options."""
    parser = subparsers.add_parser(
        "drain",
        help="have the manager take all replicas from a host",
        description="Put a host into maintenance: its replicas are replaced by others elsewhere, "
        "one by one in each group, as far as the policy and the other hosts allow; 'coterie "
        "status' with the manager's group shows how far that is.",
    )
    parser.add_argument("host", metavar="HOST", help="the host, as the policy calls it")
    parser.add_argument(
        "--back", action="store_true", help="let replicas be there again, after the maintenance"
    )
    add_manager(parser)
    add_deadline(parser, 10.0, "how long to wait for an answer")
    return parser


def run(args: argparse.Namespace) -> int:
    """Enter it into the management object."""
    from coterie.kernel.errors import CoterieError  # noqa: PLC0415 -- start-up stays fast
    from coterie.runtime.loop import run as run_loop  # noqa: PLC0415

    try:
        entered = run_loop(_enter(args))
    except CoterieError as error:
        raise UsageError(str(error)) from None
    if entered.refusal:
        print(f"coterie: {entered.refusal}", file=sys.stderr)
        return exits.NOT_DONE
    print(
        f"coterie: {args.host} may have replicas again"
        if args.back
        else f"coterie: {args.host} is being drained"
    )
    return exits.DONE


async def _enter(args: argparse.Namespace) -> Entered:
    from coterie.client import ClientSettings, connect  # noqa: PLC0415
    from coterie.manager.management import Management  # noqa: PLC0415

    target = manager_target(args)
    connecting: Any = connect(
        Management,
        list(target.addresses.values()),
        group=target.group,
        secret=target.secret,
        tls=target.tls,
        settings=ClientSettings(deadline=args.deadline),
    )
    async with connecting as management:
        call = management.bring_back if args.back else management.drain
        entered: Entered = await call(args.host)
        return entered
