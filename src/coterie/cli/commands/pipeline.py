"""`coterie pipeline`: the journals of all replicas become one history, checked, on Spark."""

from __future__ import annotations

import argparse
import os
import re
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coterie.cli import exits
from coterie.cli.commands import pipeline_delta, pipeline_state, pipeline_status, pipeline_stores
from coterie.cli.errors import UsageError
from coterie.cli.terminal.spark_bar import SparkBar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from coterie.cli.commands.pipeline_stores import Mirrors
    from coterie.cli.parser import Parser, Subparsers
    from coterie.pipeline.history.replay import Program
    from coterie.pipeline.jobs import JobOutcome

_INTERVAL_MAX = 86_400.0
EXTRAS_LATER = "COTERIE_EXTRAS_LATER"
"""Set by the wrapper of a checkout: it installs what is missing once a command is found right."""
WANTS_EXTRAS = 75
"""Told to that wrapper only: nothing is wrong, but what the command needs is not installed."""
STATUSES = {
    "kept": exits.DONE,
    "broken": exits.NOT_DONE,
    "damaged": exits.UNKNOWN,
    "failed": exits.BUG,
}
"""The exit status that says how a run ended."""
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
        "check every promise against it, and write tables and report.html. Exit status 0 if all "
        "promises were kept, 1 if one was broken, 3 if none was but journals are missing, "
        "unreadable or altered, 70 if the run itself failed. Groups that are at work on this "
        "machine are recognised: what cannot be told of them yet is no broken promise.",
    )
    _add_options(run)
    run.add_argument(
        "--seal-key",
        type=Path,
        metavar="FILE",
        help="the key that the replicas seal their journals with: tampering is told from damage",
    )
    run.add_argument(
        "--verify-sources",
        action="store_true",
        help="read all journals again, and compare them with what earlier runs read",
    )
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
    pipeline_state.add_parsers(actions)
    pipeline_delta.add_parser(actions)
    pipeline_status.add_parser(actions)
    lake = actions.add_parser("lake", help="look after what earlier runs have read")
    tasks = lake.add_subparsers(title="tasks", metavar="<task>", dest="task")
    tasks.required = True
    check = tasks.add_parser(
        "check",
        help="see whether all files of the lake are as they were written",
        description="Read every file of the lake and compare it with its digest. Exit status 3 if "
        "one is missing, cut off or changed.",
    )
    check.add_argument("out", type=Path, metavar="DIR", help="the folder of results, or the lake")
    check.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _add_options(parser: Parser) -> None:
    """Describe what the actions have in common."""
    parser.add_argument(
        "journals",
        nargs="+",
        type=pipeline_stores.folder,
        metavar="JOURNALS",
        help="folders with journals in them, here or in object storage",
    )
    parser.add_argument(
        "--out",
        type=pipeline_stores.folder,
        required=True,
        metavar="DIR",
        help="where results go, here or in object storage",
    )
    pipeline_stores.add_option(parser)
    parser.add_argument("--only", metavar="JOB,JOB", help=f"only these jobs (of {', '.join(JOBS)})")
    parser.add_argument(
        "--class",
        dest="classes",
        action="append",
        default=[],
        metavar="GROUP=MODULE:CLASS",
        help="which class a group runs (or GROUP=FILE.py:CLASS): then the history is run on it, "
        "and events are written",
    )
    add_cluster_options(parser)
    parser.add_argument(
        "--growing",
        action="store_true",
        help="these are copies of journals whose replicas are still at work",
    )
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
    if args.action == "lake":
        _need_spark()
        return _check_lake(args)
    for each in (pipeline_delta, pipeline_status):
        if args.action == each.ACTION:
            status = _need_spark()
            return each.run(args) if status is None else status
    if args.action in pipeline_state.ACTIONS:
        [(_, program)] = _programs([f"{args.group}={args.program}"])
        status = _need_spark()
        return pipeline_state.run(args, program) if status is None else status
    # What is wrong with the command is said before anything is installed, started or made.
    if args.action == "follow" and not 0 < args.interval <= _INTERVAL_MAX:
        raise UsageError(f"--interval goes up to {_INTERVAL_MAX:g} seconds, not {args.interval:g}")
    work = {"jobs": _jobs(args.only), "programs": dict(_programs(args.classes))}
    return (_begin_with_stores if pipeline_stores.are_named(args) else _begin)(args, work)


