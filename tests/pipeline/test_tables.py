"""The tables as others read them: without our code, by plain names, one version at a time."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pipeline.by_hand import begin, entries, replied, settled, write
from tests.pipeline.here import publish_here, seal_here
from tests.pipeline.journals import COUNTER

from coterie.pipeline import make_views, register
from coterie.pipeline.jobs import JobOutcome, judge_and_publish
from coterie.pipeline.publish.manifest import Draft, NoResults, is_whole, read_manifest, table_of
from coterie.pipeline.publish.report import FIGURES
from coterie.pipeline.read import schemas
from coterie.pipeline.read.tables import journal_tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "tables.md"
RESULTS = ("HISTORY", "FORCED", "TRANSACTIONS", "EVENTS", "STATES", "VERDICTS", "VIOLATIONS")


def all_schemas() -> dict[str, pa.Schema]:
    found = {name: table.schema for name, table in journal_tables().items()}
    return found | FIGURES | {name.lower(): getattr(schemas, name) for name in RESULTS}


def names_in(fields: Any) -> Iterator[str]:  # noqa: ANN401 -- a schema or a struct
    for field in fields:
        yield field.name
        kind = field.type
        while pa.types.is_list(kind):
            kind = kind.value_type
        if pa.types.is_struct(kind):
            yield from names_in(kind)


@pytest.fixture(scope="module")
def results(counter_journals: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tables") / "results"
    publish_here(counter_journals, out, {"group": COUNTER})
    return out


def test_every_table_is_a_view(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(results)
    text = Path("views.sql").read_text(encoding="utf-8")
    with duckdb.connect() as connection:
        connection.execute(text)
        for name, table in read_manifest(results).tables.items():
            [[rows]] = connection.execute(f"select count(*) from {name}").fetchall()  # noqa: S608
            assert rows == table.rows, name
        [[method, calls, typed]] = connection.execute(
            "select any_value(method), sum(calls), (select count(*) from update_counter_add) "
            "from updates"
        ).fetchall()
        assert method == "add"
        assert calls == typed > 0
        assert len(connection.execute("select * from latest_states").fetchall()) == 1
        assert connection.execute("select * from standings").fetchall()
        words = {
            row[0] for row in connection.execute("select verdict from open_promises").fetchall()
        }
        assert words == {"not checked"}


def test_any_session_reads_journals_and_results(
    results: Path, counter_journals: Path, spark: SparkSession
) -> None:
    """A session needs one line, by whomever it was made; `make_session` does just that."""
    other = register(spark)
    lives = other.read.format("coterie").option("table", "lives").load(str(counter_journals))
    assert lives.rdd.getNumPartitions() > 1
    replicas = {row["replica"] for row in lives.where("replica = 'a'").collect()}
    assert replicas == {"a"}
    assert "update_counter_add" in make_views(other, results)
    [[total]] = other.sql(
        "select sum(amount) from update_counter_add where error is null"
    ).collect()
    [[last]] = other.sql(
        "select get_json_object(state, '$.value') from states order by position desc limit 1"
    ).collect()
    assert total == int(last)


def test_no_name_needs_quotes() -> None:
    names = {name for schema in all_schemas().values() for name in names_in(schema)}
    assert {"group_name", "recorded_at", "position", "replica"} <= names
    with duckdb.connect() as connection:
        for name in sorted(names | {schemas.GROUP, schemas.RANGE}):
            connection.execute(
                f"select t.{name}, {name} from (select 1 as {name}) t "  # noqa: S608 -- our names
                f"where {name} = 1 group by {name} order by {name}"
            )


def test_times_are_timestamps() -> None:
    for table, schema in all_schemas().items():
        for field in schema:
            is_time = field.name.endswith("_at")
            assert is_time == pa.types.is_timestamp(field.type), f"{table}.{field.name}"


def test_others_read_every_table(results: Path) -> None:
    """DuckDB and Arrow see what the manifest promises, with the columns that are folders."""
    manifest = read_manifest(results)
    made = {"history", "verdicts", "violations", "events", "states", "update_counter_add"}
    assert set(manifest.tables) == made
    with duckdb.connect() as connection:
        for name, table in manifest.tables.items():
            read = connection.execute(
                "select * from read_parquet(?, hive_partitioning = true)",
                [f"{results}/tables/{name}/**/*.parquet"],
            )
            assert {column[0] for column in read.description} == set(table.columns), name
            assert len(read.fetchall()) == table.rows, name
            assert pq.read_table(results / "tables" / name).num_rows == table.rows
        lake = f"{results}/lake/entries/**/*.parquet"
        [(group, kind)] = connection.execute(
            "select distinct group_name, typeof(recorded_at) "
            "from read_parquet(?, hive_partitioning = true)",
            [lake],
        ).fetchall()
        assert (group, kind) == ("group", "TIMESTAMP WITH TIME ZONE")


def test_the_page_says_what_works_in_duckdb(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(results.parent)
    blocks = re.findall(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 4
    with duckdb.connect() as connection:
        total, calls, unkept, accepted = (connection.execute(block).fetchall() for block in blocks)
    assert total[0][0] is not None
    assert "add" in {method for method, _, _ in calls}
    assert all(count > 0 for _, count, _ in calls)
    assert "linearizability" not in {check for _, check, _, _ in unkept}
    assert [replica for replica, _, _ in accepted] == ["a", "b", "c"]


def test_the_page_says_what_works_in_spark(
    spark: SparkSession,
    results: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also if Spark takes every reserved word for one."""
    text = PAGE.read_text(encoding="utf-8").replace('"results/', f'"{results.parent}/results/')
    monkeypatch.chdir(results.parent)
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {"spark": spark}
    spark.conf.set("spark.sql.ansi.enforceReservedKeywords", "true")
    try:
        for block in blocks:
            exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102 -- our own page
        every = sorted({name for schema in all_schemas().values() for name in schema.names})
        columns = ", ".join(f"1 as {name}" for name in every)
        spark.sql(f"select {', '.join(every)} from (select {columns})").collect()  # noqa: S608
    finally:
        spark.conf.unset("spark.sql.ansi.enforceReservedKeywords")
    assert "add" in capsys.readouterr().out
    assert all((results / file).is_file() for file in names["files"])
    assert (names["version"] / "history").is_dir()


