"""Following live groups: history, verdicts and events stay current while replicas work.

Structured Streaming says when journals have grown and remembers, in its checkpoint, how far they
were followed. A batch brings everything up to date: it seals what is new, and runs the jobs that
`coterie.pipeline.jobs` runs once. Every job replaces its result as a whole, or file by file, by
what follows from the journals alone. So a batch that is repeated, after `kill -9` at any moment,
leaves what one undisturbed run would have left, and each event is there once; what the killed run
left half done is swept by the next.

Over Spark Connect a batch would run in a process of the server, which has neither our session nor
this package. So there the caller itself looks how far the journals can be read, and does the same
work here; at its start it always does it once, as nothing remembers how far it came before. It is
the same with journals that must be brought here first.

How far results follow the journals is noted after each batch (`coterie.pipeline.progress`).

The interval between two batches is the user's choice between freshness and work: a batch seals
only what is new, takes over what was decided of ranges that nothing new is known of
(`coterie.pipeline.history.decided`), and runs a class from the last whole range on
(`coterie.pipeline.history.continued`). It looks again at all answers and at views.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException

from coterie.pipeline.jobs import JOBS, JobOutcome, run_pipeline
from coterie.pipeline.progress import Follower
from coterie.pipeline.read.growth import ended_now, place_now
from coterie.pipeline.read.places import find_journals
from coterie.pipeline.spark.session import is_remote

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from coterie.pipeline.history.replay import Program

CHECKPOINT = "checkpoint"
ATTEMPTS_MAX = 5
_TOO_BUSY = "worker failed to connect back"
"""What Spark says if Python takes ten seconds to start, which a busy machine may need. Starting
again is safe, as a batch may be repeated."""
INTERVAL_SECONDS = 10.0
QUIET_SECONDS = 60.0
"""How long a journal that nobody holds open must have been left alone to be taken for ended."""


def follow(  # noqa: PLR0913 -- all by name
    spark: SparkSession,
    folders: Sequence[str | Path],
    out: Path,
    *,
    jobs: Sequence[str] = JOBS,
    programs: Mapping[str, Program] | None = None,
    interval_seconds: float = INTERVAL_SECONDS,
    once: bool = False,
    growing: bool = False,
    quiet_seconds: float = QUIET_SECONDS,
    strict: bool = False,
    progress: Callable[[str], None] = lambda _: None,
    tell: Callable[[JobOutcome], None] = lambda _: None,
    refresh: Callable[[], None] | None = None,
) -> None:
    """Keep the results below *out* current until interrupted; with *once*, until now.

    *tell* gets what came of each batch. Journals are open while a process holds them, and while
    they were written less than *quiet_seconds* ago, or always if *growing*; once they are not, they
    are judged as `run_pipeline` judges them, and come to the same verdicts.
    What lies elsewhere is brought here by *refresh*, before each look at the journals.
    """
    roots = find_journals(folders)
    follower = Follower(out, roots)

    def bring_up_to_date() -> None:
        follower.begin()
        outcome = run_pipeline(
            spark,
            roots,
            out,
            jobs=jobs,
            programs=programs,
            growing=growing,
            quiet_seconds=quiet_seconds,
            strict=strict,
            progress=progress,
        )
        follower.end(outcome)
        tell(outcome)

    interval = None if once else interval_seconds
    if is_remote(spark) or refresh is not None:
        _look(roots, bring_up_to_date, interval, quiet_seconds, refresh)
    else:
        _stream(spark, roots, out / CHECKPOINT, bring_up_to_date, interval, quiet_seconds)


def _stream(  # noqa: PLR0913, PLR0917 -- what following is made of
    spark: SparkSession,
    roots: list[str],
    checkpoint: Path,
    bring_up_to_date: Callable[[], None],
    interval_seconds: float | None,
    quiet_seconds: float = QUIET_SECONDS,
) -> None:
    """Let Structured Streaming say when there is something new."""

    def batch(rows: DataFrame, number: int) -> None:
        del rows, number  # the stream says when; what there is, the lake knows
        bring_up_to_date()

    reader = spark.readStream.format("coterie").option("table", "lives")
    stream = reader.option("quiet", str(quiet_seconds)).load("\n".join(roots))
    writer = stream.writeStream.foreachBatch(batch)
    writer = writer.option("checkpointLocation", str(checkpoint))
    if interval_seconds is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{interval_seconds} seconds")
    for attempt in range(1, ATTEMPTS_MAX + 1):
        query = writer.start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if _TOO_BUSY not in str(error) or attempt == ATTEMPTS_MAX:
                raise
        else:
            return
        finally:
            query.stop()


def _look(
    roots: list[str],
    bring_up_to_date: Callable[[], None],
    interval_seconds: float | None,
    quiet_seconds: float = QUIET_SECONDS,
    refresh: Callable[[], None] | None = None,
) -> None:
    """Look for ourselves how far the journals can be read, and how many have ended."""
    place, ended = place_now(roots, {}), ended_now(roots, quiet_seconds)
    bring_up_to_date()
    while interval_seconds is not None:
        time.sleep(interval_seconds)
        if refresh is not None:
            refresh()
        now = place_now(roots, place), ended_now(roots, quiet_seconds)
        if now != (place, ended):
            place, ended = now
            bring_up_to_date()
