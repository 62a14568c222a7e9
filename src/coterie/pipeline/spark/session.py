"""Spark sessions: the one place that knows how Spark is started.

By default Spark runs inside this process on all cores, with no cluster and no service; `master`
names a cluster instead, and `remote` a server of Spark Connect, which needs no Java here. A cluster
gets this package with the job. All sessions know the data source `coterie`
(`coterie.pipeline.read.source`).
"""

from __future__ import annotations

import atexit
import gc
import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from coterie.pipeline import register
from coterie.pipeline.spark.cluster import (
    ClusterUnreachable,
    bounded,
    check_reachable,
    check_workers,
    pack,
)
from coterie.pipeline.spark.java import java_home

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.connect.client import SparkConnectClient

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
    if "PYSPARK_PYTHON" not in os.environ:
        os.environ["PYSPARK_PYTHON"] = sys.executable if cluster else _worker_python()
    if remote:
        spark = _connect(remote, name, settings or {})
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
    return register(spark)


def _worker_python() -> str:
    """Give a program that is this interpreter, for Spark to run its workers in.

    Spark puts an archive of pyspark before what is installed, and Python compiles what it imports
    from an archive again in each process: that takes three times as long as the whole start would.
    The reader of a stream has ten seconds to start, which a busy machine then exceeds.
    """
    folder = tempfile.mkdtemp(prefix="coterie-python-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    program = Path(folder, "python")
    without_archive = "PYTHONPATH=${PYTHONPATH#*/pyspark.zip:}"
    program.write_text(
        f'#!/bin/sh\n{without_archive} exec {shlex.quote(sys.executable)} "$@"\n', encoding="utf-8"
    )
    program.chmod(0o700)
    return str(program)


def _connect(url: str, name: str, settings: Mapping[str, str]) -> SparkSession:
    """Ask a server of Spark Connect for a session, and give it this package.

    What takes time here and not there comes first, in this thread: its imports, which may take
    longer than a server may, and which a second thread must not begin anew half-way.
    """
    import pyspark.sql.connect.session  # noqa: F401, PLC0415 -- only over Connect
    from pyspark.sql.connect.client import SparkConnectClient  # noqa: PLC0415

    package = str(pack())
    wanted = {key: value for key, value in DEFAULTS.items() if key.startswith("spark.sql.")}
    builder = _with_settings(SparkSession.builder.appName(name).remote(url), {**wanted, **settings})
    # A server of Connect that says nothing is asked again for a quarter of an hour.
    try:
        spark = bounded(builder.getOrCreate, url)
        bounded(lambda: spark.addArtifacts(package, pyfile=True), url)
    except ClusterUnreachable:
        _say_no_goodbye(SparkConnectClient)
        raise
    return spark


def _say_no_goodbye(client_kind: type[SparkConnectClient]) -> None:
    """Keep Spark's clients from calling a silent server, again and again, when the process ends.

    The client is inside a session that was never made, so it has to be looked for.
    """
    for client in gc.get_objects():
        if isinstance(client, client_kind):
            atexit.unregister(client._on_exit)  # noqa: SLF001 -- there is no other way


def is_remote(spark: SparkSession) -> bool:
    """Say whether a session is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def _with_settings(
    builder: SparkSession.Builder, settings: Mapping[str, str]
) -> SparkSession.Builder:
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder
