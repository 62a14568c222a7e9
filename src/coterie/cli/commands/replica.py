"""`coterie replica`: run one process of a deployment, with a replica of each of its groups."""

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
        "replica",
        help="run one replica of a deployment",
        description="Run one process of the deployment that a configuration file describes, with "
        "a replica of each of its groups, until SIGTERM or SIGINT make it leave in good order. A "
        "second signal ends it at once.",
    )
    parser.add_argument(
        "--config", type=Path, required=True, metavar="FILE", help="the configuration file"
    )
    parser.add_argument("--id", required=True, help="which of the file's replicas this is")
    parser.add_argument(
        "--found",
        action="store_true",
        help="be one of those the groups begin with; at the very first start only",
    )
    parser.add_argument(
        "--until-eof", action="store_true", help="stop at the end of standard input, too"
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="log as JSON lines; it is so by default where the error stream is no terminal",
    )
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the process until it is told to stop."""
    import traceback  # noqa: PLC0415 -- start-up of other commands stays fast

    from coterie.cli.commands.replica_session import ReplicaSession  # noqa: PLC0415
    from coterie.journal.writer import StorageFailed  # noqa: PLC0415
    from coterie.kernel.errors import CoterieError  # noqa: PLC0415
    from coterie.runtime.driver import TurnFailed  # noqa: PLC0415
    from coterie.runtime.loop import run as run_loop  # noqa: PLC0415
    from coterie.runtime.transport import ListenError  # noqa: PLC0415
    from coterie.service.config import load_config  # noqa: PLC0415
    from coterie.service.folder import FolderTaken  # noqa: PLC0415

    try:
        config = load_config(args.config)
        session = ReplicaSession(
            config,
            args.id,
            found=args.found,
            until_eof=args.until_eof,
            as_json=args.json or not sys.stderr.isatty(),
        )
        run_loop(session.run())
    except TurnFailed as failure:
        traceback.print_exception(failure)
        return _end(failure, exits.BUG)
    except StorageFailed as failure:
        return _end(failure, exits.STORAGE)
    except (FolderTaken, ListenError) as error:
        return _end(error, exits.TAKEN)
    except CoterieError as error:
        raise UsageError(str(error)) from None
    return exits.DONE


def _end(error: Exception, status: int) -> int:
    print(f"coterie: {error}", file=sys.stderr)
    return status
