"""`coterie bench`: measure the real runtime."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.cli.errors import UsageError

if TYPE_CHECKING:
    from coterie.cli.parser import Parser, Subparsers

MEMBERS_MAX = 26


def add_parser(subparsers: Subparsers) -> Parser:
    """Describe the command and its benchmarks."""
    parser = subparsers.add_parser("bench", help="measure the real runtime on this machine")
    benchmarks = parser.add_subparsers(
        title="benchmarks", metavar="<benchmark>", dest="benchmark", required=True
    )
    order = benchmarks.add_parser(
        "order",
        help="latency and throughput of multicast and total order",
        description="All members send in rounds, as in section 6.2 of the paper on replicated "
        "objects: one message each for the latency, a hundred for the throughput. Members are "
        "processes on this machine. Takes some two minutes.",
    )
    order.add_argument(
        "--members", metavar="N", help="numbers of members: 3, 2-5 or 2,4 (default: 2-5)"
    )
    order.add_argument("--stacks", metavar="S,S", help="stacks to measure (default: all three)")
    order.add_argument(
        "--rounds", type=int, default=100, metavar="N", help="rounds measured (default: 100)"
    )
    order.add_argument(
        "--repeats",
        type=int,
        metavar="N",
        help="how often each measurement is made, for the median (default: 7)",
    )
    order.add_argument(
        "--out",
        type=Path,
        default=Path("bench-results"),
        metavar="DIR",
        help="folder for order.json, .csv, .md and .png (default: bench-results)",
    )
    order.add_argument("--quick", action="store_true", help="2 and 3 members, fewer repeats")
    order.add_argument("--json", action="store_true", help="print JSON instead of a table")
    order.add_argument("--no-plot", action="store_true", help="draw nothing")
    order.add_argument(
        "--profile", type=Path, metavar="DIR", help="have members write cProfile statistics here"
    )
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the benchmark that was named."""
    import sys  # noqa: PLC0415 -- start-up of other commands stays fast

    import msgspec  # noqa: PLC0415

    from coterie.bench.order import Plan, measure  # noqa: PLC0415
    from coterie.bench.report import check_can_plot, setting, table, write_files  # noqa: PLC0415
    from coterie.kernel.errors import CoterieError  # noqa: PLC0415
    from coterie.runtime.loop import run as run_loop  # noqa: PLC0415
    from coterie.stacks import STACKS, parse_stack  # noqa: PLC0415

    def progress(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    for option in ("rounds", "repeats"):
        value = getattr(args, option)
        if value is not None and value < 1:
            raise UsageError(f"--{option} {value} cannot be; it is 1 or more")
    try:
        stacks = tuple(args.stacks.upper().split(",")) if args.stacks else STACKS
        for stack in stacks:
            parse_stack(stack)
        if not args.no_plot:
            check_can_plot()
        plan = Plan(
            members=_members(args.members or ("2,3" if args.quick else "2-5")),
            stacks=stacks,
            rounds=args.rounds,
            repeats=args.repeats or (3 if args.quick else 7),
        )
        report = run_loop(measure(plan, progress, profile=args.profile))
        files = write_files(report, args.out, plot=not args.no_plot)
    except CoterieError as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        if error.filename is None:
            raise
        raise UsageError(f"cannot write {error.filename}: {error.strerror}") from None
    if args.json:
        print(msgspec.json.encode(report).decode())
    else:
        print(f"\n{setting(report)}\n\n{table(report)}\n")
    progress("wrote " + ", ".join(str(file) for file in files))
    return 0


def _members(text: str) -> tuple[int, ...]:
    """Read numbers of members: "3", "2-5" or "2,4"."""
    sizes: set[int] = set()
    try:
        for part in text.split(","):
            first, dash, last = part.partition("-")
            sizes.update(range(int(first), int(last if dash else first) + 1))
    except ValueError:
        sizes = set()
    if not sizes or min(sizes) < 2 or max(sizes) > MEMBERS_MAX:  # noqa: PLR2004 -- a group
        raise UsageError(
            f"--members {text!r} cannot be; write 3, 2-5 or 2,4, from 2 up to {MEMBERS_MAX}"
        )
    return tuple(sorted(sizes))
