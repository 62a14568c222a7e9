"""A real cluster on loopback, started from the installed package: the same jobs run there."""

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

import pyarrow.parquet as pq
import pytest

from coterie.cli import exits
from coterie.pipeline.java import java_home

pytestmark = pytest.mark.long

# Where tasks find the package: the archive that was shipped, not what is installed here.
SCRIPT = """
import json, sys
import pyarrow as pa
from coterie.pipeline.session import make_session
from coterie.pipeline.tasks import for_each

WHERE = pa.schema([("file", pa.string()), ("process", pa.int64())])
spark = make_session(master=sys.argv[1])

def work(item):
    import os
    import coterie
    yield pa.RecordBatch.from_pylist([{"file": coterie.__file__, "process": os.getppid()}], WHERE)

print(json.dumps(for_each(spark, list(range(4)), work, WHERE).toArrow().to_pylist()))
spark.stop()
"""


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
        "PYSPARK_PYTHON": sys.executable,
    }
    command = [str(home / "bin" / "spark-class"), *words]
    with subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
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
            process.wait(timeout=60)
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


def ask(words: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    return subprocess.run(
        [sys.executable, *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_tasks_run_with_the_package_that_was_shipped(master: str) -> None:
    done = ask(["-c", SCRIPT, master])
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert len(rows) == 4
    assert all(re.search(r"coterie-[\d.]+\.zip", row["file"]) for row in rows), rows


def test_the_pipeline_on_a_cluster(master: str, counter_journals: Path, tmp_path: Path) -> None:
    words = ["-m", "coterie.cli", "pipeline", "run", str(counter_journals), "--json"]
    words += ["--only", "seal,history,verify", "--out"]
    there = ask([*words, str(tmp_path / "there"), "--master", master])
    assert there.returncode == exits.DONE, there.stderr
    here = ask([*words, str(tmp_path / "here")])
    told, expected = json.loads(there.stdout), json.loads(here.stdout)
    assert told["verdicts"] == expected["verdicts"]
    assert told["standings"] == expected["standings"]
    assert {row["verdict"] for row in told["verdicts"]} <= {"kept", "not checked"}
    for table in ("history", "verdicts"):
        counts = [
            sum(
                pq.read_metadata(path).num_rows
                for path in (tmp_path / place / table).glob("*.parquet")
            )
            for place in ("here", "there")
        ]
        assert counts[0] == counts[1] > 0


def test_a_campaign_on_a_cluster(master: str, tmp_path: Path) -> None:
    words = ["-m", "coterie.cli", "campaign", "--seeds", "4", "--duration", "2", "--replicas", "3"]
    done = ask([*words, "--faults", "partition,crash", "--out", str(tmp_path), "--master", master])
    assert done.returncode == exits.DONE, done.stderr
    assert "4 seeds, no violation" in done.stdout
