"""The turn driver, with a transport and a recorder that only watch."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import warnings
from typing import TYPE_CHECKING

import pytest
from tests.patience import PATIENCE

from coterie.journal.writer import StorageFailed
from coterie.kernel.clock import Duration, milliseconds, seconds
from coterie.kernel.errors import BacklogFull, PayloadTooLarge
from coterie.kernel.layers import Batch
from coterie.kernel.process import Effects, Process
from coterie.kernel.settings import DEFAULT_SETTINGS, Settings
from coterie.kernel.views import View
from coterie.kernel.wire import Frame
from coterie.membership.detector import HeartbeatDetector
from coterie.runtime.address import Address
from coterie.runtime.driver import Driver, TurnFailed, clock
from coterie.runtime.loop import run
from coterie.runtime.member import HasLeft, LiveMember
from coterie.runtime.port import Syncing
from coterie.runtime.process import LiveProcess, SettingsError
from coterie.runtime.recorder import MemoryRecorder
from coterie.runtime.transport import ListenError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coterie.kernel.records import Record
    from coterie.runtime.member import Event

LONELY = Settings(heartbeat_interval=Duration(10**12))
"""A process with these settings has no turn of its own accord."""


class Logbook:
    """A transport and a recorder that write down in which order they are used."""

    def __init__(self) -> None:
        self.entries: list[str] = []
        self.counters: dict[str, int] = {}
        self.following: set[type] = set()
        """Records that may follow the frames of their turn."""

    def send(self, destination: str, frame: bytes) -> None:
        self.multicast([destination], frame)

    def multicast(self, destinations: Sequence[str], frame: bytes) -> None:
        assert frame
        self.entries.append("frame to " + " ".join(destinations))

    def flush(self) -> None:
        self.entries.append("flush")

    def record(self, records: Sequence[Record]) -> None:
        self.entries.append(f"{len(records)} records")

    def may_follow(self, records: Sequence[Record]) -> bool:
        return {type(record) for record in records} <= self.following

    def syncing(self, now: int) -> Syncing:
        del now
        return Syncing.NOT_NOW

    def sync(self) -> None:
        self.entries.append("sync")

    def close(self) -> None:
        self.entries.append("close")


class SlowDisk(Logbook):
    """A recorder that syncs, in the way told, when it is allowed to."""

    def __init__(self, way: Syncing) -> None:
        super().__init__()
        self.way = way
        self.is_dirty = False
        self.may_sync = threading.Event()
        self.failure: StorageFailed | None = None

    def record(self, records: Sequence[Record]) -> None:
        super().record(records)
        self.is_dirty = True

    def syncing(self, now: int) -> Syncing:
        del now
        return self.way if self.is_dirty else Syncing.NOT_NOW

    def sync(self) -> None:
        assert self.may_sync.wait(10)
        if self.failure is not None:
            raise self.failure
        self.is_dirty = False
        super().sync()


class ScriptedProcess(Process):
    """A process whose turns are written in advance."""

    def __init__(self, settings: Settings = LONELY) -> None:
        super().__init__(
            id="a",
            incarnation=1,
            peers=["b", "c"],
            detector=HeartbeatDetector("a", 1, ["b", "c"], settings),
            settings=settings,
        )
        self.turns: list[tuple[int, int, int]] = []
        self.effects: list[Effects] = []

    def turn(
        self,
        now: int,
        frames: Sequence[Frame] = (),
        calls: Sequence[Callable[[], None]] = (),
        refused: Sequence[str] = (),
    ) -> Effects:
        effects = super().turn(now, frames, calls, refused)
        self.turns.append((len(frames), len(calls), len(refused)))
        return self.effects.pop(0) if self.effects else effects


def driven(
    process: Process, logbook: Logbook, recorder: MemoryRecorder | Logbook | None = None
) -> Driver:
    driver = Driver(process, recorder or logbook, asyncio.get_running_loop())
    driver.start(logbook)
    return driver


def stumble() -> None:
    raise ValueError("bug")


async def a_few_rounds() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_records_come_before_frames_and_frames_before_the_news() -> None:
    async def story() -> None:
        process, logbook = ScriptedProcess(), Logbook()
        driver = driven(process, logbook)
        driver.turn_ended.append(lambda: logbook.entries.append("news"))
        both, only_c = b"for both", b"for c"
        record: Record = object()  # type: ignore[assignment]
        frames = [("b", both), ("c", both), ("c", only_c)]
        process.effects.append(Effects([record, record], frames))
        await a_few_rounds()
        assert logbook.entries == [
            "2 records",
            "frame to b c",
            "frame to c",
            "flush",
            "news",
        ]

    run(story())


def test_a_frame_that_comes_before_the_start_waits_for_it() -> None:
    """A frame that came alone was given a turn at once, which could not send what it answered."""

    async def story() -> None:
        process, logbook = ScriptedProcess(), Logbook()
        driver = Driver(process, logbook, asyncio.get_running_loop())
        process.effects.append(Effects([], [("b", b"answer")]))
        driver.frame_arrived(Frame("b", 1, None, []), alone=True)
        driver.call_alone(lambda: logbook.entries.append("called"))
        await a_few_rounds()
        assert process.turns == []
        driver.start(logbook)
        await a_few_rounds()
        assert process.turns == [(1, 1, 0)]
        assert logbook.entries == ["called", "frame to b", "flush"]

    run(story())


@pytest.mark.parametrize("kinds", [(str,), (str, int)], ids=["alone", "with others"])
def test_records_that_promise_nothing_follow_the_answers(kinds: tuple[type, ...]) -> None:
    async def story() -> None:
        process, logbook = ScriptedProcess(), Logbook()
        logbook.following = {str}
        driver = driven(process, logbook)
        driver.answering.append(lambda: logbook.entries.append("answers"))
        driver.turn_ended.append(lambda: logbook.entries.append("news"))
        records: list[Record] = [kind() for kind in kinds]
        process.effects.append(Effects(records, [("b", b"frame")]))
        await a_few_rounds()
        rest = ["frame to b", "flush", "answers"]
        if kinds == (str,):
            assert logbook.entries == [*rest, "1 records", "news"]
        else:
            assert logbook.entries == ["2 records", *rest, "news"]

    run(story())


def test_frames_wait_for_the_sync_and_so_does_the_next_turn() -> None:
    async def story() -> None:
        process, disk = ScriptedProcess(), SlowDisk(Syncing.BEFORE_FRAMES)
        record: Record = object()  # type: ignore[assignment]
        process.effects.append(Effects([record], [("b", b"promise")]))
        driver = driven(process, disk)
        await a_few_rounds()
        driver.frame_arrived(Frame("b", 1, None, []))
        await a_few_rounds()
        assert disk.entries == ["1 records"]
        assert process.turns == [(0, 0, 0)]
        disk.may_sync.set()
        while len(process.turns) == 1:  # noqa: ASYNC110 -- the thread is waited for
            await asyncio.sleep(0)
        assert disk.entries == ["1 records", "sync", "frame to b", "flush"]
        assert process.turns == [(0, 0, 0), (1, 0, 0)]

    run(story())


def test_turns_go_on_beside_a_sync() -> None:
    async def story() -> None:
        process, disk = ScriptedProcess(), SlowDisk(Syncing.BESIDE_TURNS)
        record: Record = object()  # type: ignore[assignment]
        process.effects.append(Effects([record], [("b", b"one")]))
        driver = driven(process, disk)
        await a_few_rounds()
        driver.frame_arrived(Frame("b", 1, None, []))
        await a_few_rounds()
        assert disk.entries == ["1 records", "frame to b", "flush"]
        assert process.turns == [(0, 0, 0), (1, 0, 0)]
        disk.may_sync.set()
        await driver.wait_idle()
        assert disk.entries[-1] == "sync"

    run(story())


@pytest.mark.parametrize("way", [Syncing.BEFORE_FRAMES, Syncing.BESIDE_TURNS])
def test_a_sync_that_fails_stops_the_driver(way: Syncing) -> None:
    async def story() -> None:
        process, disk = ScriptedProcess(), SlowDisk(way)
        disk.failure = StorageFailed("the disk is gone")
        record: Record = object()  # type: ignore[assignment]
        process.effects.append(Effects([record], []))
        driver = driven(process, disk)
        disk.may_sync.set()
        with pytest.raises(StorageFailed, match="the disk is gone"):
            await driver.wait_failed()
        driver.frame_arrived(Frame("b", 1, None, []))
        await a_few_rounds()
        assert len(process.turns) <= 2

    run(story())


def test_a_turn_takes_everything_that_has_arrived() -> None:
    async def story() -> None:
        process, logbook = ScriptedProcess(), Logbook()
        driver = driven(process, logbook)
        await a_few_rounds()
        process.turns.clear()
        for _ in range(3):
            driver.frame_arrived(Frame("b", 1, None, []))
        driver.call(lambda: None)
        driver.peer_refused("c")
        driver.frame_arrived(Frame("c", 1, None, []))
        assert process.turns == []
        await a_few_rounds()
        assert process.turns == [(4, 1, 1)]

    run(story())


def test_what_a_poll_of_the_sockets_brings_is_one_turn() -> None:
    """Everything readable is read before the turn: no batch is cut in two by the loop."""

    async def story() -> None:
        process, logbook = ScriptedProcess(), Logbook()
        driver = driven(process, logbook)
        await a_few_rounds()
        process.turns.clear()
        loop = asyncio.get_running_loop()
        pairs = [socket.socketpair() for _ in range(4)]

        def readable(ours: socket.socket) -> None:
            ours.recv(1)
            driver.frame_arrived(Frame("b", 1, None, []))

        for ours, theirs in pairs:
            loop.add_reader(ours, readable, ours)
            theirs.send(b"x")
        while not process.turns:  # noqa: ASYNC110 -- the loop's rounds are what is tested
            await asyncio.sleep(0)
        assert process.turns == [(4, 0, 0)]
        for ours, theirs in pairs:
            loop.remove_reader(ours)
            ours.close()
            theirs.close()

    run(story())


@pytest.mark.parametrize("wait_ms", [0.3, 1, 2.6, 7])
def test_a_turn_comes_at_the_deadline_and_not_much_more_often(wait_ms: float) -> None:
    async def story() -> None:
        process, logbook = ScriptedProcess(), Logbook()
        driver = driven(process, logbook)
        await a_few_rounds()
        fired: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        due = clock() + milliseconds(wait_ms)

        def set_timer() -> None:
            process.set_timer(("x",), milliseconds(wait_ms), lambda: fired.set_result(clock()))

        driver.call(set_timer)
        turns = driver.turns
        assert await fired >= due
        assert driver.turns - turns == 2

    run(story())


def test_a_nearer_deadline_replaces_a_farther_one() -> None:
    async def story() -> None:
        process, logbook = ScriptedProcess(), Logbook()
        driver = driven(process, logbook)
        fired: list[str] = []
        done = asyncio.Event()

        def fire(name: str) -> None:
            fired.append(name)
            if len(fired) == 2:
                done.set()

        def set_timer(name: str, wait_ms: int) -> None:
            process.set_timer((name,), milliseconds(wait_ms), lambda: fire(name))

        driver.call(lambda: set_timer("far", 30))
        await a_few_rounds()
        driver.call(lambda: set_timer("near", 3))
        await done.wait()
        assert fired == ["near", "far"]

    run(story())


def test_a_bug_stops_the_driver_loudly(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        process, logbook = ScriptedProcess(), Logbook()
        driver = driven(process, logbook)
        await a_few_rounds()
        driver.call(stumble)
        with pytest.raises(TurnFailed, match=r"'a' stopped in turn 2: ValueError\('bug'\)") as bug:
            await driver.wait_failed()
        assert isinstance(bug.value.__cause__, ValueError)
        logbook.entries.clear()
        process.turns.clear()
        driver.frame_arrived(Frame("b", 1, None, []))
        await a_few_rounds()
        assert process.turns == []
        assert logbook.entries == []

    run(story())
    assert "turn failed process='a' incarnation=1 turn=2" in caplog.text


def test_a_recorder_that_fails_keeps_the_frames_back() -> None:
    class FullDisk(Logbook):
        def record(self, records: Sequence[Record]) -> None:
            del records
            raise OSError(28, "No space left on device")

    async def story() -> None:
        process, logbook = ScriptedProcess(), FullDisk()
        record: Record = object()  # type: ignore[assignment]
        process.effects.append(Effects([record], [("b", b"a promise")]))
        driver = driven(process, logbook)
        with pytest.raises(TurnFailed, match="No space left"):
            await driver.wait_failed()
        assert logbook.entries == []

    run(story())


# ---- the live process around it


class News:
    """A watcher that remembers, and can be waited for."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._changed = asyncio.Event()

    def happened(self, events: Sequence[Event]) -> None:
        self.events += events
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    @property
    def texts(self) -> list[bytes]:
        batches = [event for event in self.events if isinstance(event, Batch)]
        return [payload for batch in batches for payload in batch.payloads]


