"""Groups over a partitioned network: from their journals to one order, judged.

One simulated run with cuts and crashes is sealed once. Every check is shown to fire where a row of
its lake says something else than it did.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import msgspec
import pytest
from tests.broken.colours_variants import COLOURS_BROKEN, BrokenColours
from tests.pipeline.here import (
    broken,
    edit,
    history_here,
    judge_here,
    judge_lake,
    publish_here,
    seal_here,
)

from coterie.colours.layer import Colours
from coterie.kernel.clock import milliseconds, seconds
from coterie.kernel.components import GREEN
from coterie.kernel.decoding import JsonDecoder
from coterie.pipeline.engines import family_of
from coterie.pipeline.engines.colours.checks import CHECKS
from coterie.pipeline.engines.colours.columns import ACTIONS, GREENS
from coterie.pipeline.engines.colours.figures import chapter, colours_of
from coterie.pipeline.engines.colours.over_time import OverTime
from coterie.pipeline.history.replay import Program
from coterie.pipeline.lake.lake import Lake
from coterie.pipeline.publish.figures import Figures, figures_of
from coterie.pipeline.read.schemas import as_numbers
from coterie.simulation import RunOptions
from coterie.simulation.campaign import run_seed, run_trial
from coterie.simulation.engines.colours.trial import ColoursTrial
from coterie.simulation.engines.stack.clients import SETTINGS
from coterie.simulation.faults import ALL_FAULTS, CHANGES
from coterie.stacks import LAYERS

Row = dict[str, Any]
STACK = "COLOURS:DYNSEQ:VSYNC"


@pytest.fixture(scope="session")
def sound(colours_journals: Path, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return seal_here(colours_journals, tmp_path_factory.mktemp("lake") / "lake", width=64)


@pytest.fixture
def lake(sound: Lake, tmp_path: Path) -> Lake:
    copytree(sound.root, tmp_path / "lake")
    return Lake.open(tmp_path / "lake")


def once(wanted: Callable[[Row], bool], **changes: object) -> Callable[[Row], Row | None]:
    """Change the first row that is wanted; without changes, drop it."""
    done: list[bool] = []

    def change(row: Row) -> Row | None:
        if done or not wanted(row):
            return row
        done.append(True)
        return {**row, **changes} if changes else None

    return change


def test_a_stack_of_colours_is_judged_by_its_own_family() -> None:
    assert family_of("COLOURS:TOKEN:VSYNC").name == "colours"


def test_a_sound_run_keeps_every_promise(sound: Lake) -> None:
    found = judge_lake(sound)
    assert not found.violations
    told = {row["check_name"]: row["verdict"] for row in found.verdicts}
    assert told.keys() == CHECKS.keys()
    unchecked = {name for name, verdict in told.items() if verdict != "kept"}
    assert unchecked <= {
        "replicated state machine",  # needs the class
        "linearizability",
        "strong prefix",  # need records of messages
        "transitional agreement",
        "view atomicity",
    }


def test_the_order_is_run_and_gives_the_states_and_answers(
    colours_journals: Path, tmp_path: Path
) -> None:
    group = "group"
    program = Program(name="coterie.simulation.engines.stack.kinds:Words", settings=SETTINGS)
    outcome = publish_here(colours_journals, tmp_path / "out", {group: program}, width=64)
    told = {row["check_name"]: row["verdict"] for row in outcome.verdicts}
    assert told["replicated state machine"] == told["linearizability"] == "kept"
    assert outcome.events > 0


def test_what_is_green_anywhere_is_authoritative_and_has_its_command(sound: Lake) -> None:
    rows = sorted(history_here(sound), key=lambda row: row["position"])
    assert [row["position"] for row in rows] == list(range(1, len(rows) + 1))
    assert {row["standing"] for row in rows} == {"authoritative"}
    assert all(row["payload"] for row in rows)


@pytest.mark.slow  # twenty seconds of simulated time
@pytest.mark.parametrize(("seed", "replicas"), [(42010001, 5), (42010003, 4)])
def test_nobody_is_accused_where_members_change(seed: int, replicas: int, tmp_path: Path) -> None:
    """Who is gone is not spoken of any more; who joined may have lost its journal."""
    options = RunOptions(
        stack=STACK,
        replicas=replicas,
        duration=seconds(20),
        object="dictionary",
        faults=(*ALL_FAULTS, *CHANGES),
        history_bytes=200,
        journals=str(tmp_path / "journals"),
    )
    assert run_seed(seed, options).violations == []
    outcome = judge_here(tmp_path / "journals", tmp_path / "lake")
    assert outcome.violations == []
    assert outcome.verdicts


def test_colours_of_a_group_without_a_row_are_none() -> None:
    """A group may have been founded, and nobody have called it."""
    followed = OverTime(as_numbers(ACTIONS.empty_table()), as_numbers(GREENS.empty_table()))
    assert (followed.replicas, followed.waits, followed.still_red) == ([], [], 0)
    assert list(followed.waits_of([])) == []


def test_a_report_shows_colours_merges_and_how_long_reds_waited(sound: Lake) -> None:
    group = sound.groups()[0]
    more = colours_of(sound, group)
    assert max(count for line in more["red"].values() for _, count in line) > 0
    assert more["waits"]["longest"] > 100_000  # somebody was cut off
    assert sum(each["merged"] for each in more["components"]) > 0
    assert more["still_red"] == 0
    found = figures_of(sound, group, family_of(STACK), {})
    page = chapter(found)
    assert chapter(JsonDecoder(Figures).decode(msgspec.json.encode(found))) == page, "as tasks give"
    assert "Red at" in page
    assert "made green as it began" in page


TAMPERED: dict[str, tuple[str, Callable[[Row], Row | None]]] = {
    "global total order": (
        "greens",
        once(lambda row: row["position"] == 5, fingerprint=1, digest=1),
    ),
    "global FIFO order": (
        "greens",
        lambda row: {**row, "index": row["index"] + (row["position"] == 9)},
    ),
    "green prefix": ("greens", once(lambda row: row["position"] == 7)),
    "red cut": ("actions", once(lambda row: row["index"] == 2)),
    "white means all": (
        "components",
        once(lambda row: row["event"] == "lines", white=10_000_000),
    ),
    "one primary component": (
        "components",
        lambda row: {**row, "members": ["d"]} if row["component"] == 2 else row,
    ),
    "ready on record": ("components", once(lambda row: row["event"] == "attempted")),
    "told right": (
        "replies",
        once(lambda row: row["standing"] == GREEN and row["position"] > 0, stamp=1),
    ),
    "exactly once": (
        "replies",
        lambda row: {**row, "session": 1, "request": 1, "count": 1},
    ),
    "attempt excluded": (
        "components",
        lambda row: {**row, "state": "No"} if row["state"] == "TransPrim" else row,
    ),
    "attempt protected": (
        "components",
        lambda row: {**row, "state": "Un"} if row["state"] == "TransPrim" else row,
    ),
    "yellow rule": (
        "components",
        lambda row: row if row["yellow"] is None else {**row, "position": 0, "yellow": []},
    ),
    "eventual path": (
        "components",
        lambda row: None if (row["event"], row["replica"]) == ("lines", "b") else row,
    ),
    "green for ever": (
        "components",
        lambda row: (
            {**row, "component": 100 - row["component"]} if row["event"] == "installed" else row
        ),
    ),
    "active replication": ("digests", once(lambda _: True, digest=b"other")),
}


@pytest.mark.parametrize("check", TAMPERED)
def test_a_check_fires_where_a_row_says_otherwise(check: str, lake: Lake) -> None:
    table, change = TAMPERED[check]
    assert edit(lake, table, change)
    assert check in broken(lake)


CAUGHT = ("YellowIsRed", "RedsAsTheyCame")


@pytest.mark.long  # whole runs, until a variant does harm
@pytest.mark.parametrize(
    "variant", [each for each in COLOURS_BROKEN if each.name in CAUGHT], ids=lambda each: each.name
)
def test_a_broken_variant_is_caught_by_its_journals(variant: BrokenColours, tmp_path: Path) -> None:
    for seed in range(variant.first_seed, variant.first_seed + 30):
        options = RunOptions(
            stack=variant.stack,
            replicas=variant.replicas,
            duration=seconds(15),
            faults=variant.faults,
            cast_interval=milliseconds(50),
            journals=str(tmp_path / "journals"),
        )
        layers = {**LAYERS, Colours.name: variant.kind}
        if not run_trial(ColoursTrial(seed, options, layers=layers)).violations:
            continue
        fired = broken(
            seal_here(tmp_path / "journals" / str(seed), tmp_path / f"lake{seed}", width=1000)
        )
        if fired.intersection(variant.caught_by):
            return
    pytest.fail("the pipeline found nothing wrong")
