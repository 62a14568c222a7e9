"""Many seeds by the short ways and by the long one, compared: same run, same frames, same journals.

    python -m tests.simulation.both_ways --stack SAFE:DYNSEQ:PVSYNC --from 20300000 --seeds 1000

`test_common_case.py` compares a few seeds line by line; this is for a campaign. What is compared
of a run is the running checksum over all that happened in it, which takes in every frame and when
it was sent, and the bytes of every file on every disk.
"""

# ruff: noqa: T201 -- printing is what it is for

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import msgspec

from coterie.kernel.clock import seconds
from coterie.simulation.campaign import run_seed
from coterie.simulation.engines.stack.trial import RunOptions
from coterie.simulation.parallel import run_each

if TYPE_CHECKING:
    from collections.abc import Iterator

SAY_EVERY = 10.0


class Compared(msgspec.Struct):
    """What came of one seed."""

    seed: int
    problem: str
    """How the two differ; empty if they do not."""
    events: int


@contextmanager
def the_long_way() -> Iterator[None]:
    """Take no short way: every packet goes through the layers."""
    with ExitStack() as stack:
        for place in (
            "coterie.membership.multicast.Multicast.is_next",
            "coterie.ordering.dynseq.DynamicSequencer.is_next",
        ):
            stack.enter_context(patch(place, lambda *_: False))
        stack.enter_context(patch("coterie.stacks.bypass_of", lambda *_: None))
        yield


def compare(seed: int, options: RunOptions) -> Compared:
    """Run a seed in both ways."""
    short = _run(seed, options)
    with the_long_way():
        long = _run(seed, options)
    names = ("the digests", "the events", "the frames", "the verdicts", "the journals")
    differing = [name for name, one, other in zip(names, short, long, strict=True) if one != other]
    problem = f"{', '.join(differing)} differ" if differing else ""
    if short[3] and not problem:
        problem = f"a promise is broken: {short[3][0]}"
    return Compared(seed, problem, short[1])


def _run(seed: int, options: RunOptions) -> tuple[int, int, int, list[str], str]:
    with tempfile.TemporaryDirectory(prefix="coterie-both-ways-") as folder:
        ran = run_seed(seed, msgspec.structs.replace(options, journals=folder))
        found = blake2b(digest_size=16)
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file():
                found.update(str(path.relative_to(folder)).encode())
                found.update(path.read_bytes())
    return ran.digest, ran.events, ran.frames, ran.violations, found.hexdigest()


def main() -> int:
    """Compare the seeds that are asked for; 1 if two runs differ."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--stack", default="SAFE:DYNSEQ:PVSYNC")
    parser.add_argument("--object", default="dictionary")
    parser.add_argument("--replicas", type=int, default=5)
    parser.add_argument("--from", type=int, default=20_300_000, dest="first")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--duration", type=float, default=20.0, help="simulated seconds")
    parser.add_argument("--jobs", type=int, default=0)
    asked = parser.parse_args()
    options = RunOptions(
        stack=asked.stack,
        replicas=asked.replicas,
        duration=seconds(asked.duration),
        object=asked.object,
    )
    begun = said = time.monotonic()
    done = events = 0
    failed: list[int] = []
    seeds = range(asked.first, asked.first + asked.seeds)
    for compared in run_each(partial(compare, options=options), seeds, jobs=asked.jobs):
        done += 1
        events += compared.events
        if compared.problem:
            failed.append(compared.seed)
            print(f"seed {compared.seed}: {compared.problem}", flush=True)
        if time.monotonic() - said > SAY_EVERY:
            said = time.monotonic()
            print(f"{done} of {asked.seeds} seeds, {len(failed)} failed", flush=True)
    print(
        f"{asked.stack}: {done} seeds of {asked.duration:g} s both ways, {events:,} events, "
        f"{len(failed)} failed, {time.monotonic() - begun:.0f} s"
    )
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