def alone(**options: object) -> LiveProcess:
    return LiveProcess(
        id="a",
        incarnation=1,
        cluster="test",
        listen=Address("127.0.0.1", 0),
        peers={},
        **options,  # type: ignore[arg-type]
    )


def test_a_cast_is_on_record_before_anyone_hears_of_it() -> None:
    async def story() -> None:
        recorder = MemoryRecorder()
        on_record: list[int] = []

        class Listener(News):
            def happened(self, events: Sequence[Event]) -> None:
                super().happened(events)
                on_record.append(len(recorder.records))

        news = Listener()
        async with alone(recorder=recorder) as process:
            member = process.join("g", "DYNSEQ:VSYNC", news)
            assert await member.cast([b"one", b"two"]) == 1
            assert await member.cast([b"three"], safe=True) == 3
            assert news.texts == [b"one", b"two", b"three"]
            assert on_record[-1] == len(recorder.records)
            assert isinstance(news.events[0], View)

    run(story())


def pair(settings: Settings = DEFAULT_SETTINGS) -> dict[str, LiveProcess]:
    """Two processes that know each other's addresses before either listens."""
    sockets = {id: socket.create_server(("127.0.0.1", 0)) for id in "ab"}
    addresses = {id: Address(*sockets[id].getsockname()) for id in "ab"}
    return {
        id: LiveProcess(
            id=id,
            incarnation=1,
            cluster="test",
            listen=sockets[id],
            peers={peer: addresses[peer] for peer in "ab" if peer != id},
            settings=settings,
        )
        for id in "ab"
    }


