"""Fuzz one boundary of one engine, for as many inputs as are asked for.

    python -m tests.fuzz BOUNDARY ENGINE --inputs 1000000 --seed 1

Boundaries: peers, clients, control, config, journals, snapshots, backups, dumps, datagrams,
agents, and columns, which is the pipeline that reads journals. It ends with status 1 and the
command that repeats the run if a turn raises, a replica dies or is stuck, memory grows, or a
polite client is not served.
"""

from __future__ import annotations

import argparse
import logging
import sys

from tests.fuzz.boundaries import BOUNDARIES
from tests.fuzz.tally import Broken, campaign


def main() -> int:
    """Run the fuzzer, and say now and then how it goes."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("boundary", choices=sorted({name for name, _ in BOUNDARIES}))
    parser.add_argument("engine", choices=sorted({name for _, name in BOUNDARIES}))
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1, help="of the first run")
    args = parser.parse_args()
    logging.getLogger("coterie.runtime").setLevel(logging.ERROR)  # it is full of refusals
    found = BOUNDARIES.get((args.boundary, args.engine))
    if found is None:
        parser.error(f"{args.boundary} of {args.engine} cannot be fuzzed: there are none yet")
    try:
        campaign(
            found.run,
            inputs=args.inputs,
            inputs_a_run=found.inputs_a_run,
            seed=args.seed,
            repeat=f"python -m tests.fuzz {args.boundary} {args.engine}",
            say=lambda line: print(line, flush=True),  # noqa: T201
        )
    except Broken as broken:
        print(f"BROKEN: {broken}", file=sys.stderr)  # noqa: T201
        raise
    return 0


if __name__ == "__main__":
    sys.exit(main())
