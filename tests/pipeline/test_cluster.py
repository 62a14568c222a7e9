"""A real cluster and a server of Spark Connect on loopback: the same jobs run there.

Both are started from the installed package of Spark, on a Python that does not have ours.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shutil import copytree
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.patience import PATIENCE

from coterie.cli import exits
from coterie.pipeline.jobs import run_pipeline
from coterie.pipeline.spark.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

JOBS = ("seal", "history", "verify")
ELSEWHERE = {
    # Python as it is on a machine of a cluster: with all that our package needs, and without it.
    # The interpreter that our environment was made from has nothing by itself, and what lies on
    # PYTHONPATH can be imported, but not what is installed there only by a link to its sources.
    "PYSPARK_PYTHON": sys._base_executable,  # type: ignore[attr-defined]
    "PYTHONPATH": str(Path(pa.__file__).parent.parent),
}


@contextmanager
def daemon(*words: str, ready: str, folder: Path) -> Iterator[str]:
    """Start a part of Spark, wait until it says that it is *ready*, and end it at the end."""
    import pyspark  # noqa: PLC0415 -- slow to import

    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "JAVA_HOME": str(java_home()),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(folder),
        **ELSEWHERE,
    }
    command = [str(home / "bin" / "spark-class"), *words]
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            said: list[str] = []
            for line in process.stderr:
                said.append(line)
                match = re.search(ready, line)
                if match:
                    break
            else:
                pytest.fail("".join(said))
            # Whatever more it says must not fill the pipe.
            drain = threading.Thread(target=process.stderr.read)
            drain.start()
            yield match[0]
        finally:
            process.terminate()
            process.wait(timeout=PATIENCE)
            drain.join()


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A master and two workers with a core each."""
    folder = tmp_path_factory.mktemp("spark")
    deploy = "org.apache.spark.deploy"
    place = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with ExitStack() as stack:
        url = stack.enter_context(
            daemon(f"{deploy}.master.Master", *place, ready=r"spark://[\d.]+:\d+", folder=folder)
        )
        for _ in range(2):
            stack.enter_context(
                daemon(
                    *(f"{deploy}.worker.Worker", url, *place, "--cores", "1", "--memory", "1g"),
                    ready="Successfully registered with master",
                    folder=folder,
                )
            )
        yield url


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of Spark Connect."""
    folder = tmp_path_factory.mktemp("connect")
    words = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    for setting in (
        "spark.connect.grpc.binding.address=127.0.0.1",
        "spark.connect.grpc.binding.port=0",
        "spark.log.level=INFO",
        "spark.sql.shuffle.partitions=1",
        "spark.ui.enabled=false",
    ):
        words += ["--conf", setting]
    submit = "org.apache.spark.deploy.SparkSubmit"
    started = r"server started at: ([\d.]+:\d+)"
    with daemon(
        submit, "--master", "local[2]", *words, "spark-internal", ready=started, folder=folder
    ) as line:
        yield f"sc://{line.rpartition(' ')[2]}"


def ask(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": ELSEWHERE["PYSPARK_PYTHON"],
    }
    return subprocess.run(
        [sys.executable, "-m", "coterie.cli", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def rows_of(out: Path, table: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(out / "tables" / table).to_pylist()
    return sorted(rows, key=str)


def run_at(place: list[str], journals: Path, spark: SparkSession, folder: Path) -> None:
    """Run the jobs there and here: the results are the same, row by row."""
    copytree(journals, folder / "journals")
    # Paths are given as users do, from where they are; tasks are somewhere else.
    words = ["pipeline", "run", "journals", "--out", "there", "--json", "--only", ",".join(JOBS)]
    there = ask([*words, *place], folder)
    assert there.returncode == exits.DONE, there.stderr
    here = run_pipeline(spark, [journals], folder / "here", jobs=JOBS)
    told = json.loads(there.stdout)
    assert told["verdicts"] == here.verdicts
    assert told["standings"] == here.standings
    assert {row["verdict"] for row in told["verdicts"]} <= {"kept", "not checked"}
    for table in ("history", "verdicts"):
        assert rows_of(folder / "there", table) == rows_of(folder / "here", table) != []


def test_the_package_is_not_there_by_itself() -> None:
    """What makes the tests below worth something: tasks work only if the package is shipped."""
    found = subprocess.run(
        [ELSEWHERE["PYSPARK_PYTHON"], "-c", "import pyarrow, msgspec, coterie"],
        env={**os.environ, **ELSEWHERE},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "No module named 'coterie'" in found.stderr


def test_the_pipeline_on_a_cluster(
    master: str, counter_journals: Path, spark: SparkSession, tmp_path: Path
) -> None:
    run_at(["--master", master], counter_journals, spark, tmp_path)


def test_the_pipeline_over_connect(
    connect: str, counter_journals: Path, spark: SparkSession, tmp_path: Path
) -> None:
    run_at(["--remote", connect], counter_journals, spark, tmp_path)


def test_following_over_connect(connect: str, counter_journals: Path, tmp_path: Path) -> None:
    copytree(counter_journals, tmp_path / "journals")
    words = ["pipeline", "follow", "journals", "--out", "out", "--once", "--json", "--only"]
    done = ask([*words, "seal,history", "--remote", connect], tmp_path)
    assert done.returncode == exits.DONE, done.stderr
    [told] = map(json.loads, done.stdout.splitlines())
    assert told["standings"]["authoritative"] > 0


def test_a_campaign_over_connect(connect: str, tmp_path: Path) -> None:
    words = ["campaign", "--seeds", "2", "--duration", "2", "--replicas", "3", "--out", "out"]
    done = ask([*words, "--faults", "partition,crash", "--remote", connect], tmp_path)
    assert done.returncode == exits.DONE, done.stderr
    assert "2 seeds, no violation" in done.stdout
    assert (tmp_path / "out" / "coverage.parquet").exists()
