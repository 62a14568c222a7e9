"""Every check, on journals in which it must fire: rows of a clean lake, changed one way each."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.by_hand import MEMBERS, NAMES, VIEW, begin, entries, settled, write
from tests.pipeline.here import broken, edit, seal_here, verify_here
from tests.pipeline.journals import COUNTER

from coterie.kernel.records import ViewInstalled
from coterie.kernel.views import Member, ViewId
from coterie.pipeline.engines.stack.checks import CHECKS, MESSAGE_CHECK_NAMES, SERVER_CHECK_NAMES
from coterie.pipeline.lake.lake import Lake

Row = dict[str, Any]
Change = Callable[[Row], Row | None]
PROGRAMS = {"group": COUNTER}


def once(is_wanted: Callable[[Row], bool], change: Change) -> Change:
    """Change the first row that is wanted."""
    done = False

    def maybe(row: Row) -> Row | None:
        nonlocal done
        if done or not is_wanted(row):
            return row
        done = True
        return change(row)

    return maybe


def every(is_wanted: Callable[[Row], bool], change: Change) -> Change:
    return lambda row: change(row) if is_wanted(row) else row


def drop(row: Row) -> None:
    del row


def with_(**values: object) -> Change:
    return lambda row: {**row, **values}


def is_event(event: str, **values: object) -> Callable[[Row], bool]:
    return lambda row: (
        row["event"] == event and all(row[name] == value for name, value in values.items())
    )


def without_self(row: Row) -> Row:
    return {**row, "members": [each for each in row["members"] if each["id"] != row["replica"]]}


def has_company(row: Row) -> bool:
    return row["event"] == "ended" and len(row["counts"]) > 1 and all(row["counts"])


def is_at(position: int, *replicas: str) -> Callable[[Row], bool]:
    return lambda row: row["position"] == position and (not replicas or row["replica"] in replicas)


CASES: list[tuple[str, str, Change]] = [
    ("validity", "views", every(is_event("proposed"), drop)),
    ("self-inclusion", "views", once(is_event("proposed"), without_self)),
    (
        "view causality",
        "views",
        once(
            is_event("proposed"),
            with_(previous={"number": 999, "proposer": "a", "incarnation": 1}),
        ),
    ),
    (
        "view atomicity",
        "views",
        once(
            has_company, lambda row: {**row, "counts": [row["counts"][0] + 1, *row["counts"][1:]]}
        ),
    ),
    ("strong prefix", "views", once(has_company, lambda row: {**row, "digest": row["digest"] ^ 1})),
    ("transitional agreement", "views", once(has_company, with_(transitional_digest=77))),
    (
        "transitional set",
        "views",
        once(
            lambda row: bool(row["transitional"]) and len(row["transitional"]) > 1,
            with_(transitional=[]),
        ),
    ),
    ("transitional view", "views", once(is_event("transitional"), drop)),
    (
        "confirmed chain",
        "views",
        once(is_event("confirmed"), lambda row: {**row, "members": row["members"][:1]}),
    ),
    (
        "authoritative for ever",
        "standings",
        once(
            lambda row: row["event"] == "settled" and row["position"] > 20,
            with_(event="rolled back", position=1),
        ),
    ),
    ("authoritative majority", "entries", every(is_at(30, "b", "c"), drop)),
    ("one authoritative entry", "entries", every(is_at(30, "b"), with_(fingerprint=5))),
    ("global ordering", "entries", every(is_at(30, "b"), drop)),
    ("active replication", "digests", once(is_at(30), with_(digest=b"another"))),
    ("acknowledged means authoritative", "replies", once(is_at(30), with_(stamp=5))),
    ("exactly once", "replies", once(lambda row: row["session"] > 0, with_(request=77))),
    ("replicated state machine", "digests", every(is_at(30), with_(digest=b"another"))),
    ("linearizability", "replies", once(lambda row: row["session"] > 0, with_(digest=77))),
]


def test_a_clean_lake_breaks_nothing(counter_lake: Lake, optimistic_lake: Lake) -> None:
    assert broken(counter_lake, PROGRAMS) == set()
    assert broken(optimistic_lake) == set()
    results = verify_here(counter_lake, PROGRAMS)["group"]
    unchecked = {name for name in CHECKS if not results.count(name).checked}
    assert unchecked == {*MESSAGE_CHECK_NAMES, *SERVER_CHECK_NAMES}


@pytest.mark.parametrize(("check", "table", "change"), CASES, ids=[case[0] for case in CASES])
def test_check_fires(check: str, table: str, change: Change, counter_lake: Lake) -> None:
    assert edit(counter_lake, table, change)
    [results] = verify_here(counter_lake, PROGRAMS).values()
    assert results.count(check).found
    proofs = [row for row in results.violations if row["check_name"] == check]
    assert all(row["evidence"] and row["replicas"] and row["rows"] for row in proofs)


def test_a_view_that_one_member_left_out(optimistic_lake: Lake) -> None:
    """3.3.5, by leaving out a view that a member went through together with others."""
    rows = optimistic_lake.table("views", "group").to_pylist()
    installed = [row for row in rows if row["event"] == "installed"]
    by_life: dict[tuple[str, int], list[Row]] = {}
    for row in installed:
        by_life.setdefault((row["replica"], row["incarnation"]), []).append(row)
    for one, views in by_life.items():
        for first, second, third in zip(views, views[1:], views[2:], strict=False):
            shared = [
                other
                for other, theirs in by_life.items()
                if other != one
                and all(
                    any(row["view"] == wanted["view"] for row in theirs)
                    for wanted in (first, second, third)
                )
            ]
            if shared:
                gone = (*one, second["view"])
                edit(
                    optimistic_lake,
                    "views",
                    lambda row, gone=gone: (  # type: ignore[misc]
                        None if (row["replica"], row["incarnation"], row["view"]) == gone else row
                    ),
                )
                assert "agreement on successors" in broken(optimistic_lake)
                return
    pytest.fail("no three views in common")


def test_views_in_another_order(optimistic_lake: Lake) -> None:
    """3.3.4, by exchanging two views that one life has in common with another."""
    rows = optimistic_lake.table("views", "group").to_pylist()
    lives: dict[tuple[str, int], dict[tuple[Any, ...], Row]] = {}
    for row in rows:
        if row["event"] == "installed":
            lives.setdefault((row["replica"], row["incarnation"]), {})[_key(row["view"])] = row
    life, shared = next(
        (one, sorted(common))
        for one, other in combinations(lives, 2)
        if len(common := lives[one].keys() & lives[other].keys()) > 1
    )
    first, second = (lives[life][key]["view"] for key in shared[:2])
    swapped = {_key(first): second, _key(second): first}

    def swap(row: Row) -> Row:
        if (row["replica"], row["incarnation"]) != life or row["event"] != "installed":
            return row
        return {**row, "view": swapped.get(_key(row["view"]), row["view"])}

    assert edit(optimistic_lake, "views", swap) == 2
    assert {"view causality", "agreement on view ordering"} <= broken(optimistic_lake)


def test_a_zombie_that_fetched_nothing(counter_lake: Lake) -> None:
    adopted = {
        (row["replica"], row["incarnation"])
        for row in counter_lake.table("standings", "group").to_pylist()
        if row["event"] == "adopted"
    }
    accepted = [
        (row["replica"], row["incarnation"])
        for row in counter_lake.table("views", "group").to_pylist()
        if row["event"] == "accepted"
    ]
    life = next(each for each in accepted if each not in adopted)
    change = every(lambda row: (row["replica"], row["incarnation"]) == life, with_(is_zombie=True))
    assert edit(counter_lake, "lives", change)
    assert broken(counter_lake) == {"counted rightly"}


def _key(view: Row) -> tuple[Any, ...]:
    return tuple(view.values())


def test_a_life_that_forgot_and_did_not_say_so(optimistic_lake: Lake) -> None:
    forgetful = every(
        lambda row: row["incarnation"] > 1 and row["first"] == 1, with_(settled=0, is_zombie=False)
    )
    assert edit(optimistic_lake, "segments", forgetful)
    assert "memory" in broken(optimistic_lake)


def test_a_majority_that_came_too_late(tmp_path: Path) -> None:
    """4.1: others took the entry in a later view, so it cannot have been what was counted."""
    later = ViewId(2, "b", 1)
    told = {name: begin("g", name) for name in NAMES}
    told["a"] += [entries("g", "a", 1, [b"x"]), settled("g", "a", 1)]
    for name in "bc":
        me = Member(name, 1)
        installed = ViewInstalled(
            "g", me, 1, view=later, members=MEMBERS, previous=VIEW, transitional=(me,)
        )
        told[name] += [installed, entries("g", name, 1, [b"x"])]
    write(tmp_path / "journals", "g", told)
    results = verify_here(seal_here(tmp_path / "journals", tmp_path / "lake"))["g"]
    [violation] = [
        row for row in results.violations if row["check_name"] == "authoritative majority"
    ]
    assert "only 1 of 3 replicas had accepted it" in violation["evidence"]


def test_another_entry_in_an_accepted_history(optimistic_lake: Lake) -> None:
    """An entry that is not the authoritative one, though its replica accepted later views."""
    change = every(is_at(30, "b"), with_(fingerprint=5))
    assert edit(optimistic_lake, "entries", change)
    assert "authoritative for ever" in broken(optimistic_lake)
