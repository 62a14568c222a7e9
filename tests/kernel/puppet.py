"""One real process whose peers are played by the test, message by message."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec
from tests.seeded import seeded

from coterie.kernel.layers import Context
from coterie.kernel.process import Process
from coterie.kernel.settings import DEFAULT_SETTINGS
from coterie.kernel.views import NO_VIEW, Configuration, Member, ViewId
from coterie.kernel.wire import Envelope, Frame, Heartbeat, decode_frame
from coterie.membership.detector import HeartbeatDetector
from coterie.membership.messages import Flush, Install, Propose, VsyncMessage
from coterie.membership.vsync import Vsync
from coterie.simulation.engines.stack.replica import Inbox
from coterie.stacks import build

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from coterie.kernel.records import Record

A, B = Member("a", 1), Member("b", 1)
CONFIGURATION = Configuration(1, ("a", "b", "c"))
HEARS_B = Heartbeat((("b", 1), ("c", 1)))
TOGETHER = ViewId(2, "a", 1)
"""The view of a and b, in which a has rank 0."""

encode = msgspec.msgpack.encode


class Puppet:
    """Process "b" of a group of a, b and c; nothing moves unless the test says so."""

    def __init__(self, stack: str) -> None:
        self.process = Process(
            id="b",
            incarnation=1,
            peers=CONFIGURATION.members,
            detector=HeartbeatDetector("b", 1, CONFIGURATION.members, DEFAULT_SETTINGS),
            settings=DEFAULT_SETTINGS,
        )
        self.context = Context(
            group="group",
            me=B,
            configuration=CONFIGURATION,
            settings=DEFAULT_SETTINGS,
            random=seeded("puppet"),
            surroundings=self.process,
        )
        self.inbox = Inbox()
        self.replica = build(stack, self.context, self.inbox)
        bottom = self.replica.bottom
        assert isinstance(bottom, Vsync)
        self.vsync = bottom
        self.process.host(self.replica)
        self.now = 1000
        self.sent: list[tuple[str, VsyncMessage]] = []
        self.records: list[Record] = []
        self.turn()

    def turn(self, *frames: Frame, call: Callable[[], object] | None = None) -> None:
        """Have a turn now, and keep what came of it."""
        calls = [] if call is None else [lambda: _ignore(call())]
        effects = self.process.turn(self.now, frames, calls)
        self.records += effects.records
        self.sent.clear()
        for destination, data in effects.frames:
            frame = decode_frame(data, frame_bytes_max=DEFAULT_SETTINGS.frame_bytes_max)
            for envelope in frame.envelopes:
                for raw in envelope.messages:
                    self.sent.append((destination, msgspec.msgpack.decode(raw, type=VsyncMessage)))

    def hear(self, *messages: VsyncMessage | bytes, sender: str = "a") -> None:
        """Get messages of a peer, typed or as they are, in one frame with a heartbeat."""
        raw = [
            msgspec.Raw(message if isinstance(message, bytes) else encode(message))
            for message in messages
        ]
        self.turn(Frame(sender, 1, HEARS_B, [Envelope("group", 1, raw)]))

    def wait(self, microseconds: int) -> None:
        """Let time pass, with a heartbeat of a and all turns that fall due."""
        end = self.now + microseconds
        while (deadline := self.process.next_deadline()) is not None and deadline <= end:
            self.now = max(deadline, self.now)
            self.hear()
        self.now = end
        self.hear()

    def answer(self, kind: type[msgspec.Struct]) -> VsyncMessage:
        """The one message of this kind sent in the last turn."""
        [answer] = {encode(m): m for _, m in self.sent if isinstance(m, kind)}.values()
        return answer

    def promise(self, view: ViewId) -> Flush:
        """Stop for a view of a and b that a proposes."""
        self.hear()
        self.hear(Propose(view, (A, B)))
        flush = self.answer(Flush)
        assert isinstance(flush, Flush)
        return flush

    def install_of(self, flush: Flush) -> Install:
        """What a answers, when a comes from the same view, or from no view at first."""
        before = flush.previous if A in flush.previous_members else NO_VIEW
        return Install(
            flush.view,
            (A, B),
            (before, flush.previous),
            (flush.value, flush.value),
            CONFIGURATION,
            flush.received,
            flush.stable,
        )

    def join(self) -> None:
        """Be in the view of a and b."""
        self.hear(self.install_of(self.promise(TOGETHER)))
        assert self.vsync.current.id == TOGETHER


def _ignore(_: object) -> None:
    pass


class TooLong(Exception):
    """A turn used more processor time than any turn may."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TooLong` in what takes more than this much processor time: it would never end."""

    def stop(*_: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    except TooLong:
        # Without the place where it was raised: in Python 3.11 that line may have no number.
        raise TooLong from None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
