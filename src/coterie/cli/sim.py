"""`coterie sim`: random runs of a simulated group, with faults, checked against every promise."""

import argparse
import sys
import time
from typing import TYPE_CHECKING

from coterie.cli.errors import UsageError
from coterie.cli.parser import Parser, Subparsers

if TYPE_CHECKING:
    from coterie.simulation.campaign import Run, RunOptions

EXIT_VIOLATION = 1


def add_parser(subparsers: Subparsers) -> Parser:
    """Describe the command."""
    parser = subparsers.add_parser(
        "sim",
        help="run simulated groups under faults and check every promise",
        description="Runs whole groups in virtual time. Each seed is one run: first anything may "
        "fail, then everything is healed and the group must come together and answer. "
        "Exit code 1 means that a promise was broken.",
    )
    parser.add_argument("--stack", default="DYNSEQ:VSYNC", help="the layers, top first")
    parser.add_argument(
        "--engine",
        choices=("layers", "vsr"),
        default="layers",
        help="'layers' builds --stack; 'vsr' is viewstamped replication, with transactions over "
        "--groups groups",
    )
    parser.add_argument("--groups", type=int, default=3, metavar="N", help="for --engine vsr")
    parser.add_argument(
        "--replicas", type=int, metavar="N", help="in each group; 5, and 3 for --engine vsr"
    )
    parser.add_argument("--seeds", type=int, default=100, metavar="COUNT", help="how many runs")
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="SEED")
    parser.add_argument("--seed", type=int, metavar="S", help="run this one seed only")
    parser.add_argument(
        "--faults",
        default="all",
        help="'all', 'none', or kinds with commas (see --list-faults); 'all' leaves out those that "
        "nothing survives without loss: all,amnesia adds one",
    )
    parser.add_argument("--list-faults", action="store_true", help="say which faults there are")
    parser.add_argument(
        "--duration",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="simulated seconds before everything is healed (default 60)",
    )
    parser.add_argument(
        "--object",
        choices=("counter", "dictionary", "queue", "locks", "upgrade", "bank", "airline"),
        help="have clients use a replicated object, and check what they saw: linearizability, or "
        "without an order (PVSYNC alone) that every request counts once",
    )
    parser.add_argument(
        "--sync",
        choices=("turn", "primary", "interval", "none"),
        help="when replicas of an engine sync their journals (default: every turn); for --engine "
        "vsr, which events are on disk before they count: all, the primary's, or none (default: "
        "each seed draws)",
    )
    parser.add_argument(
        "--journals",
        default="",
        metavar="FOLDER",
        help="write each run's journals into a folder of its own there (engines keep journals)",
    )
    parser.add_argument("--trace", action="store_true", help="print all that happens (one seed)")
    parser.add_argument("--jobs", type=int, default=0, metavar="N", help="default: all cores")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the seeds and say how it went."""
    from coterie.simulation.faults import FAULTS  # noqa: PLC0415 -- start-up stays fast

    if args.list_faults:
        for name, fault in FAULTS.items():
            print(f"{name:16} {(fault.__doc__ or '').strip()}")
        return 0
    if args.engine == "vsr":
        from coterie.cli import sim_vsr  # noqa: PLC0415

        return sim_vsr.run(args)
    refuse_transactions(args)
    options = options_of(args)
    if args.trace:
        return _trace(args, options)
    return _campaign(args, options)


def refuse_transactions(args: argparse.Namespace) -> None:
    """Refuse what only --engine vsr can run; take the default number of replicas of a stack."""
    if args.object in {"bank", "airline"}:
        raise UsageError(
            f"the {args.object} needs transactions over several groups: choose --engine vsr"
        )
    if args.replicas is None:
        args.replicas = 5


def options_of(args: argparse.Namespace) -> "RunOptions":
    """Give what the options say, or say what is wrong with them."""
    from coterie.journal.format import Sync  # noqa: PLC0415
    from coterie.kernel.clock import seconds  # noqa: PLC0415
    from coterie.kernel.errors import StackError  # noqa: PLC0415
    from coterie.simulation.campaign import REPLICAS_MAX, RunOptions  # noqa: PLC0415
    from coterie.stacks import ENGINE_STACKS, has_engine, is_ordered, parse_stack  # noqa: PLC0415

    try:
        parse_stack(args.stack)
    except StackError as error:
        raise UsageError(str(error)) from None
    if not 1 <= args.replicas <= REPLICAS_MAX:
        raise UsageError(f"--replicas goes from 1 to {REPLICAS_MAX}, not {args.replicas}")
    if args.seeds < 1:
        raise UsageError(f"--seeds must be at least 1, not {args.seeds}")
    if args.duration <= 0:
        raise UsageError(f"--duration must be above 0, not {args.duration}")
    if args.journals and not has_engine(args.stack):
        raise UsageError(
            f"--journals needs a stack that keeps a journal: {', '.join(ENGINE_STACKS)}"
        )
    if args.object and not has_engine(args.stack):
        raise UsageError(f"--object needs a stack that keeps a history: {', '.join(ENGINE_STACKS)}")
    if args.object not in {None, "counter"} and not is_ordered(args.stack):
        raise UsageError(
            f"{args.stack.upper()} gives no order, so only updates that commute are right on it: "
            "choose --object counter"
        )
    if args.sync == "primary":
        raise UsageError("--sync primary is for --engine vsr: stacks have no primary of that kind")
    if args.trace and args.seed is None:
        raise UsageError("--trace shows one run: say which with --seed")
    chosen = _faults_named(args.faults)
    return RunOptions(
        stack=args.stack.upper(),
        replicas=args.replicas,
        duration=seconds(args.duration),
        faults=chosen,
        sync=Sync(args.sync or "turn"),
        object=args.object or "",
        journals=args.journals,
    )


def _faults_named(words: str) -> tuple[str, ...]:
    from coterie.simulation.campaign import ALL_FAULTS  # noqa: PLC0415
    from coterie.simulation.faults import FAULTS  # noqa: PLC0415

    chosen: list[str] = []
    for word in words.split(","):
        if word not in FAULTS and word not in {"all", "none"}:
            raise UsageError(f"there is no fault '{word}'; --list-faults says which are")
        chosen += {"all": ALL_FAULTS, "none": ()}.get(word, (word,))
    return tuple(dict.fromkeys(chosen))


def _trace(args: argparse.Namespace, options: "RunOptions") -> int:
    from coterie.simulation.campaign import run_seed  # noqa: PLC0415

    outcome = run_seed(args.seed, options, trace=print)
    for violation in outcome.violations:
        print(f"VIOLATION {violation}")
    for violation in outcome.damage:
        print(f"DAMAGE by an old disk, found: {violation}")
    print(f"digest {outcome.digest:08x}")
    return EXIT_VIOLATION if outcome.violations else 0


def _campaign(args: argparse.Namespace, options: "RunOptions") -> int:
    from coterie.cli.progress import Progress  # noqa: PLC0415
    from coterie.simulation.parallel import available_cores, run_many  # noqa: PLC0415

    seeds = [args.seed] if args.seed is not None else range(args.first, args.first + args.seeds)
    jobs = min(args.jobs or available_cores(), len(seeds))
    begun = time.monotonic()
    runs: list[Run] = []
    failed: list[Run] = []
    with Progress(len(seeds), "seeds") as progress:
        for outcome in run_many(seeds, options, jobs=jobs):
            runs.append(outcome)
            if outcome.violations:
                failed.append(outcome)
            progress.step(f"{len(failed)} failed" if failed else "no violation")
    elapsed = time.monotonic() - begun
    failed.sort(key=lambda outcome: outcome.seed)
    if args.json:
        _print_json(runs, failed, options, elapsed)
    else:
        _print_summary(runs, failed, options, elapsed)
    for outcome in failed[:10]:
        print(f"seed {outcome.seed}: {outcome.violations[0]}", file=sys.stderr)
        print(f"  repeat it with: {command_of(args, outcome.seed)}", file=sys.stderr)
    return EXIT_VIOLATION if failed else 0


def command_of(args: argparse.Namespace, seed: int) -> str:
    """Give the command that shows one seed again."""
    words = f"coterie sim --stack {args.stack.upper()} --replicas {args.replicas} --seed {seed}"
    if args.faults != "all":
        words += f" --faults {args.faults}"
    if args.object:
        words += f" --object {args.object}"
    if args.sync not in {None, "turn"}:
        words += f" --sync {args.sync}"
    if args.duration != 60.0:  # noqa: PLR2004 -- the default
        words += f" --duration {args.duration:g}"
    return words + " --trace"


def _totals(runs: "list[Run]") -> dict[str, int]:
    return {
        "views": sum(outcome.views for outcome in runs),
        "deliveries": sum(outcome.deliveries for outcome in runs),
        "frames": sum(outcome.frames for outcome in runs),
    }


def _faults(runs: "list[Run]") -> dict[str, int]:
    faults: dict[str, int] = {}
    for outcome in runs:
        for kind, count in outcome.faults.items():
            faults[kind] = faults.get(kind, 0) + count
    return dict(sorted(faults.items(), key=lambda item: -item[1]))


def _print_summary(
    runs: "list[Run]", failed: "list[Run]", options: "RunOptions", elapsed: float
) -> None:
    simulated = sum(outcome.simulated for outcome in runs) / 1e6
    totals = _totals(runs)
    faults = _faults(runs)
    slowest = max(outcome.converged_after for outcome in runs) / 1e6
    verdict = f"{len(failed)} FAILED" if failed else "no violation"
    print(f"{options.stack}, {options.replicas} replicas: {len(runs)} seeds, {verdict}")
    print(
        f"  simulated {simulated:,.0f} s in {elapsed:.1f} s "
        f"({simulated / elapsed:,.0f} s a second, {len(runs) / elapsed:.2f} seeds a second)"
    )
    print(
        f"  {totals['views']:,} views installed, {totals['deliveries']:,} messages delivered, "
        f"{totals['frames']:,} frames; slowest to come together after healing: {slowest:.2f} s"
    )
    damaged = [outcome for outcome in runs if outcome.damage]
    if damaged:
        checks = sorted({each.partition(":")[0] for run in damaged for each in run.damage})
        print(f"  old disks did damage in {len(damaged)} runs, found by: {', '.join(checks)}")
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in faults.items()) or "none"
    rate = sum(faults.values()) / (len(runs) * options.duration / 1e6)
    print(f"  faults ({rate:.1f} a second): {kinds}")


def _print_json(
    runs: "list[Run]", failed: "list[Run]", options: "RunOptions", elapsed: float
) -> None:
    import msgspec  # noqa: PLC0415

    summary = {
        "stack": options.stack,
        "replicas": options.replicas,
        "seeds": len(runs),
        "failed": [outcome.seed for outcome in failed],
        "violations": {str(outcome.seed): outcome.violations[:10] for outcome in failed},
        "simulated_seconds": sum(outcome.simulated for outcome in runs) / 1e6,
        "seconds": elapsed,
        "faults": _faults(runs),
        **_totals(runs),
    }
    print(msgspec.json.encode(summary).decode())
