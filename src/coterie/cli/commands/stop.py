"""`coterie stop`: end a group that `coterie serve` runs on this machine."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from coterie.cli import exits
from coterie.cli.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from coterie.cli.parser import Parser, Subparsers

WAIT_SECONDS = 20.0
"""Longer than a supervisor waits before it kills what does not stop."""


def add_parser(subparsers: Subparsers) -> Parser:
    """Describe the command and its options."""
    parser = subparsers.add_parser(
        "stop",
        help="stop a group that 'coterie serve' or 'coterie program run' runs",
        description="Stop a group that 'coterie serve' runs on this machine, in good order, and "
        "those that are served together with it; or the program that 'coterie program run' runs. "
        "Its journals stay: the same command goes on from them.",
    )
    parser.add_argument("name", metavar="NAME", help="the name of the group")
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Stop the group, and wait until it has stopped."""
    from coterie.agents.deployment import program_folder  # noqa: PLC0415 -- start-up stays fast
    from coterie.kernel.errors import CoterieError  # noqa: PLC0415
    from coterie.service.folder import FolderTaken, lock_folder  # noqa: PLC0415
    from coterie.service.operate.control import NobodyThere, Stop, give_order  # noqa: PLC0415
    from coterie.service.state_folder import find_group, read_config  # noqa: PLC0415

    what = f"the group {args.name!r}"
    try:
        program = program_folder(args.name)
        if program is not None:
            what = f"the program {args.name!r}"
        folder = program or find_group(args.name)
        groups = [] if program else read_config(folder).groups
        others = [each for each in groups if each != args.name]
        if others:
            what += f", served with {', '.join(others)},"
        give_order(folder, Stop())
    except NobodyThere:
        return _say(args, f"{what} is not running", exits.NOT_DONE)
    except CoterieError as error:
        raise UsageError(str(error)) from None
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        try:
            with lock_folder(folder, "it is still there"):
                return _say(args, f"{what} has stopped", exits.DONE)
        except FolderTaken:
            time.sleep(0.05)
    sentence = f"{what} has not stopped within {WAIT_SECONDS:.0f} s"
    return _say(args, sentence, exits.NOT_DONE)


def _say(args: argparse.Namespace, sentence: str, status: int) -> int:
    if args.json:
        import json  # noqa: PLC0415

        print(json.dumps({"is_stopped": status == exits.DONE, "text": sentence}))
    else:
        print(f"coterie: {sentence}", file=sys.stdout if status == exits.DONE else sys.stderr)
    return status
