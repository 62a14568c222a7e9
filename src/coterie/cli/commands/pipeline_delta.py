"""`coterie pipeline delta`: the tables of a run as Delta Lake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.cli import exits
from coterie.cli.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from coterie.cli.parser import Subparsers

ACTION = "delta"


def add_parser(actions: Subparsers) -> None:
    """Describe the action."""
    delta = actions.add_parser(
        ACTION,
        help="write the tables of a run as Delta Lake",
        description="Bring Delta tables, one for each table of the results, up to the version that "
        "counts. Each is replaced at once; earlier versions stay readable.",
    )
    delta.add_argument("target", metavar="TARGET", help="the folder that has the Delta tables")
    delta.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="the results of `pipeline run`"
    )
    delta.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Write the tables."""
    from coterie.kernel.errors import CoterieError  # noqa: PLC0415 -- start-up stays fast
    from coterie.pipeline.publish.delta import write_delta  # noqa: PLC0415

    try:
        versions = write_delta(args.out, args.target)
    except CoterieError as error:
        raise UsageError(str(error)) from None
    if args.json:
        print(json.dumps({"target": args.target, "versions": versions}))
    else:
        for name, version in versions.items():
            print(f"{name}: version {version} in {args.target}/{name}")
    return exits.DONE
