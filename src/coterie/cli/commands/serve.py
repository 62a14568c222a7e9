"""`coterie serve`: run a class as a replicated object on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from coterie.cli import exits
from coterie.cli.errors import UsageError
from coterie.service.engines import FAMILIES

if TYPE_CHECKING:
    import argparse

    from coterie.cli.parser import Parser, Subparsers

SYNCS = ("none", "interval", "primary", "turn")
REPLICAS = 3


def add_parser(subparsers: Subparsers) -> Parser:
    """Describe the command and its options."""
    parser = subparsers.add_parser(
        "serve",
        help="run a class as a replicated object on this machine",
        description="Run a class as a group of replicas, each a process on this machine that only "
        "this machine can reach, and start again what dies. The first start founds the group; a "
        "later one with the same name goes on from its journals. SIGINT and SIGTERM stop it. "
        "Several groups are served together as NAME=MODULE:CLASS NAME=MODULE:CLASS ...",
    )
    parser.add_argument(
        "classes",
        nargs="*",
        metavar="[NAME=]MODULE:CLASS",
        help="the class, in a module or a file (seats.py:Seats); a later start may leave it out",
    )
    parser.add_argument(
        "--name", help="the name of the group (default: that of the class), or of all of them"
    )
    parser.add_argument(
        "--engine",
        choices=sorted(FAMILIES),
        help="how it is replicated: 'stack' for a stack of layers (the default), 'vsr' for "
        "transactions over several groups",
    )
    parser.add_argument(
        "--replicas", type=int, metavar="N", help=f"how many replicas (default: {REPLICAS})"
    )
    parser.add_argument(
        "--stack", help="what keeps them together, top first (default: SAFE:DYNSEQ:PVSYNC)"
    )
    parser.add_argument(
        "--dir",
        type=Path,
        help="the folder of the group (default: its name in $XDG_STATE_HOME/coterie)",
    )
    parser.add_argument(
        "--sync",
        choices=SYNCS,
        help="when journals are synced: with 'turn' the group survives the loss of the machine's "
        "memory, otherwise that of its processes; 'primary' does it only at the replica that "
        "leads, if the engine has one (default: none)",
    )
    parser.add_argument(
        "--detach", action="store_true", help="return when the group serves, and leave it running"
    )
    parser.add_argument(
        "--log",
        type=Path,
        metavar="FILE",
        help="write what happens to a file and a second one of 1 MiB each, instead of printing it",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    return parser


def run(args: argparse.Namespace) -> int:
    """Serve until told to stop."""
    from coterie.cli.commands.serve_preparing import prepare  # noqa: PLC0415
    from coterie.cli.commands.serve_session import ServeSession, serve_detached  # noqa: PLC0415
    from coterie.kernel.errors import CoterieError  # noqa: PLC0415
    from coterie.runtime.loop import run as run_loop  # noqa: PLC0415
    from coterie.service.folder import FolderTaken  # noqa: PLC0415

    try:
        served = prepare(args)
        if args.detach and args.log is not None:
            raise UsageError("--detach has a log of its own, in the folder of the group")
        if args.detach:
            return serve_detached(served, as_json=args.json)
        return run_loop(ServeSession(served, as_json=args.json, log=args.log).run())
    except FolderTaken as error:
        import sys  # noqa: PLC0415

        print(f"coterie: {error}", file=sys.stderr)
        return exits.TAKEN
    except CoterieError as error:
        raise UsageError(str(error)) from None
