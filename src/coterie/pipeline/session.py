"""Spark sessions: the one place that knows how Spark is started.

By default Spark runs inside this process on all cores, with no cluster and no service; `master`
names a cluster instead, and `remote` a server of Spark Connect, which needs no Java here. A cluster
gets this package with the job. All sessions know the data source `coterie`
(`coterie.pipeline.source`).
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from coterie.pipeline.cluster import check_reachable, check_workers, pack
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
    *,
    master: str = LOCAL,
    remote: str = "",
    name: str = "coterie",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start Spark, or give the session that this process has already.

    Raises `ClusterUnreachable` within a bounded time if *master* or *remote* does not answer.
    """
    cluster = remote or ("" if master.startswith("local") else master)
    if cluster:
        check_reachable(cluster)
    else:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Workers must be this very interpreter: they import what it has installed.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if remote:
        builder = SparkSession.builder.appName(name).remote(remote)
        wanted = {key: value for key, value in DEFAULTS.items() if key.startswith("spark.sql.")}
    else:
        os.environ["JAVA_HOME"] = str(java_home())
        builder = SparkSession.builder.appName(name).master(master)
        wanted = DEFAULTS
    for key, value in {**wanted, **(settings or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if remote:
        spark.addArtifacts(str(pack()), pyfile=True)
    elif cluster:
        spark.sparkContext.addPyFile(str(pack()))
    if cluster:
        check_workers(spark, cluster)
    spark.dataSource.register(JournalSource)
    return spark
