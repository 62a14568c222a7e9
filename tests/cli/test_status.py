"""`coterie status`: the table, and what stands below it."""

from __future__ import annotations

import json

import msgspec
import pytest
from tests.service.test_overview import LOST, WELL, down, group, up

from coterie.cli.commands.status import _json, draw
from coterie.cli.target import KnownGroup
from coterie.cli.terminal.paint import Paint
from coterie.service.operate.control import ProcessSeen

TARGET = KnownGroup(group="g", addresses={})


def test_a_group_that_is_well_is_a_table_and_nothing_else() -> None:
    assert draw(WELL, TARGET, Paint()) == [
        "g (C) serves: 3 of 3 replicas are up",
        "",
        "replica  clients at    life  role     view  members  position  lag",
        "a        127.0.0.1:97  1     primary  0.#0                  9    0",
        "b        127.0.0.1:98  1     primary  0.#0                  9    0",
        "c        127.0.0.1:99  1     primary  0.#0                  7    2",
    ]


def test_what_is_wrong_stands_below_with_what_to_do() -> None:
    waiting = ProcessSeen(id="b", state="waiting", reason="no room for the journal")
    lines = draw(group(up("a", "primary", 9), down("b", waiting), down("c")), TARGET, Paint())
    assert lines[0] == "g (C) serves: 1 of 3 replicas are up"
    assert [line.split() for line in lines[4:6]] == [["b", "waiting"], ["c", "down"]]
    assert lines[6:] == [
        "",
        "- b is not running: no room for the journal",
        "- c does not answer: connection refused",
    ]


def test_lost_memory_shows_zombies_and_the_way_out() -> None:
    lines = draw(LOST, TARGET, Paint())
    assert lines[0] == "g (C) does not serve: 3 of 3 replicas are up"
    assert "zombie, minority" in lines[3]
    assert lines[-3:-1] == [
        "- a is a zombie: it has lost its memory",
        "- c is a zombie: it has lost its memory",
    ]
    assert lines[-1].endswith("coterie recover g --from b --accept-loss")


def test_faults_and_troubles_are_shown() -> None:
    replica = up("a", "primary", 9)
    assert replica.report is not None
    report = msgspec.structs.replace(
        replica.report, faults=["4: book() failed"], trouble="no snapshot could be taken"
    )
    seen = msgspec.structs.replace(replica, report=report)
    assert draw(group(seen), TARGET, Paint())[-2:] == [
        "- a: 4: book() failed",
        "- a: no snapshot could be taken",
    ]


def test_what_callers_have_chosen_neither_breaks_lines_nor_steers_a_terminal() -> None:
    replica = up("a", "primary", 9)
    assert replica.report is not None
    forged = "4: on_tick failed: bye\n- a: all is well\x1b[2J"
    report = msgspec.structs.replace(replica.report, faults=[forged], class_name="C\x1b[31m")
    seen = msgspec.structs.replace(replica, report=report)
    lines = draw(group(seen), TARGET, Paint())
    assert lines[0].startswith(r"g (C\x1b[31m) ")
    assert lines[-1] == r"- a: 4: on_tick failed: bye\n- a: all is well\x1b[2J"


def test_machines_get_the_same() -> None:
    seen = json.loads(_json(LOST, TARGET))
    assert (seen["serves"], seen["has_lost_memory"]) == (False, True)
    assert [(each["id"], each["is_zombie"]) for each in seen["replicas"]] == [
        ("a", True),
        ("b", False),
        ("c", True),
    ]
    assert "coterie recover" in seen["advice"][0]
    [_, gone] = json.loads(_json(group(up("a", "minority", 1), down("b")), TARGET))["replicas"]
    assert gone == {"id": "b", "address": "", "is_up": False, "reason": "connection refused"}


class Terminal:
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "is_on"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_colour_is_for_those_who_want_it(
    environment: dict[str, str],
    is_on: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    paint = Paint(Terminal())  # type: ignore[arg-type]
    assert paint("well", "green") == ("\x1b[32mwell\x1b[0m" if is_on else "well")