def _begin_with_stores(args: argparse.Namespace, work: dict[str, Any]) -> int:
    """Have everything here that lies in stores, and work on it."""
    status = _need_spark()
    if status is not None:
        return status
    from coterie.pipeline.jobs import ResultsTaken  # noqa: PLC0415

    try:
        with pipeline_stores.mirrored(args) as mirrors:
            return _begin(args, work, mirrors)
    except ResultsTaken as error:
        print(f"coterie: {error}", file=sys.stderr)
        return exits.TAKEN


def _begin(args: argparse.Namespace, work: dict[str, Any], mirrors: Mirrors | None = None) -> int:
    """See that there are journals, and work on them."""
    from coterie.kernel.errors import CoterieError  # noqa: PLC0415

    args.mirrors = mirrors
    cluster = cluster_of(args)
    if cluster:
        # Other processes, with other working folders, are told these paths.
        args.journals = [folder.absolute() for folder in args.journals]
        args.out = args.out.absolute()
    try:
        from coterie.pipeline.read.places import find_journals  # noqa: PLC0415

        roots = find_journals(args.journals)
    except CoterieError as error:
        raise UsageError(str(error)) from None
    status = _need_spark()
    if status is not None:
        return status
    return _work(args, roots, work, cluster)


def _need_spark() -> int | None:
    """See that Spark is installed; give the status that asks the wrapper to do so, if it will."""
    from importlib.util import find_spec  # noqa: PLC0415

    if find_spec("pyspark") is not None:
        return None
    if os.environ.get(EXTRAS_LATER):
        return WANTS_EXTRAS
    raise UsageError("the pipeline needs Spark: pip install 'coterie[pipeline]'")


def _work(args: argparse.Namespace, roots: list[str], work: dict[str, Any], cluster: str) -> int:
    """Do what the command asks for; whatever happens, it is told apart from a broken promise."""
    from pyspark.errors import PySparkException  # noqa: PLC0415

    from coterie.journal import JournalDamaged  # noqa: PLC0415
    from coterie.kernel.errors import CoterieError  # noqa: PLC0415
    from coterie.pipeline.jobs import ResultsTaken, claimed  # noqa: PLC0415
    from coterie.pipeline.lake.lake import LakeDamaged  # noqa: PLC0415
    from coterie.pipeline.spark.cluster import check_reachable  # noqa: PLC0415
    from coterie.pipeline.stores.addresses import StoreFailed  # noqa: PLC0415

    try:
        if cluster:
            # Before anything is made: a misspelt cluster should leave no trace.
            check_reachable(cluster)
        with claimed(args.out):
            return _act(args, roots, work, cluster)
    except ResultsTaken as error:
        print(f"coterie: {error}", file=sys.stderr)
        return exits.TAKEN
    except (LakeDamaged, JournalDamaged) as error:
        return _end(str(error), "damaged", as_json=args.json)
    except StoreFailed as error:
        return _end(str(error), "failed", as_json=args.json)
    except CoterieError as error:
        raise UsageError(str(error)) from None
    except PySparkException as error:
        return failed(error, as_json=args.json)
    except Exception as error:  # noqa: BLE001 -- our own, and never taken for anything else
        return _end(_story(error), "failed", as_json=args.json)


def _act(args: argparse.Namespace, roots: list[str], work: dict[str, Any], cluster: str) -> int:
    from coterie.pipeline.again import recall  # noqa: PLC0415
    from coterie.pipeline.spark.session import LOCAL, make_session  # noqa: PLC0415

    if args.action == "run" and not args.verify_sources and args.seal_key is None:
        told = recall(args.out, roots, _key(args), growing=args.growing)
        if told is not None:
            _say("nothing has changed since the last run, which found this")
            return _tell(told, args)
    _say(f"journals in {len(roots)} folders; starting Spark ({cluster or LOCAL})")
    spark = make_session(master=args.master or LOCAL, remote=args.remote)
    hush()
    try:
        act = _follow if args.action == "follow" else _run
        return act(spark, roots, args, work)
    finally:
        spark.stop()


