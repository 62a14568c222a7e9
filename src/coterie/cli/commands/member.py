"""`coterie member`: run one member of a group.

Each line on standard input is multicast to the group; a line that begins with `!` is cast without
it, as a safe message. What the member delivers, and every view it installs, is printed.
"""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.cli.errors import UsageError

if TYPE_CHECKING:
    from coterie.cli.parser import Parser, Subparsers

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

EXIT_BUG = 70
STDERR = 2


def add_parser(subparsers: Subparsers) -> Parser:
    """Describe the command and its options."""
    parser = subparsers.add_parser(
        "member",
        help="run one member of a group: multicast lines, print what is delivered",
        description="Run one member of a group. Each line on standard input is multicast; a line "
        "that begins with '!' is cast without it, to be delivered when all members have it. "
        "Views and deliveries are printed. SIGTERM or SIGINT make the member leave in good order.",
    )
    parser.add_argument("--group", required=True, metavar="NAME", help="the name of the group")
    parser.add_argument("--id", required=True, metavar="ID", help="the name of this member")
    parser.add_argument(
        "--listen",
        required=True,
        metavar="HOST:PORT",
        help="where to listen; port 0 lets the system choose, and is printed",
    )
    parser.add_argument(
        "--peer",
        action="append",
        default=[],
        metavar="ID=HOST:PORT",
        help="another member and where it listens; once for each",
    )
    parser.add_argument(
        "--stack",
        default="DYNSEQ:VSYNC",
        help="the layers, top first (default: %(default)s)",
    )
    parser.add_argument(
        "--history",
        type=Path,
        metavar="DIR",
        help="a folder for the journal of this member, which also counts its lives",
    )
    parser.add_argument(
        "--wait-for",
        type=int,
        default=1,
        metavar="N",
        help="cast nothing before a view has N members (default: %(default)s)",
    )
    parser.add_argument(
        "--until-eof", action="store_true", help="leave the group at the end of standard input"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the member until it is told to stop."""
    import sys  # noqa: PLC0415 -- start-up of other commands stays fast
    import traceback  # noqa: PLC0415

    from coterie.cli.commands.member_session import MemberSession, prepare  # noqa: PLC0415
    from coterie.journal.writer import StorageFailed  # noqa: PLC0415
    from coterie.kernel.errors import CoterieError  # noqa: PLC0415
    from coterie.runtime.driver import TurnFailed  # noqa: PLC0415
    from coterie.runtime.loop import run as run_loop  # noqa: PLC0415

    _check(args)
    _fill_standard_files()
    try:
        session = MemberSession(prepare(args))
        status = run_loop(session.run())
    except TurnFailed as failure:
        traceback.print_exception(failure)
        print(f"coterie: {failure}", file=sys.stderr)
        return EXIT_BUG
    except StorageFailed as failure:
        print(f"coterie: {failure}", file=sys.stderr)
        return EXIT_BUG
    except CoterieError as error:
        raise UsageError(str(error)) from None
    if session.reader_is_gone:
        raise BrokenPipeError
    return status


def _check(args: argparse.Namespace) -> None:
    """Refuse names that cannot be told apart or written down."""
    for option, name in (("--group", args.group), ("--id", args.id)):
        if not NAME.fullmatch(name):
            raise UsageError(
                f"{option} {name!r} is no name: use up to 64 letters, digits, dots, hyphens and "
                "underscores, beginning with a letter or digit"
            )
    seen = {args.id}
    for peer in args.peer:
        id, equals, _ = peer.partition("=")
        if not equals or not NAME.fullmatch(id):
            raise UsageError(f"--peer {peer!r} should read ID=HOST:PORT")
        if id == args.id:
            raise UsageError(f"--peer {peer!r} names this member itself; give only the others")
        if id in seen:
            raise UsageError(f"--peer {id!r} is given twice; every member has one id and address")
        seen.add(id)
    if not 1 <= args.wait_for <= len(seen):
        raise UsageError(
            f"--wait-for {args.wait_for} cannot be: the group has {len(seen)} members in all"
        )


def _fill_standard_files() -> None:
    """Have something behind descriptors 0 to 2: a socket there would be taken for them."""
    while (file := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        pass
    os.close(file)