def size_of(member: LiveMember) -> int:
    return len(member.view.members) if member.view is not None else 0


def test_two_processes_find_each_other_and_leave_in_good_order() -> None:
    async def story() -> None:
        processes = pair()
        news = {id: News() for id in "ab"}
        async with processes["a"] as a, processes["b"] as b:
            members = {p.id: p.join("g", "TOKEN:VSYNC", news[p.id]) for p in (a, b)}
            for id in "ab":
                await news[id].until(lambda id=id: size_of(members[id]) == 2)  # type: ignore[misc]
            await members["b"].cast([b"hello"])
            await news["a"].until(lambda: news["a"].texts == [b"hello"])
            await members["a"].leave()
            with pytest.raises(HasLeft):
                await members["a"].cast([b"too late"])
            await news["b"].until(lambda: size_of(members["b"]) == 1)
            assert b.counters()["transport.links_up"] == 1

    run(story())


@pytest.mark.parametrize("victim", ["a", "b"])
def test_a_process_that_dies_is_suspected_at_once(victim: str) -> None:
    """Whichever of the two dialled: a refused connection says it, not the end of patience."""

    async def story() -> None:
        patient = Settings(suspect_after_min=seconds(60), suspect_after_max=seconds(60))
        processes = pair(patient)
        survivor = processes["b" if victim == "a" else "a"]
        news = News()
        async with survivor:
            member = survivor.join("g", "DYNSEQ:VSYNC", news)
            async with processes[victim] as dying:
                dying.join("g", "DYNSEQ:VSYNC", News())
                await news.until(lambda: size_of(member) == 2)
            await news.until(lambda: size_of(member) == 1)

    run(story())


