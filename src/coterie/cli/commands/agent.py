"""`coterie agent`: on each host, what the availability manager speaks to."""

from __future__ import annotations

import sys
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
        "agent",
        help="have the replicas on this host started and stopped by a manager",
        description="Run the agent of this host: it starts and stops replicas as the manager of "
        "groups orders ('coterie manage'), and tells how they and the host are. Whoever knows the "
        "secret in its file may order, nobody else. Replicas end when it ends.",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="the file of the agent")
    parser.add_argument(
        "--json",
        action="store_true",
        help="log as JSON lines; it is so by default where the error stream is no terminal",
    )
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the agent until it is told to stop."""
    from coterie.cli.commands.manage import run_until_stopped  # noqa: PLC0415 -- start-up stays fast
    from coterie.kernel.errors import CoterieError  # noqa: PLC0415
    from coterie.service.folder import FolderTaken  # noqa: PLC0415
    from coterie.service.manage.agent_config import load_agent_config  # noqa: PLC0415
    from coterie.service.manage.host_agent import HostAgent  # noqa: PLC0415

    try:
        run_until_stopped(HostAgent(load_agent_config(args.file)).run, as_json=args.json)
    except FolderTaken as error:
        print(f"coterie: {error}", file=sys.stderr)
        return exits.TAKEN
    except CoterieError as error:
        raise UsageError(str(error)) from None
    return exits.DONE
