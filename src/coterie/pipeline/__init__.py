"""From the journals of all replicas to one history, on Spark.

`docs/operate/pipeline.md` is its page. Nothing here is imported by replicas; it needs the
extra `pipeline`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> SparkSession:
    """Let a session, whoever made it, read journals and lakes by `spark.read.format("coterie")`.

    Python workers of the session must be able to import this package.
    """
    from coterie.pipeline.read.source import JournalSource  # noqa: PLC0415 -- needs Spark

    # A source that takes filters is refused where Spark would not ask it for any.
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(JournalSource)
    return spark


def make_views(spark: SparkSession, results: str | Path) -> list[str]:
    """Make a temporary view of every table of the results of a run; give their names."""
    from coterie.pipeline.publish.manifest import read_manifest, table_of  # noqa: PLC0415 -- slow

    out = Path(results)
    names = list(read_manifest(out).tables)
    for name in names:
        reader = spark.read.option("mergeSchema", "true")
        reader.parquet(str(table_of(out, name).absolute())).createOrReplaceTempView(name)
    return names
