"""Who hears whom, as one process finds out."""

from __future__ import annotations

from coterie.kernel.clock import Instant, milliseconds, seconds
from coterie.kernel.settings import Settings
from coterie.kernel.wire import Heartbeat
from coterie.membership.detector import HeartbeatDetector

SETTINGS = Settings(
    heartbeat_interval=milliseconds(50),
    suspect_after_min=milliseconds(200),
    suspect_after_max=seconds(2),
)
ALL = "abcd"


class Watch:
    """The detector of process "a", life 3, with peers b, c and d, each in its life 1."""

    def __init__(self) -> None:
        self.detector = HeartbeatDetector("a", 3, tuple(ALL), SETTINGS)
        self.now = 1_000_000
        self.detector.start(Instant(self.now))

    def pass_time(self, wait: int) -> None:
        self.now += wait

    def beat(self, peer: str, *hears: str, life: int = 1, lives: int = 1, us: int = 3) -> bool:
        """Get a heartbeat of *peer*, in which it says whom it hears."""
        if not self.detector.heard(peer, life, Instant(self.now)):
            return False
        named = tuple((other, us if other == "a" else lives) for other in hears)
        self.detector.heartbeat(peer, Heartbeat(named), Instant(self.now))
        return True

    def tick(self) -> dict[str, int]:
        """Look around; give whom we tell that we hear, and in which life."""
        return dict(self.detector.tick(Instant(self.now)).hears)

    def beats(self, peers: str, *, times: int, interval: int = 50_000) -> None:
        """Let time pass with regular heartbeats of these peers, and our own ticks."""
        for _ in range(times):
            self.pass_time(interval)
            for peer in peers:
                self.beat(peer, *ALL)
            self.tick()

    def reached(self) -> str:
        return "".join(peer for peer in "bcd" if self.detector.reaches(peer))

    def news(self) -> tuple[bool, list[str]]:
        return self.detector.changes()


# ---- hearing


def test_nobody_is_heard_at_first_but_ourselves() -> None:
    watch = Watch()
    assert watch.tick() == {}
    assert watch.reached() == ""
    assert watch.detector.reaches("a")
    assert watch.news() == (False, [])


def test_any_frame_is_a_sign_of_life_but_only_a_heartbeat_says_that_we_are_heard() -> None:
    watch = Watch()
    assert watch.detector.heard("b", 1, Instant(watch.now))
    assert watch.tick() == {"b": 1}
    assert watch.reached() == ""
    watch.beat("b", "a")
    assert watch.reached() == "b"


def test_a_change_is_told_once() -> None:
    watch = Watch()
    watch.beat("b", "a")
    assert watch.news() == (True, [])
    assert watch.news() == (False, [])
    watch.beat("b", "a")
    assert watch.news() == (False, [])


def test_a_silent_peer_is_suspected_after_a_while_and_back_at_its_next_frame() -> None:
    watch = Watch()
    watch.beats("bc", times=10)
    watch.news()
    watch.beats("c", times=3)
    assert watch.reached() == "bc"
    watch.beats("c", times=3)
    assert watch.reached() == "c"
    assert watch.news() == (True, [])
    watch.beat("b", "a")
    assert watch.reached() == "bc"


def test_a_one_way_link_counts_as_none() -> None:
    watch = Watch()
    watch.beats("b", times=3)
    watch.beat("b")  # it does not hear us any more, though we hear it
    assert watch.tick() == {"b": 1}
    assert watch.reached() == ""
    assert watch.news()[0]


def test_a_peer_that_hears_an_earlier_life_of_ours_does_not_hear_us() -> None:
    watch = Watch()
    watch.beat("b", "a", us=2)
    assert watch.reached() == ""
    watch.beat("b", "a")
    assert watch.reached() == "b"


# ---- patience


def silence_tolerated(watch: Watch, peer: str) -> int:
    """How long *peer* can be silent before it is suspected, to the nearest tick."""
    begun = watch.now
    others = "bcd".replace(peer, "")
    while watch.detector.reaches(peer):
        watch.beats(others, times=1)
        assert watch.now - begun < 10 * SETTINGS.suspect_after_max
    return watch.now - begun


def test_a_regular_peer_is_suspected_soon() -> None:
    watch = Watch()
    watch.beats("bcd", times=50)
    assert silence_tolerated(watch, "b") <= SETTINGS.suspect_after_min + 50_000


