"""`coterie demo`: a telephone exchange, from its callers to their bills, before everyone's eyes."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.cli import exits
from coterie.cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.cli.parser import Parser, Subparsers
    from coterie.demo.billing import Bill


def add_parser(subparsers: Subparsers) -> Parser:
    """Describe the command."""
    parser = subparsers.add_parser(
        "demo",
        help="watch a group survive a kill and a partition, and Spark bill its calls",
        description="Five replicas of a telephone exchange record calls from many callers. One is "
        "killed, the network is cut and healed, and what was answered too early is rolled back. "
        "Then Spark rebuilds the one true history from the journals, checks every promise, bills "
        "the accounts, and proves that every confirmed call is billed exactly once. It fails, "
        "loudly, if any of that does not hold.",
    )
    parser.add_argument(
        "story",
        nargs="?",
        choices=("exchange", "program"),
        default="exchange",
        help="'program': Python's own web server as replicas, killed while a client stays "
        "connected (default: exchange)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("demo-results"),
        metavar="DIR",
        help="where journals, tables and the report go (default: demo-results)",
    )
    parser.add_argument("--seed", type=int, default=7, help="of the callers (default: 7)")
    return parser


def run(args: argparse.Namespace) -> int:
    """Tell the story, then check it."""
    if args.story == "program":
        return _show_program()
    import logging  # noqa: PLC0415 -- start-up stays fast
    import shutil  # noqa: PLC0415
    import time  # noqa: PLC0415
    from importlib.util import find_spec  # noqa: PLC0415

    if find_spec("pyspark") is None:
        raise UsageError("the demo needs Spark: pip install 'coterie[pipeline]'")
    from coterie.cli.terminal.log_lines import logging_lines  # noqa: PLC0415
    from coterie.demo.story import DemoFailed, tell  # noqa: PLC0415
    from coterie.runtime.loop import run as run_loop  # noqa: PLC0415

    out: Path = args.out
    marker = out / ".coterie-demo"
    if out.exists() and any(out.iterdir()) and not marker.exists():
        raise UsageError(f"{out} is not empty and not of an earlier demo: name another with --out")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    marker.touch()
    began = time.perf_counter()

    def say(line: str) -> None:
        print(f"{time.perf_counter() - began:6.1f} s  {line}", flush=True)

    print("A telephone exchange, replicated five times, answers its callers at once.\n")
    try:
        # The story says what happens; replicas need not warn of it.
        with logging_lines(as_json=False, level=logging.ERROR):
            told = run_loop(tell(out / "journals", say, seed=args.seed))
        say("Spark starts, to rebuild the history from five journals")
        proofs, bills, report = _bill(told, out, say)
    except DemoFailed as error:
        print(f"\nThe demo failed: {error}", file=sys.stderr)
        return exits.BUG
    print()
    _show(bills)
    print()
    for proof in proofs:
        print(f"  proved: {proof}")
    print(f"\nLook at {report} in a browser. Everything is below {out}.")
    return exits.DONE


def _bill(told: object, out: Path, say: object) -> tuple[list[str], Sequence[Bill], Path]:
    from coterie.demo.billing import bill, call_records, programs, prove  # noqa: PLC0415
    from coterie.demo.story import Told  # noqa: PLC0415
    from coterie.pipeline.jobs import run_pipeline  # noqa: PLC0415
    from coterie.pipeline.spark.session import SMALL, make_session  # noqa: PLC0415

    assert isinstance(told, Told)
    assert callable(say)
    spark = make_session(settings=SMALL)
    try:
        outcome = run_pipeline(
            spark,
            [told.folder],
            out / "pipeline",
            programs=programs(told),
            progress=lambda job: say(f"  {job}"),
        )
        calls = call_records(spark, outcome).cache()
        proofs = prove(told, outcome, calls)
        bills = bill(calls)
    finally:
        spark.stop()
    assert outcome.report is not None
    return proofs, bills, outcome.report


def _show(bills: Sequence[Bill]) -> None:
    print("  account      calls   seconds     owes")
    for each in bills:
        owes = f"{each.cents / 100:,.2f}"
        print(f"  {each.account:<12} {each.calls:>5} {each.seconds:>9,} {owes:>8}")


def _show_program() -> int:
    """Kill a web server under a client's eyes."""
    import tempfile  # noqa: PLC0415 -- start-up stays fast

    from coterie.bench.harness.controller import free_ports  # noqa: PLC0415
    from coterie.demo.program import ProgramDemoFailed, show_program  # noqa: PLC0415

    print("Python's own web server, as three replicas; nothing in it is changed.\n")
    try:
        with tempfile.TemporaryDirectory() as folder:
            [port] = free_ports(1)
            show_program(Path(folder), port, lambda line: print(line, flush=True))
    except ProgramDemoFailed as error:
        print(f"\nThe demo failed: {error}", file=sys.stderr)
        return exits.BUG
    print("\nYour own program: ./coterie program run -- python app.py  (docs/use/programs.md)")
    return exits.DONE
