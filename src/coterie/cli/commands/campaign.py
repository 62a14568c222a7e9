"""`coterie campaign`: simulated runs as Spark tasks, checked from inside and by their journals."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.cli import exits
from coterie.cli.commands import sim
from coterie.cli.commands.pipeline import add_cluster_options, cluster_of, failed, hush
from coterie.cli.errors import UsageError
from coterie.cli.terminal.spark_bar import SparkBar
from coterie.simulation.engines import family_named

if TYPE_CHECKING:
    from coterie.campaign import Campaign
    from coterie.cli.parser import Parser, Subparsers
    from coterie.simulation.campaign import Options

SEEDS_MAX = 10_000_000


def add_parser(subparsers: Subparsers) -> Parser:
    """Describe the command."""
    parser = subparsers.add_parser(
        "campaign",
        help="run many simulated groups under faults on Spark, and check their journals, too",
        description="Does what `sim` does, with seeds as Spark tasks on this machine or a cluster, "
        "and puts the journals of each run through the pipeline's checks. Exit status 1 means that "
        "a promise was broken; the journals of those runs are kept.",
    )
    sim.add_run_options(parser)
    parser.add_argument("--seeds", type=int, default=1000, metavar="COUNT", help="how many runs")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where tables go")
    add_cluster_options(parser)
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    # What only one run at a time can have.
    parser.set_defaults(journals="", trace=False, seed=None)
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the seeds and say how it went."""
    from importlib.util import find_spec  # noqa: PLC0415 -- start-up of other commands stays fast

    if find_spec("pyspark") is None:
        raise UsageError("a campaign needs Spark: pip install 'coterie[pipeline]'; `sim` does not")
    options = sim.options_of(args, wants_journals=True)
    if args.seeds > SEEDS_MAX:
        raise UsageError(f"--seeds goes up to {SEEDS_MAX:,}, not {args.seeds:,}")
    from pyspark.errors import PySparkException  # noqa: PLC0415

    from coterie.campaign import run_campaign  # noqa: PLC0415
    from coterie.kernel.errors import CoterieError  # noqa: PLC0415
    from coterie.pipeline.jobs import ResultsTaken, claimed  # noqa: PLC0415
    from coterie.pipeline.spark.cluster import check_reachable  # noqa: PLC0415
    from coterie.pipeline.spark.session import LOCAL, make_session  # noqa: PLC0415

    seeds = range(args.first, args.first + args.seeds)
    cluster = cluster_of(args)
    if cluster:
        args.out = args.out.absolute()  # other processes, with other working folders, are told it
    try:
        if cluster:
            # Before anything is made: a misspelt cluster should leave no trace.
            check_reachable(cluster)
        with claimed(args.out):
            place = cluster or LOCAL
            print(f"{args.seeds:,} seeds; starting Spark ({place})", file=sys.stderr, flush=True)
            spark = make_session(master=args.master or LOCAL, remote=args.remote)
            hush()
            try:
                with SparkBar(spark) as bar:
                    bar.begin("seeds")
                    campaign = run_campaign(spark, seeds, options, args.out)
            finally:
                spark.stop()
    except ResultsTaken as error:
        print(f"coterie: {error}", file=sys.stderr)
        return exits.TAKEN
    except (CoterieError, OSError) as error:
        raise UsageError(str(error)) from None
    except PySparkException as error:
        return failed(error)
    tell(campaign, options, args)
    return exits.NOT_DONE if campaign.failed else exits.DONE


def tell(campaign: Campaign, options: Options, args: argparse.Namespace) -> None:
    """Say what came of all seeds."""
    import msgspec  # noqa: PLC0415

    if args.json:
        print(msgspec.json.encode(campaign).decode())
        return
    verdict = f"{len(campaign.failed)} FAILED" if campaign.failed else "no violation"
    print(f"{family_named(options.family).title(options)}: {campaign.seeds:,} seeds, {verdict}")
    print(
        f"  simulated {campaign.simulated_seconds:,.0f} s in {campaign.seconds:.1f} s; the "
        f"journals' checks looked at {campaign.checked:,} rows"
    )
    if campaign.damaged:
        print(f"  old disks did damage in {campaign.damaged} runs, and it was found")
    for row in campaign.coverage:
        print(f"  {row['fault']:<16} {row['count']:>9,} times in {row['runs']:,} runs")
    for seed, violations in list(campaign.failed.items())[:10]:
        print(f"seed {seed}: {violations[0]}", file=sys.stderr)
        print(f"  its journals: {args.out / 'failed' / str(seed)}", file=sys.stderr)
        print(f"  repeat it with: {sim.command_of(args, options, seed)}", file=sys.stderr)
    print(f"runs and coverage: {args.out}")
