"""Clusters: whether one can be reached, and what it must be given to do our work.

Spark itself waits long, or for ever, for a cluster that does not answer. So whoever names one is
told within seconds if nobody is there: first by a connection, then by the smallest of all jobs.

Tasks import this package. The command that starts a job ships it, as an archive of its sources;
what the package itself needs (Arrow, numpy, msgspec) must be installed on the cluster's machines,
because it is compiled for each of them.
"""

from __future__ import annotations

import re
import socket
import tempfile
import threading
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from coterie.kernel.errors import CoterieError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

T = TypeVar("T")

ANSWER_SECONDS = 5.0
"""How long a machine may take to accept a connection."""
WORKER_SECONDS = 90.0
"""How long a cluster may take to give us the first worker."""
_PORTS = {"spark": 7077, "sc": 15002}
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of everything in the archive, so that equal sources make equal bytes."""


class ClusterUnreachable(CoterieError):
    """The cluster that was named does not answer, or gives us no worker."""


def check_reachable(url: str) -> None:
    """See that somebody listens at one of the machines that *url* names."""
    places = list(places_of(url))
    problems: list[str] = []
    for host, port in places:
        try:
            socket.create_connection((host, port), timeout=ANSWER_SECONDS).close()
        except OSError as error:
            problems.append(f"{host}:{port}: {error.strerror or error}")
        else:
            return
    if places:
        raise ClusterUnreachable(
            f"no Spark answers at {url} ({'; '.join(problems)}): start it, or name another"
        )


def places_of(url: str) -> Iterator[tuple[str, int]]:
    """Give host and port of all machines that a URL names; none for kinds we cannot look into."""
    scheme, _, rest = url.partition("://")
    if scheme not in _PORTS:
        return
    for place in re.split(r"[/;?]", rest, maxsplit=1)[0].split(","):
        match = re.fullmatch(r"(\[[0-9A-Fa-f:]+\]|[^:\[\]]+)(?::(\d{1,5}))?", place)
        if match is None:
            raise ClusterUnreachable(
                f"{url} names no machine: it should look like {scheme}://host:{_PORTS[scheme]}"
            )
        yield match[1].strip("[]"), int(match[2] or _PORTS[scheme])


def check_workers(spark: SparkSession, url: str) -> None:
    """See that the cluster does the smallest of all jobs in time."""
    bounded(lambda: spark.range(1).count(), url)


def bounded(work: Callable[[], T], url: str) -> T:
    """Do what needs an answer of the cluster; if that does not come in time, say so."""
    done: list[T] = []
    failures: list[BaseException] = []

    def attempt() -> None:
        try:
            done.append(work())
        except Exception as error:  # noqa: BLE001 -- told below
            failures.append(error)

    asking = threading.Thread(target=attempt, daemon=True)
    asking.start()
    asking.join(WORKER_SECONDS)
    if failures:
        reason = str(failures[0]).strip().partition("\n")[0]
        raise ClusterUnreachable(f"the Spark at {url} does not work: {reason}")
    if not done:
        raise ClusterUnreachable(
            f"the Spark at {url} gave us no worker in {WORKER_SECONDS:.0f} s: see whether it is "
            "one, whether it has workers, and whether others have taken all of them"
        )
    return done[0]


def pack(folder: Path | None = None) -> Path:
    """Make an archive of this package that Python can import from, and give its path."""
    source = Path(__file__).parents[2]
    target = Path(folder or tempfile.mkdtemp(prefix="coterie-ship-"))
    archive = target / f"coterie-{version('coterie')}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
        for path in sorted(source.rglob("*")):
            if path.suffix in {".css", ".properties", ".py"}:
                about = zipfile.ZipInfo(str(path.relative_to(source.parent)), _EPOCH)
                about.compress_type = zipfile.ZIP_DEFLATED
                made.writestr(about, path.read_bytes())
    return archive
