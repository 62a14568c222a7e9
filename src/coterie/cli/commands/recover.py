"""`coterie recover`: let a group that has lost its memory go on, and accept what is lost."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from coterie.cli import exits
from coterie.cli.errors import UsageError
from coterie.cli.target import add_target, find_target

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from coterie.cli.parser import Parser, Subparsers
    from coterie.cli.target import KnownGroup

WAIT_SECONDS = 30.0
"""How long the group may take to serve again before we say that it does not yet."""
DEADLINE_SECONDS = 3.0
"""How long a replica may take to answer; busy machines are not taken for lost ones."""
PATIENCE_SECONDS = 10.0
"""How long a replica may refuse before we give up."""


def add_parser(subparsers: Subparsers) -> Parser:
    """Describe the command and its options."""
    parser = subparsers.add_parser(
        "recover",
        help="let a group whose majority lost its memory go on, with loss",
        description="A group stops when a majority of its replicas has lost its memory, because "
        "nobody knows what it had promised. If the memory cannot be found again, this lets it go "
        "on from what one replica knows; the rest is lost, and the journals say that you accepted "
        "it. Run it on the machine of that replica. It refuses where it is not needed.",
    )
    add_target(parser, may_be_address=False)
    parser.add_argument(
        "--from",
        dest="source",
        required=True,
        metavar="REPLICA",
        help="the replica whose history is to count",
    )
    parser.add_argument(
        "--accept-loss", action="store_true", help="do it; without this, only say what is lost"
    )
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Recover the group, and wait until it serves."""
    from coterie.cli.commands.status import see  # noqa: PLC0415 -- start-up stays fast
    from coterie.kernel.errors import CoterieError, Refused  # noqa: PLC0415
    from coterie.service.operate.overview import check_recovery  # noqa: PLC0415

    try:
        target = find_target(args)
        lost = check_recovery(see(target, deadline=DEADLINE_SECONDS), args.source)
        if not args.accept_loss:
            return _say(args, f"nothing done yet: {lost}; --accept-loss does it", exits.NOT_DONE)
        _recover(target, args.source)
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            if see(target, deadline=DEADLINE_SECONDS).serves:
                return _say(args, f"the group {target.group!r} serves again; {lost}", exits.DONE)
            time.sleep(0.1)
    except Refused as refusal:
        return _say(args, str(refusal), exits.NOT_DONE)
    except CoterieError as error:
        raise UsageError(str(error)) from None
    sentence = (
        f"replica {args.source!r} counts again, but the group does not serve yet: see "
        f"coterie status {target.again()}"
    )
    return _say(args, sentence, exits.NOT_DONE)


def _recover(target: KnownGroup, source: str) -> None:
    from coterie.kernel.errors import Refused  # noqa: PLC0415
    from coterie.service.operate.control import NobodyThere, Recover, give_order  # noqa: PLC0415

    folder = _folder(target, source)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            answer = give_order(folder, Recover(target.group))
        except NobodyThere:
            raise Refused(
                f"replica {source!r} does not run in {folder} on this machine: give the command "
                "on the machine where it does"
            ) from None
        if answer.is_done:
            return
        # The replicas may be about to form a view, in which it will then be possible.
        if time.monotonic() > deadline:
            raise Refused(f"replica {source!r} refuses: {answer.text}")
        time.sleep(0.1)


def _folder(target: KnownGroup, source: str) -> Path:
    from pathlib import Path  # noqa: PLC0415

    assert target.config is not None
    return Path(target.config.replicas[source].dir)


def _say(args: argparse.Namespace, sentence: str, status: int) -> int:
    if args.json:
        import json  # noqa: PLC0415

        print(json.dumps({"is_done": status == exits.DONE, "text": sentence}))
    else:
        print(f"coterie: {sentence}", file=sys.stdout if status == exits.DONE else sys.stderr)
    return status
