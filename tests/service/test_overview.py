"""What an operator is told of a group, and when a recovery is refused."""

from __future__ import annotations

import msgspec
import pytest

from coterie.client import Report
from coterie.kernel.engine import Version
from coterie.kernel.errors import CoterieError, Refused
from coterie.kernel.views import NO_VIEW, ViewId
from coterie.service.operate.control import ProcessSeen
from coterie.service.operate.overview import Overview, ReplicaSeen, check_recovery


def up(id: str, role: str, position: int, *, zombie: bool = False) -> ReplicaSeen:
    report = Report(
        group="g",
        class_name="C",
        documentation="",
        methods=[],
        replica=id,
        incarnation=1,
        role=role,
        view=NO_VIEW,
        members=[],
        peers=[],
        position=position,
        settled=position,
        is_zombie=zombie,
        faults=[],
        version=Version(ViewId(1, "a", 1), position) if position else Version(NO_VIEW, 0),
    )
    return ReplicaSeen(id=id, address=f"127.0.0.1:{ord(id)}", report=report)


def down(id: str, process: ProcessSeen | None = None) -> ReplicaSeen:
    return ReplicaSeen(id=id, address="", silence="connection refused", process=process)


def group(*replicas: ReplicaSeen) -> Overview:
    return Overview(group="g", replicas=list(replicas))


WELL = group(up("a", "primary", 9), up("b", "primary", 9), up("c", "primary", 7))
LOST = group(
    up("a", "minority", 5, zombie=True), up("b", "minority", 9), up("c", "minority", 0, zombie=True)
)


def test_a_group_that_is_well_needs_no_advice() -> None:
    assert WELL.serves
    assert WELL.is_well
    assert WELL.advice("g") == []
    assert [WELL.lag(each) for each in WELL.replicas] == [0, 0, 2]


def test_a_group_serves_with_one_down_and_says_why() -> None:
    given_up = ProcessSeen(id="c", state="given up", reason="the disk is full")
    overview = group(up("a", "primary", 9), up("b", "primary", 9), down("c", given_up))
    assert overview.serves
    assert not overview.is_well
    assert overview.advice("g") == ["c is not running: the disk is full"]
    plain = group(up("a", "primary", 9), up("b", "primary", 9), down("c"))
    assert plain.advice("g") == ["c does not answer: connection refused"]


def test_without_a_majority_it_says_whom_to_start() -> None:
    overview = group(up("a", "minority", 9), down("b"), down("c"))
    assert not overview.serves
    assert overview.advice("g") == [
        "no majority: 1 of the 2 replicas it takes are up and remember; start b, c",
        "b does not answer: connection refused",
        "c does not answer: connection refused",
    ]
    assert group(down("a"), down("b"), down("c")).position == 0


def test_apart_although_all_are_up() -> None:
    overview = group(up("a", "minority", 9), up("b", "minority", 9), up("c", "minority", 9))
    assert overview.advice("g") == ["no primary view yet: the replicas may not reach each other"]


def test_lost_memory_leads_to_the_one_that_knows_most() -> None:
    assert LOST.has_lost_memory
    [advice] = LOST.advice("g --config FILE")
    assert "coterie recover g --config FILE --from b --accept-loss" in advice
    few = group(up("a", "minority", 5, zombie=True), up("b", "minority", 0, zombie=True), down("c"))
    [advice] = few.advice("g")
    assert "--from a " in advice


def test_too_few_remember_and_too_few_are_up() -> None:
    overview = group(
        *(down(id) for id in "ab"), *(up(id, "minority", 0, zombie=True) for id in "cd")
    )
    assert overview.advice("g") == [
        "too few replicas remember; start a, b first, with an empty dir if theirs is lost"
    ]


def test_a_recovery_says_what_is_lost() -> None:
    assert check_recovery(LOST, "b") == (
        "everything that 'b' does not know is lost; it knows 9 entries"
    )
    with_one_down = group(
        up("a", "minority", 5, zombie=True), up("b", "minority", 0, zombie=True), down("c")
    )
    assert check_recovery(with_one_down, "a").endswith("knows 5 entries, and c may know more")


@pytest.mark.parametrize(
    ("overview", "source", "sentence"),
    [
        (WELL, "a", "the group serves, so nothing has to be recovered"),
        (LOST, "a", "replica 'b' knows more (up to 9) than 'a' (up to 5): recover from 'b'"),
        (
            group(up("a", "minority", 9), up("b", "minority", 0, zombie=True), down("c")),
            "a",
            "too many may still remember: start c first, with an empty dir if theirs is lost",
        ),
        (
            group(up("a", "minority", 9), up("b", "minority", 9), up("c", "minority", 9)),
            "a",
            "a majority does, and needs only to reach each other",
        ),
        (
            group(
                *(up(id, "minority", 0, zombie=True) for id in "ab"),
                up("c", "minority", 3, zombie=True),
                *(down(id) for id in "de"),
            ),
            "d",
            "replica 'd' does not answer: connection refused",
        ),
    ],
)
def test_a_recovery_is_refused(overview: Overview, source: str, sentence: str) -> None:
    with pytest.raises(Refused) as refusal:
        check_recovery(overview, source)
    assert sentence in str(refusal.value)


def test_a_recovery_from_nobody() -> None:
    with pytest.raises(CoterieError, match="there is no replica 'x'; there is a, b, c"):
        check_recovery(LOST, "x")


def cohort(id: str, role: str, position: int, *, lost: bool = False) -> ReplicaSeen:
    seen = up(id, role, position, zombie=lost)
    assert seen.report is not None
    report = msgspec.structs.replace(seen.report, primary="a", cannot_recover="it is not for sale")
    return msgspec.structs.replace(seen, report=report)


def test_cohorts_are_well_with_one_primary_and_its_backups() -> None:
    overview = group(cohort("a", "primary", 9), cohort("b", "backup", 9), cohort("c", "backup", 7))
    assert overview.is_well
    assert overview.advice("g") == []
    assert [overview.lag(each) for each in overview.replicas] == [0, 0, 2]
    headless = group(cohort("a", "backup", 9), cohort("b", "backup", 9), down("c"))
    assert not headless.serves
    assert headless.advice("g")[0].startswith("no primary view yet")


def test_a_group_that_cannot_be_recovered_says_so() -> None:
    lost = group(
        cohort("a", "forming", 0, lost=True), cohort("b", "forming", 0, lost=True), down("c")
    )
    assert lost.advice("g") == ["too few replicas remember; start c: one may be enough"]
    lost = group(
        cohort("a", "forming", 0, lost=True),
        cohort("b", "forming", 0, lost=True),
        cohort("c", "forming", 9),
    )
    assert lost.has_lost_memory
    [advice] = lost.advice("g")
    assert advice.startswith(
        "a majority has lost its state: if no view is formed in a moment, it is"
    )
    with pytest.raises(Refused, match="it is not for sale"):
        check_recovery(lost, "c")
