"""Journals read from, and results written to, addresses: folders of files, `fsspec`, and S3."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from tests.pipeline.by_hand import NAMES, begin, entries, settled, write

from coterie.cli import exits
from coterie.cli.main import main
from coterie.pipeline.lake.lake import draft_of
from coterie.pipeline.publish.manifest import NAME, read_manifest
from coterie.pipeline.stores import mirror as mirrors
from coterie.pipeline.stores.addresses import RemoteFolder, StoreFailed, public
from coterie.pipeline.stores.mirror import Mirror

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLD = 1_000_000_000
"""A time, in seconds, that was long ago."""
SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
server.stop()
"""


def put(folder: Path, name: str, text: str, *, seconds: int = OLD) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    os.utime(path, (seconds, seconds))
    return path


def texts(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text("utf-8")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def far(tmp_path: Path) -> Path:
    (tmp_path / "far").mkdir()
    return tmp_path / "far"


@pytest.fixture
def mirror(far: Path, tmp_path: Path) -> Mirror:
    return Mirror(RemoteFolder(far.as_uri()), tmp_path / "work" / "here")


def test_pulling_copies_what_has_changed_and_removes_what_is_gone(
    mirror: Mirror, far: Path
) -> None:
    put(far, "g/a/one", "1")
    put(far, "g/b/two", "2")
    assert mirror.pull() == 2
    assert mirror.pull() == 0
    put(far, "g/a/one", "I", seconds=OLD + 1)
    put(far, "g/a/three", "3")
    (far / "g/b/two").unlink()
    assert Mirror(mirror.store, mirror.folder).pull() == 2, "the notes outlive the process"
    assert texts(mirror.folder) == {"g/a/one": "I", "g/a/three": "3"}
    assert not (mirror.folder / "g/b").exists(), "a replica that is gone leaves no empty journal"


def test_what_is_changed_here_is_fetched_again(mirror: Mirror, far: Path) -> None:
    put(far, "one", "1")
    mirror.pull()
    put(mirror.folder, "one", "I", seconds=OLD + 7)
    put(mirror.folder, "more", "2")
    mirror.pull()
    assert texts(mirror.folder) == {"one": "1"}


def test_a_file_that_was_written_just_now_is_looked_at_again(mirror: Mirror, far: Path) -> None:
    """Stores tell seconds: it may be written again within the one that it was written in."""
    (far / "one").write_text("1", "utf-8")
    assert mirror.pull() == 1
    assert mirror.pull() == 1


def test_reading_anew_believes_nothing(mirror: Mirror, far: Path) -> None:
    put(far, "one", "1")
    mirror.pull()
    put(far, "one", "I")  # of the same size and time
    assert mirror.pull() == 0
    assert mirror.pull(anew=True) == 1
    assert texts(mirror.folder) == {"one": "I"}


def test_pushing_copies_what_has_changed_and_removes_what_is_gone(
    mirror: Mirror, far: Path
) -> None:
    mirror.pull()
    put(mirror.folder, "lake/one", "1")
    put(mirror.folder, "versions/1/two", "2")
    put(mirror.folder, NAME, "first")
    put(mirror.folder, "_lock", "mine")
    put(mirror.folder, "checkpoint/offsets/0", "mine")
    draft = draft_of(mirror.folder / "lake" / "half")
    draft.write_text("half", "utf-8")
    (mirror.folder / "tables").symlink_to("versions/1")
    assert mirror.push() == 3
    whole = {"lake/one": "1", NAME: "first", "versions/1/two": "2"}
    assert texts(far) == whole
    assert mirror.push() == 0
    (mirror.folder / "versions/1/two").unlink()
    put(mirror.folder, "versions/2/two", "II")
    put(mirror.folder, NAME, "second", seconds=OLD + 2)
    assert mirror.push() == 2
    assert texts(far) == {"lake/one": "1", NAME: "second", "versions/2/two": "II"}


def test_a_version_counts_only_once_all_its_files_are_there(
    mirror: Mirror, far: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A push that breaks off anywhere leaves the version that was there, whole."""
    for number in (1, 2):
        mirror.pull()
        rmtree(mirror.folder / "versions", ignore_errors=True)
        for name in "abc":
            put(mirror.folder, f"versions/{number}/{name}", name)
        put(mirror.folder, NAME, str(number), seconds=OLD + number)
        if number == 1:
            mirror.push()
    put_one, done = RemoteFolder.put, 0

    def breaking(self: RemoteFolder, source: str, path: str) -> None:
        nonlocal done
        if done == allowed:
            raise StoreFailed("the line is cut")
        done += 1
        put_one(self, source, path)

    monkeypatch.setattr(RemoteFolder, "put", breaking)
    monkeypatch.setattr(mirrors, "THREADS", 1)
    for count in range(4):
        allowed = count
        done = 0
        with pytest.raises(StoreFailed, match="the line is cut"):
            mirror.push()
        assert (far / NAME).read_text("utf-8") == "1"
        assert {path.name for path in (far / "versions/1").iterdir()} == set("abc")
    allowed = 99
    mirror.push()
    assert set(texts(far)) == {NAME, "versions/2/a", "versions/2/b", "versions/2/c"}


def test_results_that_somebody_else_wrote_are_not_replaced(mirror: Mirror, far: Path) -> None:
    mirror.pull()
    put(mirror.folder, NAME, "mine", seconds=OLD + 2)
    put(far, NAME, "ours")
    with pytest.raises(StoreFailed, match="one run at a time"):
        mirror.push()
    assert (far / NAME).read_text("utf-8") == "ours"


def test_a_folder_to_work_in_is_that_of_one_address(mirror: Mirror, tmp_path: Path) -> None:
    mirror.pull()
    other = RemoteFolder((tmp_path / "elsewhere").as_uri())
    with pytest.raises(StoreFailed, match="name another folder"):
        Mirror(other, mirror.folder)


def test_a_name_that_leads_out_is_refused(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    class Sly:
        def get_file_info(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
            name = f"{selector.base_dir}/../../etc/passwd"
            return [fs.FileInfo(name, fs.FileType.File, size=1, mtime_ns=1)]

    monkeypatch.setattr(mirror.store, "system", Sly())
    with pytest.raises(StoreFailed, match="cannot be one here"):
        mirror.pull()


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("nonsense://x/y", "is no address"),
        ("s3://bucket/x?what=this", "is no address"),
    ],
)
def test_what_is_wrong_with_an_address_is_a_sentence(
    address: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["pipeline", "run", address, "--out", str(tmp_path / "out")]
    assert main(words) == exits.MISUSE
    assert "--work" in capsys.readouterr().err
    assert main([*words, "--work", str(tmp_path / "work")]) == exits.MISUSE
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_credentials_are_not_shown() -> None:
    assert public("s3://key:secret@bucket/a/b/?region=x") == "s3://bucket/a/b"


def test_any_address_of_fsspec(tmp_path: Path) -> None:
    """Its memory does not tell in our terms when a file was written, so all are copied again."""
    import fsspec  # noqa: PLC0415 -- only here

    memory = fsspec.filesystem("memory")
    memory.pipe("/stores-test/g/a/one", b"1")
    mirror = Mirror(RemoteFolder("memory://stores-test"), tmp_path / "here")
    assert mirror.pull() == 1
    assert texts(mirror.folder) == {"g/a/one": "1"}
    put(mirror.folder, "g/a/two", "2")
    mirror.push()
    assert memory.cat("/stores-test/g/a/two") == b"2"


# ---- a server of S3


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """The address of an empty bucket, with `{}` for a place in it."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        options = f"endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
        RemoteFolder(
            f"s3://key:secret@bucket?{options}&allow_bucket_creation=true"
        ).system.create_dir("bucket")
        yield f"s3://key:secret@bucket/{{}}?{options}"
        server.kill()


def upload(folder: Path, address: str) -> None:
    store = RemoteFolder(address)
    for path in folder.rglob("*"):
        if path.is_file():
            store.put(str(path), str(path.relative_to(folder)))


class Kept:
    """A session that outlives the command."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> object:
        return getattr(self._spark, name)

    def stop(self) -> None:
        """Go on."""


def test_from_a_bucket_to_a_bucket(
    spark: SparkSession,
    bucket: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A run, one that finds nothing new, one on another machine, and one that finds tampering."""
    monkeypatch.setattr("coterie.pipeline.spark.session.make_session", lambda **_: Kept(spark))
    # Nothing here is written twice within a second.
    monkeypatch.setattr(mirrors, "SETTLED_NANOSECONDS", 0)
    monkeypatch.setattr("coterie.pipeline.read.planning.SETTLED_SECONDS", 0.0)
    journals = tmp_path / "journals"
    records = {
        name: [
            *begin("a group", name),
            entries("a group", name, 1, [b"one", b"two"]),
            settled("a group", name, 2),
        ]
        for name in NAMES
    }
    write(journals, "a group", records)
    upload(journals, bucket.format("journals"))

    def run(work: str) -> tuple[int, dict[str, object], str]:
        words = [
            bucket.format("journals"),
            "--out",
            bucket.format("results"),
            "--json",
            "--only",
            "seal,verify",
        ]
        status = main(["pipeline", "run", *words, "--work", str(tmp_path / work)])
        said = capsys.readouterr()
        return status, json.loads(said.out), said.err

    status, told, said = run("one")
    assert status == exits.DONE, said
    assert told["out"] == "s3://bucket/results"
    assert "secret" not in said

    first = read_verdicts(bucket, tmp_path / "read")
    assert first
    status, told, said = run("another")
    assert status == exits.DONE
    assert told["segments"] == 0, "the lake came from the bucket"
    assert read_verdicts(bucket, tmp_path / "again") == first

    monkeypatch.setattr("coterie.pipeline.spark.session.make_session", None)
    status, _, said = run("another")
    assert (status, "nothing has changed" in said) == (exits.DONE, True), "without Spark"
    monkeypatch.setattr("coterie.pipeline.spark.session.make_session", lambda **_: Kept(spark))

    RemoteFolder(bucket.format("journals")).remove(
        next(str(path.relative_to(journals)) for path in journals.rglob("*.segment"))
    )
    status, told, _ = run("another")
    assert status == exits.UNKNOWN
    assert told["outcome"] == "damaged"


def read_verdicts(bucket: str, folder: Path) -> list[dict[str, object]]:
    """What a reader finds who only knows the manifest."""
    results = RemoteFolder(bucket.format("results"))
    folder.mkdir()
    results.get(NAME, str(folder / NAME))
    manifest = read_manifest(folder)
    found: list[dict[str, object]] = []
    for file in manifest.tables["verdicts"].files:
        place = f"{bucket.format('results').partition('?')[0].partition('@')[2]}/{file.path}"
        table = pq.read_table(place, filesystem=results.system)
        assert len(table) == file.rows
        found += table.to_pylist()
    return found