def test_flow_control_reaches_the_caller() -> None:
    """At the limit of the backlog a cast waits, or is refused where it may not."""

    async def story() -> None:
        settings = Settings(
            backlog_bytes=1000, packet_bytes_max=100, window_packets=2, payload_bytes_max=500
        )
        news = News()
        async with alone(settings=settings) as process:
            member = process.join("g", "VSYNC", news)
            await news.until(lambda: member.view is not None)
            member._replica.layers[0].multicast.is_frozen = True  # type: ignore[attr-defined]
            await member.cast_soon([bytes(400), bytes(400)])
            with pytest.raises(BacklogFull):
                await member.cast_soon([bytes(400)])
            with pytest.raises(PayloadTooLarge):
                await member.cast([bytes(501)])
            waiting = asyncio.create_task(member.cast([bytes(400)]))
            await a_few_rounds()
            assert not waiting.done()
            member._replica.layers[0].multicast.is_frozen = False  # type: ignore[attr-defined]
            process.driver.call(lambda: None)
            await waiting
            await news.until(lambda: len(news.texts) == 3)

    run(story())


def test_the_block_ends_with_the_bug_that_stopped_the_process() -> None:
    async def block() -> None:
        async with alone() as process:
            process.driver.call(stumble)
            await asyncio.sleep(10)

    async def story() -> None:
        with pytest.raises(TurnFailed) as bug:
            await block()
        assert isinstance(bug.value.__cause__, ValueError)

    run(story())


