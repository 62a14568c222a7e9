"""`coterie bench`: measure the real runtime."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from coterie.cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import msgspec

    from coterie.bench.suites import engine, objects, vsr
    from coterie.cli.parser import Parser, Subparsers

MEMBERS_MAX = 26
ROWS_MIN = 1000


def add_parser(subparsers: Subparsers) -> Parser:
    """Describe the command and its benchmarks."""
    parser = subparsers.add_parser("bench", help="measure the real runtime on this machine")
    benchmarks = parser.add_subparsers(
        title="benchmarks", metavar="<benchmark>", dest="benchmark", required=True
    )
    _add_order(benchmarks)
    _add_engine(benchmarks)
    _add_objects(benchmarks)
    _add_vsr(benchmarks)
    _add_servers(benchmarks)
    _add_program(benchmarks)
    _add_partitioned(benchmarks)
    _add_takeover(benchmarks)
    _add_pipeline(benchmarks)
    return parser


def _add_order(benchmarks: Subparsers) -> None:
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
    _add_common(order, "order", quick="2 and 3 members, fewer repeats")


def _add_engine(benchmarks: Subparsers) -> None:
    engine = benchmarks.add_parser(
        "engine",
        help="committed commands, state transfer, roll-back and memory of the engine",
        description="Commands committed in a second, all replicas in one process and each in its "
        "own, with and without a journal; what a state transfer and a roll-back cost; and the "
        "rounds of the paper on replicated objects for its five stacks. The load comes from "
        "inside a replica, without clients. Takes some five minutes.",
    )
    _add_group(engine, "in-process, loopback, transfer, roll-back and rounds")
    _add_common(engine, "engine", quick="3 replicas, shorter, a smaller state; under a minute")


def _add_objects(benchmarks: Subparsers) -> None:
    objects = benchmarks.add_parser(
        "objects",
        help="calls over the network, fail-over and memory of replicated objects",
        description="How long a call of one client takes, how many calls are answered in a second "
        "for many sessions, many connections and packed calls, and how long clients wait when the "
        "orderer is killed; beside PySyncObj, when it is installed. Replicas and clients are "
        "processes on this machine. Takes some four minutes.",
    )
    _add_group(objects, "calls, fail-over, pysyncobj and peers", default="all but peers")
    objects.add_argument(
        "--peers",
        action="store_true",
        help="run what is installed of etcd, NATS JetStream and Redis beside us, too",
    )
    _add_common(objects, "objects", quick="3 replicas, 100 bytes, two kills; under a minute")


def _add_vsr(benchmarks: Subparsers) -> None:
    vsr = benchmarks.add_parser(
        "vsr",
        help="calls, transactions over two groups, and fail-over of viewstamped replication",
        description="How long calls and transactions over two groups take, and how many are done "
        "in a second, beside the same class without replication and under a stack; whether "
        "prepare waits; and how long clients wait when the primary of 3, 5 or 7 cohorts is "
        "killed. Cohorts and clients are processes on this machine. Takes some three minutes.",
    )
    _add_group(vsr, "calls, claim and fail-over")
    _add_common(vsr, "vsr", quick="3 cohorts, shorter, two kills; under a minute")


def _add_servers(benchmarks: Subparsers) -> None:
    servers = benchmarks.add_parser(
        "servers",
        help="requests of clients that know nothing of replication",
        description="How long a request by datagram takes for 2, 3 and 4 servers, how long it "
        "takes to ask which servers there are, and how long a client waits when one is killed; "
        "beside an echo of a datagram. Servers are processes on this machine. Takes a minute.",
    )
    _add_common(servers, "servers", quick="3 servers, fewer requests, one kill")


def _add_program(benchmarks: Subparsers) -> None:
    program = benchmarks.add_parser(
        "program",
        help="an unmodified program as replicas, beside itself",
        description="How long requests take to a server of the standard library as it is, behind "
        "a plain proxy, and as 1, 2 and 3 replicas; and how long a client waits when whoever "
        "leads is killed. Takes some three minutes.",
    )
    _add_common(program, "program", quick="3 replicas, one size, one kill of each kind")


def _add_partitioned(benchmarks: Subparsers) -> None:
    partitioned = benchmarks.add_parser(
        "partitioned",
        help="service on every side of a cut, beside what it replaces",
        description="How long calls in a primary component take and how many are done in a second, "
        "beside SAFE and two-phase commit; how often disks are forced; delivery to 6, 10 and 18 "
        "members, as on the slides of the paper; replicas far apart; what a merge and the second "
        "copy cost. Takes some ten minutes; forced writes need strace, distance needs root.",
    )
    partitioned.add_argument(
        "--parts",
        metavar="P,P",
        help="what to measure, of green, syncs, two-phase, slides, distance, groups and merge "
        "(default: all)",
    )
    partitioned.add_argument(
        "--replicas", metavar="N", help="numbers of replicas: 3, 2-5 or 3,5 (default: 3,5)"
    )
    partitioned.add_argument(
        "--members", metavar="N", help="members of the slides' experiment (default: 6,10,18)"
    )
    _add_common(partitioned, "partitioned", quick="3 replicas, 6 members, shorter; two minutes")


def _add_takeover(benchmarks: Subparsers) -> None:
    takeover = benchmarks.add_parser(
        "takeover",
        help="how long programs are without a leader, and what is sent for a request",
        description="Kills the leader of a simulated program with one to six backups, and counts "
        "frames a request; in virtual time, so it comes out the same everywhere.",
    )
    _add_common(takeover, "takeover", quick="one and two backups, five deaths")


def _add_pipeline(benchmarks: Subparsers) -> None:
    pipeline = benchmarks.add_parser(
        "pipeline",
        help="rows a second that Spark ingests, rebuilds, checks and follows",
        description="Writes journals of five replicas, seals them into a lake, rebuilds the "
        "history, runs all checks and streams entries into a table, for up to 50 million rows; "
        "beside DuckDB, when it is installed. Takes up to 25 minutes and some gigabytes of disk.",
    )
    pipeline.add_argument(
        "--rows",
        metavar="N,N",
        help="sizes in rows of all replicas (default: 1, 2, 10, 50 million)",
    )
    _add_common(pipeline, "pipeline", quick="100,000 and 200,000 rows; about a minute")


def _add_group(benchmark: Parser, parts: str, *, default: str = "all") -> None:
    benchmark.add_argument(
        "--parts", metavar="P,P", help=f"what to measure, of {parts} (default: {default})"
    )
    benchmark.add_argument("--stack", metavar="S", help="default: SAFE:DYNSEQ:PVSYNC")
    benchmark.add_argument(
        "--replicas", metavar="N", help="numbers of replicas: 3, 2-5 or 3,5 (default: 3,5)"
    )


def _add_common(benchmark: Parser, name: str, *, quick: str) -> None:
    benchmark.add_argument(
        "--out",
        type=Path,
        default=Path("bench-results"),
        metavar="DIR",
        help=f"folder for {name}.json, .csv, .md and .png (default: bench-results)",
    )
    benchmark.add_argument("--quick", action="store_true", help=quick)
    benchmark.add_argument("--json", action="store_true", help="print JSON instead of a table")
    benchmark.add_argument("--no-plot", action="store_true", help="draw nothing")
    benchmark.add_argument(
        "--profile", type=Path, metavar="DIR", help="have members write cProfile statistics here"
    )


def run(args: argparse.Namespace) -> int:
    """Run the benchmark that was named."""
    import sys  # noqa: PLC0415 -- start-up of other commands stays fast

    import msgspec  # noqa: PLC0415

    from coterie.bench.harness.plots import check_can_plot  # noqa: PLC0415
    from coterie.kernel.errors import CoterieError  # noqa: PLC0415

    def progress(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    try:
        if not args.no_plot:
            check_can_plot()
        report, text, files = BENCHMARKS[args.benchmark](args, progress)
    except CoterieError as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        if error.filename is None:
            raise
        raise UsageError(f"cannot write {error.filename}: {error.strerror}") from None
    if args.json:
        print(msgspec.json.encode(report).decode())
    else:
        print(f"\n{text}\n")
    progress("wrote " + ", ".join(str(file) for file in files))
    return 1 if getattr(report, "troubles", None) else 0


BenchOutcome = tuple["msgspec.Struct", str, "list[Path]"]
"""What a benchmark measured, as text, and the files."""


def _run_order(args: argparse.Namespace, progress: Callable[[str], None]) -> BenchOutcome:
    from coterie.bench.suites.order import OrderPlan, measure  # noqa: PLC0415
    from coterie.bench.suites.order_report import setting, table, write_files  # noqa: PLC0415
    from coterie.runtime.loop import run as run_loop  # noqa: PLC0415
    from coterie.stacks import STACKS, parse_stack  # noqa: PLC0415

    for option in ("rounds", "repeats"):
        value = getattr(args, option)
        if value is not None and value < 1:
            raise UsageError(f"--{option} {value} cannot be; it is 1 or more")
    stacks = tuple(args.stacks.upper().split(",")) if args.stacks else STACKS
    for stack in stacks:
        parse_stack(stack)
    plan = OrderPlan(
        members=_sizes("members", args.members or ("2,3" if args.quick else "2-5")),
        stacks=stacks,
        rounds=args.rounds,
        repeats=args.repeats or (3 if args.quick else 7),
    )
    report = run_loop(measure(plan, progress, profile=args.profile))
    files = write_files(report, args.out, plot=not args.no_plot)
    return report, f"{setting(report)}\n\n{table(report)}", files


def _run_engine(args: argparse.Namespace, progress: Callable[[str], None]) -> BenchOutcome:
    from coterie.bench.suites.engine import PARTS, QUICK, EnginePlan, measure  # noqa: PLC0415
    from coterie.bench.suites.engine_report import setting, tables, write_files  # noqa: PLC0415
    from coterie.runtime.loop import run as run_loop  # noqa: PLC0415

    plan = _with_options(QUICK if args.quick else EnginePlan(), PARTS, args)
    report = run_loop(measure(plan, progress, profile=args.profile))
    files = write_files(report, args.out, plot=not args.no_plot)
    return report, f"{setting(report)}\n\n{tables(report)}", files


def _run_objects(args: argparse.Namespace, progress: Callable[[str], None]) -> BenchOutcome:
    import msgspec  # noqa: PLC0415

    from coterie.bench.suites.objects import PARTS, QUICK, ObjectsPlan, measure  # noqa: PLC0415
    from coterie.bench.suites.objects_report import setting, tables, write_files  # noqa: PLC0415
    from coterie.runtime.loop import run as run_loop  # noqa: PLC0415

    plan = _with_options(QUICK if args.quick else ObjectsPlan(), PARTS, args)
    if args.peers and "peers" not in plan.parts:
        plan = msgspec.structs.replace(plan, parts=(*plan.parts, "peers"))
    report = run_loop(measure(plan, progress, profile=args.profile))
    files = write_files(report, args.out, plot=not args.no_plot)
    return report, f"{setting(report)}\n\n{tables(report)}", files


def _run_vsr(args: argparse.Namespace, progress: Callable[[str], None]) -> BenchOutcome:
    from coterie.bench.suites.vsr import PARTS, QUICK, VsrPlan, measure  # noqa: PLC0415
    from coterie.bench.suites.vsr_report import setting, tables, write_files  # noqa: PLC0415
    from coterie.runtime.loop import run as run_loop  # noqa: PLC0415

    plan = _with_options(QUICK if args.quick else VsrPlan(), PARTS, args)
    report = run_loop(measure(plan, progress, profile=args.profile))
    files = write_files(report, args.out, plot=not args.no_plot)
    return report, f"{setting(report)}\n\n{tables(report)}", files


def _run_servers(args: argparse.Namespace, progress: Callable[[str], None]) -> BenchOutcome:
    from coterie.bench.suites.servers import (  # noqa: PLC0415
        QUICK,
        ServersPlan,
        measure,
        setting,
        tables,
        write_files,
    )

    report = measure(QUICK if args.quick else ServersPlan(), progress)
    return report, f"{setting(report)}\n\n{tables(report)}", write_files(report, args.out)


def _run_program(args: argparse.Namespace, progress: Callable[[str], None]) -> BenchOutcome:
    from coterie.bench.suites.program import (  # noqa: PLC0415
        QUICK,
        ProgramPlan,
        measure,
        setting,
        tables,
        write_files,
    )

    report = measure(QUICK if args.quick else ProgramPlan(), progress)
    return report, f"{setting(report)}\n\n{tables(report)}", write_files(report, args.out)


def _run_partitioned(args: argparse.Namespace, progress: Callable[[str], None]) -> BenchOutcome:
    from msgspec.structs import replace  # noqa: PLC0415

    from coterie.bench.suites.partitioned import PARTS, QUICK, PartitionedPlan, measure  # noqa: PLC0415
    from coterie.bench.suites.partitioned_report import setting, tables, write_files  # noqa: PLC0415
    from coterie.runtime.loop import run as run_loop  # noqa: PLC0415

    plan = QUICK if args.quick else PartitionedPlan()
    if args.parts:
        plan = replace(plan, parts=_parts(args.parts, PARTS))
    if args.replicas:
        plan = replace(plan, replicas=_sizes("replicas", args.replicas))
    if args.members:
        plan = replace(plan, members=_sizes("members", args.members))
    report = run_loop(measure(plan, progress))
    files = write_files(report, args.out, plot=not args.no_plot)
    return report, f"{setting(report)}\n\n{tables(report)}", files


def _run_takeover(args: argparse.Namespace, progress: Callable[[str], None]) -> BenchOutcome:
    from coterie.bench.suites.takeover import (  # noqa: PLC0415
        QUICK,
        TakeoverPlan,
        measure,
        setting,
        tables,
        write_files,
    )

    report = measure(QUICK if args.quick else TakeoverPlan(), progress)
    return report, f"{setting(report)}\n\n{tables(report)}", write_files(report, args.out)


def _run_pipeline(args: argparse.Namespace, progress: Callable[[str], None]) -> BenchOutcome:
    from msgspec.structs import replace  # noqa: PLC0415

    from coterie.bench.suites.pipeline import (  # noqa: PLC0415
        QUICK,
        PipelinePlan,
        measure,
        setting,
        tables,
        write_files,
    )

    plan = QUICK if args.quick else PipelinePlan()
    if args.rows:
        words = args.rows.split(",")
        if not all(word.isdecimal() and int(word) >= ROWS_MIN for word in words):
            raise UsageError(f"--rows {args.rows!r} should be numbers from {ROWS_MIN} on: 1000000")
        plan = replace(plan, sizes=tuple(sorted(map(int, words))))
    args.out.mkdir(parents=True, exist_ok=True)
    report = measure(plan, progress, args.out)
    files = write_files(report, args.out, plot=not args.no_plot)
    return report, f"{setting(report)}\n\n{tables(report)}", files


P = TypeVar("P", "engine.EnginePlan", "objects.ObjectsPlan", "vsr.VsrPlan")


def _with_options(plan: P, parts: Sequence[str], args: argparse.Namespace) -> P:
    """Give the plan that the options of the command line ask for."""
    from msgspec.structs import replace  # noqa: PLC0415

    from coterie.stacks import (  # noqa: PLC0415
        OBJECT_STACKS,
        has_engine,
        is_partitioned,
        parse_stack,
    )

    if args.stack:
        parse_stack(args.stack, examples=OBJECT_STACKS)
        if not has_engine(args.stack):
            raise UsageError(f"--stack {args.stack!r} keeps no history; take {plan.stack}")
        if is_partitioned(args.stack):
            raise UsageError(f"--stack {args.stack!r} is not measured yet; take {plan.stack}")
        plan = replace(plan, stack=args.stack.upper())
    if args.parts:
        plan = replace(plan, parts=_parts(args.parts, parts))
    if args.replicas:
        plan = replace(plan, replicas=_sizes("replicas", args.replicas))
    return plan


BENCHMARKS: dict[str, Callable[[argparse.Namespace, Callable[[str], None]], BenchOutcome]] = {
    "order": _run_order,
    "engine": _run_engine,
    "objects": _run_objects,
    "vsr": _run_vsr,
    "servers": _run_servers,
    "program": _run_program,
    "partitioned": _run_partitioned,
    "takeover": _run_takeover,
    "pipeline": _run_pipeline,
}


def _parts(text: str, known: Sequence[str]) -> tuple[str, ...]:
    """Read which parts of a benchmark are wanted."""
    parts = tuple(text.split(","))
    for part in parts:
        if part not in known:
            raise UsageError(f"--parts names no part {part!r}; the parts are {', '.join(known)}")
    return parts


def _sizes(option: str, text: str) -> tuple[int, ...]:
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
            f"--{option} {text!r} cannot be; write 3, 2-5 or 2,4, from 2 up to {MEMBERS_MAX}"
        )
    return tuple(sorted(sizes))
