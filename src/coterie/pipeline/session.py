"""Spark sessions: the one place that knows how Spark is started.

By default Spark runs inside this process on all cores, with no cluster and no service; `master`
names a cluster instead. All sessions know the data source `coterie`
(`coterie.pipeline.source`).
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from coterie.pipeline.java import java_home
from coterie.pipeline.source import JournalSource

if TYPE_CHECKING:
    from collections.abc import Mapping

LOCAL = "local[*]"

DEFAULTS = {
    # Python data sources are asked for filters only where this is on.
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.shuffle.partitions": "8",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}

SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""What makes many small queries fast: for tests, and for journals of a few thousand records."""


def make_session(
    *, master: str = LOCAL, name: str = "coterie", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Start Spark, or give the session that this process has already."""
    os.environ["JAVA_HOME"] = str(java_home())
    # Workers must be this very interpreter: they import what it has installed.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in {**DEFAULTS, **(settings or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(JournalSource)
    return spark
