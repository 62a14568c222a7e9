"""`coterie pipeline status`: how far the results of `follow` are behind the journals."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from coterie.cli import exits
from coterie.cli.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from coterie.cli.parser import Subparsers

ACTION = "status"


def add_parser(actions: Subparsers) -> None:
    """Describe the action."""
    status = actions.add_parser(
        ACTION,
        help="say how far the results of `follow` are behind the journals",
        description="Look at the journals that `follow` reads, and say how much of them is not in "
        "its results yet, and when its last batch ended.",
    )
    status.add_argument("out", type=Path, metavar="DIR", help="the results of `pipeline follow`")
    status.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Say it."""
    import msgspec  # noqa: PLC0415 -- start-up stays fast

    from coterie.kernel.errors import CoterieError  # noqa: PLC0415
    from coterie.pipeline.progress import lag_of, read_batch  # noqa: PLC0415

    try:
        batch = read_batch(args.out)
        lag = lag_of(batch)
    except CoterieError as error:
        raise UsageError(str(error)) from None
    if args.json:
        told = {
            "batch": batch.number,
            "began": batch.began,
            "ended": batch.ended,
            "read_bytes": batch.read_bytes,
            "segments": batch.segments,
            "outcome": batch.outcome,
            "behind_bytes": lag.behind_bytes,
            "behind_seconds": lag.behind_seconds,
        }
        print(msgspec.json.encode(told).decode())
        return exits.DONE
    took = batch.ended - batch.began
    print(f"batch {batch.number}: {batch.read_bytes:,} bytes in {took:.1f} s, {batch.outcome}")
    if not lag.total:
        print("results have all that the journals have")
        return exits.DONE
    print(f"behind: {lag.total:,} bytes, results are {lag.behind_seconds:.1f} s old")
    for group, behind in sorted(lag.behind_bytes.items()):
        if behind:
            print(f"  {group}: {behind:,} bytes")
    return exits.DONE
