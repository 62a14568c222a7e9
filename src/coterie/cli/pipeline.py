"""`coterie pipeline`: the journals of all replicas become one history, checked, on Spark."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coterie.cli import exits
from coterie.cli.errors import UsageError
from coterie.cli.spark_bar import SparkBar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from coterie.cli.parser import Parser, Subparsers
    from coterie.pipeline.jobs import Outcome
    from coterie.pipeline.replay import Program

_INTERVAL_MAX = 86_400.0
JOBS = ("seal", "history", "verify", "events", "report")


def add_parser(subparsers: Subparsers) -> Parser:
    """Describe the command and what it can do."""
    parser = subparsers.add_parser(
        "pipeline",
        help="rebuild and verify the one history from the journals of all replicas, on Spark",
    )
    actions = parser.add_subparsers(title="actions", metavar="<action>", dest="action")
    actions.required = True
    run = actions.add_parser(
        "run",
        help="seal, rebuild, verify and report, once",
        description="Read the journals of all replicas, rebuild the one authoritative history, "
        "check every promise against it, and write tables and report.html. Exit status 1 if a "
        "promise was broken, 3 if none was but journals are missing or cannot be read.",
    )
    _add_options(run)
    run.add_argument("--growing", action="store_true", help="the replicas are still at work")
    follow = actions.add_parser(
        "follow",
        help="keep history, verdicts, events and report current while replicas work",
        description="Do what `run` does whenever the journals have grown, until interrupted. It "
        "can be killed and started again at any time: each event is written once. Verdicts speak "
        "of what all replicas have written so far.",
    )
    _add_options(follow)
    follow.add_argument(
        "--interval",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="how often journals are looked at (default: 10)",
    )
    follow.add_argument("--once", action="store_true", help="catch up with the journals, and end")
    return parser


def _add_options(parser: Parser) -> None:
    """Describe what the actions have in common."""
    parser.add_argument(
        "journals", nargs="+", type=Path, metavar="JOURNALS", help="folders with journals in them"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where results go")
    parser.add_argument("--only", metavar="JOB,JOB", help=f"only these jobs (of {', '.join(JOBS)})")
    parser.add_argument(
        "--class",
        dest="classes",
        action="append",
        default=[],
        metavar="GROUP=MODULE:CLASS",
        help="which class a group runs: then the history is run on it, and events are written",
    )
    add_cluster_options(parser)
    parser.add_argument("--strict", action="store_true", help="stop at damage in a journal")
    parser.add_argument("--json", action="store_true", help="print one JSON object, or one a batch")


def add_cluster_options(parser: Parser) -> None:
    """Let a command choose where Spark runs."""
    place = parser.add_mutually_exclusive_group()
    place.add_argument(
        "--master", default="", metavar="URL", help="a Spark cluster: spark://host:7077"
    )
    place.add_argument(
        "--remote", default="", metavar="URL", help="a server of Spark Connect: sc://host:15002"
    )


def cluster_of(args: argparse.Namespace) -> str:
    """Give where Spark runs, if not in this process."""
    return args.remote or ("" if args.master.startswith("local") else args.master)


def run(args: argparse.Namespace) -> int:
    """Run the pipeline."""
    from importlib.util import find_spec  # noqa: PLC0415 -- start-up of other commands stays fast

    if find_spec("pyspark") is None:
        raise UsageError("the pipeline needs Spark: pip install 'coterie[pipeline]'")
    if args.action == "follow" and not 0 < args.interval <= _INTERVAL_MAX:
        raise UsageError(f"--interval goes up to {_INTERVAL_MAX:g} seconds, not {args.interval:g}")
    from pyspark.errors import PySparkException  # noqa: PLC0415

    from coterie.kernel.errors import CoterieError  # noqa: PLC0415
    from coterie.pipeline.cluster import check_reachable  # noqa: PLC0415
    from coterie.pipeline.jobs import ResultsTaken, claimed, find_journals  # noqa: PLC0415
    from coterie.pipeline.session import LOCAL, make_session  # noqa: PLC0415

    work = {"jobs": _jobs(args.only), "programs": dict(_programs(args.classes))}
    cluster = cluster_of(args)
    if cluster:
        # Other processes, with other working folders, are told these paths.
        args.journals = [folder.absolute() for folder in args.journals]
        args.out = args.out.absolute()
    try:
        roots = find_journals(args.journals)
        if cluster:
            # Before anything is made: a misspelt cluster should leave no trace.
            check_reachable(cluster)
        with claimed(args.out):
            _say(f"journals in {len(roots)} folders; starting Spark ({cluster or LOCAL})")
            spark = make_session(master=args.master or LOCAL, remote=args.remote)
            hush()
            try:
                act = _follow if args.action == "follow" else _run
                return act(spark, roots, args, work)
            finally:
                spark.stop()
    except ResultsTaken as error:
        print(f"coterie: {error}", file=sys.stderr)
        return exits.TAKEN
    except (CoterieError, OSError) as error:
        raise UsageError(str(error)) from None
    except PySparkException as error:
        return failed(error)


def hush() -> None:
    """Keep what Spark's Python side logs off the terminal.

    That is the story of every call to Java that is interrupted; the error itself is raised.
    """
    import logging  # noqa: PLC0415

    logging.getLogger().addHandler(logging.NullHandler())


def failed(error: Exception) -> int:
    """Say what a task failed of; most of what Spark tells about it is of no use to anybody."""
    reason = _reason(error)
    kind, _, sentence = reason.partition(": ")
    if not kind.startswith("coterie."):
        _say(f"coterie: Spark failed: {reason}")
        return exits.BUG
    _say(f"coterie: {sentence}")
    return exits.UNKNOWN if kind.endswith(".JournalDamaged") else exits.MISUSE


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _run(
    spark: SparkSession, roots: list[str], args: argparse.Namespace, work: dict[str, Any]
) -> int:
    from coterie.pipeline.jobs import run_pipeline  # noqa: PLC0415

    with SparkBar(spark) as bar:
        outcome = run_pipeline(
            spark,
            roots,
            args.out,
            growing=args.growing,
            strict=args.strict,
            progress=bar.begin,
            **work,
        )
    _tell(outcome, as_json=args.json)
    return _status(outcome)


def _follow(
    spark: SparkSession, roots: list[str], args: argparse.Namespace, work: dict[str, Any]
) -> int:
    from coterie.pipeline.follow import follow  # noqa: PLC0415

    last: list[int] = []
    bar = SparkBar(spark)

    def tell(outcome: Outcome) -> None:
        bar.rest()
        _tell(outcome, as_json=args.json)
        sys.stdout.flush()
        last[:] = [_status(outcome)]

    try:
        with bar:
            follow(
                spark,
                roots,
                args.out,
                interval_seconds=args.interval,
                once=args.once,
                strict=args.strict,
                progress=bar.begin,
                tell=tell,
                **work,
            )
    except KeyboardInterrupt:
        _say("interrupted; start it again to go on from here")
    return last[0] if last else exits.DONE


def _reason(error: Exception) -> str:
    """Give the sentence of ours that a long story of Spark's contains, or else its beginning."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("coterie.")]
    return (ours or lines or ["for no reason that Spark tells"])[-1 if ours else 0]