def test_an_irregular_peer_is_given_more_time_within_bounds() -> None:
    patient = []
    for longest in (100_000, 400_000, 5_000_000):
        watch = Watch()
        for turn in range(60):
            # b beats now and then; our own ticks and the others are regular.
            until = watch.now + (50_000 if turn % 3 else longest)
            while watch.now < until:
                watch.beats("cd", times=1)
            watch.beat("b", *ALL)
        patient.append(silence_tolerated(watch, "b"))
    assert patient == sorted(patient)
    assert 2 * SETTINGS.suspect_after_min < patient[1] < SETTINGS.suspect_after_max
    assert patient[-1] <= SETTINGS.suspect_after_max + 50_000


def test_patience_comes_back_to_normal_when_a_peer_is_regular_again() -> None:
    watch = Watch()
    for _ in range(20):
        watch.beats("cd", times=16)
        watch.beat("b", *ALL)
    watch.beats("bcd", times=100)
    assert silence_tolerated(watch, "b") <= SETTINGS.suspect_after_min + 100_000


def test_who_was_paused_itself_suspects_nobody_for_it() -> None:
    watch = Watch()
    watch.beats("bcd", times=20)
    watch.pass_time(seconds(30))
    assert watch.tick() == {"b": 1, "c": 1, "d": 1}
    assert watch.reached() == "bcd"
    watch.beats("cd", times=6)
    assert watch.reached() == "cd", "b has been silent since, and that is no fault of ours"


def test_a_pause_of_our_own_teaches_no_patience() -> None:
    watch = Watch()
    watch.beats("bcd", times=20)
    for _ in range(5):
        watch.pass_time(seconds(5))
        watch.tick()
        watch.beats("bcd", times=4)
    assert silence_tolerated(watch, "b") <= SETTINGS.suspect_after_min + 100_000


# ---- lives


def test_a_restart_is_told_and_the_new_life_must_be_heard_from_anew() -> None:
    watch = Watch()
    watch.beats("bc", times=3)
    watch.news()
    assert watch.detector.heard("b", 2, Instant(watch.now))
    assert watch.news() == (True, ["b"])
    assert watch.reached() == "c", "the new life has not said yet that it hears us"
    assert watch.tick() == {"b": 2, "c": 1}
    watch.beat("b", "a", life=2)
    assert watch.reached() == "bc"
    assert watch.news() == (True, [])


def test_the_first_life_seen_is_no_restart() -> None:
    watch = Watch()
    watch.beat("b", "a", life=7)
    assert watch.news() == (True, [])


def test_frames_of_an_earlier_life_are_refused() -> None:
    watch = Watch()
    watch.beat("b", "a", life=2)
    assert not watch.beat("b", life=1)
    assert watch.reached() == "b"


def test_a_refused_connection_ends_a_peer_at_once() -> None:
    watch = Watch()
    watch.beats("bc", times=3)
    watch.news()
    watch.detector.refused("b")
    assert watch.reached() == "c"
    assert watch.tick() == {"c": 1}
    assert watch.news() == (True, [])
    watch.detector.refused("b")
    assert watch.news() == (False, [])
    watch.beat("b", "a")
    assert watch.reached() == "bc"


# ---- others


def test_two_others_are_in_touch_when_each_says_that_it_hears_the_other() -> None:
    watch = Watch()
    in_touch = watch.detector.in_touch
    watch.beat("b", "a", "c")
    assert not in_touch("b", "c")
    watch.beat("c", "a", "b")
    assert in_touch("b", "c")
    assert in_touch("c", "b")
    assert not in_touch("b", "d")
    watch.beat("c", "a")
    assert not in_touch("b", "c")
    assert watch.reached() == "bc"


def test_in_touch_with_us_means_reached_and_a_stranger_is_in_touch_with_nobody() -> None:
    watch = Watch()
    watch.beat("b", "a", "z")
    in_touch = watch.detector.in_touch
    assert in_touch("a", "b")
    assert in_touch("b", "a")
    assert in_touch("a", "a")
    assert not in_touch("a", "c")
    assert not in_touch("b", "z")
    assert not in_touch("z", "b")
    assert not watch.detector.reaches("z")


def test_hearing_an_earlier_life_of_another_is_not_being_in_touch() -> None:
    watch = Watch()
    watch.beat("b", "a", "c", lives=2)
    watch.beat("c", "a", "b")
    assert watch.detector.in_touch("b", "c"), "as far as we know: we have not heard c's life"
    watch.beat("c", "a", "b", life=3)
    watch.beat("b", "a", "c", lives=2)
    assert not watch.detector.in_touch("b", "c")