# ---- one version of everything


def test_a_version_replaces_all_tables_at_once(counter_journals: Path, tmp_path: Path) -> None:
    publish_here(counter_journals, tmp_path, {"group": COUNTER})
    first = read_manifest(tmp_path)
    lake = seal_here(counter_journals, tmp_path / "lake")
    assert read_manifest(tmp_path) == first
    judge_and_publish(None, lake, [], JobOutcome(tmp_path), ["verify"], {})
    second = read_manifest(tmp_path)
    assert (first.version, second.version) == (1, 2)
    assert set(second.tables) == set(first.tables), "what was not asked for is taken over"
    assert second.tables["events"].rows == first.tables["events"].rows > 0
    for manifest in (first, second):
        for table in manifest.tables.values():
            for file in table.files:
                assert pq.read_metadata(tmp_path / file.path).num_rows == file.rows
    judge_and_publish(None, lake, [], JobOutcome(tmp_path), ["verify"], {})
    assert sorted(path.name for path in (tmp_path / "versions").iterdir()) == ["000002", "000003"]
    assert (tmp_path / "tables").resolve() == tmp_path / "versions" / "000003"


@pytest.mark.parametrize("moment", ["rename", "_replace", "_link"])
def test_a_run_that_is_killed_leaves_a_version(
    moment: str, counter_journals: Path, tmp_path: Path
) -> None:
    """Whenever it is: the tables of one run, or of the other."""
    publish_here(counter_journals, tmp_path)
    lake = seal_here(counter_journals, tmp_path / "lake")
    draft = Draft(tmp_path)
    draft.add("verdicts", pa.table({"new": [1]}))
    places = {
        "rename": "pathlib.Path.rename",
        "_replace": "coterie.pipeline.publish.manifest.Draft._replace",
        "_link": "coterie.pipeline.publish.manifest._link",
    }
    with patch(places[moment], side_effect=SystemExit), pytest.raises(SystemExit):
        draft.publish({})
    manifest = read_manifest(tmp_path)
    assert manifest.version == (2 if moment == "_link" else 1)
    assert is_whole(tmp_path, ["verdicts", "history"])
    assert ("new" in manifest.tables["verdicts"].columns) == (moment == "_link")
    judge_and_publish(None, lake, [], JobOutcome(tmp_path), ["history"], {})
    after = read_manifest(tmp_path)
    assert (tmp_path / "tables").resolve() == tmp_path / after.folder
    assert not list(tmp_path.rglob("_draft-*"))
    assert is_whole(tmp_path, ["verdicts", "history"])