def test_an_exception_of_the_block_comes_out_as_it_is() -> None:
    async def story() -> None:
        with pytest.raises(ZeroDivisionError):
            async with alone():
                _ = 1 // 0

    run(story())


def test_cancellation_closes_every_socket_and_ends_every_task() -> None:
    async def serve(started: asyncio.Event, port: list[int]) -> None:
        sleeping = socket.create_server(("127.0.0.1", 0))  # accepts, and never says hello
        async with LiveProcess(
            id="a",
            incarnation=1,
            cluster="test",
            listen=Address("127.0.0.1", 0),
            peers={"b": Address(*sleeping.getsockname()), "c": Address("127.0.0.1", 1)},
        ) as process:
            port.append(process.transport.address.port)
            process.join("g", "DYNSEQ:VSYNC", News())
            started.set()
            try:
                await asyncio.sleep(60)
            finally:
                sleeping.close()

    async def story() -> None:
        started, port = asyncio.Event(), list[int]()
        task = asyncio.create_task(serve(started, port))
        await started.wait()
        await asyncio.sleep(0.01)  # let connections be under way
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port[0])

    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        run(story())
        gc.collect()


def test_a_process_that_cannot_listen_leaves_nothing_behind() -> None:
    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            process = LiveProcess(
                id="a",
                incarnation=1,
                cluster="test",
                listen=Address(*taken.getsockname()),
                peers={"b": Address("127.0.0.1", 1)},
            )
            with pytest.raises(ListenError):
                async with process:
                    pytest.fail("it is not open")
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(story())


def test_limits_that_contradict_each_other_are_refused() -> None:
    async def story() -> None:
        with pytest.raises(SettingsError, match="frame_bytes_max is 1000, which is too small"):
            alone(settings=Settings(frame_bytes_max=1000))

    run(story())