def _key(args: argparse.Namespace) -> list[str]:
    """Give all that a run's results follow from, beside the journals."""
    return [*_jobs(args.only), *args.classes, *(["strict"] if args.strict else [])]


def _check_lake(args: argparse.Namespace) -> int:
    """Read every file of a lake, and say which is not as it was written."""
    from coterie.pipeline.lake.lake import Lake, LakeDamaged, LakeError  # noqa: PLC0415
    from coterie.pipeline.lake.remembered import check_files  # noqa: PLC0415

    folder = args.out / "lake" if (args.out / "lake").is_dir() else args.out
    try:
        lake = Lake.open(folder)
        bad = [str(each) for each in check_files(lake, has_content=True)]
        count = len(lake.segments()) if not bad else 0
    except LakeDamaged as error:
        bad, count = [str(error)], 0
    except LakeError as error:
        raise UsageError(str(error)) from None
    if args.json:
        import msgspec  # noqa: PLC0415

        word = "damaged" if bad else "kept"
        print(msgspec.json.encode({"outcome": word, "problems": bad, "segments": count}).decode())
    else:
        print("\n".join(bad) or f"the lake is as it was written: {count:,} segments")
    if bad:
        _say("coterie: pipeline run --verify-sources makes anew what the journals still have")
    return exits.UNKNOWN if bad else exits.DONE


def hush() -> None:
    """Keep what Spark's Python side logs off the terminal.

    That is the story of every call to Java that is interrupted; the error itself is raised.
    """
    import logging  # noqa: PLC0415

    logging.getLogger().addHandler(logging.NullHandler())


def failed(error: Exception, *, as_json: bool = False) -> int:
    """Say what a task failed of: in a sentence of ours, or else all that its Python said."""
    ours = [line for line in map(str.strip, str(error).splitlines()) if line.startswith("coterie.")]
    if not ours:
        return _end(f"Spark failed: {_without_java(str(error))}", "failed", as_json=as_json)
    kind, _, sentence = ours[-1].partition(": ")
    if kind.endswith((".JournalDamaged", ".LakeDamaged")):
        return _end(sentence, "damaged", as_json=as_json)
    _say(f"coterie: {sentence}")
    return exits.MISUSE


def _end(reason: str, outcome: str, *, as_json: bool) -> int:
    """Say why a run came to no verdict."""
    import msgspec  # noqa: PLC0415

    _say(f"coterie: {reason}")
    if as_json:
        print(msgspec.json.encode({"outcome": outcome, "problems": [reason]}).decode())
    return STATUSES[outcome]


def _story(error: Exception) -> str:
    """Tell an error of our own: what the system said, or else all there is to know of a bug."""
    if isinstance(error, OSError) and error.strerror:
        return f"the run failed: {error.strerror}: {error.filename or 'a file of the results'}"
    told = "".join(traceback.format_exception(error)).rstrip()
    return f"the run failed, which is a bug in Coterie and says nothing of the journals:\n{told}"


def _without_java(story: str) -> str:
    """Leave out of what Spark says where in Java it was said, which is of no use to anybody."""
    lines = story.partition("JVM stacktrace:")[0].splitlines()
    is_java = re.compile(r"\s*(at |\.\.\. )")
    told = [line.rstrip() for line in lines if line.strip() and not is_java.match(line)]
    return "\n".join(told) or "for no reason that Spark tells"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _run(
    spark: SparkSession, roots: list[str], args: argparse.Namespace, work: dict[str, Any]
) -> int:
    from coterie.journal.keyed import SealKey  # noqa: PLC0415
    from coterie.pipeline.again import remember  # noqa: PLC0415
    from coterie.pipeline.jobs import run_pipeline  # noqa: PLC0415
    from coterie.runtime.security import read_secrets  # noqa: PLC0415

    key = None if args.seal_key is None else SealKey(*read_secrets(args.seal_key))
    with SparkBar(spark) as bar:
        outcome = run_pipeline(
            spark,
            args.journals,
            args.out,
            growing=args.growing,
            strict=args.strict,
            seal_key=key,
            verify_sources=args.verify_sources,
            progress=bar.begin,
            **work,
        )
    told = outcome.told()
    if args.seal_key is None:
        remember(args.out, roots, _key(args), told, growing=args.growing)
    return _tell(told, args)


