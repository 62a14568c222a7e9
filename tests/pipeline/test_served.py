"""Journals of a server group: its history is judged and run, and RSP-1 and RSP-2 are checked."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from tests.pipeline.here import broken, edit, seal_here, verify_here
from tests.pipeline.journals import copy_group

from coterie.checking.servers import request_in
from coterie.kernel.clock import seconds
from coterie.pipeline.history.replay import Program
from coterie.pipeline.lake.lake import Lake
from coterie.simulation.campaign import run_trial
from coterie.simulation.engines.servers.clients import SERVER_SETTINGS
from coterie.simulation.engines.servers.trial import ServerTrial
from coterie.simulation.engines.stack.trial import RunOptions

PROGRAMS = {"group": Program(name="coterie.ready:Counter", settings=SERVER_SETTINGS)}


@pytest.fixture(scope="module")
def _sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    options = RunOptions(
        stack="ONUS:SAFE:DYNSEQ:PVSYNC",
        replicas=3,
        duration=seconds(8),
        object="counter",
        journals=str(tmp_path_factory.mktemp("unused")),
        faults=("crash", "partition", "loss"),
    )
    trial = ServerTrial(5, options)
    assert not run_trial(trial).violations
    journals = tmp_path_factory.mktemp("journals")
    copy_group(trial.world, journals)
    folder = tmp_path_factory.mktemp("served") / "lake"
    seal_here(journals, folder)
    return folder


@pytest.fixture
def served_lake(_sealed: Path, tmp_path: Path) -> Lake:
    return Lake.open(copytree(_sealed, tmp_path / "lake"))


def test_a_clean_history_is_kept_and_every_request_was_looked_at(served_lake: Lake) -> None:
    assert broken(served_lake, PROGRAMS) == set()
    [results] = verify_here(served_lake, PROGRAMS).values()
    for check in ("RSP-1", "RSP-2", "exactly once", "replicated state machine", "linearizability"):
        assert results.count(check).checked > 10, check


def test_an_answer_by_a_second_replica_is_found(served_lake: Lake) -> None:
    rows = served_lake.table("replies", "group").to_pylist()
    [first, *others] = [row for row in rows if row["session"]]
    second = next(row for row in others if row["replica"] != first["replica"])
    same = {name: first[name] for name in ("session", "request", "position")}

    def forge(row: dict[str, Any]) -> dict[str, Any]:
        is_it = (row["session"], row["request"]) == (second["session"], second["request"])
        return {**row, **same} if is_it else row

    assert edit(served_lake, "replies", forge)
    assert "RSP-2" in broken(served_lake)


def test_a_request_that_was_executed_twice_is_found(served_lake: Lake) -> None:
    rows = served_lake.table("replies", "group").to_pylist()
    first, second = [row for row in rows if row["session"]][:2]
    same = {name: first[name] for name in ("session", "request")}

    def forge(row: dict[str, Any]) -> dict[str, Any]:
        is_it = (row["session"], row["request"]) == (second["session"], second["request"])
        return {**row, **same} if is_it else row

    assert edit(served_lake, "replies", forge)
    [results] = verify_here(served_lake).values()
    found = [row for row in results.violations if row["check_name"] == "RSP-1"]
    assert found
    assert "was executed at" in found[0]["evidence"]
    assert found[0]["replicas"]
    assert found[0]["rows"]


def test_two_synchronisers_in_one_view_are_found(served_lake: Lake) -> None:
    rows = served_lake.table("entries", "group").to_pylist()
    entries = {
        (row["view"]["number"], row["number"]): (row, request)
        for row in rows
        if (request := request_in(row["payload"])) is not None
    }
    one, asked = next(iter(entries.values()))
    other, _ = next(
        (row, request)
        for row, request in entries.values()
        if request.view == asked.view and row["origin"] != one["origin"]
    )

    def forge(row: dict[str, Any]) -> dict[str, Any]:
        is_it = (row["view"], row["number"]) == (other["view"], other["number"])
        return {**row, "payload": one["payload"]} if is_it else row

    assert edit(served_lake, "entries", forge)
    [results] = verify_here(served_lake).values()
    found = [row["evidence"] for row in results.violations if row["check_name"] == "RSP-1"]
    assert any("was synchronised by" in evidence for evidence in found)
