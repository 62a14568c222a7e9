"""Whatever bytes a cohort is sent, no turn raises and its group becomes whole again."""

import pytest
from tests.fuzz.cohorts import fuzz

OF_CLIENTS = pytest.mark.parametrize("of_clients", [False, True], ids=["peers", "clients"])


@OF_CLIENTS
def test_wrong_frames_at_cohorts(of_clients: bool) -> None:  # noqa: FBT001
    fuzz(1, inputs=200, of_clients=of_clients)


@pytest.mark.long
@OF_CLIENTS
def test_many_wrong_frames_at_cohorts(of_clients: bool) -> None:  # noqa: FBT001
    for seed in range(10, 16):
        fuzz(seed, of_clients=of_clients)


def test_a_state_of_another_view_is_not_taken_over() -> None:
    """The offer of a state had a wrong view in it, and its cohort was never whole again."""
    fuzz(3018, inputs=1000, of_clients=False)


def test_a_backup_that_was_told_too_much_comes_back_by_another_view() -> None:
    """It stood further on in the view than its primary, which took no notice for ever."""
    fuzz(40004, inputs=250, of_clients=False)


def test_wrong_frames_while_members_change() -> None:
    for seed in (102, 103):
        fuzz(seed, inputs=200, of_clients=bool(seed % 2), has_changes=True)
