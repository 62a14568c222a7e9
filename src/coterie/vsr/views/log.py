"""What a cohort knows: its history, and the latest events themselves.

The history is the paper's: one viewstamp for each view, saying how many events of that view the
state reflects. The events are kept, up to a number of bytes, so that a cohort that comes back is
sent what it missed and not the whole state (design 10 a).

Two cohorts whose histories both contain a view with at least *n* events have been in the same
state at that viewstamp, because the view had one primary and one initial state. So a cohort that
stands at a viewstamp which the primary's history covers needs only what follows it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from coterie.kernel.cohorts import EventSpan
from coterie.kernel.views import NO_VIEW, Viewstamp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.kernel.views import ViewId

_SPANS = 64
"""About this many spans of events are kept: they are forgotten one span at a time."""


def covers(history: Sequence[Viewstamp], viewstamp: Viewstamp) -> bool:
    """Say whether a state with this history reflects the event at *viewstamp*."""
    return any(
        known.view == viewstamp.view and viewstamp.number <= known.number
        for known in reversed(history)
    )


class EventLog:
    """The history of one cohort and the events at its end."""

    def __init__(self, *, bytes_max: int, views_max: int) -> None:
        self.history: list[Viewstamp] = [Viewstamp(NO_VIEW, 0)]
        self._bytes_max = bytes_max
        self._span_max = bytes_max // _SPANS
        self._views_max = views_max
        self._spans: deque[EventSpan] = deque()
        self._bytes = self._newest_bytes = 0
        self._kept_above: Viewstamp | None = None
        self._forgotten = Viewstamp(NO_VIEW, 0)
        """The events up to here are not kept."""

    @property
    def last(self) -> Viewstamp:
        """The last event known."""
        return self.history[-1]

    def knows(self, viewstamp: Viewstamp) -> bool:
        """Say whether the state reflects the event at *viewstamp*."""
        return covers(self.history, viewstamp)

    # ---- growing

    def begin_view(self, view: ViewId) -> None:
        """Take the state as the initial one of *view*."""
        assert view > self.last.view, "views follow each other upwards"
        self.history.append(Viewstamp(view, 0))
        del self.history[: -self._views_max]

    def append(self, events: Sequence[bytes]) -> Viewstamp:
        """Add the next events of the present view; give where the last one stands."""
        view, number = self.last.view, self.last.number
        assert view != NO_VIEW, "events happen in views"
        size = sum(map(len, events))
        newest = self._spans[-1] if self._spans else None
        if newest is not None and newest.last == self.last and self._newest_bytes < self._span_max:
            newest.events.extend(events)
            self._newest_bytes += size
        else:
            self._spans.append(EventSpan(view, number + 1, list(events)))
            self._newest_bytes = size
        self._bytes += size
        self.history[-1] = last = Viewstamp(view, number + len(events))
        self._forget()
        return last

    def keep_above(self, viewstamp: Viewstamp | None) -> None:
        """Keep everything above *viewstamp*, whatever its size; None: keep what fits."""
        self._kept_above = viewstamp

    def _forget(self) -> None:
        while self._bytes > self._bytes_max:
            last = self._spans[0].last
            if self._kept_above is not None and last > self._kept_above:
                return
            self._bytes -= sum(map(len, self._spans.popleft().events))
            self._forgotten = last

    def adopt(self, history: Sequence[Viewstamp]) -> None:
        """Begin anew with a state taken over from elsewhere."""
        self.history = list(history)
        self._spans.clear()
        self._bytes = 0
        self._forgotten = self.last

    def recall(self, history: Sequence[Viewstamp]) -> None:
        """Take the whole history that leads to what is known: views without events count, too."""
        assert history[-1] >= self.last, "events that are known are in it"
        self.history = list(history)

    def step_into(self, history: Sequence[Viewstamp]) -> None:
        """Go on to later views of *history* where all of the present one is known."""
        ends = {known.view: place for place, known in enumerate(history)}
        place = ends.get(self.last.view)
        while place is not None and self.last == history[place] and place + 1 < len(history):
            place += 1
            self.begin_view(history[place].view)

    # ---- sharing

    def after(self, viewstamp: Viewstamp, *, bytes_max: int) -> list[EventSpan] | None:
        """Give what follows *viewstamp*, up to a size; None if it is not all here any more."""
        if not self.knows(viewstamp) or viewstamp < self._forgotten:
            return None
        found: list[EventSpan] = []
        size = 0
        for span in self._from(viewstamp):
            for index, event in enumerate(span.events):
                if size and size + len(event) > bytes_max:
                    if index:
                        found.append(EventSpan(span.view, span.first, span.events[:index]))
                    return found
                size += len(event)
            found.append(span)
        return found

    def _from(self, viewstamp: Viewstamp) -> list[EventSpan]:
        """The spans, or parts of them, above *viewstamp*, in order."""
        found: list[EventSpan] = []
        for span in reversed(self._spans):
            if span.last <= viewstamp:
                break
            skip = viewstamp.number - span.first + 1 if span.view == viewstamp.view else 0
            if skip > 0:
                found.append(EventSpan(span.view, span.first + skip, span.events[skip:]))
            else:
                found.append(span)
        found.reverse()
        return found
