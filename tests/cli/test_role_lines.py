"""Which changes of role an operator is told of."""

from coterie.cli.commands.role_lines import BURST, HOLD_SECONDS, REFILL_SECONDS, RolePace


def test_being_in_service_is_told_at_once_and_once() -> None:
    pace = RolePace()
    pace.see("primary in 1", 0.0)
    assert pace.wait(0.0, is_in_service=True) == 0
    assert pace.tell() == 0
    assert pace.wait(0.1, is_in_service=True) is None


def test_a_view_change_that_ends_soon_is_one_line() -> None:
    pace = RolePace()
    for number in range(2):
        pace.see("forming", number)
        wait = pace.wait(number, is_in_service=False)
        assert wait is not None
        assert 0 < wait <= HOLD_SECONDS
        pace.see(f"backup in {number}", number + 0.2)
        assert pace.wait(number + 0.2, is_in_service=True) == 0
        assert pace.tell() == 1


def test_being_out_of_service_is_told_when_it_lasts() -> None:
    pace = RolePace()
    pace.see("minority", 5.0)
    assert pace.wait(5.0, is_in_service=False) == HOLD_SECONDS
    assert pace.wait(5.0 + HOLD_SECONDS, is_in_service=False) == 0


def test_a_replica_that_is_never_at_rest_does_not_fill_the_log() -> None:
    """A cohort told of 1,217 changes in three minutes."""
    pace = RolePace()
    lines, left_out, seconds, changes = 0, 0, 180, 1200
    for number in range(changes):
        now = number * seconds / changes
        pace.see(number, now)
        if pace.wait(now, is_in_service=True) == 0:
            left_out += pace.tell()
            lines += 1
    assert lines <= BURST + seconds / REFILL_SECONDS
    wait = pace.wait(seconds, is_in_service=True)
    if wait is not None:  # where it is in the end is told in the end
        assert wait <= REFILL_SECONDS
        left_out += pace.tell()
        lines += 1
    assert lines + left_out == changes
