"""`coterie sim --engine vsr`: random runs of transactions over several groups, with faults."""

import argparse
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from coterie.cli.errors import UsageError
from coterie.cli.progress import Progress

if TYPE_CHECKING:
    from coterie.simulation.transaction_campaign import TransactionOptions, TransactionRun

EXIT_VIOLATION = 1
_DURATION = 60.0


def run(args: argparse.Namespace) -> int:
    """Run the seeds and say how it went."""
    # Imported here, so that other commands start quickly.
    from coterie.simulation.parallel import available_cores, run_each  # noqa: PLC0415
    from coterie.simulation.transaction_campaign import run_transactions  # noqa: PLC0415

    options = options_of(args)
    if args.trace:
        outcome = run_transactions(args.seed, options, trace=print)
        for violation in outcome.violations:
            print(f"VIOLATION {violation}")
        print(f"digest {outcome.digest:08x}")
        return EXIT_VIOLATION if outcome.violations else 0
    seeds = [args.seed] if args.seed is not None else range(args.first, args.first + args.seeds)
    jobs = min(args.jobs or available_cores(), len(seeds))
    begun = time.monotonic()
    runs: list[TransactionRun] = []
    with Progress(len(seeds), "seeds") as progress:
        for outcome in run_each(partial(run_transactions, options=options), seeds, jobs=jobs):
            runs.append(outcome)
            failed = sum(bool(each.violations) for each in runs)
            progress.step(f"{failed} failed" if failed else "no violation")
    elapsed = time.monotonic() - begun
    runs.sort(key=lambda outcome: outcome.seed)
    (_print_json if args.json else _print_summary)(runs, options, elapsed)
    broken = [outcome for outcome in runs if outcome.violations]
    for outcome in broken[:10]:
        print(f"seed {outcome.seed}: {outcome.violations[0]}", file=sys.stderr)
        print(f"  repeat it with: {command_of(args, outcome.seed)}", file=sys.stderr)
    return EXIT_VIOLATION if broken else 0


def options_of(args: argparse.Namespace) -> "TransactionOptions":
    """Give what the options say, or say what is wrong with them."""
    from coterie.journal.format import Sync  # noqa: PLC0415
    from coterie.kernel.clock import seconds  # noqa: PLC0415
    from coterie.simulation.machines import COHORT_FAULTS  # noqa: PLC0415
    from coterie.simulation.transaction_campaign import (  # noqa: PLC0415
        OBJECTS,
        REPLICAS_MAX,
        TransactionOptions,
    )

    replicas = 3 if args.replicas is None else args.replicas
    name = args.object or "bank"
    if name not in OBJECTS:
        raise UsageError(f"--object is {' or '.join(OBJECTS)} for --engine vsr, not {name}")
    if not 1 <= replicas <= REPLICAS_MAX:
        raise UsageError(
            f"--replicas goes from 1 to {REPLICAS_MAX} for --engine vsr, not {replicas}"
        )
    if args.groups < 1:
        raise UsageError(f"--groups must be at least 1, not {args.groups}")
    if args.seeds < 1:
        raise UsageError(f"--seeds must be at least 1, not {args.seeds}")
    if args.duration <= 0:
        raise UsageError(f"--duration must be above 0, not {args.duration}")
    if args.trace and args.seed is None:
        raise UsageError("--trace shows one run: say which with --seed")
    chosen: list[str] = []
    for word in args.faults.split(","):
        if word not in {"all", "none", *COHORT_FAULTS}:
            known = ", ".join(COHORT_FAULTS)
            raise UsageError(f"there is no fault '{word}' for --engine vsr; there are {known}")
        chosen += {"all": COHORT_FAULTS, "none": ()}.get(word, (word,))
    return TransactionOptions(
        object=name,
        groups=args.groups,
        replicas=replicas,
        duration=seconds(args.duration),
        faults=tuple(dict.fromkeys(chosen)),
        sync=None if args.sync is None else Sync(args.sync),
        journals=args.journals,
    )


def command_of(args: argparse.Namespace, seed: int) -> str:
    """Give the command that shows one seed again."""
    name = args.object or "bank"
    words = f"coterie sim --engine vsr --object {name} --groups {args.groups} --seed {seed}"
    if args.replicas is not None:
        words += f" --replicas {args.replicas}"
    if args.faults != "all":
        words += f" --faults {args.faults}"
    if args.sync is not None:
        words += f" --sync {args.sync}"
    if args.duration != _DURATION:
        words += f" --duration {args.duration:g}"
    return words + " --trace"


def _reasons(runs: "list[TransactionRun]") -> dict[str, int]:
    reasons: dict[str, int] = {}
    for outcome in runs:
        for reason, count in outcome.reasons.items():
            reasons[reason] = reasons.get(reason, 0) + count
    return dict(sorted(reasons.items(), key=lambda item: -item[1]))


def _totals(runs: "list[TransactionRun]") -> dict[str, int]:
    return {
        name: sum(getattr(outcome, name) for outcome in runs)
        for name in ("committed", "aborted", "unknown", "checks", "views", "states_taken")
    }


def _print_summary(
    runs: "list[TransactionRun]", options: "TransactionOptions", elapsed: float
) -> None:
    failed = sum(bool(outcome.violations) for outcome in runs)
    totals = _totals(runs)
    slowest = max(outcome.converged_after for outcome in runs) / 1e6
    faults = sum(sum(outcome.faults.values()) for outcome in runs)
    print(
        f"VSR {options.object}, {options.groups} groups of {options.replicas}: {len(runs)} seeds, "
        f"{f'{failed} FAILED' if failed else 'no violation'}"
    )
    simulated = sum(outcome.simulated for outcome in runs) / 1e6
    print(
        f"  simulated {simulated:,.0f} s in {elapsed:.1f} s; {faults:,} faults; "
        f"{totals['views']:,} views, {totals['states_taken']:,} whole states sent"
    )
    print(
        f"  {totals['committed']:,} transactions committed, {totals['aborted']:,} aborted, "
        f"{totals['unknown']:,} unknown to their clients; {totals['checks']:,} looked at "
        "everything and found it right"
    )
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in _reasons(runs).items())
    print(f"  aborted because: {reasons or 'none was'}")
    print(f"  slowest to be quiet after healing: {slowest:.2f} s")


def _print_json(
    runs: "list[TransactionRun]", options: "TransactionOptions", elapsed: float
) -> None:
    import msgspec  # noqa: PLC0415

    summary = {
        "engine": "vsr",
        "object": options.object,
        "groups": options.groups,
        "replicas": options.replicas,
        "seeds": len(runs),
        "failed": [outcome.seed for outcome in runs if outcome.violations],
        "violations": {
            str(outcome.seed): outcome.violations[:10] for outcome in runs if outcome.violations
        },
        "seconds": elapsed,
        "reasons": _reasons(runs),
        **_totals(runs),
    }
    print(msgspec.json.encode(summary).decode())
