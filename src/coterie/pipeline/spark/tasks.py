"""Running a function for each of many items on Spark, without a shuffle.

Work here is cut by segments and by ranges of positions, and every piece is independent. So a job
is a list of items and a function from an item to Arrow batches; its result is a DataFrame, in the
order of the items. Items and function travel inside the job, so both must be plain and importable.
So does the list of engine families: a task knows those that the process knows which started it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from coterie.pipeline.engines import FAMILIES, register
from coterie.pipeline.read.schemas import spark_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Item = TypeVar("Item")

PARTS = "spark.coterie.parts"
"""The session's setting for how many tasks a job is cut into at most."""
PARTS_DEFAULT = 64


def batches(items: Sequence[Item], size: int) -> list[list[Item]]:
    """Cut a list into lists of at most *size* items."""
    return [list(items[start : start + size]) for start in range(0, len(items), size)]


def for_each(
    spark: SparkSession,
    items: Sequence[Item],
    work: Callable[[Item], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
) -> DataFrame:
    """Give what *work* makes of each item, as one DataFrame."""
    known = dict(FAMILIES)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        register(known)
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield from work(items[index])

    parts = max(1, min(len(items), int(spark.conf.get(PARTS, str(PARTS_DEFAULT)) or 1)))
    numbered = spark.range(0, len(items), 1, numPartitions=parts)
    return numbered.mapInArrow(run, spark_schema(schema))
