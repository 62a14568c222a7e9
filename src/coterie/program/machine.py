"""The determinizer's heart: one thread of the program at a time, and one sequence of decisions.

The paper orders each mutex (**llft** V-C). Here threads are greenlets of one thread of the system,
and one gives way to another only inside a call that we have replaced. Which thread goes on is an
entry (SWITCH), and so are all results that another process could not know; locks, queues and plain
memory then come out alike everywhere, without entries of their own.

An operation that could come out differently has one form for who leads and for who follows:

- `checkpoint` first: the leader may let others go on (PAUSE), run the handler of a signal, or
  collect garbage; a follower does so where the entries say it.
- `decide` gives the result: chosen and handed on, or read from the entry, which must be of the same
  kind, thread and subject.
- where the leader finds nothing to give (`attempt` of `decide_or_wait`), the thread waits. Nobody
  writes this down: the next entry is then a SWITCH.

Every operation, entry or not, goes into a digest; a MARK after every `MARK_EVERY` entries compares
it. What does not match is `Divergence`: both sides and the stack are told, and the process ends
before it could answer anybody.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn
from zlib import crc32

from greenlet import getcurrent, greenlet

from coterie.program.entries import EntryKind, ProgramEntry, Wake, describe
from coterie.program.wire import WireKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType

    from coterie.program.courses import Course

MARK_EVERY = 1024
SLICE = 5_000_000
"""Nanoseconds after which a thread steps aside for others, at its next decision."""
STEPS_MAX = 1000
"""So many operations on locks in a row, and a thread steps aside for others."""
LOOK_EVERY = 16
IDLE = 1
"""The subject of FREEZE where no thread goes on; 0 where one is between two operations."""
GARBAGE_MAX = 20_000
FULL_EVERY = 10
"""Each so manieth collection is one of all generations."""

DIVERGED_STATUS = 86
REFUSED_STATUS = 87

_gc_count, _gc_collect = gc.get_count, gc.collect


def _is_idle_copy(entry: ProgramEntry | None) -> bool:
    return entry is not None and entry.kind == EntryKind.FREEZE and entry.subject == IDLE


class ProgramThread:
    """A thread of the program."""

    __slots__ = (
        "__weakref__",
        "at_end",
        "body",
        "deadline",
        "is_waiting",
        "loop",
        "number",
        "wake",
    )

    def __init__(self, number: int, body: greenlet) -> None:
        self.number = number
        self.body = body
        self.is_waiting = False
        self.deadline: int | None = None
        self.wake = Wake.RUN
        self.loop: object = None
        """The running loop of asyncio, which Python keeps for each thread of the system."""
        self.at_end: list[Callable[[], None]] = []

    def __hash__(self) -> int:
        return self.number


class WaitQueue:
    """Threads that wait for one thing, in the order in which they came."""

    __slots__ = ("_threads",)

    def __init__(self) -> None:
        self._threads: dict[ProgramThread, None] = {}

    def add(self, thread: ProgramThread) -> None:
        """Let a thread wait."""
        self._threads[thread] = None

    def discard(self, thread: ProgramThread) -> None:
        """Let it wait no more."""
        self._threads.pop(thread, None)

    def pop(self) -> ProgramThread | None:
        """Take the first one out."""
        for thread in self._threads:
            del self._threads[thread]
            return thread
        return None

    def wake_all(self, wake: Wake = Wake.RUN) -> None:
        """Let all go on; they look again whether what they wait for is there."""
        if self._threads:
            for thread in list(self._threads):
                machine().wake(thread, wake)


class Determinizer:
    """All threads of the program, and which one runs."""

    def __init__(self, course: Course) -> None:
        self.course = course
        self.is_leading = course.is_leading
        self.digest = 0
        self.count = 0
        """How many entries there were."""
        self.operations = 0
        """How many calls there were; whoever watches the program sees whether it makes any."""
        self.numbers = 0
        self.now = 0
        """The group's clock, as last decided."""
        self._hub = getcurrent()
        self.main = self.current = ProgramThread(1, self._hub)
        self.threads = {1: self.main}
        self._last_thread = 1
        self._runnable: dict[ProgramThread, None] = {}
        self._slice_began = 0
        self._steps = self._choices = self._collections = 0
        self._is_collecting = False
        self.on_signal: Callable[[int], None] = lambda _: None
        self.input_queues: Callable[[int], Iterable[WaitQueue]] = lambda _: ()
        self._loops: tuple[Callable[[], object], Callable[[Any], None]] | None = None
        if self.is_leading:
            course.on_input = self._on_input

    # ---- threads

    def number(self) -> int:
        """Give a number that nothing else has."""
        self.numbers += 1
        return self.numbers

    def run(self, program: Callable[[], None]) -> None:
        """Run a program as the main thread, until it exits."""
        self.main.body = greenlet(program, self._hub)
        self.main.body.switch()
        while True:
            # A thread has ended, and is gone from the list.
            self._go_on(self._choose())

    def start(self, function: Callable[[], None]) -> ProgramThread:
        """Begin a thread; it runs when its turn comes."""
        self._last_thread += 1

        def body() -> None:
            try:
                function()
            finally:
                for each in thread.at_end:
                    each()
                del self.threads[thread.number]

        thread = ProgramThread(self._last_thread, greenlet(body, self._hub))
        self.threads[thread.number] = thread
        self._runnable[thread] = None
        self.note(0x7D, thread.number)
        return thread

    def wake(self, thread: ProgramThread, wake: Wake = Wake.RUN) -> None:
        """Let a thread that waits go on when its turn comes."""
        if thread.is_waiting:
            thread.is_waiting = False
            thread.wake = wake
            self._runnable[thread] = None

    def wait(
        self,
        is_ready: Callable[[], object],
        queues: Iterable[WaitQueue],
        deadline: int | None = None,
    ) -> bool:
        """Wait for other threads until something holds; say whether it does."""
        thread = self.current
        for queue in queues:
            queue.add(thread)
        try:
            while not is_ready():
                if self.block(deadline) is Wake.TIMEOUT:
                    return bool(is_ready())
            return True
        finally:
            for queue in queues:
                queue.discard(thread)

    def block(self, deadline: int | None = None) -> Wake:
        """Let others go on; say why this thread goes on again."""
        thread = self.current
        if thread.body is self._hub or getcurrent() is not thread.body:
            self.stop("a thread that was not started by the program waits for something")
        thread.is_waiting, thread.deadline = True, deadline
        self._give_way()
        thread.deadline = None
        wake = thread.wake
        if wake is Wake.SIGNAL:
            self._handle_signal()
        return wake

    def step_aside(self) -> None:
        """Let others go on that can."""
        self._runnable[self.current] = None
        self.current.wake = Wake.RUN
        self._give_way()

    def _give_way(self) -> None:
        here = self.current
        chosen = self._choose()
        if chosen is not here:
            self._go_on(chosen)

    def _go_on(self, thread: ProgramThread) -> None:
        here = self.current
        if self._loops is None and "asyncio.events" in sys.modules:
            events = sys.modules["asyncio.events"]
            self._loops = events._get_running_loop, events._set_running_loop
        if self._loops is not None:
            here.loop = self._loops[0]()
            self._loops[1](thread.loop)
        self.current = thread
        thread.body.switch()

    def _choose(self) -> ProgramThread:
        self._steps = 0
        thread = self._choose_leading() if self.is_leading else self._choose_following()
        self._runnable.pop(thread, None)
        thread.is_waiting = False
        return thread

    def _choose_leading(self) -> ProgramThread:
        course = self.course
        self._choices += 1
        if not self._runnable or self._choices % LOOK_EVERY == 0:
            course.look(0)
        while True:
            if course.must_freeze:
                self._write(ProgramEntry(EntryKind.FREEZE, self.current.number, IDLE))
                if course.freeze():
                    self._follow_again()
                    return self._choose_following()
            now = course.clock()
            if course.signals and self.main.is_waiting:
                self.wake(self.main, Wake.SIGNAL)
            next_at = self._expire(now)
            for thread in self._runnable:
                self._slice_began = now
                self.now = now
                self._write(ProgramEntry(EntryKind.SWITCH, thread.number, thread.wake, now))
                return thread
            course.look(None if next_at is None else max(0, next_at - now))

    def _expire(self, now: int) -> int | None:
        """Let threads go on whose time has come; give the time of the next."""
        waiting = [
            each for each in self.threads.values() if each.is_waiting and each.deadline is not None
        ]
        late = sorted(
            (each for each in waiting if each.deadline <= now),  # type: ignore[operator]
            key=lambda each: (each.deadline, each.number),
        )
        for each in late:
            self.wake(each, Wake.TIMEOUT)
        return min((each.deadline for each in waiting if each.deadline is not None), default=None)

    def _follow_again(self) -> None:
        """Follow, in a process that was thawed: whoever leads now has gone on from here."""
        self.is_leading = False
        self.course.on_input = lambda _: None

    def _choose_following(self) -> ProgramThread:
        while _is_idle_copy(found := self._peek()):
            self._next()
            self.course.freeze()
        entry = found and self._expect(EntryKind.SWITCH, "let another thread go on")
        if entry is None:
            return self._choose_leading()
        thread = self.threads.get(entry.thread)
        if thread is None or not (thread in self._runnable or thread.is_waiting):
            self.diverged(entry, f"thread {entry.thread} cannot go on")
        if entry.subject == Wake.RUN and thread not in self._runnable:
            self.diverged(entry, f"thread {entry.thread} waits")
        if entry.subject == Wake.TIMEOUT and thread.deadline is None:
            self.diverged(entry, f"thread {entry.thread} waits without a time-out")
        thread.wake = Wake(entry.subject)
        self.now = entry.value
        return thread

    def _on_input(self, number: int) -> None:
        for queue in self.input_queues(number):
            queue.wake_all(Wake.INPUT)

    # ---- operations

    def note(self, operation: int, subject: int) -> None:
        """Put an operation without an entry into the digest."""
        self.operations += 1
        self.digest = (self.digest * 31 + operation * 65599 + subject * 257) & 0xFFFFFFFFFFFF
        self.digest += self.current.number

    def step(self, operation: int, subject: int) -> None:
        """Note an operation that somebody may repeat without end, such as trying a lock."""
        self.note(operation, subject)
        self._steps += 1
        if self._steps >= STEPS_MAX and self._runnable:
            self.step_aside()

    def checkpoint(self) -> None:
        """Do what comes between operations: garbage, signals, other threads."""
        if self._is_collecting or self.current.body is self._hub:
            return
        # Whoever leads and whoever follows call a handler from the same frames: they may be shown.
        if self._before_leading() if self.is_leading else self._before_following():
            self._handle_signal()

    def _before_following(self) -> bool:
        """Do what the entries say; say whether a signal is next."""
        while (entry := self._peek()) is not None and entry.thread == self.current.number:
            match entry.kind:
                case EntryKind.COLLECT:
                    self._next()
                    self._collect(entry.value)
                case EntryKind.PAUSE:
                    self._next()
                    self.step_aside()
                case EntryKind.FREEZE if entry.subject != IDLE:
                    self._next()
                    self.course.freeze()
                case _:
                    return entry.kind == EntryKind.SIGNAL
        return entry is None and self._before_leading()

    def _before_leading(self) -> bool:
        """Collect garbage and step aside where it is time; say whether a signal is next."""
        number = self.current.number
        if _gc_count()[0] > GARBAGE_MAX:
            self._collections += 1
            generation = 2 if self._collections % FULL_EVERY == 0 else 1
            self._write(ProgramEntry(EntryKind.COLLECT, number, 0, generation))
            self._collect(generation)
        if self.course.must_freeze:
            self._write(ProgramEntry(EntryKind.FREEZE, number))
            if self.course.freeze():
                self._follow_again()
                return self._before_following()
        if self._runnable and self.course.clock() - self._slice_began > SLICE:
            self._write(ProgramEntry(EntryKind.PAUSE, number))
            self.step_aside()
        return bool(self.course.signals) and self.current is self.main

    def _collect(self, generation: int) -> None:
        self._is_collecting = True
        try:
            _gc_collect(generation)
        finally:
            self._is_collecting = False

    def _handle_signal(self) -> None:
        signals = self.course.signals
        number, _ = self.decide(EntryKind.SIGNAL, 0, lambda: (signals[0], b""))
        if number in signals:  # who follows has it, too, and may lead later
            signals.remove(number)
        self.on_signal(number)

    def decide(
        self, kind: EntryKind, subject: int, choose: Callable[[], tuple[int, bytes]]
    ) -> tuple[int, bytes]:
        """Give the result of an operation: chosen by who leads, and the same for all others."""
        self.operations += 1
        entry = None if self.is_leading else self._expect(kind, "", subject)
        if entry is not None:
            return entry.value, entry.data
        # Only who leads asks the system; what that does inside Python must leave no trace.
        before = self.numbers, self.digest
        value, data = choose()
        self.numbers, self.digest = before
        self._write(ProgramEntry(kind, self.current.number, subject, value, data))
        return value, data

    def decide_or_wait(
        self, kind: EntryKind, subject: int, attempt: Callable[[], tuple[int, bytes] | None]
    ) -> tuple[int, bytes] | None:
        """As `decide`, of something that may not be there yet: then give nothing."""
        self.operations += 1
        if not self.is_leading:
            entry = self._peek()
            if entry is not None:
                if entry.kind == EntryKind.SWITCH or _is_idle_copy(entry):
                    return None
                return self.decide(kind, subject, lambda: (0, b""))
        found = attempt()
        if found is None:
            self.course.look(0)
            found = attempt()
        if found is not None:
            self._write(ProgramEntry(kind, self.current.number, subject, *found))
        return found

    def agree(self, kind: EntryKind, subject: int, value: int, data: bytes) -> None:
        """State something that must come out alike by itself, such as the exit's status."""
        found = self.decide(kind, subject, lambda: (value, data))
        if found != (value, data):
            number = self.current.number
            here = ProgramEntry(kind, number, subject, value, data)
            self.diverged(ProgramEntry(kind, number, subject, *found), describe(here))

    # ---- entries

    def _peek(self) -> ProgramEntry | None:
        """Give the next entry to follow; nothing if this process leads from here on."""
        entry = self.course.peek()
        if entry is None:
            if not self.course.is_leading:
                self.followed()
            self._take_over()
        return entry

    def _take_over(self) -> None:
        """Lead from here on, in the middle of whatever is being done."""
        course = self.course
        self.is_leading = True
        course.begin_leading(self.now)
        course.on_input = self._on_input
        # What came while others decided: whoever waits for it looks again.
        for number in [*course.waiting, *course.conns]:
            self._on_input(number)

    def _write(self, entry: ProgramEntry) -> None:
        self.course.write(entry)
        self._count(entry)
        if self.count % MARK_EVERY == 0:
            self._write_mark()

    def _write_mark(self) -> None:
        mark = self.digest.to_bytes(8)
        self.course.write(ProgramEntry(EntryKind.MARK, self.current.number, data=mark))

    def _count(self, entry: ProgramEntry) -> None:
        self.count += 1
        kind, thread, subject, value, data = entry
        seed = (self.digest * 31 + kind * 65599 + thread * 257 + subject + value) & 0xFFFFFFFFFFFF
        self.digest = seed ^ crc32(data) if data else seed

    def _next(self) -> ProgramEntry:
        """Take the entry that was looked at, and compare digests where it is time."""
        entry = self.course.peek()
        assert entry is not None, "whoever takes an entry has looked at it"
        self.course.drop()
        self._count(entry)
        if self.count % MARK_EVERY == 0:
            mark = self._peek()
            if mark is None:
                self._write_mark()
            else:
                self._compare(mark)
        return entry

    def _compare(self, mark: ProgramEntry) -> None:
        if mark.kind != EntryKind.MARK:
            self.diverged(mark, "compare digests")
        self.course.drop()
        if mark.data != self.digest.to_bytes(8):
            self.diverged(
                mark,
                "another digest: in the last entries the same operations came in another order"
                " or on other locks",
            )

    def _expect(
        self, kind: EntryKind, wanted: str, subject: int | None = None
    ) -> ProgramEntry | None:
        """Take the next entry, which must be of this kind; nothing if this process leads now."""
        number = self.current.number
        entry = self._peek()
        if entry is None:
            return None
        is_mine = kind == EntryKind.SWITCH or entry.thread == number
        if entry.kind != kind or not is_mine or (subject is not None and entry.subject != subject):
            here = wanted or describe(ProgramEntry(kind, number, subject or 0))
            self.diverged(entry, f"{here} in thread {number}")
        return self._next()

    # ---- ends

    def followed(self) -> NoReturn:
        """End because all is followed."""
        course = self.course
        course.send(WireKind.FOLLOWED, value=self.count)
        course.leave(0)

    def diverged(self, entry: ProgramEntry, here: str) -> NoReturn:
        """End because this process does something else than the one that led."""
        stack = "\n".join(stack_of_program())
        self.course.tell(
            WireKind.DIVERGED,
            f"at entry {self.count + 1} the program that led did: {entry}\n"
            f"and the one that follows: {here}\nhere:\n{stack}",
        )
        self.course.leave(DIVERGED_STATUS)

    def stop(self, sentence: str) -> NoReturn:
        """End because the program does what cannot be replicated, and cannot be told so."""
        stack = "\n".join(stack_of_program())
        kind = WireKind.REFUSED if self.is_leading else WireKind.DIVERGED
        self.course.tell(kind, f"{sentence}\n{stack}".rstrip())
        self.course.send(WireKind.EXITED, value=REFUSED_STATUS)
        self.course.leave(REFUSED_STATUS)

    def exit(self, status: int) -> NoReturn:
        """End because the program does."""
        self.agree(EntryKind.EXIT, 0, status, b"")
        self.course.send(WireKind.EXITED, value=status)
        if not self.is_leading:
            self.course.send(WireKind.FOLLOWED, value=self.count)
        self.course.leave(status & 0xFF)


_HERE = os.path.dirname(__file__)  # noqa: PTH120 -- pathlib is not loaded before the program is


def stack_of_program() -> list[str]:
    """Give the stack without what is ours, the innermost call last.

    Lines of source are not shown: to read them would be a call of the program's own stand-ins.
    """
    found = []
    at: FrameType | None = sys._getframe(1)
    while at is not None:
        code = at.f_code
        if not code.co_filename.startswith((_HERE, "<frozen")):
            found.append(f"  {code.co_filename}, line {at.f_lineno}, in {code.co_name}")
        at = at.f_back
    return found[::-1]


_machine: Determinizer | None = None


def machine() -> Determinizer:
    """Give the one machine of this process."""
    assert _machine is not None, "installed before the program begins"
    return _machine


def install(course: Course) -> Determinizer:
    """Make the one machine of this process."""
    global _machine  # noqa: PLW0603 -- a process has one
    _machine = Determinizer(course)
    return _machine
