"""Following live groups: history, verdicts and events stay current while replicas work.

Structured Streaming says when journals have grown and remembers, in its checkpoint, how far they
were followed. A batch brings everything up to date: it seals what is new, and runs the jobs that
`coterie.pipeline.jobs` runs once. Every job replaces its result as a whole, or file by file, by
what follows from the journals alone. So a batch that is repeated, after `kill -9` at any moment,
leaves what one undisturbed run would have left, and each event is there once; what the killed run
left half done is swept by the next.

The interval between two batches is the user's choice between freshness and work: a batch seals
only what is new, but checks the whole history again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.pipeline.jobs import JOBS, Outcome, find_journals, run_pipeline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from coterie.pipeline.replay import Program

CHECKPOINT = "checkpoint"
INTERVAL_SECONDS = 10.0


def follow(  # noqa: PLR0913 -- all by name
    spark: SparkSession,
    folders: Sequence[str | Path],
    out: Path,
    *,
    jobs: Sequence[str] = JOBS,
    programs: Mapping[str, Program] | None = None,
    interval_seconds: float = INTERVAL_SECONDS,
    once: bool = False,
    strict: bool = False,
    progress: Callable[[str], None] = lambda _: None,
    tell: Callable[[Outcome], None] = lambda _: None,
) -> None:
    """Keep the results below *out* current until interrupted; with *once*, until now.

    *tell* gets what came of each batch.
    """
    roots = find_journals(folders)

    def bring_up_to_date(batch: DataFrame, number: int) -> None:
        del batch, number  # the stream says when; what there is, the lake knows
        outcome = run_pipeline(
            spark,
            roots,
            out,
            jobs=jobs,
            programs=programs,
            growing=True,
            strict=strict,
            progress=progress,
        )
        tell(outcome)

    stream = spark.readStream.format("coterie").option("table", "lives").load("\n".join(roots))
    writer = stream.writeStream.foreachBatch(bring_up_to_date)
    writer = writer.option("checkpointLocation", str(out / CHECKPOINT))
    if once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{interval_seconds} seconds")
    query = writer.start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
