"""Spark sessions: the one place that knows how Spark is started.

By default Spark runs inside this process on all cores, with no cluster and no service; `master`
names a cluster instead, and `remote` a server of Spark Connect, which needs no Java here. A cluster
gets this package with the job. All sessions know the data source `coterie`
(`coterie.pipeline.source`).
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from coterie.pipeline.cluster import (
    ClusterUnreachable,
    bounded,
    check_reachable,
    check_workers,
    pack,
)
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
}

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")

SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    _JAVA_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
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
        # A server of Connect that says nothing is asked again for a quarter of an hour.
        try:
            spark = bounded(lambda: _connect(remote, name, settings or {}), remote)
        except ClusterUnreachable:
            _say_no_goodbye()
            raise
    else:
        os.environ["JAVA_HOME"] = str(java_home())
        wanted = {**DEFAULTS, **(settings or {})}
        options = f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}"
        wanted[_JAVA_OPTIONS] = f"{options} {wanted.get(_JAVA_OPTIONS, '')}".strip()
        builder = SparkSession.builder.appName(name).master(master)
        spark = _with_settings(builder, wanted).getOrCreate()
    if cluster and not remote:
        spark.sparkContext.addPyFile(str(pack()))
    if cluster:
        check_workers(spark, cluster)
    spark.dataSource.register(JournalSource)
    return spark


def _say_no_goodbye() -> None:
    """Keep Spark's clients from calling a silent server, again and again, when the process ends.

    The client is inside a session that was never made, so it has to be looked for.
    """
    from pyspark.sql.connect.client import SparkConnectClient  # noqa: PLC0415 -- only over Connect

    for client in gc.get_objects():
        if isinstance(client, SparkConnectClient):
            atexit.unregister(client._on_exit)  # noqa: SLF001 -- there is no other way


def is_remote(spark: SparkSession) -> bool:
    """Say whether a session is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def _connect(url: str, name: str, settings: Mapping[str, str]) -> SparkSession:
    """Ask a server of Spark Connect for a session, and give it this package."""
    wanted = {key: value for key, value in DEFAULTS.items() if key.startswith("spark.sql.")}
    builder = SparkSession.builder.appName(name).remote(url)
    spark = _with_settings(builder, {**wanted, **settings}).getOrCreate()
    spark.addArtifacts(str(pack()), pyfile=True)
    return spark


def _with_settings(
    builder: SparkSession.Builder, settings: Mapping[str, str]
) -> SparkSession.Builder:
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder
