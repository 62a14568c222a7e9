"""`coterie backup`: the state of a group that serves, in one file."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.cli import exits
from coterie.cli.deadline import add_deadline
from coterie.cli.errors import UsageError
from coterie.cli.target import add_target, find_target

if TYPE_CHECKING:
    import argparse

    from coterie.cli.parser import Parser, Subparsers
    from coterie.cli.target import KnownGroup

DEADLINE_SECONDS = 600.0
LOOK_SECONDS = 0.05


def add_parser(subparsers: Subparsers) -> Parser:
    """Describe the command and its options."""
    parser = subparsers.add_parser(
        "backup",
        help="write the state of a group into a file, while it serves",
        description="Have a replica on this machine write what is settled of a group into a file "
        "that needs nothing beside it, while the group serves. 'coterie restore' founds a new "
        "group with it.",
    )
    add_target(parser, may_be_address=False)
    parser.add_argument("file", type=Path, metavar="FILE", help="where it goes; a new file")
    add_deadline(parser, DEADLINE_SECONDS, "how long writing may take")
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Have it written, and wait until it is there."""
    from coterie.journal.backup import Backup  # noqa: PLC0415 -- start-up stays fast
    from coterie.kernel.errors import CoterieError, Refused  # noqa: PLC0415

    path = args.file.absolute()
    try:
        _ask(find_target(args), path)
        _wait_for(path, args.deadline)
        head = Backup(path).head
    except Refused as refusal:
        return _say(args, str(refusal), exits.NOT_DONE)
    except CoterieError as error:
        raise UsageError(str(error)) from None
    size = path.stat().st_size / 1e6
    return _say(args, f"{path} has {head.group} at position {head.position} ({size:.1f} MB)", 0)


def _wait_for(path: Path, seconds: float) -> None:
    from coterie.kernel.errors import Refused  # noqa: PLC0415

    deadline = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > deadline:
            raise Refused(f"{path} is not there yet: the log of the replica says why")
        time.sleep(LOOK_SECONDS)


def _ask(target: KnownGroup, path: Path) -> None:
    """Ask a replica on this machine, of those in a primary view if there is one."""
    from coterie.cli.commands.status import see  # noqa: PLC0415
    from coterie.kernel.errors import Refused  # noqa: PLC0415
    from coterie.service.operate.control import NobodyThere, TakeBackup, give_order  # noqa: PLC0415

    config = target.config
    assert config is not None, "the command takes no address"
    if not path.parent.is_dir():
        raise Refused(f"{path.parent} is no folder: make it first")
    seen = {each.id: each.is_primary for each in see(target, deadline=3.0).replicas}
    reason = "no replica of the group runs on this machine: give the command where one does"
    for id in sorted(config.everyone(target.group), key=lambda id: not seen.get(id, False)):
        try:
            answer = give_order(Path(config.replicas[id].dir), TakeBackup(target.group, str(path)))
        except NobodyThere:
            continue
        if answer.is_done:
            return
        reason = answer.text
        break
    raise Refused(reason)


def _say(args: argparse.Namespace, sentence: str, status: int) -> int:
    if args.json:
        print(json.dumps({"is_done": status == exits.DONE, "text": sentence}))
    else:
        print(f"coterie: {sentence}", file=sys.stdout if status == exits.DONE else sys.stderr)
    return status
