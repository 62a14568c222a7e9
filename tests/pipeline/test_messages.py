"""Stacks without an engine: every message is on record, and every check of group communication."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from tests.pipeline.by_hand import write
from tests.pipeline.here import broken, edit, seal_here, verify_here

from coterie.kernel.clock import seconds
from coterie.kernel.records import Record, Started
from coterie.pipeline.engines.stack.checks import MESSAGE_CHECK_NAMES, VIEW_CHECK_NAMES
from coterie.pipeline.lake.lake import Lake
from coterie.simulation import Group, Simulation

Row = dict[str, Any]
STACK = "DYNSEQ:VSYNC"


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two views with messages in both, by replicas that stay."""
    folder = tmp_path_factory.mktemp("messages")
    group = Simulation(seed=1, stack=STACK).group("a", "b", "c")
    told: dict[str, list[Record]] = {}
    keep(group, told)
    group.run_until_whole()
    for _ in range(3):
        for host in group:
            host.cast(b"x", b"y")
            host.cast(b"z", safe=True)
        group.run(seconds(1))
    group.partition("ab", "c")
    group.run(seconds(3))
    group.heal()
    group.run_until_whole()
    group["a"].cast(b"last")
    group.run(seconds(1))
    group.check()
    for name, host in group.hosts.items():
        begun = Started(
            "group", told[name][0].member, 0, stack=STACK, configuration=group.configuration
        )
        assert host.incarnation == 1
        if not isinstance(told[name][0], Started):
            told[name].insert(0, begun)
    write(folder / "journals", "group", told)
    seal_here(folder / "journals", folder / "lake")
    return folder / "lake"


def keep(group: Group, told: dict[str, list[Record]]) -> None:
    """Have all records of a group noted down, those from before included."""
    record = group.record

    def note(each: Record) -> None:
        told.setdefault(each.member.id, []).append(each)
        record(each)

    group.record = note  # type: ignore[method-assign,assignment]


@pytest.fixture
def lake(sealed: Path, tmp_path: Path) -> Lake:
    return Lake.open(copytree(sealed, tmp_path / "lake"))


def test_all_checks_of_views_and_messages_run(lake: Lake) -> None:
    results = verify_here(lake)["group"]
    assert not results.violations
    for name in (*VIEW_CHECK_NAMES, *MESSAGE_CHECK_NAMES):
        assert results.count(name).checked, name


def first_of(
    event: str, replica: str, change: Callable[[Row], Row | None], sender: str = ""
) -> Callable[[Row], Row | None]:
    done = False

    def maybe(row: Row) -> Row | None:
        nonlocal done
        if done or (row["event"], row["replica"]) != (event, replica):
            return row
        if sender and row["sender"]["id"] != sender:
            return row
        done = True
        return change(row)

    return maybe


def exchange(row: Row, *, field: str) -> Row:
    return {**row, field: row[field] + 1}


@pytest.mark.parametrize(
    ("check", "change"),
    [
        ("integrity", first_of("sent", "a", lambda _: None)),
        ("self-delivery", first_of("delivered", "a", lambda _: None, sender="a")),
        ("view atomicity", first_of("delivered", "a", lambda _: None)),
        ("agreed delivery", first_of("delivered", "a", lambda _: None)),
        ("first in, first out", first_of("delivered", "b", lambda _: None)),
        ("strong prefix", first_of("delivered", "a", lambda row: exchange(row, field="number"))),
        ("safe delivery", first_of("delivered", "a", lambda row: {**row, "safe": not row["safe"]})),
    ],
)
def test_check_fires(check: str, change: Callable[[Row], Row | None], lake: Lake) -> None:
    assert edit(lake, "messages", change) == 1
    assert check in broken(lake)
