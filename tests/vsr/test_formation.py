"""The three conditions for forming a view, and who leads it (vsr section 4)."""

from __future__ import annotations

import pytest

from coterie.kernel.views import NO_VIEW, Configuration, Member, ViewId, Viewstamp
from coterie.vsr.views.formation import Response, can_form, choose_primary

ABC = Configuration(1, ("a", "b", "c"))
FIVE = Configuration(1, tuple("abcde"))
V1, V2 = ViewId(1, "a", 1), ViewId(2, "b", 1)


def normal(name: str, view: ViewId, number: int, *, primary: bool = False) -> Response:
    return Response(
        Member(name, 1), crashed=False, known=Viewstamp(view, number), was_primary=primary
    )


def crashed(name: str, view: ViewId) -> Response:
    return Response(Member(name, 2), crashed=True, known=Viewstamp(view, 0), was_primary=False)


@pytest.mark.parametrize(
    ("configuration", "responses", "expected"),
    [
        pytest.param(ABC, [normal("a", V1, 3, primary=True)], False, id="no majority"),
        pytest.param(ABC, [normal("a", V1, 3), normal("b", V1, 2)], True, id="condition 1"),
        pytest.param(ABC, [crashed("a", V1), crashed("b", V1)], False, id="nobody knows anything"),
        pytest.param(ABC, [normal("a", V2, 0), crashed("b", V1)], True, id="condition 2"),
        pytest.param(
            ABC, [normal("a", V1, 3, primary=True), crashed("b", V1)], True, id="condition 3"
        ),
        # "A committed a transaction, forcing its event records to B but not C, then A crashed and
        # recovered, and then a partition occurred that separated B from A and C."
        pytest.param(ABC, [crashed("a", V1), normal("c", V1, 2)], False, id="the paper's example"),
        pytest.param(ABC, [crashed("a", V2), normal("c", V1, 2)], False, id="crashed in a later"),
        pytest.param(
            FIVE,
            [crashed("a", V2), normal("b", V1, 1, primary=True), normal("c", V1, 1)],
            False,
            id="the primary of an earlier view does not help",
        ),
        pytest.param(
            FIVE,
            [crashed("a", V2), normal("b", V1, 1), normal("c", V1, 1), normal("d", V1, 1)],
            True,
            id="condition 1 in spite of a later crash",
        ),
        pytest.param(
            ABC,
            [normal("a", NO_VIEW, 0), normal("b", NO_VIEW, 0), normal("c", NO_VIEW, 0)],
            True,
            id="founders",
        ),
    ],
)
def test_when_a_view_can_be_formed(
    configuration: Configuration,
    responses: list[Response],
    expected: bool,  # noqa: FBT001 -- a parameter of the table
) -> None:
    assert can_form(responses, configuration) is expected


def test_the_largest_viewstamp_leads() -> None:
    responses = [normal("a", V1, 9), normal("b", V2, 1), normal("c", V2, 4)]
    assert choose_primary(responses, "abc").id == "c"


def test_the_old_primary_is_preferred_among_equals() -> None:
    responses = [normal("a", V2, 4), normal("b", V2, 4, primary=True), normal("c", V2, 4)]
    assert choose_primary(responses, "abc").id == "b"


def test_else_the_preference_decides() -> None:
    responses = [normal("a", V2, 4), normal("b", V2, 4), crashed("c", V2)]
    assert choose_primary(responses, "cba").id == "b"
