"""`coterie sim`: random runs of simulated groups, with faults, checked against every promise.

One command for all families of engines: what they have in common is read here, the rest is theirs
(`coterie.simulation.engines`).
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any

from coterie.cli.errors import UsageError
from coterie.simulation.engines import (
    DEFAULT,
    Asked,
    Family,
    NotOffered,
    all_families,
    family_named,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coterie.cli.parser import Parser, Subparsers
    from coterie.simulation.campaign import Options, SeedRun

EXIT_VIOLATION = 1
DURATION = 60.0


def add_parser(subparsers: Subparsers) -> Parser:
    """Describe the command."""
    parser = subparsers.add_parser(
        "sim",
        help="run simulated groups under faults and check every promise",
        description="Runs whole groups in virtual time. Each seed is one run: first anything may "
        "fail, then everything is healed and the group must come together and answer. "
        "Exit code 1 means that a promise was broken.",
    )
    add_run_options(parser)
    parser.add_argument("--seeds", type=int, default=100, metavar="COUNT", help="how many runs")
    parser.add_argument("--seed", type=int, metavar="S", help="run this one seed only")
    parser.add_argument("--list-faults", action="store_true", help="say which faults there are")
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


def add_run_options(parser: Parser) -> None:
    """Add what says which runs are wanted, for all families of engines."""
    families = all_families().values()
    parser.add_argument(
        "--engine",
        choices=tuple(all_families()),
        default=DEFAULT,
        help="; ".join(f"'{each.name}': {each.about}" for each in families),
    )
    for each in families:
        for extra in each.extras:
            parser.add_argument(
                extra.flag,
                type=extra.kind,
                metavar=extra.metavar,
                help=f"{extra.help}; for --engine {each.name}",
            )
    replicas = ", ".join(f"{each.replicas} for --engine {each.name}" for each in families)
    parser.add_argument("--replicas", type=int, metavar="N", help=f"in each group ({replicas})")
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="SEED")
    parser.add_argument(
        "--faults",
        default="all",
        help="'all', 'none', or kinds with commas (see sim --list-faults); 'all' leaves out those "
        "that nothing survives without loss: all,amnesia adds one",
    )
    parser.add_argument(
        "--duration",
        type=float,
        default=DURATION,
        metavar="SECONDS",
        help=f"simulated seconds before everything is healed (default {DURATION:g})",
    )
    objects = "; ".join(f"{', '.join(each.objects)} ({each.name})" for each in families)
    parser.add_argument(
        "--object",
        choices=_all(each.objects for each in families),
        metavar="KIND",
        help=f"have clients use a replicated object, and check what they saw: {objects}",
    )
    parser.add_argument(
        "--sync",
        choices=_all(each.syncs for each in families),
        help="when replicas sync their journals, or which events are on disk before they count",
    )
    parser.add_argument(
        "--old",
        action="store_true",
        help="begin each run with what years leave on disks: counters near their limits, hundreds "
        "of lives and views, histories and sessions trimmed all the time",
    )


def _all(words: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for each in words for word in each))


def run(args: argparse.Namespace) -> int:
    """Run the seeds and say how it went."""
    if args.list_faults:
        from coterie.simulation.faults import FAULTS  # noqa: PLC0415 -- start-up stays fast

        chosen = family_named(args.engine)
        for name in (*chosen.faults, *chosen.more_faults):
            print(f"{name:16} {(FAULTS[name].__doc__ or '').strip()}")
        return 0
    options = options_of(args)
    if args.trace:
        return _trace(args, options)
    return _campaign(args, options)


# ---- what is asked for


def options_of(args: argparse.Namespace, *, wants_journals: bool = False) -> Options:
    """Give what the options say, or say what is wrong with them."""
    from coterie.kernel.clock import seconds  # noqa: PLC0415 -- start-up stays fast

    chosen = family_named(args.engine)
    if args.seeds < 1:
        raise UsageError(f"--seeds must be at least 1, not {args.seeds}")
    if args.duration <= 0:
        raise UsageError(f"--duration must be above 0, not {args.duration}")
    if args.trace and args.seed is None:
        raise UsageError("--trace shows one run: say which with --seed")
    replicas = chosen.replicas if args.replicas is None else args.replicas
    if not 1 <= replicas <= chosen.replicas_max:
        raise UsageError(
            f"--replicas goes from 1 to {chosen.replicas_max} for --engine {chosen.name}, "
            f"not {replicas}"
        )
    _refuse_what_others_have(args, chosen)
    if args.old and not chosen.can_be_old:
        raise UsageError(f"--old is not for --engine {chosen.name}: leave it out")
    asked = Asked(
        replicas=replicas,
        duration=seconds(args.duration),
        faults=_faults_named(args.faults, chosen),
        object=args.object or "",
        sync=args.sync or "",
        old=args.old,
        journals=args.journals,
        wants_journals=wants_journals,
        extras={extra.name: getattr(args, extra.name) for extra in chosen.extras},
    )
    try:
        return chosen.options(asked)
    except NotOffered as error:
        raise UsageError(str(error)) from None


def _refuse_what_others_have(args: argparse.Namespace, chosen: Family) -> None:
    """Refuse options that mean something for other families only."""
    own = {extra.name for extra in chosen.extras}
    for other in all_families().values():
        for extra in other.extras:
            if extra.name not in own and getattr(args, extra.name) is not None:
                raise UsageError(f"{extra.flag} is for --engine {other.name}")
    for flag, offered in (("object", "objects"), ("sync", "syncs")):
        word = getattr(args, flag)
        if word is not None and word not in getattr(chosen, offered):
            others = [each for each in all_families().values() if word in getattr(each, offered)]
            known = " or ".join(getattr(chosen, offered)) or "nothing"
            raise UsageError(
                f"--{flag} {word} is for --engine {others[0].name}: choose --engine "
                f"{others[0].name}; --{flag} is {known} for --engine {chosen.name}"
            )


def _faults_named(words: str, chosen: Family) -> tuple[str, ...]:
    named: list[str] = []
    for word in words.split(","):
        if word not in {"all", "none", *chosen.faults, *chosen.more_faults}:
            raise UsageError(
                f"there is no fault '{word}' for --engine {chosen.name}; --list-faults says which "
                "are"
            )
        named += {"all": chosen.faults, "none": ()}.get(word, (word,))
    return tuple(dict.fromkeys(named))


def command_of(args: argparse.Namespace, options: Options, seed: int) -> str:
    """Give the command that shows one seed again."""
    chosen = family_named(args.engine)
    words = "coterie sim"
    if chosen.name != DEFAULT:
        words += f" --engine {chosen.name}"
    for extra in chosen.extras:
        words += f" {extra.flag} {getattr(options, extra.name)}"
    if options.object:
        words += f" --object {options.object}"
    words += f" --replicas {options.replicas} --seed {seed}"
    if args.faults != "all":
        words += f" --faults {args.faults}"
    if args.sync is not None:
        words += f" --sync {args.sync}"
    if options.old:
        words += " --old"
    if args.duration != DURATION:
        words += f" --duration {args.duration:g}"
    return words + " --trace"


# ---- one run, or many


def _trace(args: argparse.Namespace, options: Options) -> int:
    from coterie.simulation.campaign import run_seed  # noqa: PLC0415 -- start-up stays fast

    outcome = run_seed(args.seed, options, trace=print)
    for violation in outcome.violations:
        print(f"VIOLATION {violation}")
    for violation in outcome.damage:
        print(f"DAMAGE by an old disk, found: {violation}")
    print(f"digest {outcome.digest:08x}")
    return EXIT_VIOLATION if outcome.violations else 0


def _campaign(args: argparse.Namespace, options: Options) -> int:
    from coterie.cli.terminal.progress import Progress  # noqa: PLC0415 -- start-up stays fast
    from coterie.simulation.parallel import available_cores, run_many  # noqa: PLC0415

    seeds = [args.seed] if args.seed is not None else range(args.first, args.first + args.seeds)
    jobs = min(args.jobs or available_cores(), len(seeds))
    begun = time.monotonic()
    runs: list[SeedRun] = []
    failed: list[SeedRun] = []
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
        print(f"  repeat it with: {command_of(args, options, outcome.seed)}", file=sys.stderr)
    return EXIT_VIOLATION if failed else 0


def _total(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    """Add counts up, the highest first."""
    total: dict[str, int] = {}
    for each in counts:
        for kind, count in each.items():
            total[kind] = total.get(kind, 0) + count
    return dict(sorted(total.items(), key=lambda item: -item[1]))


def _said(counts: dict[str, int]) -> str:
    return ", ".join(f"{kind} {count:,}" for kind, count in counts.items()) or "none"


def _print_summary(
    runs: list[SeedRun], failed: list[SeedRun], options: Options, elapsed: float
) -> None:
    chosen = family_named(options.family)
    simulated = sum(outcome.simulated for outcome in runs) / 1e6
    slowest = max(outcome.converged_after for outcome in runs) / 1e6
    verdict = f"{len(failed)} FAILED" if failed else "no violation"
    print(f"{chosen.title(options)}: {len(runs)} seeds, {verdict}")
    print(
        f"  simulated {simulated:,.0f} s in {elapsed:.1f} s "
        f"({simulated / elapsed:,.0f} s a second, {len(runs) / elapsed:.2f} seeds a second)"
    )
    for line in chosen.lines(runs):
        print(f"  {line}")
    frames = sum(outcome.frames for outcome in runs)
    print(f"  {frames:,} frames; slowest to come together after healing: {slowest:.2f} s")
    reasons = _total(outcome.reasons for outcome in runs)
    if reasons:
        print(f"  not done because: {_said(reasons)}")
    damaged = [outcome for outcome in runs if outcome.damage]
    if damaged:
        checks = sorted({each.partition(":")[0] for run in damaged for each in run.damage})
        print(f"  old disks did damage in {len(damaged)} runs, found by: {', '.join(checks)}")
    faults = _total(outcome.faults for outcome in runs)
    rate = sum(faults.values()) / (len(runs) * options.duration / 1e6)
    print(f"  faults ({rate:.1f} a second): {_said(faults)}")


def _print_json(
    runs: list[SeedRun], failed: list[SeedRun], options: Options, elapsed: float
) -> None:
    import msgspec  # noqa: PLC0415 -- start-up stays fast

    chosen = family_named(options.family)
    summary: dict[str, Any] = {
        "engine": chosen.name,
        **chosen.facts(options),
        "seeds": len(runs),
        "failed": [outcome.seed for outcome in failed],
        "violations": {str(outcome.seed): outcome.violations[:10] for outcome in failed},
        "simulated_seconds": sum(outcome.simulated for outcome in runs) / 1e6,
        "seconds": elapsed,
        "faults": _total(outcome.faults for outcome in runs),
        "reasons": _total(outcome.reasons for outcome in runs),
        "views": sum(outcome.views for outcome in runs),
        "deliveries": sum(outcome.deliveries for outcome in runs),
        "frames": sum(outcome.frames for outcome in runs),
        **_total(outcome.figures for outcome in runs),
    }
    print(msgspec.json.encode(summary).decode())