def _follow(
    spark: SparkSession, roots: list[str], args: argparse.Namespace, work: dict[str, Any]
) -> int:
    from coterie.pipeline.follow import follow  # noqa: PLC0415

    last: list[int] = []
    bar = SparkBar(spark)

    def tell(outcome: JobOutcome) -> None:
        bar.rest()
        last[:] = [_tell(outcome.told(), args)]
        sys.stdout.flush()

    try:
        with bar:
            follow(
                spark,
                roots,
                args.out,
                interval_seconds=args.interval,
                once=args.once,
                growing=args.growing,
                strict=args.strict,
                progress=bar.begin,
                tell=tell,
                refresh=args.mirrors.refresh if args.mirrors else None,
                **work,
            )
    except KeyboardInterrupt:
        _say("interrupted; start it again to go on from here")
    return last[0] if last else exits.DONE


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
    from coterie.pipeline.history.replay import Program  # noqa: PLC0415

    for text in classes:
        group, equals, name = text.partition("=")
        if not equals or not group or not all(name.rpartition(":")):
            raise UsageError(
                f"--class {text!r} should say GROUP=MODULE:CLASS, or GROUP=FILE.py:CLASS"
            )
        module, _, attribute = name.rpartition(":")
        # Tasks look where we look, wherever they are started.
        place = Path(module) if module.endswith(".py") else Path.cwd() / "_"
        if module.endswith(".py"):
            if not place.is_file():
                raise UsageError(f"there is no file {place.absolute()}")
            module = place.stem
        program = Program(name=f"{module}:{attribute}", folder=str(place.absolute().parent))
        try:
            program.load()  # tasks would fail for the same reason, but later
        except CoterieError as error:
            raise UsageError(str(error)) from None
        yield group, program


def _tell(told: dict[str, Any], args: argparse.Namespace) -> int:
    """Say what came of a run, once it is where it should be; give its exit status."""
    import msgspec  # noqa: PLC0415

    if args.mirrors:
        told = args.mirrors.publish(told)
    if args.json:
        print(msgspec.json.encode(told).decode())
    else:
        print("\n".join(summary(told)))
    return STATUSES[told["outcome"]]


def _transactions(told: dict[str, Any]) -> Iterator[str]:
    ended: dict[str, int] = {}
    for of_group in told["transactions"].values():
        for word, count in of_group.items():
            ended[word] = ended.get(word, 0) + count
    if ended:
        counts = ", ".join(f"{count:,} {word}" for word, count in sorted(ended.items()))
        yield f"transactions: {counts}"


def summary(told: dict[str, Any]) -> Iterator[str]:
    """Say what came of a run, a line each."""
    took = ", ".join(f"{job} {seconds:.1f} s" for job, seconds in told["seconds"].items())
    yield f"groups:    {', '.join(told['groups']) or 'none'}   ({took})"
    if told["standings"]:
        counts = ", ".join(f"{count:,} {word}" for word, count in sorted(told["standings"].items()))
        yield f"entries:   {counts}"
    yield from _transactions(told)
    if told["verdicts"]:
        words = [row["verdict"] for row in told["verdicts"]]
        counts = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
        yield f"promises:  {counts}"
    for row in told["violations"][:10]:
        yield f"BROKEN     {row['check_name']}: {row['evidence']}"
    for sentence in told["tampered"][:10]:
        yield f"TAMPERED   {sentence}"
    for sentence in told["problems"][:10]:
        yield f"PROBLEM    {sentence}"
    if told["findings"]:
        yield f"findings:  {len(told['findings'])} (see the report)"
    if told["events"]:
        yield f"events:    {told['events']:,} in {told['out']}/tables/events"
    if told["report"]:
        yield f"report:    {told['report']}"
    for group, rest in sorted(told["basis"].items()):
        yield f"by:        {rest['told']}   ({group})"
    yield f"outcome:   {told['outcome']}"