def _status(outcome: Outcome) -> int:
    """Say in a number how it went: a promise that was broken is worse than what is not known."""
    if not outcome.is_kept:
        return exits.NOT_DONE
    return exits.DONE if outcome.is_whole else exits.UNKNOWN


def _jobs(text: str | None) -> tuple[str, ...]:
    if text is None:
        return JOBS
    jobs = tuple(text.split(","))
    unknown = [job for job in jobs if job not in JOBS]
    if unknown:
        raise UsageError(f"there is no job {unknown[0]!r}; the jobs are {', '.join(JOBS)}")
    return jobs


def _programs(classes: list[str]) -> Iterator[tuple[str, Program]]:
    from coterie.kernel.errors import CoterieError  # noqa: PLC0415
    from coterie.pipeline.replay import Program  # noqa: PLC0415 -- imports Arrow

    # Tasks look here, too: it is the folder they are started in.
    here = str(Path.cwd())
    if classes and here not in sys.path:
        sys.path.insert(0, here)
    for text in classes:
        group, equals, name = text.partition("=")
        if not equals or not group or name.count(":") != 1:
            raise UsageError(f"--class {text!r} should say GROUP=MODULE:CLASS")
        program = Program(name=name)
        try:
            program.load()  # tasks would fail for the same reason, but later
        except CoterieError as error:
            raise UsageError(str(error)) from None
        yield group, program


def _tell(outcome: Outcome, *, as_json: bool) -> None:
    import msgspec  # noqa: PLC0415

    if as_json:
        data = {
            "out": str(outcome.out),
            "groups": outcome.groups,
            "segments": outcome.segments,
            "standings": outcome.standings,
            "transactions": outcome.transactions,
            "verdicts": outcome.verdicts,
            "violations": outcome.violations,
            "findings": outcome.findings,
            "problems": outcome.problems,
            "events": outcome.events,
            "report": str(outcome.report) if outcome.report else None,
            "seconds": outcome.seconds,
        }
        print(msgspec.json.encode(data).decode())
        return
    print("\n".join(summary(outcome)))


def _transactions(outcome: Outcome) -> Iterator[str]:
    ended: dict[str, int] = {}
    for of_group in outcome.transactions.values():
        for word, count in of_group.items():
            ended[word] = ended.get(word, 0) + count
    if ended:
        counts = ", ".join(f"{count:,} {word}" for word, count in sorted(ended.items()))
        yield f"transactions: {counts}"


def summary(outcome: Outcome) -> Iterator[str]:
    """Say what came of a run, a line each."""
    took = ", ".join(f"{job} {seconds:.1f} s" for job, seconds in outcome.seconds.items())
    yield f"groups:    {', '.join(outcome.groups) or 'none'}   ({took})"
    if outcome.standings:
        counts = ", ".join(f"{count:,} {word}" for word, count in sorted(outcome.standings.items()))
        yield f"entries:   {counts}"
    yield from _transactions(outcome)
    if outcome.verdicts:
        words = [row["verdict"] for row in outcome.verdicts]
        counts = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
        yield f"promises:  {counts}"
    for row in outcome.violations[:10]:
        yield f"BROKEN     {row['check']}: {row['evidence']}"
    for sentence in outcome.problems[:10]:
        yield f"PROBLEM    {sentence}"
    if outcome.findings:
        yield f"findings:  {outcome.findings} (see the report)"
    if outcome.events:
        yield f"events:    {outcome.events:,} in {outcome.out / 'events'}"
    if outcome.report is not None:
        yield f"report:    {outcome.report}"
