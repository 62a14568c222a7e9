"""`coterie demo`: a simulated group works through a partition, before everyone's eyes."""

import argparse
import sys

from coterie.cli.parser import Parser, Subparsers

NAMES = "abcde"


def add_parser(subparsers: Subparsers) -> Parser:
    """Describe the command."""
    parser = subparsers.add_parser(
        "demo",
        help="watch a simulated group survive a partition and a crash",
        description="Five replicas cast messages while the network is cut in two, one of them "
        "crashes, and everything is healed. Time is virtual; every promise is checked at the end.",
    )
    parser.add_argument("--stack", default="DYNSEQ:VSYNC", help="the layers, top first")
    parser.add_argument("--seed", type=int, default=7)
    return parser


def run(args: argparse.Namespace) -> int:
    """Tell the story."""
    from coterie.cli.errors import UsageError  # noqa: PLC0415 -- start-up stays fast
    from coterie.kernel.errors import StackError  # noqa: PLC0415
    from coterie.simulation import Simulation, milliseconds, seconds  # noqa: PLC0415

    try:
        simulation = Simulation(seed=args.seed, stack=args.stack)
    except StackError as error:
        raise UsageError(str(error)) from None
    group = simulation.group(*NAMES)
    lanes = _Lanes(sys.stdout.isatty())

    def watch(duration: int) -> None:
        end = simulation.now + duration
        while simulation.now < end:
            for host in group:
                host.cast(b"%s at %d" % (host.id.encode(), simulation.now))
            group.run(milliseconds(150))
            delivered = sum(
                record.count for _, era in group.history.eras() for record in era.delivered
            )
            views = [host.inbox.current.id if host.is_up else None for host in group]  # type: ignore[union-attr]
            lanes.draw(simulation.now, views, delivered)

    print(f"Five replicas with the stack {simulation.stack}, in virtual time, seed {args.seed}.")
    print("Each column is a replica; replicas with the same letter share a view.\n")
    print("        " + "".join(f"  {name}" for name in NAMES))
    lanes.say("they start, each alone, and find each other")
    watch(seconds(1.2))
    lanes.say("the network is cut: a b | c d e")
    group.partition("ab", "cde")
    watch(seconds(1.5))
    lanes.say("d crashes")
    group["d"].crash()
    watch(seconds(0.9))
    lanes.say("the network is whole again, and d is back with a new life")
    group.heal()
    group["d"].start()
    watch(seconds(1.5))
    group.run_until_whole()
    group.run(seconds(1))

    violations = group.violations()
    for violation in violations:
        print(f"BROKEN PROMISE {violation}")
    records = group.history.records
    if not violations:
        print(
            f"\nAll {records:,} recorded events keep every promise of {simulation.stack}: views "
            "agreed on, nothing lost or\ndoubled among those who stayed together, one order. "
            f"More of this: coterie sim --stack {simulation.stack}"
        )
    return 1 if violations else 0


class _Lanes:
    """A picture in which time runs downwards and every replica has a lane."""

    COLOURS = (34, 32, 35, 33, 36, 31)

    def __init__(self, is_colourful: bool) -> None:  # noqa: FBT001 -- private
        self._is_colourful = is_colourful
        self._letters: dict[object, int] = {}

    def say(self, text: str) -> None:
        print(f"         {'':15} ── {text}")

    def draw(self, now: int, views: list[object], delivered: int) -> None:
        cells = []
        for view in views:
            if view is None:
                cells.append("  ✗")
                continue
            index = self._letters.setdefault(view, len(self._letters))
            letter = chr(ord("A") + index % 26)
            if self._is_colourful:
                colour = self.COLOURS[index % len(self.COLOURS)]
                cells.append(f"\x1b[{colour}m ▌{letter}\x1b[0m")
            else:
                cells.append(f" |{letter}")
        print(f"{now / 1e6:7.2f}s {''.join(cells)}    {delivered:4} delivered")