def test_results_that_are_not_whole_are_not_taken_for_them(
    counter_journals: Path, tmp_path: Path
) -> None:
    with pytest.raises(NoResults, match="there are no results in"):
        read_manifest(tmp_path)
    publish_here(counter_journals, tmp_path)
    assert is_whole(tmp_path, ["history"])
    assert not is_whole(tmp_path, ["bills"])
    next(table_of(tmp_path, "history").rglob("*.parquet")).unlink()
    assert not is_whole(tmp_path, ["verdicts"])
    for content, said in (("{", "is damaged"), ('{"format": 9}', "is damaged"), ("", "is damaged")):
        (tmp_path / "manifest.json").write_text(content)
        with pytest.raises(NoResults, match=said):
            read_manifest(tmp_path)
    told = {"format": 9, "version": 1, "folder": "x", "tables": {}}
    (tmp_path / "manifest.json").write_text(json.dumps(told))
    with pytest.raises(NoResults, match="of format 9"):
        read_manifest(tmp_path)
    lake = seal_here(counter_journals, tmp_path / "lake")
    judge_and_publish(None, lake, [], JobOutcome(tmp_path), ["history"], {})
    assert is_whole(tmp_path, ["history"]), "a run makes it anew"


def test_groups_with_numbers_and_signs_for_names(tmp_path: Path) -> None:
    told = {name: [*begin("007", name), entries("007", name, 1, [b"x"])] for name in "abc"}
    write(tmp_path / "journals", "007", told)
    other = "a b=c%2F"
    write(
        tmp_path / "journals",
        other,
        {name: [*begin(other, name), entries(other, name, 1, [b"x"])] for name in "abc"},
    )
    lake = seal_here(tmp_path / "journals", tmp_path / "lake")
    assert lake.groups() == ["007", other]
    assert set(lake.table("entries", "007")["group_name"].to_pylist()) == {"007"}
    with duckdb.connect() as connection:
        read = connection.execute(
            "select distinct group_name from read_parquet(?, hive_partitioning = true, "
            "hive_types = {'group_name': VARCHAR}) order by 1",
            [f"{tmp_path}/lake/entries/**/*.parquet"],
        ).fetchall()
    assert read == [("007",), (other,)]


def test_a_request_that_says_no_time_has_none(tmp_path: Path) -> None:
    answer = replied("g", "a", at=9, session=1, request=1, position=1)
    told = {
        name: [*begin("g", name), entries("g", name, 1, [b"x"]), settled("g", name, 1)]
        for name in "abc"
    }
    told["a"].append(answer)
    write(tmp_path / "journals", "g", told)
    lake = seal_here(tmp_path / "journals", tmp_path / "lake")
    [(path, _)] = lake.files_of("replies", "g")
    assert pq.read_table(path)["asked_at"].to_pylist() == [None]
    assert lake.table("replies", "g")["asked_at"].to_pylist() == [0]
