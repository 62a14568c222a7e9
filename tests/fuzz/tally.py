"""What a fuzzer counts, and the loop that runs one for as long as is wanted."""

from __future__ import annotations

import gc
import resource
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

GROWTH_BYTES_MAX = 64 << 20
"""A fuzzer that grows by more than this after its first runs has found a leak."""

POLITE_SECONDS_MAX = 0.5
"""A polite client of whose calls one in a hundred takes longer than this is not served."""


class Broken(AssertionError):
    """A boundary did not hold; the message says what to run to see it again."""


@dataclass
class Tally:
    """What happened in one run, or in all of them."""

    inputs: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    """How inputs ended, in a word."""
    latencies: list[float] = field(default_factory=list)
    """How long a polite client waited for each answer: seconds of work here, and of waiting."""

    def add(self, other: Tally) -> None:
        """Count what happened in another run, too."""
        self.inputs += other.inputs
        self.outcomes += other.outcomes
        self.latencies += other.latencies[:: max(1, len(other.latencies) // 2000)]

    def quantile(self, part: float) -> float:
        """Give how long all but the slowest of a polite client's calls took at most."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0


Run = "Callable[[int, int], Tally]"
"""Give a boundary so many inputs, made from a seed; raises what should not have happened."""


def memory_bytes() -> int:
    """Give how much memory this process has at present."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return pages * resource.getpagesize()


def campaign(  # noqa: PLR0913 -- all by name
    run: Callable[[int, int], Tally],
    *,
    inputs: int,
    inputs_a_run: int,
    seed: int,
    repeat: str,
    say: Callable[[str], None],
) -> Tally:
    """Run seed after seed until there were enough inputs; *repeat* says how a seed is repeated."""
    whole = Tally()
    begun, said_at = time.process_time(), time.monotonic()
    runs = before = 0
    while whole.inputs < inputs:
        count = min(inputs_a_run, inputs - whole.inputs)
        try:
            whole.add(run(seed, count))
        except Exception as error:
            raise Broken(
                f"{type(error).__name__}: {error}; repeat it: {repeat} --seed {seed} "
                f"--inputs {count}"
            ) from error
        seed += 1
        runs += 1
        gc.collect()
        memory = memory_bytes()
        if runs <= 3:  # what is loaded and cached once
            before = memory
        elif memory - before > GROWTH_BYTES_MAX:
            raise Broken(
                f"after {whole.inputs:,} inputs {memory - before:,} bytes more are in use than "
                f"after the first runs: {repeat} --seed {seed - 1} --inputs {count}"
            )
        if time.monotonic() - said_at > 10 or whole.inputs >= inputs:
            said_at = time.monotonic()
            rate = whole.inputs / max(time.process_time() - begun, 1e-9)
            grown = (memory - before) / (1 << 20)
            say(
                f"{whole.inputs:,} inputs, {rate:,.0f} a CPU second, last seed {seed - 1}, memory "
                f"{memory >> 20} MiB ({grown:+.0f}), polite client p99 "
                f"{1000 * whole.quantile(0.99):.1f} ms; "
                + ", ".join(f"{name} {n:,}" for name, n in whole.outcomes.most_common(6))
            )
    if whole.quantile(0.99) > POLITE_SECONDS_MAX:
        raise Broken(
            f"a polite client waited for {whole.quantile(0.99):.1f} seconds, one call in a "
            f"hundred: {repeat} --seed {seed - runs} --inputs {inputs}"
        )
    return whole
