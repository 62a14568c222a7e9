"""`coterie pipeline`: the journals of all replicas become one history, checked, on Spark."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.cli import exits
from coterie.cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coterie.cli.parser import Parser, Subparsers
    from coterie.pipeline.jobs import Outcome
    from coterie.pipeline.replay import Program

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
    run.add_argument(
        "journals", nargs="+", type=Path, metavar="JOURNALS", help="folders with journals in them"
    )
    run.add_argument("--out", type=Path, required=True, metavar="DIR", help="where results go")
    run.add_argument("--only", metavar="JOB,JOB", help=f"only these jobs (of {', '.join(JOBS)})")
    run.add_argument(
        "--class",
        dest="classes",
        action="append",
        default=[],
        metavar="GROUP=MODULE:CLASS",
        help="which class a group runs: then the history is run on it, and events are written",
    )
    add_cluster_options(run)
    run.add_argument("--strict", action="store_true", help="stop at damage in a journal")
    run.add_argument("--growing", action="store_true", help="the replicas are still at work")
    run.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def add_cluster_options(parser: Parser) -> None:
    """Let a command choose where Spark runs."""
    place = parser.add_mutually_exclusive_group()
    place.add_argument(
        "--master", default="", metavar="URL", help="a Spark cluster: spark://host:7077"
    )
    place.add_argument(
        "--remote", default="", metavar="URL", help="a server of Spark Connect: sc://host:15002"
    )


def run(args: argparse.Namespace) -> int:
    """Run the pipeline."""
    from importlib.util import find_spec  # noqa: PLC0415 -- start-up of other commands stays fast

    if find_spec("pyspark") is None:
        raise UsageError("the pipeline needs Spark: pip install 'coterie[pipeline]'")
    jobs = _jobs(args.only)
    programs = dict(_programs(args.classes))
    from coterie.kernel.errors import CoterieError  # noqa: PLC0415
    from coterie.pipeline.jobs import find_journals, run_pipeline  # noqa: PLC0415
    from coterie.pipeline.session import LOCAL, make_session  # noqa: PLC0415

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    try:
        roots = find_journals(args.journals)
        place = args.remote or args.master or LOCAL
        say(f"journals in {len(roots)} folders; starting Spark ({place})")
        spark = make_session(master=args.master or LOCAL, remote=args.remote)
        try:
            outcome = run_pipeline(
                spark,
                roots,
                args.out,
                jobs=jobs,
                programs=programs,
                growing=args.growing,
                strict=args.strict,
                progress=lambda job: say(f"  {job} ..."),
            )
        finally:
            spark.stop()
    except (CoterieError, OSError) as error:
        raise UsageError(str(error)) from None
    _tell(outcome, as_json=args.json)
    return _status(outcome)


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
    from coterie.pipeline.replay import Program  # noqa: PLC0415 -- imports Arrow

    for text in classes:
        group, equals, name = text.partition("=")
        if not equals or not group or name.count(":") != 1:
            raise UsageError(f"--class {text!r} should say GROUP=MODULE:CLASS")
        yield group, Program(name=name)


def _tell(outcome: Outcome, *, as_json: bool) -> None:
    import msgspec  # noqa: PLC0415

    if as_json:
        data = {
            "out": str(outcome.out),
            "groups": outcome.groups,
            "segments": outcome.segments,
            "standings": outcome.standings,
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


def summary(outcome: Outcome) -> Iterator[str]:
    """Say what came of a run, a line each."""
    took = ", ".join(f"{job} {seconds:.1f} s" for job, seconds in outcome.seconds.items())
    yield f"groups:    {', '.join(outcome.groups) or 'none'}   ({took})"
    if outcome.standings:
        counts = ", ".join(f"{count:,} {word}" for word, count in sorted(outcome.standings.items()))
        yield f"entries:   {counts}"
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
